"""What pools have in common, learnt from traces: rates by age, and how much they count against a pool's own history.

The weights are not chosen but fitted: those by which the first part of the pools' histories foretells the second best,
and the first two the third. A pool's own past would look the better guide than it is, were it judged by itself: pools
change. `python -m bench.spot fit DIR` writes the priors into the catalogue, for clouds that have no history yet.
"""

import json
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Final

import numpy as np

from bench.spot.traces import load
from cumulo.catalog.spot_priors import SPOT_PRIORS
from cumulo.market.hazards import Counts, Prior, Priors, Rates, Spell, count

AGES_S: Final = (
    *(0.0, 200.0, 400.0, 600.0, 800.0, 1000.0, 1200.0, 1500.0, 1800.0, 2400.0, 3000.0, 3600.0),
    *(4800.0, 7200.0, 10800.0, 14400.0, 21600.0, 28800.0, 43200.0, 64800.0, 86400.0, 172800.0),
)
"""Where the ages' buckets begin, in seconds: fine while spells are young, for most end then."""
WEIGHTS: Final = (2.0, 8.0, 30.0, 100.0, 1000.0)
"""Weights that are tried, in events."""
PARTS: Final = 3
_USUAL_PER_S: Final = 1e-4
"""Of pools of which nothing is known: once in some three hours."""
SOURCE: Final = 'traces of "Can\'t Be Late" (Wu et al., NSDI 2024), github.com/skypilot-org/spot-traces, for research'


def fit_priors(histories: Sequence[Sequence[Spell]]) -> Priors:
    """The priors of pools with these histories, a list of spells each."""
    parts = [_parts(own) for own in histories]
    sides = [[[[s for s in part if s.available is up] for part in own] for own in parts] for up in (True, False)]
    weights = max(product(WEIGHTS, WEIGHTS), key=lambda tried: sum(_foretold(side, *tried) for side in sides))
    return Priors(*(Prior(_pooled([_counts(own) for own in side]), *weights) for side in sides))


def write_priors(folder: Path, path: Path = SPOT_PRIORS) -> Priors:
    """Fits the priors to every trace below `folder` and writes them for the catalogue."""
    traces = load(folder)
    priors = fit_priors([trace.spells() for trace in traces])
    held = {"version": 1, "source": SOURCE, "pools": len(traces), "ages_s": list(AGES_S)}
    for name, prior in (("lost", priors.lost), ("back", priors.back)):
        held[name] = {
            "per_s": [float(f"{rate:.4g}") for rate in prior.rates.per_s],
            "pool_events": prior.pool_events,
            "age_events": prior.age_events,
        }
    path.write_text(json.dumps(held, indent=2) + "\n", encoding="utf-8")
    return priors


def _foretold(pools: Sequence[Sequence[Sequence[Spell]]], pool_events: float, age_events: float) -> float:
    """Log-likelihood of each part of the pools' histories by hazards learnt of the parts before it."""
    score = 0.0
    for number in range(1, PARTS):
        before = [_counts(own[:number]) for own in pools]
        prior = Prior(_pooled(before), pool_events, age_events)
        for known, own in zip(before, pools, strict=True):
            rates, due = np.array(prior.posterior(known).per_s), count(own[number], AGES_S)
            score += float(due.events @ np.log(rates) - due.seconds @ rates)
    return score


def _counts(parts: Sequence[Sequence[Spell]]) -> Counts:
    return count([spell for part in parts for spell in part], AGES_S)


def _parts(history: Sequence[Spell]) -> list[list[Spell]]:
    """A history in parts of equal time, each spell in the part in which it began."""
    parts: list[list[Spell]] = [[] for _ in range(PARTS)]
    whole, passed = sum(spell.to_s + spell.gap_s for spell in history), 0.0
    for spell in history:
        parts[min(PARTS - 1, int(PARTS * passed / max(whole, 1.0)))].append(spell)
        passed += spell.to_s + spell.gap_s
    return parts


def _pooled(counts: Sequence[Counts]) -> Rates:
    """Of all pools together. Half an event more at the mean rate, so that no age is sure or safe for want of data."""
    events = np.sum([each.events for each in counts], axis=0) if counts else np.zeros(len(AGES_S))
    seconds = np.sum([each.seconds for each in counts], axis=0) if counts else np.zeros(len(AGES_S))
    mean = (events.sum() + 0.5) / (seconds.sum() + 0.5 / _USUAL_PER_S)
    return Rates(AGES_S, tuple(float(rate) for rate in (events + 0.5) / (seconds + 0.5 / mean)))
