"""Both databases for tests: fixtures that a conftest imports by name.

A PostgreSQL server of our own runs for the session as an ordinary user, on a socket in a temporary folder, without
fsync; every test gets a database of its own, copied from a prepared template.
"""

import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import create_engine

from cumulo.store import schema
from cumulo.store.database import Database

NOW = 1_760_000_000.0
CLOUD_ID = "testcloud"
_USER = "cumulo"
_SETTINGS = {
    "fsync": "off",
    "listen_addresses": "",
    "shared_buffers": "16MB",
    "max_connections": "100",
    "autovacuum": "off",
    "log_min_messages": "fatal",
}


def _binaries() -> Path | None:
    """Where initdb and postgres are: on the PATH, or where Debian puts them."""
    found = shutil.which("initdb")
    if found:
        return Path(found).resolve().parent
    return max(Path("/usr/lib/postgresql").glob("*/bin"), default=None)


def _as_ordinary_user(command: list[str]) -> list[str]:
    """PostgreSQL refuses to run as root; it dies with this process, however that ends."""
    become = ["setpriv", "--pdeathsig", "INT"]
    if os.geteuid() == 0:
        user = _ordinary_user()
        become += ["--reuid", str(user.pw_uid), "--regid", str(user.pw_gid), "--clear-groups"]
    return [*become, *command]


def _ordinary_user() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    pytest.skip("no ordinary user to run PostgreSQL as")


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[Callable[[str], str]]:
    """A running server; calling it with a database's name gives the URL."""
    binaries = _binaries()
    if binaries is None:
        pytest.skip("PostgreSQL is not installed")
    folder = Path(tempfile.mkdtemp(prefix="cumulo-postgresql-"))
    try:
        if os.geteuid() == 0:
            os.chown(folder, _ordinary_user().pw_uid, _ordinary_user().pw_gid)
        data = str(folder / "data")
        make = [
            str(binaries / "initdb"),
            "-D",
            data,
            "-U",
            _USER,
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C",
            "--no-sync",
        ]
        subprocess.run(_as_ordinary_user(make), cwd=folder, check=True, capture_output=True, timeout=60)
        settings = [f"-c{key}={value}" for key, value in _SETTINGS.items()]
        serve = [str(binaries / "postgres"), "-D", data, "-k", str(folder), *settings]
        with subprocess.Popen(_as_ordinary_user(serve), cwd=folder, stderr=subprocess.DEVNULL) as process:
            try:
                _await(folder, process)
                yield lambda name: f"postgresql://{_USER}@/{name}?host={folder}"
            finally:
                process.send_signal(signal.SIGINT)  # ends open connections
                process.wait(timeout=30)
    finally:
        shutil.rmtree(folder)


def _await(folder: Path, process: "subprocess.Popen[bytes]") -> None:
    """Until it lets somebody in: its socket is there before that."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        assert process.poll() is None, "PostgreSQL did not start"
        try:
            psycopg.connect(user=_USER, host=str(folder), dbname="postgres", connect_timeout=5).close()
        except psycopg.OperationalError:
            time.sleep(0.05)
        else:
            return
    pytest.fail("PostgreSQL let nobody in for two minutes")


@pytest.fixture(scope="session")
def new_postgresql(postgresql_server: Callable[[str], str]) -> Iterator[Callable[..., str]]:
    """Makes a database, copied from a prepared template or empty, and gives its URL."""
    admin = create_engine(
        postgresql_server("postgres").replace("postgresql:", "postgresql+psycopg:"), isolation_level="AUTOCOMMIT"
    )
    numbers = itertools.count()

    def create(*, prepared: bool) -> str:
        name = f"test_{next(numbers)}"
        with admin.connect() as connection:
            connection.exec_driver_sql(f"CREATE DATABASE {name} TEMPLATE {'prepared' if prepared else 'template1'}")
        return postgresql_server(name)

    with admin.connect() as connection:
        connection.exec_driver_sql("CREATE DATABASE prepared")
    template = Database.open(postgresql_server("prepared"), home=Path("/nonexistent"))
    schema.prepare(template, cloud_id=CLOUD_ID, now=NOW)
    template.close()
    yield create
    admin.dispose()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database of each kind, for what opens and prepares it itself."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/cumulo.db"
    url: str = request.getfixturevalue("new_postgresql")(prepared=False)
    return url


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """An open, prepared database of each kind, with the cloud id CLOUD_ID."""
    if request.param == "sqlite":
        database = Database.open(None, home=tmp_path)
        schema.prepare(database, cloud_id=CLOUD_ID, now=NOW)
    else:
        database = Database.open(request.getfixturevalue("new_postgresql")(prepared=True), home=tmp_path)
    yield database
    database.close()
