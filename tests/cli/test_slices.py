"""What people see of devices that are shared."""

import pytest

from cumulo.cli import slices
from cumulo.client.answers.cloud import Device, Holder


def mig(name, profile, start, size, instance="i"):
    return Holder(
        run="r",
        name=name,
        instance=instance,
        account="ada",
        mode="mig",
        milli=125,
        profile=profile,
        start=start,
        size=size,
    )


def part(name, milli, mode="mps"):
    return Holder(run="r", name=name, instance=name, account="ada", mode=mode, milli=milli)


@pytest.mark.parametrize(
    ("held", "size", "drawn"),
    [
        ([mig("train", "3g.40gb", 0, 4), mig("dev", "1g.10gb", 5, 1)], 8, "[3g.40gb train][·][1g.10gb dev][·][·]"),
        ([mig("all", "7g.80gb", 0, 8)], 8, "[7g.80gb all]"),
        ([mig("a30", "2g.12gb", 2, 2)], 4, "[·][·][2g.12gb a30]"),
        ([mig("new", "9g.1gb", 1, None)], 4, "[·][9g.1gb new][·][·]"),
    ],
)
def test_mig_instances_are_drawn_where_they_lie(held, size, drawn):
    assert slices.grid(held, size) == drawn
    assert slices.drawn(Device(index=3, mode="mig", mig_grid=size, holders=tuple(held))) == f"GPU 3  {drawn}"


def test_fractions_are_drawn_with_what_is_left():
    shared = Device(index=0, mode="mps", milli_free=375, holders=(part("a", 250), part("b", 375)))
    assert slices.drawn(shared) == "GPU 0  [0.25 a][0.375 b][0.375 free]"
    full = Device(index=0, mode="timeslice", milli_free=0, holders=(part("a", 1000, "timeslice"),))
    assert slices.drawn(full) == "GPU 0  [1 a]"


def test_what_is_not_shared_is_not_drawn():
    assert slices.drawn(Device(index=0)) == ""
    assert slices.drawn(Device(index=0, mode="exclusive", holders=(part("a", 1000, "exclusive"),))) == ""


def test_who_holds_a_device_in_a_cell():
    assert slices.holders(()) == "free"
    assert slices.holders((), "pid 7 (bob): python") == "outside Cumulo: pid 7 (bob): python"
    assert slices.holders([part("a", 1000, "exclusive")]) == "a (r) of ada"
    assert slices.holders([part("a", 250), part("b", 100)]) == "0.25 a (r) of ada, 0.1 b (r) of ada"
    several = [mig("dev", "1g.10gb", 4, 1), mig("dev", "1g.10gb", 6, 1), mig("dev", "1g.10gb", 5, 1, "other")]
    assert slices.holders(several) == "2x 1g.10gb dev (r) of ada, 1g.10gb dev (r) of ada"
