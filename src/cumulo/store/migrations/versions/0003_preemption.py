"""Runs are preempted: for whom an instance makes room, and how many attempts of a unit ended that way.

Nothing was preempted before.
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.add_column("instance", sa.Column("stopped_for", sa.String(length=64), nullable=True))
    op.add_column("unit", sa.Column("preemptions", sa.Integer(), nullable=False, server_default=sa.text("0")))
