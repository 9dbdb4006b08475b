"""Random streams of MIG asks with departures: accepted ask-slices against first fit, best fit, and what is possible.

Every policy sees the same asks and the same durations (paired by stream), accepts whatever fits somewhere, and knows
neither the mix nor the load. What is refused is gone. Load is the compute slices asked for at a time, of those there.

- `first-fit`: the first GPU, the lowest start.
- `best-fit`: the GPU with the fewest free memory slices, the start in the smallest gap.
- `cumulo`: `cumulo.placement.mig`, by the mix of what was asked for so far (`SeenMix`).
- `cumulo-blind`: the same, all profiles taken to be asked for alike for ever.
- `optimum` (one GPU): the exact optimum without foresight, which knows mix, load and that durations are exponential.
- `optimum-refusing` (one GPU): the same, free to turn away what fits, which a cloud does not do.
- `hindsight` (one GPU, the first asks of the stream alone): every choice searched, knowing all that comes.
"""

import argparse
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.placement.mig_optimum import Ask, exact, hindsight, most
from bench.placement.paired import difference, numbers
from cumulo.catalog.kinds import all_kinds
from cumulo.catalog.mig import MigLayout, mig_layout
from cumulo.placement.mig import MigStates, MigTable, SeenMix, layout_table

Floats = NDArray[np.float64]
WARM_UP = 0.1  # of the asks: how full the GPUs are then no longer depends on their having been empty
HINDSIGHT_ASKS = 40
SIGMA = 1.5  # of the log-normal durations: their mean is 1, their median 0.32

MIXES: dict[str, Callable[[Floats], Floats]] = {
    "uniform": lambda slices: np.ones(len(slices)),
    "small": lambda slices: 1 / slices**1.5,
    "large": lambda slices: slices,
    "partial": lambda slices: np.where(slices == slices.max(), 0.0, 1.0),
    "ends": lambda slices: np.where((slices == slices.max()) | (slices == 1), 1 / slices, 0.0),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A kind of stream: on which GPUs, and of which asks. `rates` are asks per GPU and mean duration, by profile."""

    kind: str
    mix: str
    load: float
    gpus: int
    durations: str
    layout: MigLayout
    table: MigTable
    rates: Floats

    @property
    def name(self) -> str:
        return f"{self.kind}x{self.gpus}/{self.mix}/{self.load:g}/{self.durations}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """`cost[profile, state]` picks the GPU (inf: can't be; the first of equals), `start[profile, state]` the place."""

    cost: Floats
    start: NDArray[np.integer[Any]]

    @classmethod
    def of(cls, cost: Floats, start: NDArray[np.integer[Any]]) -> "Choice":
        """From arrays of the shape (states, profiles)."""
        return cls(cost=np.ascontiguousarray(cost.T), start=np.ascontiguousarray(start.T))

    def see(self, profile: int) -> "Choice":
        """What decides on an ask that is seen now: always the same."""
        return self


class Learning:
    """cumulo, which looks at the mix of the asks."""

    def __init__(self, layout: MigLayout, gpus: int) -> None:
        self._layout, self._gpus, self._seen = layout, gpus, SeenMix()
        self._choice = self._made()

    def see(self, profile: int) -> Choice:
        if self._seen.see(self._layout.profiles[profile].name):
            self._choice = self._made()
        return self._choice

    def _made(self) -> Choice:
        table = layout_table(self._layout, mix=self._seen.mix(self._layout), market=self._gpus)
        return Choice.of(table.loss, table.best_start)


Policy = Choice | Learning


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seeds", default="42-51", help="streams of each scene, as 42-51 or 1,2,3 (42-51)")
    parser.add_argument("--gpus", default="1,8,64", help="how many GPUs (1,8,64)")
    parser.add_argument("--loads", default="0.8,1.0,1.2", help="slices asked for, of those there (0.8,1.0,1.2)")
    parser.add_argument("--kinds", default="", help="GPU kinds; default: one of each table of placements")
    parser.add_argument("--mixes", default=",".join(MIXES), help=f"of profiles ({','.join(MIXES)})")
    parser.add_argument("--durations", default="exponential", help="exponential, lognormal or both (exponential)")
    parser.add_argument("--asks", type=int, default=4000, help="asks of one stream (4000)")


def run(options: argparse.Namespace) -> list[dict[str, object]]:
    """A row for each stream and policy."""
    seeds = numbers(options.seeds)
    kinds = options.kinds.split(",") if options.kinds else distinct_kinds()
    rows: list[dict[str, object]] = []
    for kind in kinds:
        for mix in options.mixes.split(","):
            for load in map(float, options.loads.split(",")):
                for gpus in map(int, options.gpus.split(",")):
                    for durations in options.durations.split(","):
                        setting = scene(kind, mix, load=load, gpus=gpus, durations=durations)
                        rows += _scene_rows(setting, seeds, options.asks)
    return rows


def distinct_kinds() -> list[str]:
    """The first kind of each table of placements; all others have the same states and moves under other names."""
    seen: dict[bytes, str] = {}
    for kind in all_kinds():
        layout = mig_layout(kind.name)
        if layout:
            seen.setdefault(layout_table(layout).states.after.tobytes(), kind.name)
    return list(seen.values())


def scene(kind: str, mix: str, *, load: float, gpus: int, durations: str) -> Scene:
    """Raises SystemExit for a kind without MIG or an unknown mix or distribution."""
    layout = mig_layout(kind)
    if layout is None:
        having = ", ".join(each.name for each in all_kinds() if each.mig_layout)
        raise SystemExit(f"error: {kind} has no table of MIG placements; those that have: {having}")
    if mix not in MIXES:
        raise SystemExit(f"error: there is no mix {mix!r}; they are {', '.join(MIXES)}")
    if durations not in ("exponential", "lognormal"):
        raise SystemExit(f"error: durations are exponential or lognormal, not {durations!r}")
    table = layout_table(layout, market=gpus)
    slices = table.states.slices.astype(float)
    weights = MIXES[mix](slices)
    rates = weights * load * layout.compute_slices / (weights @ slices)
    return Scene(kind=kind, mix=mix, load=load, gpus=gpus, durations=durations, layout=layout, table=table, rates=rates)


def _scene_rows(setting: Scene, seeds: Sequence[int], asks: int) -> list[dict[str, object]]:
    states = setting.table.states
    offered = setting.load * states.shape.compute
    policies = _policies(setting)
    bound = 100 * min(1.0, most(states, setting.rates) / offered)
    expected = 100 * exact(states, setting.rates, refuse=False)[1] / offered if setting.gpus == 1 else None
    rows: list[dict[str, object]] = []
    for seed in seeds:
        stream = asks_of(setting, seed, asks)
        for name, policy in policies.items():
            row = _row(setting, name, seed, stream, play(states, policy(), stream, setting.gpus))
            rows.append(row | {"bound_pct": bound} | ({"exact_pct": expected} if expected is not None else {}))
        if setting.gpus == 1:
            rows += _foreseen_rows(setting, policies, seed, stream[:HINDSIGHT_ASKS])
    return rows


def _policies(setting: Scene) -> dict[str, Callable[[], Policy]]:
    """How to make each policy: one that learns is made anew for each stream."""
    table, states, layout = setting.table, setting.table.states, setting.layout
    legal = states.after >= 0
    first = Choice.of(np.where(legal.any(axis=2), 0.0, np.inf), legal.argmax(axis=2))
    best, blind = _best_fit(states), Choice.of(table.loss, table.best_start)
    policies: dict[str, Callable[[], Policy]] = {
        "first-fit": lambda: first,
        "best-fit": lambda: best,
        "cumulo": lambda: Learning(layout, setting.gpus),
        "cumulo-blind": lambda: blind,
    }
    if setting.gpus == 1:
        optimum, refusing = (_optimum(setting, refuse=refuse) for refuse in (False, True))
        policies |= {"optimum": lambda: optimum, "optimum-refusing": lambda: refusing}
    return policies


def _optimum(setting: Scene, *, refuse: bool) -> Choice:
    states = setting.table.states
    value, _ = exact(states, setting.rates, refuse=refuse)
    losses = np.where(states.after >= 0, value[:, None, None] - value[states.after], np.inf)
    loss = losses.min(axis=2)
    if refuse:
        loss = np.where(loss > states.slices, np.inf, loss)
    return Choice.of(loss, losses.argmin(axis=2))


def _best_fit(states: MigStates) -> Choice:
    """The fewest free memory slices, and of a GPU's starts the one in the smallest gap, the lowest of equals."""
    sizes = [dict(profile.places) for profile in states.shape.profiles]
    free = np.ones((len(states.layouts), states.shape.grid), dtype=bool)
    for state, layout in enumerate(states.layouts):
        for profile, start in layout:
            free[state, start : start + sizes[profile][start]] = False
    gaps = np.array([_gaps(row.tolist()) for row in free])
    tight = np.where(states.after >= 0, gaps[:, None, :], np.inf)
    cost = np.where(np.isfinite(tight.min(axis=2)), free.sum(axis=1)[:, None], np.inf)
    return Choice.of(cost, tight.argmin(axis=2))


def _gaps(free: Sequence[bool]) -> list[int]:
    """For every memory slice how long the run of free ones is that it lies in."""
    lengths = [0] * len(free)
    begin = 0
    for place in range(len(free) + 1):
        if place == len(free) or not free[place]:
            lengths[begin:place] = [place - begin] * (place - begin)
            begin = place + 1
    return lengths


def asks_of(setting: Scene, seed: int, asks: int) -> list[Ask]:
    """The stream of a seed: Poisson arrivals, durations of mean 1."""
    random = np.random.default_rng(seed)
    rates = setting.rates
    profiles = random.choice(len(rates), asks, p=rates / rates.sum())
    at = np.cumsum(random.exponential(1 / (setting.gpus * rates.sum()), asks))
    if setting.durations == "exponential":
        lasts = random.exponential(1.0, asks)
    else:
        lasts = random.lognormal(-(SIGMA**2) / 2, SIGMA, asks)
    return list(zip(profiles.tolist(), at.tolist(), lasts.tolist(), strict=True))


def play(states: MigStates, policy: Policy, stream: Sequence[Ask], gpus: int) -> list[bool]:
    """Which of the asks are accepted."""
    state = np.zeros(gpus, dtype=np.intp)
    ends: list[tuple[float, int, int, int]] = []
    accepted: list[bool] = []
    for profile, at, lasts in stream:
        while ends and ends[0][0] <= at:
            _, gpu, gone, start = heappop(ends)
            state[gpu] = states.before[state[gpu], gone, start]
        choice = policy.see(profile)
        costs = choice.cost[profile].take(state)
        gpu = int(costs.argmin())
        accepted.append(math.isfinite(costs[gpu]))
        if accepted[-1]:
            start = int(choice.start[profile, state[gpu]])
            state[gpu] = states.after[state[gpu], profile, start]
            heappush(ends, (at + lasts, gpu, profile, start))
    return accepted


def _row(setting: Scene, policy: str, seed: int, stream: Sequence[Ask], accepted: Sequence[bool]) -> dict[str, object]:
    """Counts of what came after the warm-up."""
    skip = int(len(stream) * WARM_UP)
    profiles = np.array([profile for profile, _, _ in stream[skip:]])
    slices = setting.table.states.slices
    kept = np.array(accepted[skip:])
    by_profile = {
        name: round(100 * float(kept[profiles == index].mean()), 2)
        for index, name in enumerate(setting.table.names)
        if (profiles == index).any()
    }
    return _named(setting, "mig", policy, seed) | {
        "asked_slices": int(slices[profiles].sum()),
        "accepted_slices": int(slices[profiles][kept].sum()),
        "accepted_pct": 100 * float(slices[profiles][kept].sum() / slices[profiles].sum()),
        "accepted_pct_by_profile": by_profile,
    }


def _foreseen_rows(
    setting: Scene, policies: dict[str, Callable[[], Policy]], seed: int, stream: Sequence[Ask]
) -> Iterable[dict[str, object]]:
    """The first asks of a stream alone, from an empty GPU on, beside the best that foresight could have done."""
    slices = setting.table.states.slices
    asked = sum(int(slices[profile]) for profile, _, _ in stream)
    accepted = {"hindsight": hindsight(setting.table.states, stream)}
    for name, policy in policies.items():
        kept = play(setting.table.states, policy(), stream, 1)
        accepted[name] = sum(int(slices[ask[0]]) for ask, kept_it in zip(stream, kept, strict=True) if kept_it)
    for name, count in accepted.items():
        figures = {"asked_slices": asked, "accepted_slices": count, "accepted_pct": 100 * count / asked}
        yield _named(setting, "mig-hindsight", name, seed) | figures


def _named(setting: Scene, test: str, policy: str, seed: int) -> dict[str, object]:
    scene_of = {"kind": setting.kind, "gpus": setting.gpus, "mix": setting.mix, "load": setting.load}
    return {"test": test, "trace": setting.name, "policy": policy, "seed": seed, **scene_of}


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Means over the streams of each kind, mix and number of GPUs, then the paired differences over all streams."""
    groups: dict[tuple[str, int, str], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        if row["test"] == "mig":
            groups[row["kind"], row["gpus"], row["mix"]].append(row)
    lines = [
        "accepted, % of the compute slices asked for, mean over streams; paired differences with 95 % intervals",
        f"{'kind':<12}{'GPUs':>5} {'mix':<8}{'first-fit':>10}{'best-fit':>10}{'cumulo':>8}{'blind':>8}{'optimum':>9}"
        f"{'refusing':>9}{'bound':>8}   cumulo − best-fit   cumulo / optimum − 1, %",
    ]
    for (kind, gpus, mix), group in sorted(groups.items()):
        lines.append(f"{kind:<12}{gpus:>5} {mix:<8}{_figures(group)}")
    lines += ["", *(f"all streams, {line}" for line in _summary(rows))]
    return "\n".join(lines)


def _figures(group: Sequence[dict[str, Any]]) -> str:
    by_policy = _by_policy(group)
    means = {policy: fmean(figures.values()) for policy, figures in by_policy.items()}
    cells = f"{means['first-fit']:>10.2f}{means['best-fit']:>10.2f}{means['cumulo']:>8.2f}{means['cumulo-blind']:>8.2f}"
    for policy, width in (("optimum", 9), ("optimum-refusing", 9)):
        cells += f"{means[policy]:>{width}.2f}" if policy in means else " " * (width - 1) + "-"
    cells += f"{fmean(row['bound_pct'] for row in group):>8.2f}   {_paired(by_policy, 'best-fit'):<20}"
    return cells + (_paired(by_policy, "optimum", ratio=True) if "optimum" in means else "")


def _summary(rows: Sequence[dict[str, Any]]) -> Iterable[str]:
    for gpus in sorted({row["gpus"] for row in rows}):
        by_policy = _by_policy([row for row in rows if row["gpus"] == gpus and row["test"] == "mig"])
        for other in [name for name in by_policy if not name.startswith("cumulo")]:
            better = _paired(by_policy, other)
            yield f"{gpus} GPUs: cumulo − {other}: {better} points; ratio {_paired(by_policy, other, ratio=True)} %"
    foreseen = _by_policy([row for row in rows if row["test"] == "mig-hindsight"])
    for other in ("optimum", "hindsight") if foreseen else ():
        ratio = _paired(foreseen, other, ratio=True)
        yield f"1 GPU, the first {HINDSIGHT_ASKS} asks: cumulo / {other} − 1: {ratio} %"


def _by_policy(rows: Iterable[dict[str, Any]]) -> dict[str, dict[tuple[str, int], float]]:
    figures: dict[str, dict[tuple[str, int], float]] = defaultdict(dict)
    for row in rows:
        figures[row["policy"]][row["trace"], row["seed"]] = row["accepted_pct"]
    return figures


def _paired(by_policy: dict[str, dict[tuple[str, int], float]], other: str, *, ratio: bool = False) -> str:
    """cumulo against another policy, stream by stream: mean and 95 % interval (Student's t) of the difference."""
    differences = [
        100 * (figure / by_policy[other][stream] - 1) if ratio else figure - by_policy[other][stream]
        for stream, figure in by_policy["cumulo"].items()
    ]
    return str(difference(differences, [0.0] * len(differences)))
