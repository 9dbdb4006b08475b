"""What projects have used of late, for those who share fairly: pieces of use, few enough to be read at every start.

Pieces that are short are added up over the bucket of time that they ended in; long ones, of which there can't be many,
are told one by one.
"""

from collections.abc import Iterator
from typing import NamedTuple

from sqlalchemy import BigInteger, Connection, cast, func, select

from cumulo.store import tables as t


class Used(NamedTuple):
    """That a project used so much for `seconds` until `until`: GPUs and CPUs in milli, memory in bytes."""

    project: str
    gpus_milli: float
    cpus_milli: float
    memory_bytes: float
    seconds: float
    until: float


def used(tx: Connection, *, since: float, bucket_s: float, now: float) -> Iterator[Used]:
    """All use that ended after `since` or goes on, in buckets of `bucket_s`."""
    yield from _short(tx, since, bucket_s)
    yield from _long(tx, since, bucket_s, now)


_started, _ended = t.usage.c.started_at, t.usage.c.ended_at
_seconds = _ended - _started
# Nobody pays for memory by itself, so only the instance says how much it was.
_AMOUNTS = (t.usage.c.gpu_milli, t.usage.c.cpus_milli, func.coalesce(t.instance.c.memory_bytes, 0))
_USE = t.usage.outerjoin(t.instance, t.instance.c.id == t.usage.c.instance_id)


def _short(tx: Connection, since: float, bucket_s: float) -> Iterator[Used]:
    bucket = cast(_ended / bucket_s, BigInteger)
    sums = [func.sum(amount * _seconds) for amount in _AMOUNTS]
    query = select(t.usage.c.project, func.max(_ended), *sums).select_from(_USE)
    query = query.where(_ended > since, _seconds <= bucket_s).group_by(t.usage.c.project, bucket)
    for project, until, gpus, cpus, memory in tx.execute(query):
        yield Used(project, gpus / bucket_s, cpus / bucket_s, memory / bucket_s, seconds=bucket_s, until=until)


def _long(tx: Connection, since: float, bucket_s: float, now: float) -> Iterator[Used]:
    late = (_ended > since) & (_seconds > bucket_s)
    query = select(t.usage.c.project, *_AMOUNTS, _started, _ended).select_from(_USE).where(_ended.is_(None) | late)
    for project, gpus, cpus, memory, started, ended in tx.execute(query):
        until = now if ended is None else ended
        yield Used(project, gpus, cpus, memory, seconds=max(0.0, until - started), until=until)
