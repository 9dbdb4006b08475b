"""Where a MIG instance lies: all layouts that a GPU may have, the moves between them, and the best move by table.

The grids are so small that every legal layout can be listed: 76 of an A30, 2,319 of an A100 or H100, 717 of an RTX PRO
6000. A device's state is then one number, placing and releasing an instance are look-ups, and a decision over thousands
of devices is a gather: `table.loss[states, profile].argmin()` names the device and `table.best_start[state, profile]`
the start. What a move costs is the worth it takes from the device (`cumulo.placement.mig_worth`).
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cumulo.catalog.mig import MigLayout
from cumulo.placement.mig_worth import worth

Integers: TypeAlias = NDArray[np.integer[Any]]
Floats: TypeAlias = NDArray[np.float64]

# For how many devices of a kind the worth is worked out at most. A table for 8 was as good as any other for 2 to 256
# devices, and on one alone within half a per cent of the optimum.
MARKET: Final = 8
# Losses this near to each other are equal, so that rounding never decides, but the order of devices and starts.
DECIMALS: Final = 6
# The mix of asks is looked at anew after so many of them, first and at last, and each time after four times as many.
FIRST_REVIEW: Final = 32
LAST_REVIEW: Final = 2048


class IllegalLayout(ValueError):
    """Instances that can't lie on one GPU together, or of a profile that it does not have."""


class ProfileShape(NamedTuple):
    """What matters of a profile: compute slices, most instances, (start, size) in memory slices, engines taken."""

    compute: int
    most: int
    places: tuple[tuple[int, int], ...]
    engines: tuple[int, ...]


class Shape(NamedTuple):
    """What matters of a GPU. Kinds that differ in names and memory alone share one, and so all that is computed."""

    grid: int
    compute: int
    engines: tuple[int, ...]
    profiles: tuple[ProfileShape, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class MigStates:
    """All layouts of a shape. State 0 is the empty GPU.

    `layouts[state]` are its instances as (profile, start), sorted. `after[state, profile, start]` is the state once
    such an instance is placed, `before[state, profile, start]` once it is gone; −1 where that can't be.
    """

    shape: Shape
    layouts: tuple[tuple[tuple[int, int], ...], ...]
    after: NDArray[np.int16]
    before: NDArray[np.int16]

    @cached_property
    def by_layout(self) -> dict[tuple[tuple[int, int], ...], int]:
        return {layout: state for state, layout in enumerate(self.layouts)}

    @cached_property
    def slices(self) -> NDArray[np.int64]:
        """Compute slices of each profile."""
        return np.array([profile.compute for profile in self.shape.profiles])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MigTable:
    """The states of one kind of GPU with what each move costs; `names[profile]` says which profile is meant.

    `worth[state]`: what a device in that state may still earn, in compute slices, relative to the empty one.
    `loss[state, profile]`: the worth that the best start takes away, inf where the profile does not fit.
    `best_start[state, profile]`: that start on the memory grid, −1 where the profile does not fit.
    """

    names: tuple[str, ...]
    states: MigStates
    worth: Floats
    loss: Floats
    best_start: NDArray[np.int8]
    empty: int = 0

    def profile(self, name: str) -> int:
        """The index of a profile. Raises IllegalLayout if this GPU has none of that name."""
        try:
            return self.names.index(name.lower())
        except ValueError:
            raise IllegalLayout(f"no MIG profile {name!r} here, only {', '.join(self.names)}") from None

    def state(self, instances: Iterable[tuple[str, int]]) -> int:
        """The state of a device on which these (profile name, start) lie. Raises IllegalLayout if they can't."""
        there = sorted((self.profile(name), start) for name, start in instances)
        state = self.states.by_layout.get(tuple(there))
        if state is None:
            lie = ", ".join(f"{self.names[profile]} at {start}" for profile, start in there)
            raise IllegalLayout(f"these MIG instances can't lie on one GPU together: {lie}")
        return state

    def instances(self, state: int) -> tuple[tuple[str, int], ...]:
        """The (profile name, start) of a state."""
        return tuple((self.names[profile], start) for profile, start in self.states.layouts[state])

    def starts(self, state: int, profile: int) -> tuple[int, ...]:
        """Every start that is free to a profile."""
        return tuple(int(start) for start in np.flatnonzero(self.states.after[state, profile] >= 0))

    def state_after(self, state: int, profile: int, start: int) -> int:
        """Raises IllegalLayout if nothing of that profile can lie there."""
        return self._moved(self.states.after, state, profile, start, "placed at")

    def release(self, state: int, profile: int, start: int) -> int:
        """The state without one of its instances. Raises IllegalLayout if no such instance is there."""
        return self._moved(self.states.before, state, profile, start, "released from")

    def _moved(self, moves: NDArray[np.int16], state: int, profile: int, start: int, what: str) -> int:
        moved = int(moves[state, profile, start]) if 0 <= start < moves.shape[2] else -1
        if moved < 0:
            there = ", ".join(f"{name} at {at}" for name, at in self.instances(state))
            raise IllegalLayout(f"a {self.names[profile]} can't be {what} {start} where lie: {there or 'none'}")
        return moved


class MigDevice(NamedTuple):
    """One device as `choose_device` sees it. `price` weighs kinds against one another: what a whole one is worth."""

    layout: MigLayout
    instances: Sequence[tuple[str, int]] = ()
    price: float = 1.0


def choose_device(devices: Sequence[MigDevice], profile: str) -> tuple[int, int] | None:
    """Which of the devices (an index) takes an instance, and at which start; None if none can.

    The one that loses the least of its worth; the first of equals. What is worth more if it stays out of MIG mode must
    be priced by the caller. Raises IllegalLayout where instances contradict each other.
    """
    many = Counter(device.layout.kind for device in devices)
    layouts = {device.layout.kind: device.layout for device in devices}
    tables = {kind: layout_table(layout, market=many[kind]) for kind, layout in layouts.items()}
    best: tuple[float, int, int] | None = None
    for index, device in enumerate(devices):
        table = tables[device.layout.kind]
        state = table.state(device.instances)
        if profile not in table.names:
            continue
        asked = table.profile(profile)
        start = int(table.best_start[state, asked])
        loss = float(table.loss[state, asked]) * device.price / device.layout.compute_slices
        if start >= 0 and (best is None or loss < best[0]):
            best = loss, index, start
    return best[1:] if best else None


@dataclass(slots=True)
class SeenMix:
    """How often each profile was asked for, the recent past counting most, and the mix as of the last review.

    Reviews are rare, for each means tables to make anew (A30: 30 ms, A100: 100 ms). They come after 32, 128, 512 and
    2,048 asks, and from then on every 1,024, when all that was counted before is halved.
    """

    counts: dict[str, float] = field(default_factory=dict)
    reviewed: dict[str, float] = field(default_factory=dict)
    due: int = FIRST_REVIEW

    def see(self, profile: str) -> bool:
        """Counts an ask; True when that changed `reviewed`."""
        self.counts[profile] = self.counts.get(profile, 0.0) + 1.0
        total = sum(self.counts.values())
        if total < self.due:
            return False
        self.reviewed = dict(self.counts)
        if self.due == LAST_REVIEW:
            self.counts = {name: count / 2 for name, count in self.counts.items()}
        self.due = min(4 * self.due, LAST_REVIEW)
        return True

    def mix(self, layout: MigLayout) -> dict[str, float]:
        """For `layout_table`: what was seen, and one ask more of each profile, as nothing seen is not never."""
        return {profile.name: self.reviewed.get(profile.name, 0.0) + 1.0 for profile in layout.profiles}


def layout_table(layout: MigLayout, *, mix: Mapping[str, float] | None = None, market: int = MARKET) -> MigTable:
    """The table of a kind, from a cache if it was made before.

    `mix` is how often each profile is asked for, in any unit (none given: all alike); `market` is how many devices of
    the kind there are. Raises ValueError for a mix of nothing.
    """
    names = tuple(profile.name for profile in layout.profiles)
    weights = (1.0,) * len(names) if mix is None else tuple(float(mix.get(name, 0.0)) for name in names)
    if min(weights) < 0 or sum(weights) <= 0:
        raise ValueError(f"a mix of MIG profiles needs a share above 0 of some of {', '.join(names)}, not {mix}")
    total = sum(weights)
    return _table(names, shape_of(layout), tuple(weight / total for weight in weights), max(1, min(market, MARKET)))


@cache
def shape_of(layout: MigLayout) -> Shape:
    """What of a layout decides which instances may lie together."""
    return Shape(
        grid=layout.grid_size,
        compute=layout.compute_slices,
        engines=tuple(layout.engines),
        profiles=tuple(
            ProfileShape(
                compute=profile.compute_slices,
                most=profile.max_instances,
                places=tuple((place.start, place.size) for place in profile.placements),
                engines=tuple(profile.engines),
            )
            for profile in layout.profiles
        ),
    )


@cache
def states_of(shape: Shape) -> MigStates:
    """Lists every layout, breadth first from the empty one, and the moves between them."""
    number: dict[tuple[tuple[int, int], ...], int] = {(): 0}
    layouts: list[tuple[tuple[int, int], ...]] = [()]
    moves: list[tuple[int, int, int, int]] = []
    for layout in layouts:  # grows while it is walked
        for profile, start in _additions(shape, layout):
            bigger = tuple(sorted((*layout, (profile, start))))
            if bigger not in number:
                number[bigger] = len(layouts)
                layouts.append(bigger)
            moves.append((number[layout], profile, start, number[bigger]))
    after = np.full((len(layouts), len(shape.profiles), shape.grid), -1, dtype=np.int16)
    before = after.copy()
    state, profiles, starts, then = np.array(moves).T
    after[state, profiles, starts] = then
    before[then, profiles, starts] = state
    for table in (after, before):
        table.flags.writeable = False
    return MigStates(shape=shape, layouts=tuple(layouts), after=after, before=before)


def _additions(shape: Shape, layout: tuple[tuple[int, int], ...]) -> Iterable[tuple[int, int]]:
    """The instances that may be added: a listed start, no overlap, and within every budget."""
    present = [profile for profile, _ in layout]
    compute = shape.compute - sum(shape.profiles[profile].compute for profile in present)
    engines = [
        total - sum(shape.profiles[profile].engines[engine] for profile in present)
        for engine, total in enumerate(shape.engines)
    ]
    taken = sum(_mask(start, dict(shape.profiles[profile].places)[start]) for profile, start in layout)
    for profile, each in enumerate(shape.profiles):
        if each.compute > compute or present.count(profile) >= each.most:
            continue
        if any(wanted > left for wanted, left in zip(each.engines, engines, strict=True)):
            continue
        yield from ((profile, start) for start, size in each.places if not taken & _mask(start, size))


def _mask(start: int, size: int) -> int:
    return ((1 << size) - 1) << start


@lru_cache(maxsize=64)
def _worth(shape: Shape, mix: tuple[float, ...], market: int) -> Floats:
    states = states_of(shape)
    return worth(states.after, states.slices, mix=np.array(mix), capacity=shape.compute, market=market)


@lru_cache(maxsize=64)
def _table(names: tuple[str, ...], shape: Shape, mix: tuple[float, ...], market: int) -> MigTable:
    states, values = states_of(shape), _worth(shape, mix, market)
    losses = np.where(states.after >= 0, values[:, None, None] - values[states.after], np.inf).round(DECIMALS)
    loss = losses.min(axis=2)
    start = np.where(np.isfinite(loss), losses.argmin(axis=2), -1).astype(np.int8)
    for array in (values, loss, start):
        array.flags.writeable = False
    return MigTable(names=names, states=states, worth=values, loss=loss, best_start=start)
