"""Making room on arrays: the fewest moves, nothing over-held, and nothing touched."""

import numpy as np
import pytest

from cumulo.domain.quantities import GIB
from cumulo.placement.fleet.appraisal import Appraisal, capacity_of
from cumulo.placement.fleet.chooser import Chooser
from cumulo.placement.fleet.losses import Asked
from cumulo.placement.fleet.room import Movable, Move, Moves, make_room
from cumulo.placement.fleet.rows import CLOSED, EMPTY, MPS, Kind, Row, Rows

FOUR = Asked(4, np.array([1000], np.int16), 1000, GIB, EMPTY)
PART = Asked(1, np.array([400], np.int16), 1000, GIB, MPS)
WHOLE = Asked(1, np.array([1000], np.int16), 1000, GIB, EMPTY)
ASKS = (PART, WHOLE)
FREE, SHARED, TWICE, TAKEN = (1000, EMPTY), (600, MPS), (200, MPS), (0, CLOSED)


def fleet(*devices: tuple[tuple[int, int], ...], cpus: int = 64_000) -> Rows:
    return Rows(
        [Kind("A100", 80 * GIB, ())],
        [
            Row(
                kind=0,
                node_cpus=64_000,
                node_memory=256 * GIB,
                node_devices=len(each),
                devices=each,
                cpus=cpus,
                memory=200 * GIB,
            )
            for each in devices
        ],
    )


def chooser(rows: Rows) -> Chooser:
    appraisal = Appraisal()
    found = Chooser(rows, appraisal.worth(capacity_of(rows), 4), tolerance=appraisal.tolerance)
    for asked in ASKS:
        found.learn(asked)
    return found


def movable(*each: tuple[int, int, int]) -> Movable:
    """(row, device, which of ASKS)"""
    row, device, ask = np.array(each or np.empty((0, 3)), dtype=np.int64).reshape(-1, 3).T
    milli = np.array([int(ASKS[index].milli[0]) for index in ask], np.int16)
    return Movable(
        row.astype(np.int32),
        device.astype(np.int8),
        milli,
        np.full(len(ask), 1000),
        np.full(len(ask), GIB),
        ask.astype(np.int32),
    )


def test_the_node_that_needs_the_fewest_moves_is_cleared():
    rows = fleet((SHARED, SHARED, FREE, FREE), (TWICE, FREE, FREE, SHARED), (SHARED, FREE, FREE, FREE), (SHARED,))
    there = movable((0, 0, 0), (0, 1, 0), (1, 0, 0), (1, 0, 0), (1, 3, 0), (2, 0, 0), (3, 0, 0))
    found = make_room(rows, chooser(rows), FOUR, there, most=4)
    assert found is not None
    assert found.row == 2
    [move] = found.moves
    assert move.which == 5
    assert move.row != 2


def test_a_device_with_something_that_stays_is_not_cleared():
    rows = fleet((TWICE, FREE, FREE, FREE), (SHARED,))
    assert make_room(rows, chooser(rows), FOUR, movable((0, 0, 0)), most=4) is None
    # Both that lie there may move, but beside the other node's one only one more fits.
    assert make_room(rows, chooser(rows), FOUR, movable((0, 0, 0), (0, 0, 0)), most=4) is None
    rows = fleet((TWICE, FREE, FREE, FREE), (SHARED, SHARED))
    found = make_room(rows, chooser(rows), FOUR, movable((0, 0, 0), (0, 0, 0)), most=4)
    assert found is not None
    assert len(found.moves) == 2


def test_whole_devices_move_to_whole_devices():
    rows = fleet((TAKEN, FREE, FREE, FREE), (SHARED, FREE))
    assert make_room(rows, chooser(rows), FOUR, movable(), most=4) is None
    assert make_room(rows, chooser(rows), FOUR, movable((0, 0, 1)), most=4) == Moves(0, (Move(0, 1, 1),))


def test_no_more_than_the_most_move():
    rows = fleet((SHARED, SHARED, FREE, FREE), (SHARED, SHARED))
    there = movable((0, 0, 0), (0, 1, 0))
    assert make_room(rows, chooser(rows), FOUR, there, most=1) is None
    assert make_room(rows, chooser(rows), FOUR, there, most=2) is not None


def test_cpus_of_those_that_leave_count():
    rows = fleet((SHARED, FREE, FREE, FREE), (SHARED,))
    rows.state.cpus[0] = 0
    assert make_room(rows, chooser(rows), FOUR._replace(cpus=1001), movable((0, 0, 0)), most=4) is None
    assert make_room(rows, chooser(rows), FOUR, movable((0, 0, 0)), most=4) is not None


def test_a_node_too_small_or_of_another_kind_is_not_cleared():
    rows = fleet((SHARED, FREE), (SHARED, FREE))
    assert make_room(rows, chooser(rows), FOUR, movable((0, 0, 0)), most=4) is None
    rows = fleet((SHARED, FREE, FREE, FREE), (SHARED,))
    other = FOUR._replace(milli=np.array([0], np.int16))
    assert make_room(rows, chooser(rows), other, movable((0, 0, 0)), most=4) is None


@pytest.mark.parametrize("device", [SHARED, TAKEN])
def test_nothing_is_touched(device):
    rows = fleet((device, FREE, FREE, FREE), (SHARED, FREE))
    choice = chooser(rows)
    before = [array.copy() for array in rows.state]
    picks = [choice.pick(number) for number in range(len(ASKS))]
    there = movable((0, 0, 0 if device == SHARED else 1))
    assert make_room(rows, choice, FOUR, there, most=4) is not None
    for now, then in zip(rows.state, before, strict=True):
        np.testing.assert_array_equal(now, then)
    assert [choice.pick(number) for number in range(len(ASKS))] == picks
