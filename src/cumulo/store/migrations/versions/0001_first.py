"""The first schema: every table as `tables.metadata` had it in version 0.1.0."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "account",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("unix_uid", sa.BigInteger(), nullable=True),
        sa.Column("admin", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="account_key"),
        sa.UniqueConstraint("unix_uid", name="account_unique_unix_uid"),
    )
    op.create_table(
        "event",
        sa.Column("seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("project", sa.String(length=64), nullable=False),
        sa.Column("account", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("run_id", sa.String(length=16), nullable=True),
        sa.Column("instance_id", sa.String(length=64), nullable=True),
        sa.Column("node_id", sa.String(length=128), nullable=True),
        sa.Column("message", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("seq", name="event_key"),
    )
    op.create_index("event_by_run", "event", ["run_id", "seq"], unique=False)
    op.create_table(
        "idempotency",
        sa.Column("account", sa.String(length=64), nullable=False),
        sa.Column("key", sa.String(length=128), nullable=False),
        sa.Column("project", sa.String(length=64), nullable=False),
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.Column("run_id", sa.String(length=16), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("account", "key", name="idempotency_key"),
    )
    op.create_index("idempotency_by_created_at", "idempotency", ["created_at"], unique=False)
    op.create_table(
        "meta",
        sa.Column("key", sa.String(length=64), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("key", name="meta_key"),
    )
    op.create_table(
        "node",
        sa.Column("id", sa.String(length=128), nullable=False),
        sa.Column("region", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("address", sa.String(length=255), nullable=False),
        sa.Column("cpus_milli", sa.BigInteger(), nullable=False),
        sa.Column("memory_bytes", sa.BigInteger(), nullable=False),
        sa.Column("emulated", sa.Boolean(), nullable=False),
        sa.Column("labels", sa.Text(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("state_reason", sa.Text(), nullable=False),
        sa.Column("seen_at", sa.Double(), nullable=False),
        sa.Column("lease_until", sa.Double(), nullable=False),
        sa.Column("generation", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.PrimaryKeyConstraint("id", name="node_key"),
    )
    op.create_table(
        "project",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("created_by", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("name", name="project_key"),
    )
    op.create_table(
        "run",
        sa.Column("id", sa.String(length=16), nullable=False),
        sa.Column("project", sa.String(length=64), nullable=False),
        sa.Column("account", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("wanted", sa.String(length=16), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("purchase", sa.String(length=16), nullable=False),
        sa.Column("ask", sa.Text(), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("waits_for", sa.Text(), nullable=False),
        sa.Column("units", sa.BigInteger(), nullable=False),
        sa.Column("units_started", sa.BigInteger(), nullable=False),
        sa.Column("units_active", sa.BigInteger(), nullable=False),
        sa.Column("units_succeeded", sa.BigInteger(), nullable=False),
        sa.Column("units_failed", sa.BigInteger(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("reason", sa.String(length=24), nullable=True),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("placed_on", sa.Text(), nullable=False),
        sa.Column("accepted_at", sa.Double(), nullable=False),
        sa.Column("placed_at", sa.Double(), nullable=True),
        sa.Column("started_at", sa.Double(), nullable=True),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.Column("cost_nano", sa.BigInteger(), nullable=False),
        sa.Column("rental_nano", sa.BigInteger(), nullable=False),
        sa.Column("progress", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="run_key"),
    )
    op.create_index("run_by_age", "run", ["accepted_at", "id"], unique=False)
    op.create_index("run_by_name", "run", ["name", "accepted_at"], unique=False)
    op.create_index("run_by_status", "run", ["status", "accepted_at"], unique=False)
    op.create_table(
        "token",
        sa.Column("id", sa.String(length=16), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("project", sa.String(length=64), nullable=False),
        sa.Column("account", sa.String(length=64), nullable=False),
        sa.Column("label", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=True),
        sa.Column("revoked_at", sa.Double(), nullable=True),
        sa.Column("used_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="token_key"),
    )
    op.create_table(
        "usage",
        sa.Column("instance_id", sa.String(length=64), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.Column("run_id", sa.String(length=16), nullable=False),
        sa.Column("project", sa.String(length=64), nullable=False),
        sa.Column("account", sa.String(length=64), nullable=False),
        sa.Column("device_model", sa.String(length=96), nullable=False),
        sa.Column("device_count", sa.Integer(), nullable=False),
        sa.Column("cpus_milli", sa.BigInteger(), nullable=False),
        sa.Column("price_nano_h", sa.BigInteger(), nullable=False),
        sa.Column("rental_nano_h", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("instance_id", "started_at", name="usage_key"),
    )
    op.create_index("usage_by_run_id", "usage", ["run_id"], unique=False)
    op.create_table(
        "device",
        sa.Column("uuid", sa.String(length=96), nullable=False),
        sa.Column("node_id", sa.String(length=128), nullable=False),
        sa.Column("place", sa.Integer(), nullable=False),
        sa.Column("model", sa.String(length=96), nullable=False),
        sa.Column("memory_bytes", sa.BigInteger(), nullable=False),
        sa.Column("emulated", sa.Boolean(), nullable=False),
        sa.Column("numa_node", sa.Integer(), nullable=True),
        sa.Column("health", sa.String(length=16), nullable=False),
        sa.Column("health_reason", sa.Text(), nullable=False),
        sa.Column("foreign_use", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["node_id"], ["node.id"], name="device_of_node_id"),
        sa.PrimaryKeyConstraint("uuid", name="device_key"),
    )
    op.create_index("device_by_node_id", "device", ["node_id"], unique=False)
    op.create_table(
        "instance",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("run_id", sa.String(length=16), nullable=False),
        sa.Column("unit", sa.BigInteger(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("project", sa.String(length=64), nullable=False),
        sa.Column("account", sa.String(length=64), nullable=False),
        sa.Column("node_id", sa.String(length=128), nullable=False),
        sa.Column("region", sa.String(length=64), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("stop_reason", sa.String(length=24), nullable=True),
        sa.Column("stop_grace_s", sa.Double(), nullable=True),
        sa.Column("reason", sa.String(length=24), nullable=True),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("signal", sa.Integer(), nullable=True),
        sa.Column("cpus_milli", sa.BigInteger(), nullable=False),
        sa.Column("memory_bytes", sa.BigInteger(), nullable=False),
        sa.Column("devices", sa.Text(), nullable=False),
        sa.Column("device_model", sa.String(length=96), nullable=False),
        sa.Column("emulated", sa.Boolean(), nullable=False),
        sa.Column("address", sa.String(length=255), nullable=False),
        sa.Column("master_port", sa.Integer(), nullable=False),
        sa.Column("price_nano_h", sa.BigInteger(), nullable=False),
        sa.Column("rental_nano_h", sa.BigInteger(), nullable=False),
        sa.Column("accepted_at", sa.Double(), nullable=False),
        sa.Column("placed_at", sa.Double(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=True),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.Column("cpu_seconds", sa.Double(), nullable=True),
        sa.Column("max_memory_bytes", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name="instance_of_run_id"),
        sa.PrimaryKeyConstraint("id", name="instance_key"),
    )
    op.create_index("instance_by_run", "instance", ["run_id", "unit", "attempt"], unique=False)
    op.create_index("instance_by_state", "instance", ["state"], unique=False)
    op.create_table(
        "unit",
        sa.Column("run_id", sa.String(length=16), nullable=False),
        sa.Column("place", sa.BigInteger(), nullable=False),
        sa.Column("project", sa.String(length=64), nullable=False),
        sa.Column("account", sa.String(length=64), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("reason", sa.String(length=24), nullable=True),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("placed_at", sa.Double(), nullable=True),
        sa.Column("started_at", sa.Double(), nullable=True),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.Column("not_before", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name="unit_of_run_id"),
        sa.PrimaryKeyConstraint("run_id", "place", name="unit_key"),
    )
    op.create_index("unit_by_status", "unit", ["status"], unique=False)
    op.create_table(
        "hold",
        sa.Column("device_uuid", sa.String(length=96), nullable=False),
        sa.Column("slice", sa.String(length=32), nullable=False),
        sa.Column("instance_id", sa.String(length=64), nullable=False),
        sa.Column("project", sa.String(length=64), nullable=False),
        sa.Column("account", sa.String(length=64), nullable=False),
        sa.Column("mode", sa.String(length=16), nullable=False),
        sa.Column("milli", sa.Integer(), nullable=False),
        sa.Column("memory_bytes", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["device_uuid"], ["device.uuid"], name="hold_of_device_uuid"),
        sa.ForeignKeyConstraint(["instance_id"], ["instance.id"], name="hold_of_instance_id"),
        sa.PrimaryKeyConstraint("device_uuid", "slice", name="hold_key"),
    )
    op.create_index("hold_by_instance_id", "hold", ["instance_id"], unique=False)
