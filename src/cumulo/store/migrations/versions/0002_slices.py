"""Devices can be shared: what modes a device has, which slice of it is held, and how much of a GPU was used.

All that was held before was held whole.
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    exclusive = sa.text("'exclusive'")
    op.add_column("device", sa.Column("modes", sa.String(length=64), nullable=False, server_default=exclusive))
    op.add_column("hold", sa.Column("profile", sa.String(length=32), nullable=False, server_default=sa.text("''")))
    op.add_column("hold", sa.Column("start", sa.Integer(), nullable=True))
    for table in ("instance", "usage"):
        milli = sa.Column("gpu_milli", sa.BigInteger(), nullable=False, server_default=sa.text("0"))
        op.add_column(table, milli)
        op.add_column(table, sa.Column("gpus", sa.String(length=160), nullable=False, server_default=sa.text("''")))
    op.execute("UPDATE usage SET gpu_milli = 1000 * device_count WHERE device_count > 0")
    op.execute("UPDATE usage SET gpus = device_count || 'x ' || device_model WHERE device_count > 0")
    # As many devices as there are commas between them, and one.
    op.execute(
        "UPDATE instance SET gpu_milli = 1000 * (length(devices) - length(replace(devices, ',', '')) + 1) "
        "WHERE devices <> ''"
    )
    op.execute("UPDATE instance SET gpus = (gpu_milli / 1000) || 'x ' || device_model WHERE devices <> ''")
