"""Every table of the store, on one page.

Plain SQLAlchemy Core, the same on SQLite and PostgreSQL. Times are epoch seconds as doubles (microseconds
survive), money is integer nano-USD, JSON is text that only a detail view parses. Whatever belongs to somebody
carries project and account.

What the tables guarantee: an attempt can't be placed twice (instance's key is run-unit-attempt-rank),
a slice can't be held twice (hold's key), an idempotency key answers for one request.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    text,
)

# Constraints have names, so that a later migration can speak of them.
metadata = MetaData(
    naming_convention={
        "ix": "%(table_name)s_by_%(column_0_name)s",
        "uq": "%(table_name)s_unique_%(column_0_name)s",
        "fk": "%(table_name)s_of_%(column_0_name)s",
        "pk": "%(table_name)s_key",
    }
)

# SQLite autoincrements only a column of type INTEGER; PostgreSQL wants 64 bits.
_SERIAL = BigInteger().with_variant(Integer, "sqlite")


def _owner() -> tuple[Column[str], Column[str]]:
    return Column("project", String(64), nullable=False), Column("account", String(64), nullable=False)


meta = Table(
    "meta",
    metadata,
    Column("key", String(64), primary_key=True),  # cloud_id, created_at, epoch
    Column("value", Text, nullable=False),
)

project = Table(
    "project",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("created_at", Double, nullable=False),
    Column("created_by", String(64), nullable=False),
)

account = Table(
    "account",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("unix_uid", BigInteger, unique=True),  # the Unix user whose runs these are; NULL: the server's own
    Column("admin", Boolean, nullable=False),
    Column("created_at", Double, nullable=False),
)

token = Table(
    "token",
    metadata,
    Column("id", String(16), primary_key=True),
    Column("hash", String(64), nullable=False),  # SHA-256 of the secret, hex
    *_owner(),
    Column("label", String(64), nullable=False),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double),
    Column("revoked_at", Double),
    Column("used_at", Double),
)

node = Table(
    "node",
    metadata,
    Column("id", String(128), primary_key=True),  # region/name
    Column("region", String(64), nullable=False),
    Column("name", String(64), nullable=False),
    Column("address", String(255), nullable=False),
    Column("cpus_milli", BigInteger, nullable=False),
    Column("memory_bytes", BigInteger, nullable=False),
    Column("emulated", Boolean, nullable=False),
    Column("labels", Text, nullable=False),
    Column("state", String(16), nullable=False),
    Column("state_reason", Text, nullable=False),
    Column("seen_at", Double, nullable=False),
    Column("lease_until", Double, nullable=False),
    # Every placement on a node raises its generation by one, guarded by the value it was planned with.
    Column("generation", BigInteger, nullable=False, server_default=text("0")),
)

device = Table(
    "device",
    metadata,
    Column("uuid", String(96), primary_key=True),
    Column("node_id", String(128), ForeignKey("node.id"), nullable=False, index=True),
    Column("place", Integer, nullable=False),
    Column("model", String(96), nullable=False),
    Column("memory_bytes", BigInteger, nullable=False),
    Column("emulated", Boolean, nullable=False),
    Column("numa_node", Integer),
    Column("health", String(16), nullable=False),
    Column("health_reason", Text, nullable=False),
    Column("foreign_use", Text, nullable=False),
    Column("modes", String(64), nullable=False, server_default=text("'exclusive'")),  # sharing modes, comma-separated
)

run = Table(
    "run",
    metadata,
    Column("id", String(16), primary_key=True),
    *_owner(),
    Column("name", String(64), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("status", String(16), nullable=False),
    Column("wanted", String(16), nullable=False),  # running, stopped, cancelled
    Column("priority", Integer, nullable=False),
    Column("purchase", String(16), nullable=False),
    Column("ask", Text, nullable=False),  # for people: "2 nodes x A100:8, 16 CPUs"
    Column("spec", Text, nullable=False),  # the RunSpec as JSON: parsed for a detail view and at start, never in a list
    Column("waits_for", Text, nullable=False),  # ids of runs it comes after, comma-separated, less those that succeeded
    Column("units", BigInteger, nullable=False),
    Column("units_started", BigInteger, nullable=False),  # places 0..n-1 have rows in `unit`
    Column("units_active", BigInteger, nullable=False),
    Column("units_succeeded", BigInteger, nullable=False),
    Column("units_failed", BigInteger, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("exit_code", Integer),
    Column("reason", String(24)),
    Column("message", Text, nullable=False),
    Column("placed_on", Text, nullable=False),  # for people: "box (A100-80GB x2)"
    Column("accepted_at", Double, nullable=False),
    Column("placed_at", Double),
    Column("started_at", Double),
    Column("ended_at", Double),
    Column("cost_nano", BigInteger, nullable=False),
    Column("rental_nano", BigInteger, nullable=False),  # what the same hardware would have rented for
    Column("progress", Text),  # {"done", "total", "unit", "metrics", "at", "since_done", "since_at"}
    Index("run_by_status", "status", "accepted_at"),
    Index("run_by_age", "accepted_at", "id"),
    Index("run_by_name", "name", "accepted_at"),
)

unit = Table(
    "unit",
    metadata,
    Column("run_id", String(16), ForeignKey("run.id"), primary_key=True),
    Column("place", BigInteger, primary_key=True),  # 0-based; the array index follows from the spec
    *_owner(),
    Column("status", String(16), nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("exit_code", Integer),
    Column("reason", String(24)),
    Column("message", Text, nullable=False),
    Column("placed_at", Double),
    Column("started_at", Double),
    Column("ended_at", Double),
    Column("not_before", Double),  # a retry waits until then
    Column("preemptions", Integer, nullable=False, server_default=text("0")),  # attempts that made room for others
    Column("purchase", String(16)),  # as what it is placed now; NULL: as its run says
    Index("unit_by_status", "status"),
)

instance = Table(
    "instance",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("run_id", String(16), ForeignKey("run.id"), nullable=False),
    Column("unit", BigInteger, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("rank", Integer, nullable=False),
    *_owner(),
    Column("node_id", String(128), nullable=False),
    Column("region", String(64), nullable=False),
    Column("state", String(16), nullable=False),
    Column("stop_reason", String(24)),  # set once it is wanted to end: why
    Column("stop_grace_s", Double),
    Column("reason", String(24)),
    Column("message", Text, nullable=False),
    Column("exit_code", Integer),
    Column("signal", Integer),
    Column("cpus_milli", BigInteger, nullable=False),
    Column("memory_bytes", BigInteger, nullable=False),
    Column("devices", Text, nullable=False),  # uuids, comma-separated; kept after the end
    Column("device_model", String(96), nullable=False),
    Column("emulated", Boolean, nullable=False),
    Column("address", String(255), nullable=False),
    Column("master_port", Integer, nullable=False),
    Column("price_nano_h", BigInteger, nullable=False),
    Column("rental_nano_h", BigInteger, nullable=False),
    Column("accepted_at", Double, nullable=False),
    Column("placed_at", Double, nullable=False),
    Column("started_at", Double),
    Column("ended_at", Double),
    Column("cpu_seconds", Double),
    Column("max_memory_bytes", BigInteger),
    Column("gpu_milli", BigInteger, nullable=False, server_default=text("0")),  # of all its devices together
    Column("gpus", String(160), nullable=False, server_default=text("''")),  # for people: "0.25 of H100-80GB (mps)"
    Column("stopped_for", String(64)),  # the attempt that it makes room for: run-unit-attempt
    Column("purchase", String(16), nullable=False, server_default=text("'on-demand'")),
    Column("reservation_id", String(16)),  # that it draws on
    Column("checkpointed_at", Double),  # when what it has done was last saved, as far as it told
    Column("preempt_at", Double),  # until when it may stay, as it was told
    Index("instance_by_run", "run_id", "unit", "attempt"),
    Index("instance_by_state", "state"),
)

hold = Table(
    "hold",
    metadata,
    Column("device_uuid", String(96), ForeignKey("device.uuid"), primary_key=True),
    Column("slice", String(32), primary_key=True),  # "whole", "mig 4" (its start), or who holds the fraction
    Column("instance_id", String(64), ForeignKey("instance.id"), nullable=False, index=True),
    *_owner(),
    Column("mode", String(16), nullable=False),
    Column("milli", Integer, nullable=False),
    Column("memory_bytes", BigInteger, nullable=False),
    Column("profile", String(32), nullable=False, server_default=text("''")),  # of a MIG instance
    Column("start", Integer),  # of a MIG instance: its first memory slice
)

usage = Table(
    "usage",
    metadata,
    Column("instance_id", String(64), primary_key=True),
    Column("started_at", Double, primary_key=True),
    Column("ended_at", Double),  # NULL: still running
    Column("run_id", String(16), nullable=False, index=True),
    *_owner(),
    Column("device_model", String(96), nullable=False),
    Column("device_count", Integer, nullable=False),
    Column("cpus_milli", BigInteger, nullable=False),
    Column("price_nano_h", BigInteger, nullable=False),
    Column("rental_nano_h", BigInteger, nullable=False),
    Column("gpu_milli", BigInteger, nullable=False, server_default=text("0")),
    Column("gpus", String(160), nullable=False, server_default=text("''")),
    Column("purchase", String(16), nullable=False, server_default=text("'on-demand'")),
)

reservation = Table(
    "reservation",
    metadata,
    Column("id", String(16), primary_key=True),
    *_owner(),
    Column("name", String(64), nullable=False),
    Column("region", String(64), nullable=False),
    Column("kind", String(96), nullable=False),  # a GPU kind, as devices are named
    Column("count", Integer, nullable=False),
    Column("price_nano_h", BigInteger, nullable=False),  # of one GPU, used or not, while it holds
    Column("upfront_nano", BigInteger, nullable=False),  # of all, when it begins
    Column("created_at", Double, nullable=False),
    Column("starts_at", Double, nullable=False),
    Column("ends_at", Double, nullable=False),  # earlier than its term if it was given back
    Column("over", Boolean, nullable=False),  # it has ended, and what drew on it goes on otherwise
    Index("reservation_by_end", "ends_at"),
)

spot_price = Table(
    "spot_price",
    metadata,
    Column("region", String(64), primary_key=True),
    Column("kind", String(96), primary_key=True),
    Column("at", Double, primary_key=True),
    Column("price_nano_h", BigInteger, nullable=False),  # of one GPU, until the next row
    Column("shown_nano_h", BigInteger, nullable=False),  # the same smoothed, for people
    Column("on_demand_nano_h", BigInteger, nullable=False),
    Column("capacity_milli", BigInteger, nullable=False),  # what spot runs could have, those that run included
    Column("held_milli", BigInteger, nullable=False),
    Column("wanted_milli", BigInteger, nullable=False),  # what waits, at any bid
)

event = Table(
    "event",
    metadata,
    Column("seq", _SERIAL, primary_key=True, autoincrement=True),
    Column("at", Double, nullable=False),
    *_owner(),
    Column("kind", String(32), nullable=False),  # run.accepted, run.running, instance.ended, node.unreachable, ...
    Column("run_id", String(16)),
    Column("instance_id", String(64)),
    Column("node_id", String(128)),
    Column("message", Text, nullable=False),
    Index("event_by_run", "run_id", "seq"),
)

idempotency = Table(
    "idempotency",
    metadata,
    Column("account", String(64), primary_key=True),
    Column("key", String(128), primary_key=True),
    Column("project", String(64), nullable=False),
    Column("fingerprint", String(64), nullable=False),
    Column("run_id", String(16), nullable=False),
    Column("created_at", Double, nullable=False, index=True),
)
