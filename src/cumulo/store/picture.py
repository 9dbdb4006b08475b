"""What the control loop reads of the store: everything that is not over, in a handful of queries.

Plain rows; `cumulo.control` makes its own objects of them. A new run is read by id, everything at the start.
"""

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Connection, RowMapping, Table, bindparam, delete, func, insert, select, update

from cumulo.domain.lifecycle import ACTIVE, TERMINAL, InstanceState, RunStatus
from cumulo.store import tables as t

_OPEN = [str(status) for status in (*ACTIVE, RunStatus.STOPPED)]
# The place of a device that its node no longer has, but that somebody still holds.
OUT_OF_SIGHT: Final = -1
_OVER = [str(status) for status in TERMINAL]


# What a submit and the step after it ask is built once: that costs SQLAlchemy several times what running it does.
_RUN = select(t.run, t.account.c.unix_uid).outerjoin(t.account, t.account.c.name == t.run.c.account)
_RUN_BY_ID = _RUN.where(t.run.c.id == bindparam("of"))
_INSERT_RUN = insert(t.run)
_IDEMPOTENT = select(t.idempotency.c.run_id, t.idempotency.c.fingerprint).where(
    t.idempotency.c.account == bindparam("of"), t.idempotency.c.key == bindparam("under")
)
_INSERT_IDEMPOTENCY = insert(t.idempotency)


def open_runs(tx: Connection, only: Iterable[str] | None = None) -> Sequence[RowMapping]:
    """Rows of runs that are not over (with the Unix user of their account), oldest first; or those of `only`."""
    if only is not None:
        rows = (tx.execute(_RUN_BY_ID, {"of": run_id}).mappings().first() for run_id in only)
        return [row for row in rows if row is not None and row["status"] in _OPEN]
    query = _RUN.where(t.run.c.status.in_(_OPEN)).order_by(t.run.c.accepted_at, t.run.c.id)
    return tx.execute(query).mappings().all()


def open_units(tx: Connection) -> Sequence[RowMapping]:
    """Units that are not over, of runs that are not over."""
    query = select(t.unit).join(t.run, t.run.c.id == t.unit.c.run_id)
    return tx.execute(query.where(t.run.c.status.in_(_OPEN), t.unit.c.status.not_in(_OVER))).mappings().all()


def outcomes(tx: Connection) -> Sequence[tuple[str, str, int]]:
    """(run id, terminal status, how many units) for runs that are not over."""
    query = select(t.unit.c.run_id, t.unit.c.status, func.count())
    query = query.join(t.run, t.run.c.id == t.unit.c.run_id)
    query = query.where(t.run.c.status.in_(_OPEN), t.unit.c.status.in_(_OVER))
    return [(row[0], row[1], row[2]) for row in tx.execute(query.group_by(t.unit.c.run_id, t.unit.c.status))]


def skipped_places(tx: Connection) -> Sequence[tuple[str, int]]:
    """Places that came, or were cancelled, before their turn, of runs that are not over."""
    query = select(t.unit.c.run_id, t.unit.c.place).join(t.run, t.run.c.id == t.unit.c.run_id)
    query = query.where(t.run.c.status.in_(_OPEN), t.unit.c.place >= t.run.c.units_started)
    return [(row[0], row[1]) for row in tx.execute(query)]


def open_instances(tx: Connection) -> Sequence[RowMapping]:
    """Instances that have not ended, and the ended ones of attempts that still have some running."""
    unended = select(t.instance.c.run_id, t.instance.c.unit, t.instance.c.attempt)
    going = unended.where(t.instance.c.state != str(InstanceState.ENDED)).distinct().subquery()
    same = (
        (t.instance.c.run_id == going.c.run_id)
        & (t.instance.c.unit == going.c.unit)
        & (t.instance.c.attempt == going.c.attempt)
    )
    return tx.execute(select(t.instance).join(going, same).order_by(t.instance.c.id)).mappings().all()


def open_segments(tx: Connection) -> Sequence[tuple[str, float, float | None, int]]:
    """Segments of use of instances that have not ended: (instance id, started_at, ended_at, price), oldest first."""
    columns = (t.usage.c.instance_id, t.usage.c.started_at, t.usage.c.ended_at, t.usage.c.price_nano_h)
    query = select(*columns).join(t.instance, t.instance.c.id == t.usage.c.instance_id)
    query = query.where(t.instance.c.state != str(InstanceState.ENDED)).order_by(*columns[:2])
    return [(row[0], row[1], row[2], row[3]) for row in tx.execute(query)]


def past_instances(tx: Connection, attempts: int) -> Sequence[RowMapping]:
    """Ended instances of the last so many attempts of units that are not over."""
    of = (t.unit.c.run_id == t.instance.c.run_id) & (t.unit.c.place == t.instance.c.unit)
    query = select(t.instance).join(t.unit, of).join(t.run, t.run.c.id == t.unit.c.run_id)
    open_ones = t.run.c.status.in_(_OPEN) & t.unit.c.status.not_in(_OVER)
    late = t.instance.c.attempt >= t.unit.c.attempts - attempts
    query = query.where(open_ones, late, t.instance.c.state == str(InstanceState.ENDED))
    return tx.execute(query.order_by(t.instance.c.id)).mappings().all()


def ended_attempts(tx: Connection, most: int) -> Sequence[RowMapping]:
    """Of the latest attempts that ran and ended who ran them, how long, why they ended and their spec; oldest first."""
    query = select(
        t.instance.c.project, t.instance.c.account, t.instance.c.started_at, t.instance.c.ended_at, t.instance.c.reason,
        t.run.c.spec,
    ).join(t.run, t.run.c.id == t.instance.c.run_id)  # fmt: skip
    ran = t.instance.c.started_at.is_not(None) & t.instance.c.ended_at.is_not(None)
    query = query.where(ran, t.instance.c.rank == 0)
    return tx.execute(query.order_by(t.instance.c.ended_at.desc()).limit(most)).mappings().all()[::-1]


def spot_attempts(tx: Connection, most: int) -> Sequence[RowMapping]:
    """The latest attempts: as what they were bought, for how long, and why they ended; in the order of placement."""
    columns = ("run_id", "unit", "attempt", "region", "device_model", "purchase", "reason")
    times = ("accepted_at", "placed_at", "started_at", "ended_at")
    query = select(*(t.instance.c[name] for name in (*columns, *times))).where(t.instance.c.rank == 0)
    return tx.execute(query.order_by(t.instance.c.placed_at.desc()).limit(most)).mappings().all()[::-1]


def ended_ranks(tx: Connection, runs: Collection[str]) -> Sequence[RowMapping]:
    """Of the ended attempts of some runs when they started and when they last saved what they did."""
    names = ("run_id", "unit", "attempt", "started_at", "checkpointed_at")
    query = select(*(t.instance.c[name] for name in names))
    mine = t.instance.c.run_id.in_(list(runs)) & (t.instance.c.rank == 0)
    return tx.execute(query.where(mine, t.instance.c.ended_at.is_not(None))).mappings().all()


def told(tx: Connection, runs: Collection[str], kinds: Collection[str]) -> Sequence[tuple[str, str]]:
    """(run id, kind) of the events of these kinds that some runs have had."""
    query = select(t.event.c.run_id, t.event.c.kind).distinct()
    rows = tx.execute(query.where(t.event.c.run_id.in_(list(runs)), t.event.c.kind.in_(list(kinds))))
    return [(row[0], row[1]) for row in rows]


def nodes(tx: Connection) -> Sequence[RowMapping]:
    return tx.execute(select(t.node).order_by(t.node.c.id)).mappings().all()


def devices(tx: Connection) -> Sequence[RowMapping]:
    """Devices that are there, by node and place."""
    query = select(t.device).where(t.device.c.place != OUT_OF_SIGHT)
    return tx.execute(query.order_by(t.device.c.node_id, t.device.c.place)).mappings().all()


def holds(tx: Connection) -> Sequence[RowMapping]:
    """All that is held, as one instance took it."""
    place = (t.device.c.place, t.hold.c.device_uuid, t.hold.c.start)
    query = select(t.hold).join(t.device, t.device.c.uuid == t.hold.c.device_uuid)
    return tx.execute(query.order_by(t.hold.c.instance_id, *place)).mappings().all()


def instance_state(tx: Connection, instance_id: str) -> str | None:
    """The state of any instance ever known; None if the store never heard of it."""
    return tx.execute(select(t.instance.c.state).where(t.instance.c.id == instance_id)).scalar()


def run_statuses(tx: Connection, ids: Iterable[str]) -> dict[str, RunStatus]:
    rows = tx.execute(select(t.run.c.id, t.run.c.status).where(t.run.c.id.in_(list(ids))))
    return {row[0]: RunStatus(row[1]) for row in rows}


def insert_run(tx: Connection, row: dict[str, Any]) -> None:
    tx.execute(_INSERT_RUN, [row])


def idempotent_run(tx: Connection, account: str, key: str) -> tuple[str, str] | None:
    """(run id, fingerprint) of the request that used the key before."""
    row = tx.execute(_IDEMPOTENT, {"of": account, "under": key}).first()
    return (row[0], row[1]) if row else None


def insert_idempotency(tx: Connection, row: dict[str, Any]) -> None:
    tx.execute(_INSERT_IDEMPOTENCY, [row])


def save_nodes(tx: Connection, rows: Iterable[dict[str, Any]]) -> None:
    """Writes nodes as observed. The generation is the placements' and stays."""
    listed = list(rows)
    if listed:
        known = set(tx.execute(select(t.node.c.id)).scalars())
        _save(tx, t.node, "id", known, listed, new={"generation": 0})


def save_devices(tx: Connection, nodes: Collection[str], rows: Iterable[dict[str, Any]]) -> None:
    """Writes all devices of `nodes` as observed; a device may have come from another node.

    One that is no longer there is deleted, or kept out of sight for as long as it is held.
    """
    if not nodes:
        return
    seen = {row["uuid"]: row for row in rows}
    known = {row.uuid: row.node_id for row in tx.execute(select(t.device.c.uuid, t.device.c.node_id))}
    _save(tx, t.device, "uuid", known, list(seen.values()))
    vanished = [uuid for uuid, node_id in known.items() if node_id in nodes and uuid not in seen]
    held = {uuid for (uuid,) in tx.execute(select(t.hold.c.device_uuid))}
    for uuid in vanished:
        of = t.device.c.uuid == uuid
        tx.execute(
            update(t.device).where(of).values(place=OUT_OF_SIGHT) if uuid in held else delete(t.device).where(of)
        )


def _save(
    tx: Connection,
    table: Table,
    key: str,
    known: Container[str],
    rows: Sequence[dict[str, Any]],
    *,
    new: Mapping[str, Any] | None = None,
) -> None:
    """Updates the rows that are `known` by their key, and inserts the others with what is `new` about them."""
    there = [row | {"of": row[key]} for row in rows if row[key] in known]
    if there:
        values: dict[str, Any] = {name: bindparam(name) for name in there[0] if name != "of"}
        tx.execute(update(table).where(table.c[key] == bindparam("of")).values(values), there)
    others = [row | dict(new or {}) for row in rows if row[key] not in known]
    if others:
        tx.execute(insert(table), others)


def forget_nodes(tx: Connection, node_ids: Iterable[str]) -> None:
    """Deletes nodes that are no longer there and of which nothing is held."""
    for node_id in node_ids:
        tx.execute(delete(t.device).where(t.device.c.node_id == node_id))
        tx.execute(delete(t.node).where(t.node.c.id == node_id))
