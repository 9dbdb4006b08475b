"""What the API shows: read queries over plain columns, newest first, paged by key and never by offset.

Rows come back as SQLAlchemy's named tuples with the columns of `tables`; `cumulo.server` writes them as JSON. Nothing
here parses JSON. A page is asked for with the key of the last row seen, so a list that grows meanwhile neither repeats
nor skips a row.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, Row, and_, bindparam, case, func, literal, or_, select, tuple_

from cumulo.domain.lifecycle import TERMINAL, InstanceState
from cumulo.store.tables import device, hold, instance, node, run, unit, usage

_OVER: Final = [str(status) for status in TERMINAL]
_THERE: Final = [str(state) for state in InstanceState if state is not InstanceState.ENDED]
# A list never reads `spec`, which may be hundreds of kilobytes.
_RUN_ROW: Final = select(*(column for column in run.c if column.name not in ("spec", "waits_for")))

_STANDING: Final[list[Any]] = [
    *(run.c.id, run.c.status, run.c.exit_code, run.c.reason, run.c.message, run.c.progress, run.c.attempts),
    *(run.c.units_started, run.c.units_active, run.c.units_succeeded, run.c.units_failed, run.c.placed_at),
]
_SOURCE: Final[list[Any]] = [
    *(instance.c.id, instance.c.unit, instance.c.attempt, instance.c.rank, instance.c.state),
    unit.c.status.label("unit_status"),
]
# By device; MIG instances as they lie, others as they came.
_HELD_ORDER: Final[list[Any]] = [
    *(device.c.node_id, device.c.place, hold.c.start, instance.c.placed_at, hold.c.slice),
]
# The two that every look at a run asks are built once: that costs SQLAlchemy several times what running them does.
_RUN_BY_ID: Final = select(run).where(run.c.id == bindparam("of"))
_NEWEST: Final = (
    select(instance)
    .where(instance.c.run_id == bindparam("of"))
    .order_by(instance.c.placed_at.desc(), instance.c.id.desc())
    .limit(bindparam("most"))
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """Which runs. None or empty: no matter. `open_or_ended_since`: not over, or over since then (epoch seconds)."""

    statuses: tuple[str, ...] = ()
    kind: str | None = None
    name: str | None = None
    account: str | None = None
    open_or_ended_since: float | None = None


def runs(
    tx: Connection, wanted: RunFilter, *, before: tuple[float, str] | None = None, limit: int = 50
) -> Sequence[Row[Any]]:
    """Runs, newest first; `before` is (accepted_at, id) of the last one seen."""
    # SELECT ... FROM run WHERE ... AND (accepted_at, id) < (:at, :id) ORDER BY accepted_at DESC, id DESC LIMIT :limit
    query = _RUN_ROW
    if wanted.statuses:
        query = query.where(run.c.status.in_(wanted.statuses))
    for column, value in ((run.c.kind, wanted.kind), (run.c.name, wanted.name), (run.c.account, wanted.account)):
        if value is not None:
            query = query.where(column == value)
    if wanted.open_or_ended_since is not None:
        query = query.where(or_(run.c.status.not_in(_OVER), run.c.ended_at >= wanted.open_or_ended_since))
    if before is not None:
        query = query.where(tuple_(run.c.accepted_at, run.c.id) < tuple_(literal(before[0]), literal(before[1])))
    return tx.execute(query.order_by(run.c.accepted_at.desc(), run.c.id.desc()).limit(limit)).all()


def find_run(tx: Connection, text: str, *, account: str, project: str) -> Row[Any] | None:
    """The run of that id; else the newest of that name: one's own first, then one's project's, then anybody's."""
    found = tx.execute(_RUN_BY_ID, {"of": text}).first()
    if found is None:
        own = case((run.c.account == account, 0), (run.c.project == project, 1), else_=2)
        query = select(run).where(run.c.name == text).order_by(own, run.c.accepted_at.desc(), run.c.id.desc())
        found = tx.execute(query.limit(1)).first()
    return found


def run_names(tx: Connection, *, account: str | None, beginning: str = "", limit: int = 50) -> Sequence[str]:
    """Names of runs, each once, the one used last first."""
    last = func.max(run.c.accepted_at)
    query = select(run.c.name).where(run.c.name.startswith(beginning, autoescape=True)).group_by(run.c.name)
    if account is not None:
        query = query.where(run.c.account == account)
    return tx.execute(query.order_by(last.desc()).limit(limit)).scalars().all()


def standings(tx: Connection, run_ids: Sequence[str]) -> Sequence[Row[Any]]:
    """What followers wait for, of many runs at once: how each stands, its counts and its progress."""
    found: list[Row[Any]] = []
    for start in range(0, len(run_ids), 500):  # a statement has room for so many values
        found += tx.execute(select(*_STANDING).where(run.c.id.in_(run_ids[start : start + 500]))).all()
    return found


def units(tx: Connection, run_id: str, *, after: int = -1, limit: int = 50) -> Sequence[Row[Any]]:
    """Units that have started or been decided, by place."""
    query = select(unit).where(unit.c.run_id == run_id, unit.c.place > after)
    return tx.execute(query.order_by(unit.c.place).limit(limit)).all()


def find_unit(tx: Connection, run_id: str, place: int) -> Row[Any] | None:
    return tx.execute(select(unit).where(unit.c.run_id == run_id, unit.c.place == place)).first()


def instances(
    tx: Connection, run_id: str, *, after: tuple[int, int, int] = (-1, -1, -1), limit: int = 50
) -> Sequence[Row[Any]]:
    """Instances of a run by unit, attempt and rank; `after` is those three of the last one seen."""
    key = tuple_(instance.c.unit, instance.c.attempt, instance.c.rank)
    query = select(instance).where(instance.c.run_id == run_id, key > tuple_(*(literal(part) for part in after)))
    return tx.execute(query.order_by(instance.c.unit, instance.c.attempt, instance.c.rank).limit(limit)).all()


def newest_instances(tx: Connection, run_id: str, *, limit: int = 100) -> Sequence[Row[Any]]:
    return tx.execute(_NEWEST, {"of": run_id, "most": limit}).all()


def last_instance(tx: Connection, run_id: str, *, place: int, rank: int = 0) -> Row[Any] | None:
    """The instance of that rank in the last attempt of a unit."""
    query = select(instance).where(instance.c.run_id == run_id, instance.c.unit == place, instance.c.rank == rank)
    return tx.execute(query.order_by(instance.c.attempt.desc()).limit(1)).first()


def log_sources(tx: Connection, run_id: str, *, place: int | None = None) -> Sequence[Row[Any]]:
    """(id, unit, attempt, rank, state, unit_status) of all instances of a run, or of one unit, in that order."""
    of = and_(unit.c.run_id == instance.c.run_id, unit.c.place == instance.c.unit)
    query = select(*_SOURCE).join(unit, of).where(instance.c.run_id == run_id)
    if place is not None:
        query = query.where(instance.c.unit == place)
    return tx.execute(query.order_by(instance.c.unit, instance.c.attempt, instance.c.rank)).all()


def nodes(tx: Connection, *, after: str = "", limit: int = 50) -> Sequence[Row[Any]]:
    """Nodes by id, each with `cpus_held_milli` and `memory_held_bytes` of the instances that are there."""
    query = select(node, *_held()).where(node.c.id > after)
    return tx.execute(query.order_by(node.c.id).limit(limit)).all()


def find_node(tx: Connection, text: str) -> Row[Any] | None:
    """The node of that id (region/name), or of that name where only one has it."""
    found = tx.execute(select(node, *_held()).where(or_(node.c.id == text, node.c.name == text)).limit(2)).all()
    exact = [row for row in found if row.id == text]
    return exact[0] if exact else found[0] if len(found) == 1 else None


def _held() -> tuple[Any, Any]:
    there = and_(instance.c.node_id == node.c.id, instance.c.state.in_(_THERE))
    cpus = select(func.coalesce(func.sum(instance.c.cpus_milli), 0)).where(there)
    memory = select(func.coalesce(func.sum(instance.c.memory_bytes), 0)).where(there)
    return (
        cpus.scalar_subquery().label("cpus_held_milli"),
        memory.scalar_subquery().label("memory_held_bytes"),
    )


def devices(tx: Connection, node_ids: Sequence[str] | None = None) -> Sequence[Row[Any]]:
    """Devices of those nodes (None: of all) by node and place, a row for each slice held, with who holds it."""
    query = (
        select(
            device,
            hold.c.mode,
            hold.c.milli,
            hold.c.memory_bytes.label("held_bytes"),
            hold.c.profile,
            hold.c.start,
            hold.c.instance_id,
            hold.c.account.label("holder"),
            run.c.id.label("run_id"),
            run.c.name.label("run_name"),
        )
        .outerjoin(hold, hold.c.device_uuid == device.c.uuid)
        .outerjoin(instance, instance.c.id == hold.c.instance_id)
        .outerjoin(run, run.c.id == instance.c.run_id)
    )
    if node_ids is not None:
        query = query.where(device.c.node_id.in_(node_ids))
    return tx.execute(query.order_by(*_HELD_ORDER)).all()


def instance_names(tx: Connection, ids: Sequence[str]) -> dict[str, tuple[str, str, str]]:
    """(run id, run name, GPUs in words) of instances, for readings that only know ids."""
    query = select(instance.c.id, run.c.id, run.c.name, instance.c.gpus).join(run, run.c.id == instance.c.run_id)
    found: dict[str, tuple[str, str, str]] = {}
    for start in range(0, len(ids), 500):  # a statement has room for so many values
        rows = tx.execute(query.where(instance.c.id.in_(ids[start : start + 500])))
        found |= {row[0]: (row[1], row[2], row[3]) for row in rows}
    return found


def counts_by_status(tx: Connection) -> dict[str, int]:
    """How many runs there are in each status."""
    rows = tx.execute(select(run.c.status, func.count()).group_by(run.c.status))
    return {row[0]: row[1] for row in rows}


def waiting_units(tx: Connection) -> int:
    """How many units of runs that are not over have not been placed for the first time."""
    query = select(func.coalesce(func.sum(run.c.units - run.c.units_started), 0))
    query = query.where(run.c.status.not_in(_OVER), run.c.wanted == "running")
    return int(tx.execute(query).scalar_one())


def names_of_runs(tx: Connection, ids: Sequence[str]) -> dict[str, str]:
    """The names of those runs, by id."""
    return {row.id: row.name for row in tx.execute(select(run.c.id, run.c.name).where(run.c.id.in_(ids)))}


def usage_totals(
    tx: Connection, *, since: float, until: float, group: str, account: str | None = None, limit: int = 500
) -> Sequence[Row[Any]]:
    """What was used from `since` to `until` (epoch seconds), the dearest first.

    Rows (key, gpu_seconds, cpu_seconds, cost_nano, rental_nano); `group` is run, account, project or purchase. A
    segment counts for the part of it that lies inside; one still open counts up to `until`.
    """
    # SELECT account, SUM(seconds * device_count), ... FROM usage WHERE started_at < :until AND ended_at > :since
    ended = func.coalesce(usage.c.ended_at, until)
    end = case((ended > until, until), else_=ended)
    start = case((usage.c.started_at < since, since), else_=usage.c.started_at)
    seconds = case((end > start, end - start), else_=0.0)
    key = usage.c.run_id if group == "run" else usage.c[group]
    cost = func.sum(seconds * usage.c.price_nano_h / 3600.0)
    rental = func.sum(seconds * usage.c.rental_nano_h / 3600.0)
    query = select(
        key.label("key"),
        (func.sum(seconds * usage.c.gpu_milli) / 1000.0).label("gpu_seconds"),
        (func.sum(seconds * usage.c.cpus_milli) / 1000.0).label("cpu_seconds"),
        cost.label("cost_nano"),
        rental.label("rental_nano"),
    ).where(usage.c.started_at < until, ended > since)
    if account is not None:
        query = query.where(usage.c.account == account)
    return tx.execute(query.group_by(key).order_by(cost.desc(), rental.desc(), key).limit(limit)).all()
