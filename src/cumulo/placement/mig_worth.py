"""What a layout of a MIG device is worth: what the device may still earn from it, in compute slices.

One GPU alone is a Markov decision process: asks arrive by a mix of profiles, instances end, and an accepted ask earns
its compute slices. The relative values of the best policy are then the worth of each layout, and to take the move that
costs the least worth is that policy.

Among many, a device earns only what the others could not have earned as well. So the value is that of a device in a
market of m: every ask goes to the device that loses the least worth by it, and the winner earns the difference to the
runner-up (the rule of a second-price auction, which pays exactly what the winner adds to the whole), or the ask's
slices less its own loss where no other could take it. With the other m − 1 devices as independent draws from the
stationary distribution π of this very game (mean field), worth h and π are one fixed point:

    g = Σ_p m λ_p E[(C_p − ℓ_p(s))⁺] + Σ_i (h(s − i) − h(s))     for every layout s, i its instances, ends at rate 1
    ℓ_p(s) = h(s) − max over starts of h(s + p),  C_p = the least ℓ_p of the others, or p's slices if none fits

For m = 1 nobody else fits and this is Howard's equation of the decision process. Policies that split asks evenly over
devices undervalue what is rare and large: a fleet needs only a few empty GPUs, not an even chance on each.
"""

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

# Slices asked for, of those that are there. Measured at 0.8 to 1.2: the choice hardly depends on it.
LOAD: Final = 1.0
# Steps of the iteration, and the one from which on they shorten: the order of near bids would swing for ever. Three
# times as many steps accept no more asks.
STEPS: Final = 60
FULL_STEPS: Final = 20
FIRST_STEP: Final = 0.5


class Moves(NamedTuple):
    """Every legal placement, sorted by (state, profile), and where each such pair's begin.

    Arrays over moves: `source` and `target` states. Over pairs: `first` move, `state`, `profile`.
    """

    source: Indices
    target: Indices
    first: Indices
    state: Indices
    profile: Indices


class Bids(NamedTuple):
    """One profile's bids, the least loss first, and who wins: arrays over the states that it fits."""

    state: Indices
    target: Indices
    won: Floats  # rate at which a device in the state gets such an ask
    surplus: Floats  # earned by it over the runner-up, per unit of time
    rate: Floats  # of asks that it would not leave to another


def worth(
    after: NDArray[np.int16], slices: NDArray[np.int64], *, mix: Floats, capacity: int, market: int, load: float = LOAD
) -> Floats:
    """The worth of every state (shape: states), relative to state 0, the empty one.

    `after[state, profile, start]` are the moves (−1: none), `slices[profile]` what an ask earns, `mix[profile]` the
    shares of the asks (sum 1), `capacity` the compute slices of a device, `market` how many devices compete.
    """
    moves = _moves(after)
    states, profiles = after.shape[:2]
    rates = mix * load * capacity / (mix @ slices)
    lying = _sums(moves.target, np.ones(len(moves.target)), states)  # each instance is one way into its state
    pairs = [np.flatnonzero(moves.profile == profile) for profile in range(profiles)]
    value, share = np.zeros(states), np.zeros(states)
    share[0] = 1.0
    for step in range(STEPS):
        losses, targets = _best(moves, value)
        gain = _sums(moves.target, value[moves.source] - value[moves.target], states)
        inflow = _sums(moves.source, share[moves.target], states)
        pace, outflow = lying + 1.0, lying.copy()
        for profile, pair in enumerate(pairs):
            order = pair[np.argsort(losses[pair].round(9), kind="stable")]
            at, to, asked = moves.state[order], targets[order], float(rates[profile])
            bids = _bids(at, to, losses[order], share[at], asked, float(slices[profile]), market)
            gain[bids.state] += bids.surplus
            pace[bids.state] += bids.rate
            outflow[bids.state] += bids.won
            inflow += _sums(bids.target, bids.won * share[bids.state], states)
        length = FIRST_STEP * min(1.0, FULL_STEPS / (step + 1))
        value += length * (gain - share @ gain) / pace
        value -= value[0]
        settled = np.divide(inflow, outflow, out=np.zeros(states), where=outflow > 0)
        share += length * (settled / settled.sum() - share)
    return value


def _moves(after: NDArray[np.int16]) -> Moves:
    source, profile, _ = legal = np.nonzero(after >= 0)
    target = after[legal].astype(np.intp)
    key = source * after.shape[1] + profile
    first = np.flatnonzero(np.diff(key, prepend=-1))
    return Moves(source, target, first, source[first], profile[first])


def _best(moves: Moves, value: Floats) -> tuple[Floats, Indices]:
    """Of every pair of state and profile: the least loss, and the state that the (first) best start leads to."""
    reached = value[moves.target]
    best = np.maximum.reduceat(reached, moves.first)
    lengths = np.diff(moves.first, append=len(reached))
    place = np.where(reached == np.repeat(best, lengths), np.arange(len(reached)), len(reached))
    return value[moves.state] - best, moves.target[np.minimum.reduceat(place, moves.first)]


def _bids(
    state: Indices, target: Indices, loss: Floats, share: Floats, asked: float, earned: float, market: int
) -> Bids:
    """Lets a market bid for the asks of one profile, which come at rate `asked` per device.

    `share[k]` is the part of the devices that are in the state with the k-th least loss.
    """
    up_to = np.minimum(np.cumsum(share), 1.0)
    below = np.concatenate(([0.0], up_to[:-1]))
    # A device wins when no other bids lower: its state's part of the asks, over its part of the devices.
    some = share > 1e-9
    part = (1 - below) ** market - (1 - up_to) ** market
    won = asked * np.where(some, part / np.where(some, share, 1.0), market * (1 - below) ** (market - 1))
    # The least loss of the others: `rival[k]` is the chance that it is the k-th.
    rival = (1 - below) ** (market - 1) - (1 - up_to) ** (market - 1)
    alone = (1 - up_to[-1]) ** (market - 1)
    higher = _sum_after(rival)
    surplus = _sum_after(rival * loss) - higher * loss + alone * (earned - loss)
    return Bids(state, target, won, market * asked * surplus, market * asked * (higher + alone))


def _sums(at: Indices, values: Floats, states: int) -> Floats:
    """The sum of the values at each state."""
    return np.asarray(np.bincount(at, values, states), dtype=float)


def _sum_after(values: NDArray[Any]) -> Floats:
    """The sum of what comes after each."""
    return np.asarray(values[::-1].cumsum()[::-1] - values, dtype=float)
