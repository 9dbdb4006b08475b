import csv

import pytest

from cumulo.catalog.kinds import DATA, all_kinds
from cumulo.catalog.prices import price, rentals
from cumulo.domain.quantities import GIB, NANO

LISTED = [kind.name for kind in all_kinds() if rentals(kind.name)]


def test_every_row_is_of_a_known_kind_and_of_a_cloud_with_a_source() -> None:
    with (DATA / "prices.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    with (DATA / "price_sources.csv").open(encoding="utf-8", newline="") as file:
        clouds = {row["cloud"] for row in csv.DictReader(file)}
    assert {row["kind"] for row in rows} == set(LISTED)
    assert {row["cloud"] for row in rows} == clouds
    assert len(rows) == sum(len(rentals(kind)) for kind in LISTED)


@pytest.mark.parametrize("kind", LISTED)
def test_prices_are_plausible_and_ordered(kind: str) -> None:
    listed = price(kind)
    assert listed is not None
    for prices in filter(None, (listed.on_demand, listed.spot)):
        assert 0.03 * NANO < prices.least <= prices.median <= prices.most < 30 * NANO
        assert prices.places > 0
    if listed.spot:
        assert listed.spot.least < listed.on_demand.least or listed.spot.median < listed.on_demand.median
    for rental in rentals(kind):
        assert rental.gpus in range(1, 17)
        assert rental.spot is None or rental.spot <= rental.on_demand
        assert rental.reserved_1y is None or rental.reserved_1y < rental.on_demand


def test_a_kind_that_no_cloud_lists_has_no_price() -> None:
    assert price("RTX3070") is None
    assert price("X900-256GB") is None
    assert rentals("X900-256GB") == ()


def test_an_instance_type_is_priced_per_gpu() -> None:
    (rental,) = [each for each in rentals("A100-80GB") if (each.region, each.cloud) == ("us-east-1", "aws")]
    assert (rental.instance_type, rental.gpus, rental.cpus, rental.memory_bytes) == (
        "p4de.24xlarge", 8, 96, 1152 * GIB,
    )  # fmt: skip
    assert rental.on_demand_per_gpu() == rental.on_demand // 8


def test_clouds_call_two_kinds_by_one_name_and_are_told_apart() -> None:
    assert {each.instance_type for each in rentals("A100-40GB") if each.cloud == "aws"} == {"p4d.24xlarge"}
    assert all("_NC" in each.instance_type for each in rentals("H100-94GB") if each.cloud == "azure")
    assert all("_ND" in each.instance_type for each in rentals("H100-80GB") if each.cloud == "azure")


def test_parts_of_a_gpu_are_not_sold_as_whole_ones() -> None:
    everything = [rental.instance_type for kind in LISTED for rental in rentals(kind)]
    assert not [name for name in everything if name.startswith(("g6f.", "gr6f.", "Standard_NV6ads"))]


def test_spot_at_the_price_of_on_demand_is_no_spot() -> None:
    azure = [rental for rental in rentals("H200-141GB") if rental.cloud == "azure"]
    assert azure
    assert all(rental.spot == rental.on_demand and rental.spot_per_gpu() is None for rental in azure)


def test_a_price_says_where_it_is_from() -> None:
    described = {kind: found.describe() for kind in ("A10G", "P4", "B300-270GB") if (found := price(kind))}
    assert described == {
        "A10G": "list prices of aws, 2026-01-21",
        "P4": "list prices without a host of gcp, 2026-05-20",
        "B300-270GB": "list prices of aws, verda, 2026-01-21 and undated",
    }
