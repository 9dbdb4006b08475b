"""One door to the database: transactions that are right on SQLite and on PostgreSQL, and failures in words.

`with db.write() as tx:` and `with db.read() as tx:` yield a SQLAlchemy `Connection` inside a transaction, committed
at the end and rolled back on any exception. A read is a snapshot: all its statements see the same moment.

Writes of one process queue at a lock of our own, which is fair enough, costs a microsecond and never answers
"database is locked". It holds on PostgreSQL too: there it spares our threads from deadlocking one another.

Nothing that talks to a network or starts a process may happen inside a transaction; `in_transaction` lets a test
check it.
"""

import sqlite3
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self, cast

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from cumulo.domain.errors import CumuloError

# Everything that waits has a deadline: for the write lock, a lock of another process, a free connection.
PATIENCE_S: Final = 30.0
FILE_NAME: Final = "cumulo.db"


class Conflict(CumuloError):
    """Somebody else was there first and nothing was written: take a new look and try again."""

    def __init__(self, message: str) -> None:
        super().__init__("conflict", message, hint="try again")


class Database:
    """An open database. `dialect` is `sqlite` or `postgresql`; `commits` counts the writes that were committed."""

    def __init__(self, engine: Engine, *, path: Path | None) -> None:
        self.engine = engine
        self.dialect: str = engine.dialect.name
        self.path = path  # of the SQLite file
        self.commits = 0
        self._turn = threading.Lock()
        self._here = threading.local()
        self._begin = _begin_sqlite if path else _begin_postgresql

    @classmethod
    def open(cls, url: str | None, *, home: Path) -> Self:
        """Opens `url`, or without one the SQLite file of the state folder `home`.

        Raises CumuloError: invalid_request for a URL that can't be used, storage_read_only, storage_full,
        unreachable.
        """
        parsed = _parse(url, home)
        if parsed.get_backend_name() == "sqlite":
            path = Path(parsed.database or "").absolute()
            database = cls(_sqlite(parsed, path), path=path)
        else:
            database = cls(_postgresql(parsed), path=None)
        try:
            with database.read() as tx:
                tx.exec_driver_sql("SELECT 1")
        except BaseException:
            database.close()
            raise
        return database

    @property
    def in_transaction(self) -> bool:
        """Whether this thread is inside a transaction."""
        return getattr(self._here, "inside", False)

    @contextmanager
    def write(self) -> Generator[Connection]:
        """A transaction that may write, durable once the block has been left.

        Raises CumuloError: storage_full, storage_read_only, unreachable; Conflict when it may be tried again.
        """
        with self._alone_in_thread():
            if not self._turn.acquire(timeout=PATIENCE_S):
                raise Conflict(f"the database was busy for {PATIENCE_S:.0f} s")
            try:
                with self._told(), self._begin(self.engine, write=True) as tx:
                    yield tx
                self.commits += 1
            finally:
                self._turn.release()

    @contextmanager
    def read(self) -> Generator[Connection]:
        """A snapshot. Raises CumuloError: unreachable, storage_read_only."""
        with self._alone_in_thread(), self._told(), self._begin(self.engine, write=False) as tx:
            yield tx

    def close(self) -> None:
        self.engine.dispose()

    @contextmanager
    def _alone_in_thread(self) -> Generator[None]:
        if self.in_transaction:
            raise RuntimeError("a transaction inside a transaction: pass the outer one on")
        self._here.inside = True
        try:
            yield
        finally:
            self._here.inside = False

    @contextmanager
    def _told(self) -> Generator[None]:
        """Turns what the driver raises into an error for people; what is about a statement's data passes."""
        try:
            yield
        except PoolTimeout as error:
            raise Conflict(f"no connection to the database was free for {PATIENCE_S:.0f} s") from error
        except (DBAPIError, sqlite3.Error) as error:
            told = self._in_words(error)
            if told is None:
                raise
            raise told from error

    def _in_words(self, error: DBAPIError | sqlite3.Error) -> CumuloError | None:
        if isinstance(error, sqlite3.Error):  # from the driver itself, when a transaction begins
            return _of_sqlite(error, self.path) if self.path else None
        return _of_sqlite(error.orig, self.path) if self.path else _of_postgresql(error)


def _parse(url: str | None, home: Path) -> URL:
    if not url:
        return URL.create("sqlite", database=str(home / FILE_NAME))
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        # Its text may hold a password, so it isn't repeated.
        raise _unusable("the database URL can't be read") from None
    backend = parsed.drivername.partition("+")[0]
    if backend == "sqlite":
        if parsed.database in (None, "", ":memory:"):
            raise _unusable("a SQLite database must be a file: it has to survive a restart")
        return parsed.set(drivername="sqlite")
    if backend in ("postgresql", "postgres"):
        return parsed.set(drivername="postgresql+psycopg")
    raise _unusable(f"{backend} is not a database that Cumulo can use")


def _unusable(message: str) -> CumuloError:
    return CumuloError("invalid_request", message, hint="write postgresql://user@host/name or sqlite:///path")


def _sqlite(url: URL, path: Path) -> Engine:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise _folder_error(error, path.parent) from error
    engine = create_engine(
        url,
        pool_size=8,
        max_overflow=32,
        pool_timeout=PATIENCE_S,
        pool_use_lifo=True,
        # The driver itself must not begin transactions: it would begin them deferred, and late.
        connect_args={"timeout": PATIENCE_S, "isolation_level": None, "cached_statements": 256},
    )
    event.listen(engine, "connect", _set_up_sqlite)
    return engine


def _set_up_sqlite(connection: sqlite3.Connection, _record: Any) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")  # a commit is on the disk before it is answered
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute(f"PRAGMA journal_size_limit = {64 << 20}")


@contextmanager
def _begin_sqlite(engine: Engine, *, write: bool) -> Generator[Connection]:
    with engine.connect() as tx, tx.begin():
        # A write takes its lock at once: a transaction that reads first and then can't upgrade fails, however long it
        # waits. Said to the driver itself, since an event of SQLAlchemy for it costs three times the rest.
        driver = cast("sqlite3.Connection", tx.connection.dbapi_connection)
        driver.execute("BEGIN IMMEDIATE" if write else "BEGIN")
        yield tx


@contextmanager
def _begin_postgresql(engine: Engine, *, write: bool) -> Generator[Connection]:
    # READ COMMITTED is enough for writes: what must not race is an UPDATE guarded by the value it was planned with (a
    # node's generation, a run's status). PostgreSQL evaluates the guard again on the newest row after waiting for its
    # lock, so the second of two changes no row, which the caller sees; keys refuse the rest.
    with engine.connect() as tx:
        if not write:
            tx.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        with tx.begin():
            yield tx


def _postgresql(url: URL) -> Engine:
    try:
        return create_engine(
            url,
            isolation_level="READ COMMITTED",
            pool_size=8,
            max_overflow=24,
            pool_timeout=PATIENCE_S,
            pool_use_lifo=True,
            connect_args={
                "connect_timeout": 10,
                "application_name": "cumulo",
                # A server that was frozen in a transaction loses it rather than holding everybody up.
                "options": "-c lock_timeout=30s -c idle_in_transaction_session_timeout=60s",
            },
        )
    except ModuleNotFoundError as error:
        raise CumuloError(
            "invalid_request",
            "PostgreSQL's driver is not installed",
            hint="pip install 'cumulo[postgres]'",
        ) from error


# https://sqlite.org/rescode.html; a name holds for the primary code and all its extensions.
_SQLITE_FULL: Final = {13, 4874}  # FULL; IOERR_SHMSIZE: no room for the shared memory file
_SQLITE_READ_ONLY: Final = {8, 14}  # READONLY, CANTOPEN
_SQLITE_BUSY: Final = {5, 6}  # BUSY, LOCKED: another process holds it
_SQLITE_DAMAGED: Final = {11, 26}  # CORRUPT, NOTADB


def _of_sqlite(error: BaseException | None, path: Path) -> CumuloError | None:
    extended = getattr(error, "sqlite_errorcode", 0)
    codes = {extended, extended & 0xFF}
    if codes & _SQLITE_FULL:
        return _full(f"the disk that holds {path} is full")
    if codes & _SQLITE_READ_ONLY:
        return _read_only(path.parent)
    if codes & _SQLITE_BUSY:
        return Conflict(f"{path} was locked by another process for {PATIENCE_S:.0f} s")
    if codes & _SQLITE_DAMAGED:
        return CumuloError("internal", f"{path} is damaged or not a database", hint="restore it from a backup")
    return None


_POSTGRESQL_CONFLICT: Final = {"40001", "40P01", "55P03"}  # serialization, deadlock, lock_timeout
_POSTGRESQL_FULL: Final = {"53100"}
_POSTGRESQL_READ_ONLY: Final = {"25006"}  # a standby, say
_POSTGRESQL_GONE: Final = {"57P01", "57P02", "57P03", "25P03", "53300"}


def _of_postgresql(error: DBAPIError) -> CumuloError | None:
    code = getattr(error.orig, "sqlstate", None)
    if code in _POSTGRESQL_CONFLICT:
        return Conflict("another transaction was there first")
    if code in _POSTGRESQL_FULL:
        return _full("the disk of the PostgreSQL server is full")
    if code in _POSTGRESQL_READ_ONLY:
        return CumuloError("storage_read_only", "the PostgreSQL server is read-only", hint="point at the primary")
    connecting = code is None and type(error.orig).__name__ == "OperationalError"
    if error.connection_invalidated or code in _POSTGRESQL_GONE or connecting:
        reason = str(error.orig).strip().partition("\n")[0]
        return CumuloError("unreachable", f"the PostgreSQL server does not answer: {reason}")
    return None


def _full(message: str) -> CumuloError:
    return CumuloError("storage_full", message, hint="make room; `cumulo df` shows what Cumulo keeps")


def _read_only(folder: Path) -> CumuloError:
    return CumuloError("storage_read_only", f"{folder} can't be written", hint="see who owns it and how it is mounted")


def _folder_error(error: OSError, folder: Path) -> CumuloError:
    return _full(f"the disk that would hold {folder} is full") if error.errno == 28 else _read_only(folder)
