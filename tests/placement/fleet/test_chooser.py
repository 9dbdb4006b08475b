"""The chooser: kept losses equal fresh ones, first fit among near equals, and copies that disturb nothing."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cumulo.placement.fleet.chooser import Chooser, compiled_kernels
from cumulo.placement.fleet.losses import NEVER
from tests.placement.fleet.fleets import KINDS, appraisals, asks, fleets, row, worth

some = settings(max_examples=50, deadline=None)


@st.composite
def courses(draw):
    """A fleet, asks, and what happens to the fleet: rows become what other rows are."""
    rows, wanted = draw(fleets()), draw(st.lists(asks(), min_size=1, max_size=4))
    kinds = {index: int(rows.state.kind[index]) for index in range(len(rows))}
    steps = draw(st.lists(st.tuples(st.integers(0, len(rows) - 1), row()), max_size=12))
    fits = [
        (index, new)
        for index, new in steps
        if new.kind == kinds[index] and len(new.devices) <= rows.state.free.shape[1]
    ]
    return rows, wanted, fits


@some
@given(courses(), appraisals(), st.booleans())
def test_what_is_kept_equals_what_is_worked_out_afresh(course, appraisal, compiled):
    rows, wanted, steps = course
    kernels = compiled_kernels() if compiled else None
    if compiled and kernels is None:
        pytest.skip("numba is not installed: pip install 'cumulo[scale]'")
    value = worth(appraisal, rows)
    kept = Chooser(rows, value, tolerance=50_000, kernels=kernels)
    numbers = [kept.learn(asked) for asked in wanted]
    for index, new in steps:
        for number in numbers:
            kept.pick(number)
        rows.refresh(index, new)
        fresh = Chooser(rows, value, tolerance=50_000)
        for asked, number in zip(wanted, numbers, strict=True):
            again = fresh.learn(asked)
            np.testing.assert_array_equal(kept.losses(number), fresh.losses(again))
            assert kept.pick(number) == fresh.pick(again)


@some
@given(courses(), appraisals())
def test_too_many_states_are_forgotten_and_nothing_else_changes(course, appraisal):
    rows, wanted, steps = course
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("cumulo.placement.fleet.memo._MOST_STATES", 1)
        patched.setattr("cumulo.placement.fleet.memo._MOST_STATES_PER_ROW", 1)
        forgetful = Chooser(rows, worth(appraisal, rows))
    mindful = Chooser(rows, worth(appraisal, rows))
    numbers = [(forgetful.learn(asked), mindful.learn(asked)) for asked in wanted]
    for index, new in steps:
        rows.refresh(index, new)
        for one, other in numbers:
            np.testing.assert_array_equal(forgetful.losses(one), mindful.losses(other))


@some
@given(fleets(), asks(), appraisals(), st.integers(0, 200_000))
def test_the_first_row_within_the_tolerance_of_the_least_is_taken(rows, asked, appraisal, tolerance):
    chooser = Chooser(rows, worth(appraisal, rows), tolerance=tolerance)
    number = chooser.learn(asked)
    pick, losses = chooser.pick(number), chooser.losses(number).astype(np.int64)
    if pick is None:
        assert (losses == NEVER).all()
    else:
        near = np.flatnonzero((losses != NEVER) & (losses <= losses.min() + tolerance))
        assert (pick.row, pick.loss) == (near[0], losses[near[0]])


@some
@given(courses(), appraisals())
def test_a_copy_changes_nothing_for_the_original(course, appraisal):
    rows, wanted, steps = course
    chooser = Chooser(rows, worth(appraisal, rows), tolerance=50_000)
    numbers = [chooser.learn(asked) for asked in wanted]
    before = [chooser.losses(number).copy() for number in numbers]
    twin_rows = rows.copy()
    twin = chooser.copy(twin_rows)
    for index, new in steps:
        twin_rows.refresh(index, new)
    for number, losses in zip(numbers, before, strict=True):
        twin.pick(number)
        np.testing.assert_array_equal(chooser.losses(number), losses)


@some
@given(fleets(), asks(), appraisals(), row())
def test_one_row_more_never_makes_an_ask_unplaceable(rows, asked, appraisal, more):
    from cumulo.placement.fleet.rows import Rows

    value = worth(appraisal, rows)
    if len(more.devices) > rows.state.free.shape[1]:
        return
    alone = Chooser(rows, value)
    if alone.pick(alone.learn(asked)) is None:
        return
    bigger = Rows(KINDS, [as_row(rows, index) for index in range(len(rows))] + [more])
    with_more = Chooser(bigger, worth(appraisal, bigger))
    assert with_more.pick(with_more.learn(asked)) is not None


def as_row(rows, index):
    from cumulo.placement.fleet.rows import Row

    state = rows.state
    own = int(state.own[index])
    return Row(
        kind=int(state.kind[index]),
        node_cpus=int(state.node_cpus[index]),
        node_memory=int(state.node_memory[index]),
        node_devices=own,
        devices=tuple((int(state.free[index, d]), int(state.mode[index, d])) for d in range(own)),
        cpus=int(state.cpus[index]),
        memory=int(state.memory[index]),
        ready=bool(state.ready[index]),
    )
