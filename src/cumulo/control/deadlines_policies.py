"""Solved policies, kept for all jobs that are alike: a solve takes a good part of a second's tenth, a decision nothing.

A policy depends only on the time and slack that are left, on changeover, prices and hazards. Those are rounded up to a
step of a quarter, so that jobs share policies and one job meets a finer one as its deadline comes near. Solving goes on
beside the control loop; until it is done, who asks decides without.
"""

import logging
import math
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from cumulo.control.prices import Pool
from cumulo.market.deadline import DeadlinePolicy, Job, solve
from cumulo.market.hazards import Hazards

log = logging.getLogger(__name__)

# How many are kept: each has some megabytes. When all are in use, new ones are solved so often at most.
MOST_KEPT: Final = 8
EVERY_S: Final = 5.0
_STEP: Final = 1.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What a policy is for. Times in seconds; `ratio_milli` is spot's price in thousandths of on-demand's.

    `version` stands for the hazards: equal ones of one pool have equal versions.
    """

    left_s: float
    slack_s: float
    changeover_s: float
    react_s: float
    ratio_milli: int
    pool: Pool
    version: int

    def job(self) -> Job:
        """The job that speaks for all that are like it: at least as long, with at least as much slack."""
        left = _up(self.left_s)
        return Job(
            work_s=left - min(left, max(_up(self.slack_s), left / 100)),
            deadline_s=left,
            changeover_s=_up(self.changeover_s),
            spot=self.ratio_milli / 1000,
            on_demand=1.0,
            tick_s=_up(self.react_s),
            upgrade_s=0.0,  # a running unit is bought otherwise where it is
        )


def _up(seconds: float) -> float:
    """The next step at or above."""
    return float(_STEP ** math.ceil(math.log(max(seconds, 1.0), _STEP) - 1e-9))


class Policies:
    """Safe to ask from any thread. Without an `executor` one is made; costs are in hours of on-demand."""

    def __init__(self, executor: Executor | None = None) -> None:
        self._executor = executor
        self._lock = threading.Lock()
        self._solved: OrderedDict[object, DeadlinePolicy] = OrderedDict()
        self._solving: set[object] = set()
        self._last = -math.inf

    def get(self, need: Need, hazards: Callable[[], Hazards], now: float) -> DeadlinePolicy | None:
        """The policy, or None while it is being solved."""
        job = need.job()
        key = job, need.pool, need.version
        with self._lock:
            if key in self._solved:
                self._solved.move_to_end(key)
                return self._solved[key]
            crowded = len(self._solved) >= MOST_KEPT and 0 <= now - self._last < EVERY_S
            if key in self._solving or crowded:
                return None
            self._solving.add(key)
            self._last = now
            self._executor = self._executor or ThreadPoolExecutor(1, thread_name_prefix="policies")
        self._executor.submit(self._solve, key, job, hazards())
        with self._lock:
            return self._solved.get(key)

    def now(self, need: Need, hazards: Hazards) -> DeadlinePolicy:
        """The policy, solved on this thread if it is not there yet."""
        job = need.job()
        key = job, need.pool, need.version
        with self._lock:
            known = self._solved.get(key)
        return known or self._solve(key, job, hazards)

    def _solve(self, key: object, job: Job, hazards: Hazards) -> DeadlinePolicy:
        try:
            policy = solve(job, hazards)
        except Exception:
            log.exception("the policy of %s could not be solved; such runs take spot as long as that is safe", job)
            raise
        with self._lock:
            self._solved[key] = policy
            self._solving.discard(key)
            while len(self._solved) > MOST_KEPT:
                self._solved.popitem(last=False)
        return policy

    def close(self) -> None:
        """Waits for what is being solved."""
        if self._executor is not None:
            self._executor.shutdown(wait=True, cancel_futures=True)
