"""Jobs with deadlines on traces: what each policy costs, how often it is late, how far it is from the optimum.

The setting is that of "Can't Be Late" (Wu et al., NSDI 2024): 48 h of work, spot at 1, on-demand at k and always there,
60 random starts a trace. A policy sees the trace up to now, as a cloud that watches its pools does; Cumulo's hazards
are learnt only from the part that is for learning.
"""

import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from bench.spot.fit import fit_priors
from bench.spot.optimum import optimum
from bench.spot.published import Greedy, TimeSliced, UniformProgress
from bench.spot.ticks import Bools, Floats, Ints, Jobs, Rule, State, replay
from bench.spot.traces import DAY, HOUR, Trace
from cumulo.market import deadline as market
from cumulo.market.deadline import DeadlinePolicy, Job, solve
from cumulo.market.hazards import Hazards, Spell, learn
from cumulo.market.programme import IDLE

DEADLINES_H: Final = (52.0, 60.0, 72.0, 92.0)
OVERHEADS_H: Final = (0.02, 0.1, 0.2, 0.4)
POLICIES: Final = ("greedy", "time-sliced", "uniform-progress", "cumulo", "optimum")
Setting = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is replayed: work, deadlines, changeovers in hours, on-demand's price, starts a trace, their first day."""

    work_h: float = 48.0
    deadlines_h: tuple[float, ...] = DEADLINES_H
    overheads_h: tuple[float, ...] = OVERHEADS_H
    on_demand: float = 3.0
    starts: int = 60
    from_day: float = 0.0


@dataclass(slots=True)
class Results:
    """Cost relative to on-demand of every job, by setting and policy; jobs that were late; seconds of CPU."""

    costs: dict[tuple[Setting, str], list[Floats]] = field(default_factory=dict)
    misses: dict[tuple[Setting, str], int] = field(default_factory=dict)
    solves_s: list[float] = field(default_factory=list)
    decisions_s: list[float] = field(default_factory=list)

    def add(self, setting: Setting, policy: str, costs: Floats, misses: int) -> None:
        self.costs.setdefault((setting, policy), []).append(costs)
        self.misses[setting, policy] = self.misses.get((setting, policy), 0) + misses


class Cumulo:
    """Cumulo's policy of each of several groups of jobs, for the replay."""

    def __init__(self, policies: Mapping[Setting, DeadlinePolicy], groups: Mapping[Setting, Ints], jobs: int) -> None:
        self._parts = [(policies[setting], group) for setting, group in groups.items()]
        self._jobs = jobs

    def choose(self, state: State) -> Ints:
        choice = np.full(self._jobs, IDLE)
        for policy, group in self._parts:
            own = group[state.running[group]]
            if len(own):
                choice[own] = policy.choose(
                    market.State(
                        elapsed_s=state.elapsed_s[own],
                        done_s=state.done_s[own],
                        on=state.on[own],
                        overhead_s=state.overhead_s[own],
                        available=state.available[own],
                        age_s=state.age_s[own],
                    )
                )
        return choice


def measure(
    learn_on: Sequence[Trace], test_on: Sequence[Trace], plan: Plan, *, learn_days: float = math.inf
) -> Results:
    """Replays every policy on every trace of `test_on`. A trace too short for a setting is left out of it, and told."""
    histories = {(t.folder, t.name): t.spells(until_s=learn_days * DAY) for t in learn_on}
    priors = fit_priors(list(histories.values()))
    results = Results()
    for trace in test_on:
        hazards = learn(_history(histories, trace), priors)
        _measure(trace, plan, hazards, results)
    return results


def _history(histories: Mapping[tuple[str, str], Sequence[Spell]], trace: Trace) -> Sequence[Spell]:
    """What was learnt of the same pool: of the same name, in the same folder if several have it."""
    own = histories.get((trace.folder, trace.name))
    if own is not None:
        return own
    named = [spells for (_, name), spells in histories.items() if name == trace.name]
    return [spell for spells in named for spell in spells]


def _measure(trace: Trace, plan: Plan, hazards: Hazards, results: Results) -> None:
    groups, jobs = _jobs(trace, plan)
    if not groups:
        return
    available, gap = trace.available, trace.gap_s
    policies: dict[Setting, DeadlinePolicy] = {}
    for setting in groups:
        began = time.process_time()
        policies[setting] = solve(_job(setting, plan, gap), hazards)
        results.solves_s.append(time.process_time() - began)
    rules: dict[str, Callable[[], Rule]] = {
        "greedy": lambda: Greedy(jobs, gap),
        "time-sliced": lambda: TimeSliced(jobs, gap),
        "uniform-progress": lambda: UniformProgress(jobs, gap),
        "cumulo": lambda: Cumulo(policies, groups, len(jobs)),
    }
    for name, rule in rules.items():
        found = replay(available, gap, jobs, rule())
        for setting, group in groups.items():
            results.add(setting, name, found.cost[group], int(found.late[group].sum()))
    for setting, group in groups.items():
        results.add(setting, "optimum", _optima(available, gap, setting, jobs.start[group], plan), 0)
    results.decisions_s.append(_decision_s(next(iter(policies.values()))))


def _jobs(trace: Trace, plan: Plan) -> tuple[dict[Setting, Ints], Jobs]:
    groups: dict[Setting, Ints] = {}
    starts: list[Ints] = []
    first = math.ceil(plan.from_day * DAY / trace.gap_s)
    for deadline in plan.deadlines_h:
        last = len(trace.counts) - math.ceil(deadline * HOUR / trace.gap_s) - 2
        if last <= first:
            print(
                f"{trace.folder}/{trace.name}: too short for jobs of {deadline:g} h, left out of them", file=sys.stderr
            )
            continue
        for overhead in plan.overheads_h:
            begin = sum(len(own) for own in starts)
            starts.append(np.random.default_rng(1).integers(first, last, plan.starts))
            groups[deadline, overhead] = np.arange(begin, begin + plan.starts)
    settings = list(groups)
    jobs = Jobs(
        start=np.concatenate(starts) if starts else np.zeros(0, dtype=np.int64),
        deadline_s=np.repeat([deadline * HOUR for deadline, _ in settings], plan.starts),
        changeover_s=np.repeat([overhead * HOUR for _, overhead in settings], plan.starts),
        work_s=plan.work_h * HOUR,
        on_demand=plan.on_demand,
    )
    return groups, jobs


def _job(setting: Setting, plan: Plan, gap_s: float) -> Job:
    """The last tick must be whole, so the deadline is the last tick's end."""
    deadline = math.floor(setting[0] * HOUR / gap_s + 1e-9) * gap_s
    return Job(
        work_s=plan.work_h * HOUR,
        deadline_s=deadline,
        changeover_s=setting[1] * HOUR,
        spot=1.0,
        on_demand=plan.on_demand,
        tick_s=gap_s,
    )


def _optima(available: Bools, gap_s: float, setting: Setting, starts: Ints, plan: Plan) -> Floats:
    deadline, overhead = setting
    known = {
        int(start): optimum(
            available[start:],
            gap_s=gap_s,
            work_s=plan.work_h * HOUR,
            deadline_s=deadline * HOUR,
            changeover_s=overhead * HOUR,
            on_demand=plan.on_demand,
        )
        for start in np.unique(starts)
    }
    return np.array([known[int(start)] for start in starts])


def _decision_s(policy: DeadlinePolicy, times: int = 20) -> float:
    """CPU seconds of one decision for one job."""
    began = time.process_time()
    for number in range(times):
        policy.choose(
            market.State(
                elapsed_s=60.0, done_s=0.0, on=IDLE, overhead_s=0.0, available=bool(number % 2), age_s=900.0 * number
            )
        )
    return (time.process_time() - began) / times


def rows(results: Results, plan: Plan) -> list[dict[str, Any]]:
    """A row for each setting and policy. Regret is cost less the optimum's, as a part of on-demand's."""
    found = []
    for deadline in plan.deadlines_h:
        for overhead in plan.overheads_h:
            for policy in POLICIES:
                key = ((deadline, overhead), policy)
                if key not in results.costs:
                    continue
                costs = np.concatenate(results.costs[key])
                regrets = costs - np.concatenate(results.costs[key[0], "optimum"])
                found.append(
                    {
                        "deadline_h": deadline,
                        "overhead_h": overhead,
                        "policy": policy,
                        "cost_ratio": round(float(costs.mean()), 5),
                        "misses": results.misses[key],
                        "p95_regret": round(float(np.quantile(regrets, 0.95)), 5),
                        "jobs": len(costs),
                    }
                )
    return found


def summary(results: Results, plan: Plan) -> dict[str, Any]:
    """Over all settings: mean cost, pooled regret, and how much of Uniform Progress's gap to the optimum is closed."""
    table = {(row["deadline_h"], row["overhead_h"], row["policy"]): row for row in rows(results, plan)}
    settings = sorted({key[:2] for key in table})
    means = {p: float(np.mean([table[*s, p]["cost_ratio"] for s in settings])) for p in POLICIES}
    up, own, best = (
        np.array([table[*s, p]["cost_ratio"] for s in settings]) for p in ("uniform-progress", "cumulo", "optimum")
    )
    regrets = {}
    for policy in POLICIES:
        costs = np.concatenate([part for s in settings for part in results.costs[s, policy]])
        optima = np.concatenate([part for s in settings for part in results.costs[s, "optimum"]])
        regrets[policy] = round(float(np.quantile(costs - optima, 0.95)), 5)
    gaps = np.maximum(up - best, 1e-9)
    return {
        "cost_ratio": {policy: round(mean, 5) for policy, mean in means.items()},
        "misses": {
            policy: sum(row["misses"] for row in table.values() if row["policy"] == policy) for policy in POLICIES
        },
        "p95_regret": regrets,
        "gap_closed": round(float((up.mean() - own.mean()) / max(up.mean() - best.mean(), 1e-9)), 4),
        "gap_closed_mean_of_settings": round(float(np.mean((up - own) / gaps)), 4),
        "worst_setting_above_uniform_progress": round(float((own - up).max()), 5),
        "solve_cpu_s": {"mean": _short(np.mean(results.solves_s)), "most": _short(max(results.solves_s))},
        "decision_cpu_s": {"mean": _short(np.mean(results.decisions_s)), "most": _short(max(results.decisions_s))},
    }


def _short(value: float | np.floating[Any]) -> float:
    return float(f"{value:.3g}")
