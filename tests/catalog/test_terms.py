import runpy
from pathlib import Path

import pytest

from cumulo.catalog.kinds import all_kinds
from cumulo.catalog.prices import rentals
from cumulo.catalog.terms import list_terms

TOOL = Path(__file__).parents[2] / "tools/terms.py"


def test_the_shipped_terms_are_what_the_tool_makes_of_the_shipped_prices() -> None:
    assert runpy.run_path(str(TOOL))["main"](True) == 0


@pytest.mark.parametrize("kind", [kind.name for kind in all_kinds()])
def test_every_kind_has_terms_within_what_is_plausible(kind: str) -> None:
    terms = list_terms(kind)
    assert 300 <= terms.spot_milli <= 500
    assert 600 <= terms.reserved_1y_milli <= 710


def test_a_kind_that_too_few_clouds_list_gets_those_of_all_kinds() -> None:
    unknown, policy = list_terms("X900-256GB"), list_terms("MI300X")
    assert not unknown.spot_measured
    assert not policy.spot_measured  # one cloud lists it as spot, at its flat discount
    assert policy.spot_milli == unknown.spot_milli


def test_a_kind_that_several_clouds_list_has_terms_of_its_own() -> None:
    terms = list_terms("H200-141GB")
    ratios = [one.spot / one.on_demand for one in rentals("H200-141GB") if one.spot and one.spot < one.on_demand]
    assert terms.spot_measured
    assert min(ratios) <= terms.spot_milli / 1000 <= max(ratios)
    assert list_terms("L4").reserved_1y_milli == 651
