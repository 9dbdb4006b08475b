"""What clouds list and what one owns, as supplies."""

import pytest

from cumulo.advisor.search_board import variant_of
from cumulo.advisor.supply import OwnGpus, known_clouds, own_supplies, rented_supplies
from cumulo.catalog.prices import rentals
from cumulo.domain.quantities import GIB
from cumulo.domain.run import PurchaseOption
from cumulo.domain.sharing import SharingMode


def own(gpu="A100-80GB", **changed):
    values = {
        "region": "local", "gpu": gpu, "memory_bytes": 80 * GIB, "mode": SharingMode.EXCLUSIVE, "profile": "",
        "milli": 1000, "per_node": 2, "total": 4, "free": 3, "price_nano_h": 0, "rental_nano_h": 4, "emulated": False,
    }  # fmt: skip
    return OwnGpus(**values | changed)


def test_of_each_node_size_the_cheapest_place_counts():
    for supply in rented_supplies(clouds=frozenset({"aws"})):
        listed = [
            each for each in rentals(supply.kind.name)
            if each.cloud == "aws" and each.gpus == supply.per_node and not each.bare
        ]  # fmt: skip
        assert supply.prices[PurchaseOption.ON_DEMAND].nano_h == min(each.on_demand_per_gpu() for each in listed)


def test_dearer_places_are_kept_for_the_memory_of_their_hosts():
    kept = [supply for supply in rented_supplies() if supply.roomier.get(PurchaseOption.ON_DEMAND)]
    assert kept
    for supply in kept:
        places = [supply.prices[PurchaseOption.ON_DEMAND], *supply.roomier[PurchaseOption.ON_DEMAND]]
        assert [each.nano_h for each in places] == sorted(each.nano_h for each in places)
        sizes = [each.host_bytes or 0 for each in places]
        assert sizes == sorted(set(sizes))
        assert supply.price(PurchaseOption.ON_DEMAND, sizes[-1]) == places[-1]
        assert supply.price(PurchaseOption.ON_DEMAND, sizes[-1] + 1) is None


def test_only_the_regions_asked_for():
    (place,) = {
        price.place
        for supply in rented_supplies(clouds=frozenset({"aws"}), regions=frozenset({"us-east-1"}))
        for price in supply.prices.values()
    }
    assert place == "aws us-east-1"


def test_a_marketplace_s_hosts_stand_alone():
    for supply in rented_supplies(clouds=frozenset({"vast"})):
        assert supply.limit == supply.per_node


def test_every_price_has_a_place_and_a_date_where_the_list_has_one():
    prices = [price for supply in rented_supplies() for price in supply.prices.values()]
    assert {price.place.split()[0] for price in prices} <= set(known_clouds())
    assert any(price.as_of == "2026-05-20" for price in prices)
    assert any(price.as_of is None for price in prices)


def test_boards_that_nobody_lists_have_no_price():
    (gb300,) = [supply for supply in rented_supplies() if supply.kind.family == "GB300"]
    assert gb300.prices == {}


def test_own_gpus():
    (supply,) = own_supplies([own()])
    assert (supply.own, supply.most, supply.free, supply.per_node, supply.share) == (True, 4, 3, 2, 1.0)


def test_a_mig_instance_has_its_share_of_the_gpu():
    (supply,) = own_supplies([own(mode=SharingMode.MIG, profile="3g.40gb", milli=500, memory_bytes=40 * GIB)])
    assert supply.limit == 1
    assert supply.name == "A100-80GB mig-3g.40gb"
    part, whole = variant_of(supply), supply.variant
    assert whole.fp16_tensor_tflops
    assert whole.memory_bandwidth
    assert part.fp16_tensor_tflops == pytest.approx(whole.fp16_tensor_tflops * 3 / 7)
    assert part.memory_bandwidth == pytest.approx(whole.memory_bandwidth / 2)


def test_what_computes_like_another_is_left_out():
    mig = {"mode": SharingMode.MIG, "milli": 1000}
    assert own_supplies([own(**mig, profile="7g.80gb"), own(**mig, profile="1g.10gb+me")]) == []


def test_a_shared_gpu_is_looked_at_in_halves_and_quarters():
    found = own_supplies([own(mode=SharingMode.MPS)])
    assert [(supply.share, supply.memory_bytes) for supply in found] == [(0.5, 40 * GIB), (0.25, 20 * GIB)]


def test_a_gpu_without_known_rates_is_not_guessed_at():
    assert own_supplies([own("Frobnicator-9000")]) == []
