"""Losses: the same by arrays, by plain arithmetic and by compiled loops, and never for what does not fit."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cumulo.placement.fleet.chooser import compiled_kernels
from cumulo.placement.fleet.losses import NEVER, Standing, losses, needs
from cumulo.placement.fleet.memo import FEW, Memo, States
from cumulo.placement.fleet.rows import EMPTY, Rows
from tests.placement.fleet.fleets import KINDS, appraisals, asks, fleets, row, worth

some = settings(max_examples=60, deadline=None)


def by_arrays(rows, value, asked):
    standing = Standing(len(rows), value)
    standing.refresh(rows, value)
    return losses(rows.state, value, standing, asked, np.arange(len(rows), dtype=np.int32))


def by_memo(rows, value, asked):
    states = States(rows)
    states.follow(rows)
    every = np.arange(len(rows), dtype=np.int32)
    return Memo(value).look_up(0, asked, rows, Standing(len(rows), value), states, every)


@some
@given(fleets(), asks(), appraisals())
def test_plain_arithmetic_and_arrays_agree(rows, asked, appraisal):
    value = worth(appraisal, rows)
    loss, device = by_arrays(rows, value, asked)
    there, where = by_memo(rows, value, asked)
    np.testing.assert_array_equal(there, loss)
    np.testing.assert_array_equal(where, device)


@settings(max_examples=20, deadline=None)  # each makes many rows
@given(st.lists(row(), min_size=FEW + 20, max_size=FEW + 40).map(lambda made: Rows(KINDS, made)), asks(), appraisals())
def test_many_new_states_are_worked_out_by_arrays_and_found_again(rows, asked, appraisal):
    value = worth(appraisal, rows)
    np.testing.assert_array_equal(by_memo(rows, value, asked)[0], by_arrays(rows, value, asked)[0])


@some
@given(fleets(), asks(), appraisals())
def test_compiled_loops_agree(rows, asked, appraisal):
    kernels = compiled_kernels()
    if kernels is None:
        pytest.skip("numba is not installed: pip install 'cumulo[scale]'")
    value = worth(appraisal, rows)
    loss, device = by_arrays(rows, value, asked)
    there, where = np.full(len(rows), NEVER, np.int32), np.full(len(rows), -1, np.int8)
    every = np.arange(len(rows), dtype=np.int32)
    standing = Standing(len(rows), value)
    kernels.stand(rows.state, value, every, standing.kept)
    kernels.losses(rows.state, value, standing.kept, rows.grown, *asked, there, where, every)
    np.testing.assert_array_equal(there, loss)
    np.testing.assert_array_equal(where[loss != NEVER], device[loss != NEVER])


@some
@given(fleets(), asks(), appraisals())
def test_what_does_not_fit_has_no_loss_and_what_fits_has_one(rows, asked, appraisal):
    loss, device = by_arrays(rows, worth(appraisal, rows), asked)
    state = rows.state
    for index in range(len(rows)):
        milli = int(asked.milli[state.kind[index]])
        one = np.array([index], np.int32)
        cpus, memory = needs(state, one, asked, np.array([milli * max(1, asked.gpus)]))
        fits = state.ready[index] and cpus[0] <= state.cpus[index] and memory[0] <= state.memory[index]
        free, mode = state.free[index], state.mode[index]
        if asked.mode == EMPTY and asked.gpus:
            fits = fits and milli > 0 and (free == 1000).sum() >= asked.gpus
        elif asked.gpus:
            room = (free >= milli) & ((mode == EMPTY) | (mode == asked.mode))
            fits = fits and milli > 0 and room.any()
            assert device[index] == -1 or room[device[index]]
        assert (loss[index] != NEVER) == bool(fits)


def test_a_fraction_goes_to_the_device_that_it_fills():
    made = Rows(KINDS, [a_row((1000, EMPTY), (530, 1), (470, 1))])
    asked = ask_of(470)
    assert by_arrays(made, worth_of_nothing(made), asked)[1].tolist() == [2]


def a_row(*devices):
    from cumulo.placement.fleet.rows import Row

    return Row(
        kind=1,
        node_cpus=96_000,
        node_memory=1 << 39,
        node_devices=len(devices),
        devices=devices,
        cpus=96_000,
        memory=1 << 39,
    )


def ask_of(milli):
    from cumulo.placement.fleet.losses import Asked
    from cumulo.placement.fleet.rows import MPS

    return Asked(1, np.array([0, milli, 0], np.int16), 1000, 1 << 30, MPS)


def worth_of_nothing(rows):
    from cumulo.placement.fleet.appraisal import Appraisal

    return worth(Appraisal(), rows)
