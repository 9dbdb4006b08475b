"""What pools have in common, learnt from traces: rates by age, and how much they count against a pool's own history.

The weights are not chosen but fitted: those under which the pools' counts are the most likely, if each pool's factor
and each of its ages' are drawn from gamma distributions around the pooled rates (empirical Bayes).
`python -m bench.spot fit DIR` writes them into the catalogue, for clouds that have no history yet.
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from bench.spot.traces import load
from cumulo.catalog.spot_priors import SPOT_PRIORS
from cumulo.market.hazards import AGES_S, Counts, Prior, Priors, Rates, Spell, count

WEIGHTS: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)
"""Weights that are tried, in events."""
_USUAL_PER_S: Final = 1e-5
SOURCE: Final = 'traces of "Can\'t Be Late" (Wu et al., NSDI 2024), github.com/skypilot-org/spot-traces, for research'


def fit_priors(histories: Sequence[Sequence[Spell]]) -> Priors:
    """The priors of pools with these histories, a list of spells each."""
    return Priors(*(_fit([[s for s in own if s.available is up] for own in histories]) for up in (True, False)))


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


def _fit(histories: Sequence[Sequence[Spell]]) -> Prior:
    counts = [count(own) for own in histories if own]
    events = np.sum([each.events for each in counts], axis=0) if counts else np.zeros(len(AGES_S))
    seconds = np.sum([each.seconds for each in counts], axis=0) if counts else np.zeros(len(AGES_S))
    # Half an event more, so that an age at which nothing was seen is neither sure nor safe.
    rates = Rates(AGES_S, tuple(float(rate) for rate in (events + 0.5) / (seconds + 0.5 / _USUAL_PER_S)))
    pool = max(WEIGHTS, key=lambda weight: sum(_pool_likelihood(each, rates, weight) for each in counts))
    age = max(WEIGHTS, key=lambda weight: sum(_age_likelihood(each, rates, pool, weight) for each in counts))
    return Prior(rates, pool, age)


def _pool_likelihood(counts: Counts, rates: Rates, weight: float) -> float:
    return _log_likelihood(float(counts.events.sum()), float(counts.seconds @ np.array(rates.per_s)), weight)


def _age_likelihood(counts: Counts, rates: Rates, pool: float, weight: float) -> float:
    expected = counts.seconds * np.array(rates.per_s)
    factor = (counts.events.sum() + pool) / (expected.sum() + pool)
    return sum(
        _log_likelihood(float(e), float(factor * x), weight) for e, x in zip(counts.events, expected, strict=True)
    )


def _log_likelihood(events: float, expected: float, weight: float) -> float:
    """Of so many events where `expected` times a gamma factor of mean 1 and that shape are due (negative binomial)."""
    return (
        math.lgamma(events + weight)
        - math.lgamma(weight)
        + weight * math.log(weight / (weight + expected))
        + (events * math.log(expected / (weight + expected)) if events and expected else 0.0)
    )
