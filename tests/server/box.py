"""A real server in this process, on a real port and a real socket, over a scripted engine."""

import asyncio
import http.client
import json
import os
import socket
import threading
import time
from dataclasses import dataclass
from typing import Any

from cumulo.control import Control
from cumulo.server.app import make_app
from cumulo.server.auth import UnixUsers
from cumulo.server.feed import Feed
from cumulo.server.listen import Address, Listeners, Server
from cumulo.server.services import Services
from cumulo.store import people, schema
from cumulo.store.blobs import Blobs
from cumulo.store.database import Database
from cumulo.store.logs import Logs
from cumulo.store.people import TokenVerifier
from tests.server.scripted import ScriptedEngine

CLOUD = "testcloud"
PATIENCE_S = 20.0


@dataclass
class Answer:
    """An HTTP answer. `json` reads its body."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class OverSocket(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path, timeout=PATIENCE_S):
        super().__init__("localhost", timeout=timeout)
        self._path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Box:
    """The server, and what a test asks of it. `ask` goes over TCP with the owner's token unless told otherwise."""

    def __init__(self, home, *, owner_uid=None):
        self.home = home
        self.socket = home / "s"
        self.db = Database.open(None, home=home)
        schema.prepare(self.db, cloud_id=CLOUD, now=time.time())
        self.logs, self.blobs = Logs(home), Blobs(home)
        self.engine = ScriptedEngine(CLOUD)
        self.control = Control(db=self.db, logs=self.logs, engines={"local": self.engine}, cloud_id=CLOUD)
        self.listeners = Listeners(Address(port=0, socket=self.socket, socket_mode=0o666))
        self.port = self.listeners.tcp.getsockname()[1]
        self.owner_uid = os.geteuid() if owner_uid is None else owner_uid
        self._ready = threading.Event()
        self._readers = []
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="box")
        self._thread.start()
        assert self._ready.wait(PATIENCE_S)
        self.token = self.token_of("owner", admin=True)

    async def _serve(self):
        self.services = Services(
            home=self.home,
            cloud_id=CLOUD,
            db=self.db,
            blobs=self.blobs,
            logs=self.logs,
            control=self.control,
            verifier=TokenVerifier(self.db),
            unix_users=UnixUsers(owner_uid=self.owner_uid),
            feed=Feed(db=self.db, logs=self.logs, changes=self.control),
            keeping=self.engine,
        )
        self.server = Server(
            make_app(self.services, loopback_only=True),
            self.listeners,
            on_ready=self._ready.set,
            on_stopping=self.services.feed.close,
        )
        await self.server.serve()

    def token_of(self, account, *, admin=False):
        with self.db.write() as tx:
            people.ensure_account(tx, name=account, unix_uid=None, admin=admin, now=time.time())
            _, text = people.create_token(
                tx, account_name=account, project_name="default", label="test", now=time.time()
            )
        return text

    def connection(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)

    def ask(self, method, path, body=None, *, token=None, headers=None, connection=None):
        """One request. `token` "" sends none; `body` that is no bytes is sent as JSON."""
        told = {"Authorization": f"Bearer {self.token if token is None else token}"} if token != "" else {}
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            told["Content-Type"] = "application/json"
        used = connection or self.connection()
        try:
            used.request(method, path, body, told | (headers or {}))
            answer = used.getresponse()
            return Answer(answer.status, {name.lower(): value for name, value in answer.headers.items()}, answer.read())
        finally:
            if connection is None:
                used.close()

    def get(self, path, **more):
        answer = self.ask("GET", path, **more)
        assert answer.status == 200, answer.body
        return answer.json

    def submit(self, run=None, *, queue=False, **more):
        """Submits a run and returns its answer's JSON."""
        run = {"run": "true", **(run or {})}
        answer = self.ask("POST", "/v1/runs", {"run": run, "queue": queue}, **more)
        assert answer.status == 201, answer.body
        return answer.json

    def running(self, run=None, **more):
        """A run that runs: (its id, its first instance's id)."""
        run_id = self.submit(run, **more)["id"]
        self.await_status(run_id, "running")
        return run_id, f"{run_id}-0-1-0"

    def await_status(self, run, *statuses):
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            row = self.get(f"/v1/runs/{run}")
            if row["status"] in statuses:
                return row
            time.sleep(0.01)
        raise AssertionError(f"{run} is {row['status']} and not {statuses}")

    def follow(self, path, **more):
        """A reader of a stream; closed after the test."""
        self._readers.append(EventReader(self, path, **more))
        return self._readers[-1]

    def finish_all(self):
        """Ends whatever still runs and closes what is still open, so that the next test begins clean."""
        while self._readers:
            self._readers.pop().close()
        for instance_id, told in list(self.engine._told.items()):
            if told.ended_at is None:
                self.engine.finish(instance_id)

    def close(self):
        self.server.stop()
        self._thread.join(PATIENCE_S)
        self.listeners.close()
        self.db.close()
        assert not self._thread.is_alive()


class EventReader:
    """Server-sent events of an open answer, one at a time: (kind, data, id)."""

    def __init__(self, box, path, *, headers=None, token=None):
        self.connection = box.connection()
        token = box.token if token is None else token
        self.connection.request(
            "GET", path, headers={"Accept": "text/event-stream", "Authorization": f"Bearer {token}", **(headers or {})}
        )
        self.answer = self.connection.getresponse()
        assert self.answer.status == 200, self.answer.read()
        self.cursor = None

    def __iter__(self):
        kind, data = None, None
        while line := self.answer.readline():
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name == "event":
                kind = value
            elif name == "id":
                self.cursor = value
            elif name == "data":
                data = json.loads(value)
            elif not name and kind:
                yield kind, data
                kind = data = None

    def until(self, wanted):
        """All events up to the first of that kind, itself included."""
        events = []
        for kind, data in self:
            events.append((kind, data))
            if kind == wanted:
                return events
        raise AssertionError(f"the stream ended without {wanted}: {events}")

    def text_until(self, wanted):
        """Log text read until it holds `wanted`."""
        text = ""
        for kind, data in self:
            if kind == "log":
                text += data["text"]
                if wanted in text:
                    return text
        raise AssertionError(f"the stream ended without {wanted!r}: {text!r}")

    def close(self):
        self.answer.close()
        self.connection.close()
