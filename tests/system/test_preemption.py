"""Preemption that loses nothing: real processes on emulated nodes, preempted by others, while the server dies."""

import random
import time
from collections.abc import Callable

import pytest

from tests.system import evidence
from tests.system.cloud import Cloud
from tests.system.preemptions import NODES, Market, all_is_well, facts

pytestmark = pytest.mark.system


def test_a_few_preemptions(new_cloud):
    survives(new_cloud, preemptions=10, kills=2, most_steps=50, seed=1)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_two_hundred_preemptions(new_cloud):
    survives(new_cloud, preemptions=200, kills=20, most_steps=110, seed=2)


def survives(new_cloud: Callable[..., Cloud], *, preemptions: int, kills: int, most_steps: int, seed: int) -> None:
    """Preempts so often, kills the server so often meanwhile, and holds the outcome against the evidence."""
    cloud = new_cloud(emulate=NODES)
    cloud.start()
    market, rng = Market(cloud, seed, most_steps), random.Random(seed)
    market.fill()
    killed = 0
    while (done := market.preempted()) < preemptions:
        market.fill()
        first = market.preempt()
        if done >= preemptions * (killed + 1) / (kills + 1):
            time.sleep(rng.uniform(0.0, 1.2))  # before, amid or after what it causes
            cloud.kill()
            evidence.holds_are_sound(cloud)
            cloud.start()
            killed += 1
        market.client.wait(first, timeout_s=60.0)
        time.sleep(rng.uniform(0.0, 0.6))
    market.await_end()
    cloud.stop()
    outcome = all_is_well(market)
    print(f"seed {seed}: {killed} kills, {len(market.sent)} spot runs: {facts(outcome)}")
    assert outcome.preemptions >= preemptions
    assert killed >= kills - 1
