"""The store is tested on SQLite and on PostgreSQL alike."""

from tests.databases import _new_postgresql, database_url, db, postgresql_server

__all__ = ["_new_postgresql", "database_url", "db", "postgresql_server"]
