"""What pools have in common, from their histories, where no shipped prior is meant to help."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from cumulo.market.hazards import AGES_S, Prior, Priors, Rates, Spell, count

# How much the pooled rates weigh against a pool's own, in events: for the whole pool, and at each age.
_POOL_EVENTS: Final = 4.0
_AGE_EVENTS: Final = 3.0
# So that an age at which nothing was seen is neither sure nor safe: half an event more, at this rate per second.
_USUAL_PER_S: Final = 1e-5


def pooled_priors(histories: Sequence[Sequence[Spell]]) -> Priors:
    """The rates of all pools taken together, at each age, in both directions."""
    return Priors(
        *(
            Prior(
                _pooled([[spell for spell in own if spell.available == up] for own in histories]),
                _POOL_EVENTS,
                _AGE_EVENTS,
            )
            for up in (True, False)
        )
    )


def _pooled(histories: Sequence[Sequence[Spell]]) -> Rates:
    counts = [count(own) for own in histories]
    events = np.sum([each.events for each in counts], axis=0) + 0.5
    seconds = np.sum([each.seconds for each in counts], axis=0) + 0.5 / _USUAL_PER_S
    return Rates(AGES_S, tuple(float(rate) for rate in events / seconds))
