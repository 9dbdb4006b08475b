"""The store is tested on SQLite and on PostgreSQL alike."""

from tests.databases import database_url, db, new_postgresql, postgresql_server

__all__ = ["database_url", "db", "new_postgresql", "postgresql_server"]
