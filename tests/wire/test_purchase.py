"""How a run file says that its GPUs are bought, and which of its words contradict one another."""

import pytest

from cumulo.domain.errors import CumuloError
from cumulo.domain.run import PurchaseOption
from cumulo.wire.run_file import read_run_file, to_spec

SPOT, RESERVED, ON_DEMAND = PurchaseOption.SPOT, PurchaseOption.RESERVED, PurchaseOption.ON_DEMAND


def spec(gpu="A100", deadline=None, **resources):
    data = {"run": "x", "resources": {"accelerators": gpu, **resources}, "deadline": deadline}
    return to_spec(read_run_file(data), now=1e9)


@pytest.mark.parametrize(
    ("resources", "bought"),
    [
        ({}, (ON_DEMAND, None, None)),
        ({"use_spot": True}, (SPOT, None, None)),
        ({"purchase": "spot", "max_price": 0.8}, (SPOT, 800_000_000, None)),
        ({"use_spot": True, "purchase": "spot", "max_price": "$1.20"}, (SPOT, 1_200_000_000, None)),
        ({"purchase": "reserved"}, (RESERVED, None, None)),
        ({"reservation": "vision"}, (RESERVED, None, "vision")),
        ({"reservation": "vision", "purchase": "reserved"}, (RESERVED, None, "vision")),
    ],
)
def test_the_ways_to_buy(resources, bought):
    found = spec(**resources)
    assert (found.purchase, found.max_price_nano_h, found.reservation) == bought


@pytest.mark.parametrize(
    ("resources", "told"),
    [
        ({"max_price": 1}, "resources.max_price: is what a spot run pays at most; add use_spot: true (--spot)"),
        ({"use_spot": True, "purchase": "reserved"}, "resources.purchase: says reserved, and use_spot says spot"),
        ({"use_spot": True, "reservation": "r"}, "resources.reservation: what draws on a reservation can't be spot"),
        ({"purchase": "on-demand", "reservation": "r"}, "draws on a reservation can't be on-demand too; give one"),
        ({"gpu": None, "reservation": "r"}, "resources.reservation: only GPUs are reserved; ask for some"),
        ({"gpu": None, "purchase": "reserved"}, "resources.purchase: only GPUs are reserved; ask for some"),
        ({"deadline": "20h", "purchase": "spot"}, "resources.purchase: a deadline chooses between spot and on-demand"),
        ({"use_spot": True, "max_price": "cheap"}, "resources.max_price: 'cheap' is not a price"),
        ({"use_spot": True, "max_price": 0}, "resources.max_price: 0: a price must be more than 0 and at most 10000"),
        ({"purchase": "gift"}, "resources.purchase: Input should be 'on-demand', 'spot' or 'reserved'"),
    ],
)
def test_words_that_contradict_one_another_are_refused(resources, told):
    with pytest.raises(CumuloError) as caught:
        spec(**resources)
    assert told in caught.value.message
