"""Alembic's entry: runs the migrations on the connection, and in the transaction, that `store.schema` hands over."""

from alembic import context

from cumulo.store.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,  # SQLite alters a table by copying it
)
context.run_migrations()
