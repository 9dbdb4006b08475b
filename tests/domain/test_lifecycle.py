"""The tables of the lifecycles: everything can be reached, what is over is over."""

import pytest

from cumulo.domain.lifecycle import (
    INSTANCE_TRANSITIONS,
    RETRY_EVENT,
    RUN_TRANSITIONS,
    TERMINAL,
    UNIT_OUTCOME,
    EndReason,
    IllegalTransition,
    InstanceState,
    RunStatus,
    check_instance,
    check_run,
)


def reachable(table, start):
    found, open_ = {start}, [start]
    while open_:
        new = table[open_.pop()] - found
        found |= new
        open_ += new
    return found


def test_every_status_of_a_run_is_reached_from_queued():
    assert reachable(RUN_TRANSITIONS, RunStatus.QUEUED) == set(RunStatus)
    assert set(RUN_TRANSITIONS) == set(RunStatus)


def test_every_state_of_an_instance_is_reached_from_placed():
    assert reachable(INSTANCE_TRANSITIONS, InstanceState.PLACED) == set(InstanceState)


@pytest.mark.parametrize("status", sorted(TERMINAL))
def test_what_is_over_stays_so(status):
    assert RUN_TRANSITIONS[status] == frozenset()
    for other in set(RunStatus) - {status}:
        with pytest.raises(IllegalTransition):
            check_run(status, other)
    check_run(status, status)


@pytest.mark.parametrize("status", sorted(set(RunStatus) - TERMINAL))
def test_an_end_can_be_reached_from_everywhere(status):
    assert reachable(RUN_TRANSITIONS, status) & TERMINAL == TERMINAL
    assert RunStatus.CANCELLED in RUN_TRANSITIONS[status], "a run can be cancelled wherever it stands"


def test_an_instance_only_goes_forward():
    order = list(InstanceState)
    for place, state in enumerate(order):
        for other in order[place:]:
            check_instance(state, other)
        for other in order[:place]:
            with pytest.raises(IllegalTransition):
                check_instance(state, other)


def test_every_reason_has_an_outcome_and_only_a_stop_leaves_a_run_alive():
    assert set(UNIT_OUTCOME) == set(EndReason)
    assert {reason for reason, outcome in UNIT_OUTCOME.items() if outcome not in TERMINAL} == {EndReason.STOPPED}
    assert set(RETRY_EVENT.values()) == {"error", "interruption", "lost"}
    assert not {EndReason.CANCELLED, EndReason.STOPPED, EndReason.SUCCEEDED, EndReason.TIMEOUT} & set(RETRY_EVENT)
