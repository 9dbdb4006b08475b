"""What a run may take by how it is bought: spot up to its bid, reserved what its reservation has left, on-demand the
rest.

A reservation promises so many GPUs of a kind, not which ones. On-demand runs, which nothing stops, may hold what no
reservation promises; what a reservation does not use just now, spot runs may, since they yield.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import inf

from cumulo.domain.ask import Ask
from cumulo.domain.quantities import NANO, format_duration
from cumulo.domain.run import PurchaseOption
from cumulo.domain.sharing import WHOLE_MILLI, share_milli
from cumulo.placement.fit import Place
from cumulo.placement.quota import least_milli
from cumulo.placement.refuse import Constraint
from cumulo.placement.shares import kinds_held
from cumulo.placement.world import Waiting, World


@dataclass(frozen=True, slots=True, kw_only=True)
class Promised:
    """A reservation: `count` GPUs of a kind for a project, from `starts_at` to `ends_at` (epoch seconds)."""

    id: str
    name: str
    project: str
    kind: str
    count: int
    starts_at: float
    ends_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Market:
    """Spot prices by GPU kind, in nano-USD per GPU-hour (a kind left out has none), and what is reserved."""

    prices: Mapping[str, int] = field(default_factory=dict)
    promised: tuple[Promised, ...] = ()


Refused = tuple[Constraint, str]


class Purchases:
    """What each purchase option may still take, while one pass gives things away."""

    def __init__(self, world: World, market: Market, now: float) -> None:
        self._prices, self._promised, self._now = market.prices, market.promised, now
        self._usable: Counter[str] = Counter()
        self._firm: dict[str, set[str]] = defaultdict(set)  # devices that on-demand runs hold, by kind
        self._drawn: Counter[str] = Counter()  # milli, by reservation
        if self._promised:
            for use in world.nodes.values():
                self._usable.update(device.model for device in use.node.devices if use.usable(device))
            for hold, kind, milli in kinds_held(world, world.holds.values()):
                if hold.reservation is not None:
                    self._drawn[hold.reservation] += milli
                elif hold.purchase is not PurchaseOption.SPOT:
                    self._firm[kind].update(hold.device_uuids)

    def bind(self, waiting: Waiting) -> bool:
        """Whether anything need be asked of an attempt: most clouds have neither prices nor reservations."""
        if waiting.purchase is PurchaseOption.SPOT:
            return waiting.bid_nano_h is not None and bool(self._prices)
        return waiting.purchase is PurchaseOption.RESERVED or bool(self._promised)

    def narrowed(self, waiting: Waiting, kinds: frozenset[str]) -> Ask | Refused:
        """The ask as far as its purchase option admits it, or why not. `kinds` are the GPU kinds that would do."""
        if waiting.ask.gpu is None or not kinds:
            return waiting.ask
        if waiting.purchase is PurchaseOption.SPOT:
            return self._within_bid(waiting, kinds)
        if waiting.purchase is PurchaseOption.RESERVED:
            return self._within_reservation(waiting, kinds)
        return self._within_rest(waiting, kinds)

    def exceeded(self, waiting: Waiting, places: tuple[Place, ...]) -> Refused | None:
        """Why these places can't be taken: they may take more than the ask could tell."""
        if waiting.ask.gpu is None or waiting.purchase is PurchaseOption.SPOT or not self._promised:
            return None
        if waiting.purchase is PurchaseOption.RESERVED:
            return None if self.reservation_of(waiting, places) else (Constraint.RESERVED, self._full(waiting))
        for kind, devices in _devices(places).items():
            left = self.left(kind, waiting.duration_s)
            if left is not None and len(devices - self._firm[kind]) > left:
                return Constraint.RESERVED, self._kept(waiting, kind, len(devices))
        return None

    def reservation_of(self, waiting: Waiting, places: tuple[Place, ...]) -> str | None:
        """The id of the reservation that such places draw on: the one that lasts longest of those with room."""
        if waiting.purchase is not PurchaseOption.RESERVED or waiting.ask.gpu is None:
            return None
        milli = sum(share_milli(place.slices) for place in places)
        kinds = {place.device_model for place in places}
        able = [one for one in self._mine(waiting) if {one.kind} == kinds and self._room(one) >= milli]
        return max(able, key=lambda one: (one.ends_at, one.id)).id if able else None

    def take(self, waiting: Waiting, places: tuple[Place, ...]) -> str | None:
        """Books the places, and returns the id of the reservation that they draw on."""
        if not self._promised:
            return None
        drawn = self.reservation_of(waiting, places)
        if drawn is not None:
            self._drawn[drawn] += sum(share_milli(place.slices) for place in places)
        elif waiting.purchase is not PurchaseOption.SPOT:
            for kind, devices in _devices(places).items():
                self._firm[kind] |= devices
        return drawn

    # ---- spot -------------------------------------------------------------------------------------------------------

    def _within_bid(self, waiting: Waiting, kinds: frozenset[str]) -> Ask | Refused:
        bid = waiting.bid_nano_h
        if bid is None:
            return waiting.ask
        open_kinds = [kind for kind in kinds if self._prices.get(kind, 0) <= bid]
        if open_kinds:
            return _of_kinds(waiting.ask, kinds, open_kinds)
        kind = min(kinds, key=lambda each: (self._prices[each], each))
        price = f"{self._prices[kind] / NANO:.2f}"
        text = f"its bid of {bid / NANO:.2f} is below the spot price of {kind}, {price} USD per GPU-hour"
        return Constraint.PRICE, f"{text}; raise the bid or drop --max-price"

    # ---- reserved ---------------------------------------------------------------------------------------------------

    def _mine(self, waiting: Waiting) -> list[Promised]:
        """The reservations that a run may draw on now."""
        return [
            one
            for one in self._promised
            if one.project == waiting.project
            and waiting.reservation in (None, one.id)
            and one.starts_at <= self._now < one.ends_at
        ]

    def _room(self, one: Promised) -> int:
        return one.count * WHOLE_MILLI - self._drawn[one.id]

    def _within_reservation(self, waiting: Waiting, kinds: frozenset[str]) -> Ask | Refused:
        mine = [one for one in self._mine(waiting) if one.kind in kinds]
        if not mine:
            return Constraint.RESERVED, self._none(waiting)
        least = max(1, least_milli(waiting.ask))
        able = [one for one in mine if self._room(one) >= least]
        if not able:
            return Constraint.RESERVED, self._full(waiting)
        most = max(self._room(one) for one in able) // WHOLE_MILLI // waiting.ask.nodes
        return _of_kinds(waiting.ask, kinds, [one.kind for one in able], most)

    def _none(self, waiting: Waiting) -> str:
        """Why there is no reservation to draw on."""
        coming = [
            one
            for one in self._promised
            if one.project == waiting.project and waiting.reservation in (None, one.id) and one.starts_at > self._now
        ]
        if coming:
            first = min(coming, key=lambda one: one.starts_at)
            return f"its reservation {first.name} begins in {format_duration(first.starts_at - self._now)}"
        if waiting.reservation is not None:
            return "its reservation is over; launch it again without one, or on another"
        return f"project {waiting.project} has no reservation of what it asks now"

    def _full(self, waiting: Waiting) -> str:
        told = [
            f"{_gpus(self._drawn[one.id])} of {one.count} {one.kind} of reservation {one.name} are in use"
            for one in self._mine(waiting)
        ]
        return f"{'; '.join(told)}, {_gpus(least_milli(waiting.ask)) or 'a part of one'} asked"

    # ---- on-demand --------------------------------------------------------------------------------------------------

    def _binding(self, kind: str, duration_s: float | None) -> list[Promised]:
        """The reservations that hold, or will before somebody who takes so long must have ended."""
        until = self._now + (inf if duration_s is None else duration_s)
        return [one for one in self._promised if one.kind == kind and self._now < one.ends_at and one.starts_at < until]

    def left(self, kind: str, duration_s: float | None = None) -> int | None:
        """How many more devices of a kind on-demand runs may begin to hold; None where nothing of it is reserved."""
        binding = self._binding(kind, duration_s)
        if not binding:
            return None
        return self._usable[kind] - sum(one.count for one in binding) - len(self._firm[kind])

    def firmly(self, kind: str, devices: Iterable[str]) -> bool:
        """Whether somebody who holds these devices may go on on-demand without taking what is reserved."""
        left = self.left(kind)
        return left is None or len(set(devices) - self._firm[kind]) <= left

    def _within_rest(self, waiting: Waiting, kinds: frozenset[str]) -> Ask | Refused:
        gpu = waiting.ask.gpu
        left = {kind: self.left(kind, waiting.duration_s) for kind in kinds}
        if gpu is None or all(devices is None for devices in left.values()):
            return waiting.ask
        whole = gpu.count_min * waiting.ask.nodes if gpu.whole else 0
        # A part may fit beside others on a device that on-demand runs hold already: only its place tells.
        open_kinds = [
            kind
            for kind, devices in left.items()
            if devices is None or devices >= max(1, whole) or (not gpu.whole and self._firm[kind])
        ]
        if not open_kinds:
            return Constraint.RESERVED, self._kept(waiting, min(kinds), whole or 1)
        counts = [devices // waiting.ask.nodes for kind in open_kinds if (devices := left[kind]) is not None]
        return _of_kinds(waiting.ask, kinds, open_kinds, min(counts) if counts and gpu.whole else None)

    def _kept(self, waiting: Waiting, kind: str, asked: int) -> str:
        binding = self._binding(kind, waiting.duration_s)
        told = ", ".join(f"{one.count} by project {one.project} {self._when(one)}" for one in binding)
        left, count = max(0, self.left(kind, waiting.duration_s) or 0), sum(one.count for one in binding)
        reserved = f"{count} of {self._usable[kind]} {kind} are reserved ({told})"
        return f"{reserved}: {left} left for on-demand runs, {asked} asked; spot runs may use them meanwhile"

    def _when(self, one: Promised) -> str:
        if one.starts_at > self._now:
            return f"from in {format_duration(one.starts_at - self._now)} on"
        return f"for another {format_duration(one.ends_at - self._now)}"


def _devices(places: Iterable[Place]) -> dict[str, set[str]]:
    """The devices that places lie on, by kind."""
    found: dict[str, set[str]] = defaultdict(set)
    for place in places:
        if place.slices:
            found[place.device_model].update(each.device_uuid for each in place.slices)
    return found


def _of_kinds(ask: Ask, kinds: frozenset[str], open_kinds: Iterable[str], most: int | None = None) -> Ask:
    """The ask for the open kinds alone, and where `most` says so for no more GPUs of each node."""
    gpu, left = ask.gpu, sorted(set(open_kinds))
    if gpu is None:
        return ask
    if len(left) < len(kinds):
        gpu = replace(gpu, names=tuple(left))
    if most is not None and gpu.whole and most < gpu.count_max:
        gpu = replace(gpu, count_max=max(gpu.count_min, most))
    return ask if gpu is ask.gpu else replace(ask, gpu=gpu)


def _gpus(milli: int) -> str:
    return f"{milli / WHOLE_MILLI:.3f}".rstrip("0").rstrip(".") if milli else "0"
