"""The search for the cheapest mix of replicas over pools, counting what missing replicas cost.

Mixes are vectors of counts over columns (a pool and a purchase option). The value of a mix has no convex shape: one
spare in another pool does nothing for four replicas that are lost together. So the search begins at mixes of each
plain form (the wanted number over one pool, over two, over three…) as well as at what is there, and goes from the best
of them by single additions, removals and swaps.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from cumulo.domain.run import PurchaseOption
from cumulo.market.survivors import Counts, Floats, Survivors

_BETTER: Final = 1e-9
_PARTS: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""Over how many columns the wanted number is laid evenly to begin with."""
_STEPS: Final = 12
"""Of more additions, or removals, than these only the best are tried in pairs."""


class Column(NamedTuple):
    """Replicas of one option in one pool: `lost` is the chance to lose them all within a cold start, `most` how many
    there may be, `room` how many the pool holds of all options."""

    pool: str
    option: PurchaseOption
    region: str
    price: float
    lost: float
    cold_start_s: float
    most: int
    room: int


class Weights(NamedTuple):
    """What a mix is judged by; `most` is how many replicas it may hold."""

    target: int
    missing: float
    outage: float
    most: int
    payback_s: float


class Mix(NamedTuple):
    """How many replicas of each column, and the chance of too few after a cold start, with it and as things are."""

    counts: tuple[int, ...]
    short: float
    short_as_is: float


def best_mix(columns: Sequence[Column], have: Sequence[int], weights: Weights) -> Mix:
    """The best mix that the search finds from what is there; where pools hold fewer than the target, the fullest."""
    if not columns:
        return Mix((), float(weights.target > 0), float(weights.target > 0))
    search = _Search(columns, np.array(have, dtype=np.int64), weights)
    found = search.run()
    short, as_is = search.short(np.stack([found, search.have]))
    return Mix(tuple(int(count) for count in found), float(short), float(as_is))


class _Search:
    def __init__(self, columns: Sequence[Column], have: Counts, weights: Weights) -> None:
        self.have, self.weights = have, weights
        self.price = np.array([column.price for column in columns])
        self.lost = np.array([column.lost for column in columns])
        self.most = np.maximum(np.array([column.most for column in columns]), have)
        self.launch = self.price * np.array([column.cold_start_s for column in columns]) / weights.payback_s
        regions = {region: number for number, region in enumerate(dict.fromkeys(column.region for column in columns))}
        self.regions = np.array([regions[column.region] for column in columns])
        pools = {pool: number for number, pool in enumerate(dict.fromkeys(column.pool for column in columns))}
        self.pool_of = [pools[column.pool] for column in columns]
        self.pools = np.eye(len(pools), dtype=np.int64)[self.pool_of]
        room = {column.pool: column.room for column in columns}
        self.room = np.maximum(np.array([room[pool] for pool in pools]), have @ self.pools)
        self.room_of = [int(room) for room in self.room]
        self.limit = max(weights.most, int(have.sum()))
        survivors = np.arange(self.limit + 2)
        self.too_few = (survivors < weights.target).astype(np.float64)
        self.harm: Floats = weights.missing * np.maximum(weights.target - survivors, 0.0)
        self.harm[0] += weights.outage if weights.target else 0.0
        self.survivors = Survivors(lost=self.lost, regions=self.regions, most=self.limit + 1)

    def short(self, mixes: Counts) -> Floats:
        chances: Floats = np.clip(self.survivors.expected(mixes, self.too_few), 0.0, 1.0)
        return chances

    def value(self, mixes: Counts) -> Floats:
        """What each mix costs per unit of time, harm and launches included."""
        launched = np.maximum(mixes - self.have, 0) @ self.launch
        total: Floats = mixes @ self.price + launched + self.survivors.expected(mixes, self.harm)
        return total

    def run(self) -> Counts:
        starts = np.array(self._starts())
        sizes = np.minimum(starts.sum(axis=1), self.weights.target)
        starts = starts[sizes == sizes.max()]
        values = self.value(starts)
        mix: Counts = starts[int(values.argmin())]
        best = float(values.min())
        for _ in range(4 * self.limit + 4):
            near = self._near(mix)
            if not len(near):
                break
            values = self.value(near)
            chosen = int(values.argmin())
            if values[chosen] >= best - _BETTER and mix.sum() <= self.weights.most:
                break
            mix, best = near[chosen], float(values[chosen])
        return mix

    def _starts(self) -> list[list[int]]:
        """What is there, filled up to the target, and the target (and more) over few pools and over many."""
        target, most = self.weights.target, self.weights.most
        worth = self.price + self.lost * (self.weights.missing + self.weights.outage / max(target, 1))
        worth += np.where(self.have > 0, 0.0, self.launch)
        order = [int(column) for column in np.argsort(worth, kind="stable")]
        starts = [self._filled(self.have.tolist(), order, each=target, most=target)[-1]]
        parts = [number for number in _PARTS if number <= min(target, len(order))]
        for each in sorted({-(-target // number) for number in parts}):
            for ranked in (order, self._over_regions(order)):
                mixes = self._filled([0] * len(order), ranked, each=each, most=most)
                starts += [mix for mix in mixes if sum(mix) >= target]
        return list(map(list, dict.fromkeys(map(tuple, starts))))

    def _over_regions(self, order: list[int]) -> list[int]:
        """The same columns, each time the best of the region that had the fewest yet."""
        used: Counter[int] = Counter()
        turns = []
        for column in order:
            region = int(self.regions[column])
            turns.append((used[region], column))
            used[region] += 1
        return [column for _, column in sorted(turns, key=lambda turn: turn[0])]

    def _filled(self, mix: list[int], order: list[int], *, each: int, most: int) -> list[list[int]]:
        """`mix`, and again with up to `each` more of the next column in `order` until there are `most`."""
        mixes, size = [mix], sum(mix)
        free = list(self.room_of)
        for column, count in enumerate(mix):
            free[self.pool_of[column]] -= count
        for column in order:
            more = min(each, most - size, int(self.most[column]) - mix[column], free[self.pool_of[column]])
            if more > 0:
                mix = [count + more * (number == column) for number, count in enumerate(mix)]
                size, free[self.pool_of[column]] = size + more, free[self.pool_of[column]] - more
                mixes.append(mix)
        return mixes

    def _near(self, mix: Counts) -> Counts:
        """Mixes that are one addition, one removal or one swap away and that may be: all, or of many the likeliest."""
        none = np.zeros((1, len(mix)), dtype=np.int64)
        more = np.vstack((none, self._likeliest(mix, np.eye(len(mix), dtype=np.int64)[mix < self.most])))
        fewer = np.vstack((none, self._likeliest(mix, -np.eye(len(mix), dtype=np.int64)[mix > 0])))
        near = (mix + more[:, None, :] + fewer[None, :, :]).reshape(-1, len(mix))
        size, now = near.sum(axis=1), int(mix.sum())
        fits = (near <= self.most).all(axis=1) & (near @ self.pools <= self.room).all(axis=1)
        fits &= (size <= self.weights.most) | (size < now)
        fits &= size >= min(now, self.weights.target)
        fits &= (near != mix).any(axis=1)
        found: Counts = near[fits]
        return found

    def _likeliest(self, mix: Counts, steps: Counts) -> Counts:
        """The steps from `mix` that would do best alone, in their order."""
        if len(steps) <= _STEPS:
            return steps
        found: Counts = steps[np.sort(np.argsort(self.value(mix + steps), kind="stable")[:_STEPS])]
        return found
