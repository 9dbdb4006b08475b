"""The net under the policy: whatever spot does and whatever the programme says, a feasible deadline is met."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cumulo.market.course import Standing, chart, late
from cumulo.market.deadline import Choice, Job

H = 3600.0
STANDING = Standing(
    left_s=10 * H,
    work_left_s=4 * H,
    unsaved_s=0.0,
    on=Choice.WAIT,
    overhead_left_s=0.0,
    available=True,
    age_s=60.0,
    restart_s=60.0,
    start_s=60.0,
    leave_s=30.0,
    react_s=3.0,
)


JOB = Job(work_s=4 * H, deadline_s=10 * H, changeover_s=60.0, spot=0.3, on_demand=1.0, tick_s=3.0)


@dataclass
class Whim:
    """A policy whose costs are anybody's."""

    wanted: Choice
    job: Job = JOB

    def costs(self, state):
        order = (Choice.WAIT, Choice.ON_DEMAND, Choice.SPOT)
        found = np.array([0.0 if each is self.wanted else 1.0 for each in order])
        return found if state.available else np.where([True, True, False], found, np.inf)


def choice(policy=None, **changes):
    return chart(replace(STANDING, **changes), policy).choice


def test_without_a_policy_spot_is_taken_while_there_is_slack():
    assert choice() is Choice.SPOT
    assert choice(available=False) is Choice.WAIT
    assert choice(on=Choice.SPOT) is Choice.SPOT
    assert choice(on=Choice.ON_DEMAND) is Choice.SPOT
    assert choice(left_s=4 * H + 70.0) is Choice.ON_DEMAND, "it could be lost with too little time to start again"
    assert choice(left_s=4 * H + 70.0, available=False) is Choice.WAIT
    assert choice(left_s=4 * H + 62.0, available=False) is Choice.ON_DEMAND


def test_what_is_not_saved_counts_as_to_be_done_again():
    held = {"on": Choice.SPOT, "left_s": 6 * H, "work_left_s": 2 * H}
    assert choice(**held, unsaved_s=3.9 * H) is Choice.SPOT
    assert choice(**held, unsaved_s=4 * H) is Choice.ON_DEMAND
    assert choice(**held | {"on": Choice.ON_DEMAND}, unsaved_s=4 * H) is Choice.ON_DEMAND


def test_the_programme_chooses_among_what_is_safe():
    for wanted in Choice:
        assert choice(Whim(wanted)) is wanted
        assert choice(Whim(wanted), left_s=4 * H + 61.0) is Choice.ON_DEMAND
    assert choice(Whim(Choice.WAIT), on=Choice.SPOT) is not Choice.WAIT, "what runs is not stopped to wait"


def test_what_is_said():
    def why(policy=None, **changes):
        return chart(replace(STANDING, **changes), policy).why

    assert why() == "is to run on spot: 5h 58m of slack left"
    assert why(on=Choice.SPOT, unsaved_s=H) == "runs on spot: 4h 58m of slack left"
    assert why(available=False) == "waits for spot: 5h 58m of slack left"
    assert why(Whim(Choice.WAIT)) == "holds off, since spot is likely to be lost again soon: 5h 58m of slack left"
    assert why(left_s=4 * H + 61) == "is to run on-demand: no slack is left for spot"
    assert why(Whim(Choice.ON_DEMAND)).endswith("spot is likely to be lost too soon to be worth it")
    assert why(Whim(Choice.ON_DEMAND), available=False).endswith("is expected to cost more in the end")


def test_late_is_said_with_what_is_left_and_by_how_much():
    course = chart(replace(STANDING, left_s=4 * H, work_left_s=5 * H), None)
    assert (course.choice, course.feasible, course.earliest_s) == (Choice.ON_DEMAND, False, 5 * H + 60)
    assert course.why == (
        "can't be done in time: 5h 00m of work and 4h 00m of time are left; it is 1h 01m late at the earliest"
    )
    assert late(H, -60.0, H) == (
        "can't be done in time: 1h 00m of work and no time are left; it is 1h 01m late at the earliest"
    )


def test_what_takes_longer_than_it_was_said_to_is_late_by_that():
    course = chart(replace(STANDING, on=Choice.ON_DEMAND, work_left_s=0.0, left_s=-600.0), None)
    assert not course.feasible
    assert course.why == ("can't be done in time: it takes longer than its work was said to, and is 10m 00s late")


# ---- never late -----------------------------------------------------------------------------------------------------


@dataclass
class Life:
    """A job by the second, with an adversary who takes spot when it hurts. On-demand is there within `restart_s`."""

    work_s: float
    left_s: float
    restart_s: float
    leave_s: float
    react_s: float
    saved_s: float = 0.0
    done_s: float = 0.0
    on: Choice = Choice.WAIT
    overhead_s: float = 0.0

    def standing(self, *, available: bool) -> Standing:
        return Standing(
            left_s=self.left_s,
            work_left_s=self.work_s - self.done_s,
            unsaved_s=self.done_s - self.saved_s,
            on=self.on,
            overhead_left_s=self.overhead_s,
            available=available,
            age_s=0.0,
            restart_s=self.restart_s,
            start_s=self.restart_s,
            leave_s=self.leave_s,
            react_s=self.react_s,
        )

    def take(self, choice: Choice) -> None:
        if choice is not Choice.WAIT and self.on is Choice.WAIT:
            self.overhead_s = self.restart_s
        self.on = choice

    def pass_(self, seconds: float) -> None:
        self.left_s -= seconds
        if self.on is not Choice.WAIT:
            started = min(self.overhead_s, seconds)
            self.overhead_s -= started
            self.done_s = min(self.work_s, self.done_s + seconds - started)

    def lose(self) -> None:
        """Preempted: it leaves as late as it may, and does nothing useful meanwhile."""
        self.left_s -= self.leave_s
        self.done_s, self.on, self.overhead_s = self.saved_s, Choice.WAIT, 0.0


@st.composite
def lives(draw):
    work, restart, leave, react = (draw(st.floats(1, most)) for most in (200, 40, 40, 10))
    spare = draw(st.floats(0, 200))
    return Life(work, work + restart + spare, restart, leave, react)


@settings(max_examples=100, deadline=None)
@given(lives(), st.data())
def test_a_deadline_feasible_on_demand_is_never_missed(life, data):
    moves = st.tuples(
        st.floats(0.05, 1.0), st.booleans(), st.booleans(), st.booleans(), st.sampled_from([None, *Choice])
    )
    assert life.standing(available=False).feasible
    for step in range(2000):
        if life.done_s >= life.work_s:
            break
        part, available, loses, saves, wanted = data.draw(moves) if step < 40 else (1.0, True, True, False, Choice.SPOT)
        there = available or life.on is not Choice.WAIT
        course = chart(life.standing(available=there), Whim(wanted) if wanted else None)
        assert course.feasible, "it was feasible when it began"
        life.take(course.choice)
        life.pass_(part * life.react_s)
        if saves:
            life.saved_s = life.done_s
        if loses and life.on is Choice.SPOT:
            life.lose()
    assert life.done_s >= life.work_s - 1e-6
    assert life.left_s >= -1e-6 - life.react_s, "but for the last step, which goes on past the end"


@pytest.mark.parametrize("saves", [True, False])
def test_spot_that_is_always_lost_at_the_worst_moment(saves):
    life = Life(100.0, 130.0, 5.0, 2.0, 1.0)
    while life.done_s < life.work_s:
        life.take(chart(life.standing(available=True), None).choice)
        life.pass_(0.5)
        if life.on is Choice.SPOT and chart(life.standing(available=True), None).choice is Choice.ON_DEMAND:
            life.lose()
        elif saves:
            life.saved_s = life.done_s
    assert life.left_s >= -0.5
