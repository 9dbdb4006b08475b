"""Puts a server together: state folder, database, engine, control, application. The one module that knows them all.

The order is that of what fails first: the lock and the port are told about before anything is opened, so a second
`cumulo up` changes nothing. Nothing here speaks to a network.
"""

import logging
import os
import secrets
import time
from dataclasses import dataclass
from pathlib import Path

from cumulo import __version__
from cumulo.control import Control
from cumulo.domain.errors import CumuloError
from cumulo.engines.local import LocalEngine
from cumulo.engines.simulated import SimulatedEngine
from cumulo.server import config, render
from cumulo.server.app import make_app
from cumulo.server.auth import UnixUsers, unix_name
from cumulo.server.feed import Feed
from cumulo.server.listen import Address, Listeners, Server, run
from cumulo.server.services import Services
from cumulo.server.state import Running, StateFolder, told
from cumulo.store import people, picture, schema
from cumulo.store.blobs import Blobs
from cumulo.store.database import FILE_NAME, Database
from cumulo.store.logs import Logs
from cumulo.store.people import TokenVerifier

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to start: `database` None is SQLite in `home`; `emulate` names emulated devices in place of real ones.

    What was emulated last stays so until another `emulate` is given; `off` ends it. `simulate` names simulated nodes in
    place of this machine; a state folder that began with it has no others.
    """

    home: Path
    address: Address
    database: str | None = None
    emulate: str | None = None
    simulate: str | None = None


def serve(options: Options) -> None:
    """Runs a server until it is told to stop. Raises CumuloError when it can't start."""
    folder = StateFolder(options.home)
    folder.claim()
    try:
        listeners = Listeners(options.address)
        try:
            _serve(options, folder, listeners)
        finally:
            listeners.close()
    finally:
        folder.release()


def _serve(options: Options, folder: StateFolder, listeners: Listeners) -> None:
    read = config.read(options.home)
    db = _database(options)
    try:
        services, engine = _services(options, folder, db, read)
        _own_token(services, folder)
        app = make_app(services, loopback_only=options.address.loopback)
        running = Running(
            pid=os.getpid(),
            url=listeners.url,
            socket=str(options.address.socket) if listeners.unix else None,
            version=__version__,
            started_at=render.time_of(time.time()) or "",
        )
        try:
            run(
                Server(
                    app,
                    listeners,
                    on_ready=lambda: folder.announce(running),
                    on_stopping=services.feed.close,
                )
            )
        finally:
            engine.close()
    finally:
        db.close()


def _database(options: Options) -> Database:
    if options.database is None:
        # SQLite gives its other files the mode of this one; nobody else has business in it.
        try:
            os.close(os.open(options.home / FILE_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        except OSError as error:
            raise told(error, options.home) from error
    return Database.open(options.database, home=options.home)


def _services(
    options: Options, folder: StateFolder, db: Database, read: config.Config
) -> tuple[Services, LocalEngine | SimulatedEngine]:
    cloud_id = schema.prepare(db, cloud_id=secrets.token_hex(6), now=time.time())
    with db.write() as tx:
        for name in read.rules.policy.projects:
            people.ensure_project(tx, name, created_by=unix_name(os.geteuid()), now=time.time())
    blobs, logs = Blobs(options.home), Logs(options.home)
    engine = _engine(options, folder, db, blobs, cloud_id)
    control = Control(
        db=db, logs=logs, engines={engine.name: engine}, cloud_id=cloud_id, rates=read.rates, rules=read.rules
    )
    services = Services(
        home=options.home,
        cloud_id=cloud_id,
        db=db,
        blobs=blobs,
        logs=logs,
        control=control,
        verifier=TokenVerifier(db),
        unix_users=UnixUsers(owner_uid=os.geteuid()),
        feed=Feed(db=db, logs=logs, changes=control),
        keeping=engine,
    )
    return services, engine


def _engine(
    options: Options, folder: StateFolder, db: Database, blobs: Blobs, cloud_id: str
) -> LocalEngine | SimulatedEngine:
    simulate, emulate = _simulation(options, db), _remembered(db, "emulate", options.emulate)
    emulate = None if emulate == "off" else emulate
    engine: LocalEngine | SimulatedEngine
    try:
        if simulate:
            engine = SimulatedEngine(root=folder.node, cloud_id=cloud_id, nodes=simulate)
        else:
            engine = LocalEngine(
                root=folder.node, cloud_id=cloud_id, blobs=blobs, emulate=emulate, hidden=(options.home,)
            )
    except ValueError as error:
        flag = "--simulate" if simulate else "--emulate"
        raise CumuloError("invalid_request", f"{flag}: {error}", hint="write for example A100-80GB:8") from None
    except OSError as error:
        raise told(error, folder.node) from error
    _remember(db, "simulate" if simulate else "emulate", simulate or emulate or "")
    return engine


def _simulation(options: Options, db: Database) -> str | None:
    """What is simulated, as given or as the last time; None in a cloud of this machine.

    Never both in one state folder: runs of the one would be neither seen nor ended by the other.
    """
    simulate = _remembered(db, "simulate", options.simulate)
    hint = "give it a state folder of its own by CUMULO_HOME, and its own database"
    if simulate and options.emulate is not None:
        raise CumuloError("conflict", "--emulate: the nodes of this cloud are simulated", hint=hint)
    if options.simulate is not None:
        with db.read() as tx:
            others = [row["id"] for row in picture.nodes(tx) if row["region"] != SimulatedEngine.kind]
        if others:
            raise CumuloError("conflict", f"--simulate: this cloud has nodes already ({others[0]})", hint=hint)
    return simulate


def _remembered(db: Database, what: str, given: str | None) -> str | None:
    """As given, else as the last time, since runs may hold devices of what was declared then."""
    if given is not None:
        return given
    with db.read() as tx:
        return schema.get_meta(tx, what, "") or None


def _remember(db: Database, what: str, declared: str) -> None:
    with db.read() as tx:
        if schema.get_meta(tx, what, "") == declared:
            return
    with db.write() as tx:
        schema.set_meta(tx, what, declared)


def _own_token(services: Services, folder: StateFolder) -> None:
    """Sees to it that the owner's token file holds a token that this database knows."""
    uid = os.geteuid()
    with services.db.write() as tx:
        owner = people.ensure_account(tx, name=unix_name(uid), unix_uid=uid, admin=True, now=time.time())
    known = folder.read("token")
    if known is not None:
        try:
            services.verifier.verify(known)
            return
        except CumuloError:
            logger.info("the token in %s is of another database or revoked; a new one is made", folder.home)
    with services.db.write() as tx:
        _, text = people.create_token(
            tx,
            account_name=owner.name,
            project_name=schema.DEFAULT_PROJECT,
            label="own token",
            now=time.time(),
        )
    folder.write("token", text + "\n", mode=0o600)
