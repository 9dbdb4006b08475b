"""All the changes of one step of the control loop, written in one transaction.

The loop works out what changes while no transaction is open and collects it here; `flush` writes it with one statement
a kind of change. Several changes of one row become one update. A placement names the generation its node was planned
with; if any node has moved on, `Overtaken` is raised, nothing is written, and the caller plans again on a new one.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from sqlalchemy import Connection, Insert, Table, Update, bindparam, delete, insert, update

from cumulo.store import picture
from cumulo.store import tables as t
from cumulo.store.events import NewEvent, append

Row = dict[str, Any]
NodeRows = tuple[Row, list[Row]]  # of the node, and of its devices

# Statements are made once, here and below: to build one anew costs SQLAlchemy several times what running it does.
# UPDATE node SET generation = g + 1 WHERE id = ? AND generation = g
_GUARD: Final = (
    update(t.node)
    .where(t.node.c.id == bindparam("of"), t.node.c.generation == bindparam("planned"))
    .values(generation=bindparam("next"))
)
_RELEASE: Final = delete(t.hold).where(t.hold.c.instance_id == bindparam("gone"))
_DROP_SEGMENT: Final = delete(t.usage).where(
    t.usage.c.instance_id == bindparam("of"), t.usage.c.started_at == bindparam("since")
)


class Overtaken(Exception):
    """A node's generation was not the one planned with: somebody else placed there first."""


@dataclass(slots=True)
class Batch:
    """Changes by table; keys are those of the tables' rows. A node that is None is forgotten."""

    nodes: dict[str, NodeRows | None] = field(default_factory=dict)
    generations: dict[str, int] = field(default_factory=dict)
    new_units: dict[tuple[str, int], Row] = field(default_factory=dict)
    new_instances: dict[str, Row] = field(default_factory=dict)
    new_holds: list[Row] = field(default_factory=list)
    new_usage: dict[tuple[str, float], Row] = field(default_factory=dict)
    runs: dict[str, Row] = field(default_factory=lambda: defaultdict(dict))
    units: dict[tuple[str, int], Row] = field(default_factory=lambda: defaultdict(dict))
    instances: dict[str, Row] = field(default_factory=lambda: defaultdict(dict))
    segments: dict[tuple[str, float], Row] = field(default_factory=lambda: defaultdict(dict))
    dropped_segments: list[tuple[str, float]] = field(default_factory=list)
    new_reservations: list[Row] = field(default_factory=list)
    reservations: dict[str, Row] = field(default_factory=lambda: defaultdict(dict))
    spot_prices: list[Row] = field(default_factory=list)
    released: list[str] = field(default_factory=list)
    events: list[NewEvent] = field(default_factory=list)

    def __bool__(self) -> bool:
        return any(getattr(self, name) for name in self.__slots__)

    def run(self, run_id: str, **values: Any) -> None:
        self.runs[run_id].update(values)

    def unit(self, run_id: str, place: int, **values: Any) -> None:
        new = self.new_units.get((run_id, place))
        (self.units[run_id, place] if new is None else new).update(values)

    def instance(self, instance_id: str, **values: Any) -> None:
        new = self.new_instances.get(instance_id)
        (self.instances[instance_id] if new is None else new).update(values)

    def segment(self, instance_id: str, since: float, **values: Any) -> None:
        """Changes the segment of use that began at `since`."""
        new = self.new_usage.get((instance_id, since))
        (self.segments[instance_id, since] if new is None else new).update(values)

    def drop_segment(self, instance_id: str, since: float) -> None:
        """The segment never was: the instance had ended before."""
        if self.new_usage.pop((instance_id, since), None) is None:
            self.dropped_segments.append((instance_id, since))

    def reservation(self, reservation_id: str, **values: Any) -> None:
        self.reservations[reservation_id].update(values)

    def event(self, event: NewEvent) -> None:
        self.events.append(event)

    def flush(self, tx: Connection) -> None:
        """Writes everything. Raises Overtaken when a guard fails; the caller's transaction must then roll back."""
        there = {node_id: rows for node_id, rows in self.nodes.items() if rows is not None}
        picture.save_nodes(tx, [node for node, _ in there.values()])
        self._guard(tx)
        # Before the new holds: what ended in this step may be placed anew in the same step.
        if self.released:
            tx.execute(_RELEASE, [{"gone": instance_id} for instance_id in self.released])
        picture.save_devices(tx, there, [device for _, devices in there.values() for device in devices])
        picture.forget_nodes(tx, self.nodes.keys() - there)
        _insert(tx, t.unit, self.new_units.values())
        _insert(tx, t.instance, self.new_instances.values())
        _insert(tx, t.hold, self.new_holds)
        _insert(tx, t.usage, self.new_usage.values())
        _insert(tx, t.spot_price, self.spot_prices)
        _insert(tx, t.reservation, self.new_reservations)
        _update(tx, t.reservation, {(key,): row for key, row in self.reservations.items()}, ("id",))
        _update(tx, t.run, {(key,): row for key, row in self.runs.items()}, ("id",))
        _update(tx, t.unit, self.units, ("run_id", "place"))
        _update(tx, t.instance, {(key,): row for key, row in self.instances.items()}, ("id",))
        _update(tx, t.usage, self.segments, ("instance_id", "started_at"))
        if self.dropped_segments:
            tx.execute(_DROP_SEGMENT, [{"of": name, "since": since} for name, since in self.dropped_segments])
        append(tx, *self.events)

    def _guard(self, tx: Connection) -> None:
        """Raises Overtaken unless every node is where it was when it was planned with."""
        planned: list[Row] = [
            {"of": node_id, "planned": generation, "next": generation + 1}
            for node_id, generation in self.generations.items()
        ]
        # One call for all of them, where the driver adds up the rows that many such statements changed.
        for some in [planned] if tx.dialect.supports_sane_multi_rowcount else [[one] for one in planned]:
            if some and tx.execute(_GUARD, some).rowcount != len(some):
                raise Overtaken(", ".join(one["of"] for one in some[:10]))


def _insert(tx: Connection, table: Table, rows: Any) -> None:
    listed = list(rows)
    if listed:
        tx.execute(_insert_into(table), listed)


def _update(tx: Connection, table: Table, rows: Mapping[tuple[Any, ...], Row], key: tuple[str, ...]) -> None:
    """Updates rows by key, one executemany for each set of changed columns."""
    by_columns: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for values_of_key, row in rows.items():
        if row:
            marks = {f"key_{name}": value for name, value in zip(key, values_of_key, strict=True)}
            by_columns[tuple(sorted(row))].append(marks | row)
    for columns, listed in by_columns.items():
        tx.execute(_update_of(table, columns, key), listed)


@cache
def _insert_into(table: Table) -> Insert:
    return insert(table)


@cache
def _update_of(table: Table, columns: tuple[str, ...], key: tuple[str, ...]) -> Update:
    """As many as there are sets of columns that change together: some dozens."""
    statement = update(table).where(*(table.c[name] == bindparam(f"key_{name}") for name in key))
    return statement.values({name: bindparam(name) for name in columns})
