"""A queue played forward on a `Floor`, fast enough to be played many times.

The order is the queue's, what fits behind one that does not may start, and for the first that wait rooms are kept free
as `reserve` does (EASY backfill): what starts behind them must end by its own declared limit before they are due.
What runs frees its room when its draw says so, what starts takes its room for as long as its draw says.
"""

from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, heapreplace
from math import inf
from typing import Final

from cumulo.domain.sharing import WHOLE_MILLI, SharingMode
from cumulo.placement.floor import Floor, Held, Shape, Taking

# How many rooms are looked at to keep some for the head of the queue.
MOST_KEPT: Final = 64
_CLOSED: Final = -1


# Priority (negative), when it is due, and a number of its own: smaller first.
Order = tuple[int, float, int]


@dataclass(frozen=True, slots=True)
class Unit:
    """Something that waits, in its `order`. `seconds` draws how long it will run, None if nobody can tell."""

    shape: int
    order: Order
    since: float  # when it was accepted
    seconds: Callable[[float], float] | None


@dataclass(slots=True)
class _Taken:
    """What one instance holds in a play, and when it is believed to end at the latest."""

    room: int
    whole: int
    parts: list[tuple[int, int]]
    cpus: int
    memory: int
    until: float


class Play:
    """One course that things may take from `now` on, on a floor. Times in epoch seconds."""

    def __init__(self, floor: Floor, shapes: Sequence[Shape], now: float, *, most_heads: int) -> None:
        self._floor = floor
        self.shapes = shapes
        self.now = now
        self.whole = [room.whole for room in floor.rooms]
        self.parts = [list(room.parts) for room in floor.rooms]
        self.modes = [list(room.modes) for room in floor.rooms]
        self.cpus, self.memory = list(floor.cpus_free), list(floor.memory_free)
        self._node = [room.node for room in floor.rooms]
        self._there: list[dict[int, _Taken]] = [{} for _ in floor.cpus_free]  # by node, what is on it
        self._ends: list[tuple[float, int, tuple[_Taken, ...]]] = []
        self._waiting: dict[int, list[tuple[Order, Unit]]] = {}
        self._open: dict[int, dict[int, None]] = {}  # by shape that waits, the rooms where it may fit if there are any
        self._serial = 0
        self._most_heads = most_heads
        self._kept: dict[Order, _Kept] = {}
        self.events = 0

    # ---- setting the stage ------------------------------------------------------------------------------------------

    def runs(self, held: Sequence[Held], end: float | None, until: float | None) -> None:
        """Something runs: instances that end together at `end` (None: never), and declared to be over by `until`."""
        taken = tuple(
            _Taken(h.room, h.whole, list(h.parts), h.cpus, h.memory, inf if until is None else until) for h in held
        )
        self._begin(taken, inf if end is None else end)

    def waits(self, unit: Unit, *, fresh: bool) -> None:
        """Something waits; `fresh` unless it is known to fit nowhere now."""
        heap = self._waiting.setdefault(unit.shape, [])
        if not heap and fresh and self.shapes[unit.shape].takings:
            self._open[unit.shape] = dict.fromkeys(self.shapes[unit.shape].takings)
        heappush(heap, (unit.order, unit))

    # ---- playing ----------------------------------------------------------------------------------------------------

    def next_end(self) -> float:
        return self._ends[0][0] if self._ends else inf

    def to(self, at: float) -> None:
        """Moves on to `at`, and frees what has ended by then."""
        self.now = max(self.now, at)
        while self._ends and self._ends[0][0] <= at:
            self.events += 1
            for taken in heappop(self._ends)[2]:
                self._free(taken)

    def start(self, uniform: Callable[[], float]) -> list[Order]:
        """Starts what fits now, in order, and returns the orders of what started.

        The first that do not fit get rooms kept for them; all behind must leave those free by the time they are due.
        """
        turns = [(self._waiting[shape][0][0], shape) for shape in self._open]
        if not turns:
            return []
        heapify(turns)
        started: list[Order] = []
        heads = sorted(self._waiting[shape][0] for shape in self._waiting.keys() - self._open.keys())
        while turns:
            order, shape = turns[0]
            kept = self._kept_from(order, heads)
            rooms = self._rooms_for(shape, kept)
            waiting = self._waiting[shape]
            if rooms is None:
                heappop(turns)
                if not self._room_at_all(shape):
                    insort(heads, waiting[0])
                continue
            self.events += 1
            unit = heappop(waiting)[1]
            self._take(self.shapes[shape], rooms, inf if unit.seconds is None else unit.seconds(uniform()))
            self._unsettle(rooms, but=kept)
            started.append(order)
            if waiting:
                heapreplace(turns, (waiting[0][0], shape))
            else:
                heappop(turns)
                del self._waiting[shape]
                self._open.pop(shape, None)
        return started

    def _room_at_all(self, shape: int) -> bool:
        """Whether it would fit but for what is kept for others."""
        return len(self._open.get(shape, ())) >= self.shapes[shape].nodes

    def _kept_from(self, order: Order, heads: list[tuple[Order, Unit]]) -> list["_Kept"]:
        """What is kept from who has that order: for the first heads before it, one of each ask.

        It is found once for each head, and again when something changes where it is.
        """
        kept: list[_Kept] = []
        asks: set[int] = set()
        for head, unit in heads:
            if head > order or len(kept) >= self._most_heads:
                break
            ask = self.shapes[unit.shape].ask
            if ask not in asks:
                asks.add(ask)
                if head not in self._kept:
                    self._kept[head] = self._reserve(unit)
                kept.append(self._kept[head])
        return kept

    def _unsettle(self, rooms: Iterable[int], *, but: list["_Kept"]) -> None:
        """Something changed in these rooms: what is kept there is found anew, but where the change heeded it."""
        for head in [head for head, kept in self._kept.items() if not kept.spare.keys().isdisjoint(rooms)]:
            if not any(self._kept[head] is heeded for heeded in but):
                del self._kept[head]

    def _rooms_for(self, number: int, kept: list["_Kept"]) -> list[int] | None:
        """The rooms that fit best, the fullest first; rooms where it does not fit are closed to the shape."""
        shape, open_rooms = self.shapes[number], self._open[number]
        end = inf if shape.limit_s is None else self.now + shape.limit_s
        delayed = [each for each in kept if shape.limit_s is None or end > each.until(self.now)]
        found: list[tuple[str, int, int, int]] = []
        for room in list(open_rooms):
            if not self._fits(shape, room):
                del open_rooms[room]
            elif all(shape.pieces <= each.spare.get(room, shape.pieces) for each in delayed):
                first = self.whole[room] if shape.pieces else self._floor.rooms[room].total
                found.append((self._floor.rooms[room].model, first, self.memory[self._node[room]], room))
        if not open_rooms:
            del self._open[number]
        if len(found) < shape.nodes:
            return None
        if shape.nodes == 1:
            rooms = [min(found, key=_fullest)[3]]
        else:
            alike = Counter(model for model, *_ in found)
            model = max(sorted(alike), key=alike.__getitem__)
            if alike[model] < shape.nodes:
                return None
            rooms = [each[3] for each in sorted(each for each in found if each[0] == model)[: shape.nodes]]
        for each in delayed:
            for room in each.spare.keys() & set(rooms):
                each.spare[room] -= shape.pieces
        return rooms

    def _fits(self, shape: Shape, room: int) -> bool:
        taking = shape.takings[room]
        node = self._node[room]
        if self.cpus[node] < taking.cpus_least or self.memory[node] < taking.memory_least:
            return False
        if taking.mode is SharingMode.EXCLUSIVE:
            return self.whole[room] >= shape.pieces
        shared = zip(self.parts[room], self.modes[room], strict=True)
        there = sum(free // taking.milli for free, mode in shared if mode is taking.mode and free > 0)
        return there + self.whole[room] * (WHOLE_MILLI // taking.milli) >= shape.pieces

    def _take(self, shape: Shape, rooms: list[int], seconds: float) -> None:
        until = inf if shape.limit_s is None else self.now + shape.limit_s
        taken = []
        for room in rooms:
            taking, node = shape.takings[room], self._node[room]
            cpus = min(taking.cpus, max(self.cpus[node], taking.cpus_least))
            memory = min(taking.memory, max(self.memory[node], taking.memory_least))
            alone = taking.mode is SharingMode.EXCLUSIVE
            whole = shape.pieces if alone else 0
            parts = [] if alone else [self._part(room, taking) for _ in range(shape.pieces)]
            self.whole[room] -= whole
            self.cpus[node] -= cpus
            self.memory[node] -= memory
            taken.append(_Taken(room, whole, parts, cpus, memory, until))
        self._begin(tuple(taken), self.now + seconds)

    def _part(self, room: int, taking: Taking) -> tuple[int, int]:
        """Takes a part of the fullest device in its mode that has so much left, else of an untouched one."""
        parts, modes, milli = self.parts[room], self.modes[room], taking.milli
        fitting = [(free, place) for place, free in enumerate(parts) if free >= milli and modes[place] is taking.mode]
        if fitting:
            place = min(fitting)[1]
            parts[place] -= milli
        else:
            place = len(parts)
            parts.append(WHOLE_MILLI - milli)
            modes.append(taking.mode)
            self.whole[room] -= 1
        return place, milli

    def _begin(self, taken: "tuple[_Taken, ...]", end: float) -> None:
        self._serial += 1
        for each in taken:
            self._there[self._node[each.room]][id(each)] = each
        if end < inf:
            heappush(self._ends, (end, self._serial, taken))

    def _free(self, taken: _Taken) -> None:
        room, node = taken.room, self._node[taken.room]
        del self._there[node][id(taken)]
        self.cpus[node] += taken.cpus
        self.memory[node] += taken.memory
        self.whole[room] += taken.whole
        for place, milli in taken.parts:
            self.parts[room][place] += milli
            if self.parts[room][place] == WHOLE_MILLI:
                self.parts[room][place] = _CLOSED
                self.whole[room] += 1
        for number in self._floor.of_node[node]:
            for shape in self._waiting:
                if number in self.shapes[shape].takings and self._fits(self.shapes[shape], number):
                    self._open.setdefault(shape, {})[number] = None
        self._unsettle([room], but=[])

    def _reserve(self, head: Unit) -> "_Kept":
        """The rooms that are due first for a head, by what was declared; where nothing was, the emptiest."""
        shape = self.shapes[head.shape]
        due = sorted((*self._due(shape, room), room) for room in list(shape.takings)[:MOST_KEPT])[: shape.nodes]
        at = max((at for at, *_ in due), default=inf)
        return _Kept(head.since, at, {room: -spare for _, _, spare, room in due})

    def _due(self, shape: Shape, room: int) -> tuple[float, int, int]:
        """When one instance fits a room at the latest, how many must end before, and (negative) what it can spare."""
        taking, node = shape.takings[room], self._node[room]
        whole, cpus, memory = self.whole[room], self.cpus[node], self.memory[node]
        parts = 0
        at = self.now
        for gone, taken in enumerate(sorted(self._there[node].values(), key=_until)):
            alone = taking.mode is SharingMode.EXCLUSIVE
            enough = whole >= shape.pieces if alone else parts + whole * WHOLE_MILLI >= taking.milli
            if enough and cpus >= taking.cpus_least and memory >= taking.memory_least:
                return at, gone, shape.pieces - whole
            at = max(at, taken.until)
            if taken.room == room:
                whole += taken.whole
                parts += sum(milli for _, milli in taken.parts)
            cpus += taken.cpus
            memory += taken.memory
        return at, len(self._there[node]), min(0, shape.pieces - whole)


@dataclass(slots=True)
class _Kept:
    """What is kept for one that waits since then: when its room is due, and what each room can spare beside it."""

    since: float
    due: float
    spare: dict[int, int]

    def until(self, now: float) -> float:
        """Where nobody can tell when the head is due, others may slip in for as long as it has waited."""
        return self.due if self.due < inf else 2 * now - self.since


def _until(taken: _Taken) -> float:
    return taken.until


def _fullest(found: tuple[str, int, int, int]) -> tuple[int, int, int]:
    return found[1:]
