"""The market: as what instances were bought, reservations, spot prices, when work was last saved, notices.

Until now spot runs were known by their run alone, so theirs is taken from there.
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

_BOUGHT = (
    "UPDATE {table} SET purchase = (SELECT purchase FROM run WHERE run.id = {table}.run_id) "
    "WHERE run_id IN (SELECT id FROM run)"
)


def upgrade() -> None:
    op.add_column("unit", sa.Column("purchase", sa.String(length=16), nullable=True))
    for table in ("instance", "usage"):
        bought = sa.Column("purchase", sa.String(length=16), nullable=False, server_default=sa.text("'on-demand'"))
        op.add_column(table, bought)
        op.execute(_BOUGHT.format(table=table))
    op.add_column("instance", sa.Column("reservation_id", sa.String(length=16), nullable=True))
    op.add_column("instance", sa.Column("checkpointed_at", sa.Double(), nullable=True))
    op.add_column("instance", sa.Column("preempt_at", sa.Double(), nullable=True))
    op.create_table(
        "reservation",
        sa.Column("id", sa.String(length=16), nullable=False),
        sa.Column("project", sa.String(length=64), nullable=False),
        sa.Column("account", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("region", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.String(length=96), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("price_nano_h", sa.BigInteger(), nullable=False),
        sa.Column("upfront_nano", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("starts_at", sa.Double(), nullable=False),
        sa.Column("ends_at", sa.Double(), nullable=False),
        sa.Column("over", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="reservation_key"),
    )
    op.create_index("reservation_by_end", "reservation", ["ends_at"])
    op.create_table(
        "spot_price",
        sa.Column("region", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.String(length=96), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("price_nano_h", sa.BigInteger(), nullable=False),
        sa.Column("shown_nano_h", sa.BigInteger(), nullable=False),
        sa.Column("on_demand_nano_h", sa.BigInteger(), nullable=False),
        sa.Column("capacity_milli", sa.BigInteger(), nullable=False),
        sa.Column("held_milli", sa.BigInteger(), nullable=False),
        sa.Column("wanted_milli", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("region", "kind", "at", name="spot_price_key"),
    )
