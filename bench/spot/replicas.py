"""`python -m bench.spot replicas DIR`: replicas held on spot, share of time with enough ready against what it cost.

DIR holds traces of zones recorded side by side. Hazards are learnt on the days before `--split-day`; the rules run on
the rest, or with `--periods N` on each of N periods with hazards learnt on the others.
"""

import argparse
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from bench.spot.fit import fit_priors
from bench.spot.replicas_rules import Cumulo, EvenSpread, OneZone, SpotHedge, cumulo_pools
from bench.spot.replicas_world import Outcome, Rule, Zones, aligned, replay
from bench.spot.traces import DAY, BadTrace, load
from cumulo.market.hazards import Hazards, learn, spells
from cumulo.market.replicas import Goal

MISSING: Final = (2.0, 5.0, 10.0, 25.0, 50.0, 100.0)
USUAL: Final = 25.0
HEAD: Final = ("period", "policy", "enough ready", "cost", "missing", "none ready", "launches", "refused")


class Setting(NamedTuple):
    target: int
    on_demand: float
    cold_start_s: float
    missing: tuple[float, ...]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dir", type=Path, metavar="DIR", help="traces of zones recorded side by side")
    parser.add_argument("--split-day", type=float, default=15.0, help="learn on the days before (default 15)")
    parser.add_argument("--periods", type=int, default=0, help="instead: hold out each of so many periods in turn")
    parser.add_argument("--target", type=int, default=4, help="replicas wanted ready (default 4)")
    parser.add_argument("--k", type=float, default=3.0, help="on-demand's price, spot's being 1 (default 3)")
    parser.add_argument("--cold-start", type=float, default=585.0, help="seconds from launch to ready (default 585)")
    parser.add_argument(
        "--missing",
        type=float,
        nargs="+",
        default=MISSING,
        metavar="X",
        help="what a missing replica costs, on-demand's price being 1: a row of Cumulo for each",
    )
    parser.add_argument("--plot", type=Path, metavar="PNG", help="also draw the frontier")


def run(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Rows: period, policy, ready, cost, missing, none_ready, launches, refusals; of Cumulo also its prices."""
    zones = aligned(load(options.dir))
    setting = Setting(options.target, options.k, options.cold_start, tuple(options.missing))
    if setting.target < 1:
        raise ValueError("--target must be 1 or more")
    rows: list[dict[str, Any]] = []
    if options.periods:
        if options.periods < 2:
            raise ValueError("--periods must be 2 or more: each is held out in turn")
        edges = np.linspace(0, len(zones.counts), options.periods + 1).astype(int)
        for number, (first, last) in enumerate(pairwise(edges), 1):
            learnt = [zones.during(0, int(first)), zones.during(int(last), len(zones.counts))]
            rows += _rows(f"{number} of {options.periods}", zones.during(int(first), int(last)), learnt, setting)
        rows += _means(rows)
    else:
        split = int(options.split_day * DAY / zones.gap_s)
        if not 0 < split < len(zones.counts):
            days = len(zones.counts) * zones.gap_s / DAY
            raise BadTrace(f"the traces have {days:.1f} days in common: --split-day must be within them")
        rows += list(_published("whole", zones, None, setting))
        tested, learnt = zones.during(split, len(zones.counts)), [zones.during(0, split)]
        rows += _rows("held out", tested, learnt, setting)
        rows += _tries("held out, asked otherwise", tested, _learn(learnt), setting)
    if options.plot:
        from bench.spot.replicas_plot import draw

        draw([row for row in rows if row["period"] in ("held out", "mean")], options.plot)
    return rows


def _rows(period: str, zones: Zones, learnt: Sequence[Zones], setting: Setting) -> list[dict[str, Any]]:
    hazards = _learn(learnt)
    return [*_published(period, zones, hazards, setting), *_cumulo(period, zones, hazards, setting)]


def _learn(learnt: Sequence[Zones]) -> list[Hazards]:
    """Each zone's hazards from the periods that are not tested on."""
    histories = [
        [spell for part in learnt if len(part.counts) for spell in spells(part.counts[:, zone] > 0, part.gap_s)]
        for zone in range(len(learnt[0].names))
    ]
    priors = fit_priors(histories)
    return [learn(history, priors) for history in histories]


def _published(
    period: str, zones: Zones, hazards: Sequence[Hazards] | None, setting: Setting
) -> Iterator[dict[str, Any]]:
    """The published rules; with hazards also SpotHedge with its zones ranked by how long spot lasts there."""
    everywhere = tuple(range(len(zones.names)))
    longest = max(everywhere, key=lambda zone: float((zones.counts[:, zone] > 0).mean()))
    rules: list[tuple[str, Rule]] = [
        (f"one zone ({zones.names[longest]}, the best in hindsight)", OneZone(longest, setting.target)),
        ("even spread", EvenSpread(setting.target)),
        ("SpotHedge", SpotHedge(setting.target, everywhere)),
    ]
    if hazards is not None:
        ranked = tuple(sorted(everywhere, key=lambda zone: -hazards[zone].lost.mean_left(0.0)))
        rules.append(("SpotHedge, zones by hazard", SpotHedge(setting.target, ranked, spread=False)))
    for name, rule in rules:
        yield _row(period, name, _replay(zones, rule, setting))


def _cumulo(period: str, zones: Zones, hazards: Sequence[Hazards], setting: Setting) -> Iterator[dict[str, Any]]:
    pools = cumulo_pools(zones, hazards, on_demand=setting.on_demand, cold_start_s=setting.cold_start_s)
    for outage in (0, 1):
        for times in setting.missing:
            missing = times * setting.on_demand
            goal = Goal(target=setting.target, missing=missing, outage=outage * setting.target * missing)
            name = f"cumulo, missing at {times:g}x{', an outage at twice' if outage else ''}"
            found = _replay(zones, Cumulo(goal, pools), setting)
            yield _row(period, name, found) | {"missing_price": times, "outage_price": outage * setting.target * times}


def _tries(period: str, zones: Zones, hazards: Sequence[Hazards], setting: Setting) -> Iterator[dict[str, Any]]:
    """What asking again within a tick is worth: to SpotHedge, and to Cumulo when it may not."""
    everywhere = tuple(range(len(zones.names)))
    asking = SpotHedge(setting.target, everywhere, tries=len(everywhere))
    yield _row(period, "SpotHedge, asking until granted", _replay(zones, asking, setting))
    pools = cumulo_pools(zones, hazards, on_demand=setting.on_demand, cold_start_s=setting.cold_start_s)
    missing = USUAL * setting.on_demand
    goal = Goal(target=setting.target, missing=missing, outage=setting.target * missing)
    name = f"cumulo, missing at {USUAL:g}x, an outage at twice, one round a tick"
    yield _row(period, name, _replay(zones, Cumulo(goal, pools, one_round=True), setting))


def _replay(zones: Zones, rule: Rule, setting: Setting) -> Outcome:
    return replay(zones, rule, target=setting.target, cold_start_s=setting.cold_start_s, on_demand=setting.on_demand)


def _row(period: str, policy: str, found: Outcome) -> dict[str, Any]:
    return {"period": period, "policy": policy} | found._asdict()


def _means(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The mean over the periods of each policy; one zone is another one in each, and so left out."""
    means = []
    for policy in dict.fromkeys(row["policy"] for row in rows):
        own = [row for row in rows if row["policy"] == policy]
        if len(own) == len({row["period"] for row in rows}):
            mean = {name: float(np.mean([row[name] for row in own])) for name in Outcome._fields}
            prices = {name: own[0][name] for name in ("missing_price", "outage_price") if name in own[0]}
            means.append({"period": "mean", "policy": policy} | mean | prices)
    return means


def table(rows: Sequence[dict[str, Any]]) -> str:
    """For people: shares in per cent, cost relative to on-demand alone."""
    cells = [
        (
            row["period"], row["policy"], f"{100 * row['ready']:.2f} %", f"{row['cost']:.3f}",
            f"{100 * row['missing']:.2f} %", f"{100 * row['none_ready']:.2f} %",
            f"{row['launches']:.0f}", f"{row['refusals']:.0f}",
        )
        for row in rows
    ]  # fmt: skip
    widths = [max(len(line[place]) for line in (HEAD, *cells)) for place in range(len(HEAD))]
    lines = (HEAD, tuple("-" * width for width in widths), *cells)
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)
