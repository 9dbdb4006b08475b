"""`Client`: one method for each thing the API can do, in its words, typed."""

from __future__ import annotations  # so that an answer is imported by what asks for it, not by a signature

import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Self, cast

from cumulo.client import answers, endpoint, sse
from cumulo.client.answers.runs import Progress, Run
from cumulo.client.decode import decode
from cumulo.client.endpoint import Endpoint
from cumulo.client.transport import Payload, Transport, part
from cumulo.domain.errors import KINDS, CumuloError

if TYPE_CHECKING:
    from cumulo.client.answers.logs import Ended, LogText, StatusChange
    from cumulo.client.channel import Channel

    LogEvent = LogText | Progress | StatusChange | Ended

_PAGE = 200


class Client:
    """Talks to one Cumulo server. Without arguments, to the one the command line would take.

    >>> with Client() as cumulo:
    ...     run = cumulo.submit({"name": "hello", "run": "echo hello"})
    ...     print(cumulo.wait(run.id).status)

    Every method raises CumuloError with the server's code, or `unreachable`. RUN is an id or a name (then its newest
    run).
    """

    def __init__(
        self,
        server: str | Endpoint | None = None,
        *,
        token: str | None = None,
        patience_s: float = 10.0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`server` is a URL, `unix:PATH` or a context's name; `patience_s` is given to a server that restarts."""
        found = server if isinstance(server, Endpoint) else endpoint.find(server)
        if token is not None:
            found = Endpoint(url=found.url, socket=found.socket, token=token, ca_file=found.ca_file, hint=found.hint)
        self.endpoint = found
        self.transport = Transport(found, patience_s=patience_s, sleep=sleep)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.transport.close()

    # The server and us

    def health(self) -> answers.service.Health:
        return decode(answers.service.Health, self._get("/v1/health"))

    def me(self) -> answers.service.Me:
        return decode(answers.service.Me, self._get("/v1/me"))

    def doctor(self) -> tuple[answers.service.Check, ...]:
        return tuple(decode(answers.service.Check, check) for check in self._get("/v1/doctor")["checks"])

    # Runs

    def plan(self, run: Mapping[str, Any], *, queue: bool = False) -> answers.planning.Plan:
        """What would happen if `run`, a run file as a mapping, were submitted."""
        return decode(answers.planning.Plan, self._post("/v1/plans", {"run": run, "queue": queue}))

    def submit(self, run: Mapping[str, Any], *, queue: bool = False, idempotency_key: str | None = None) -> Run:
        """Submits `run`. Once this returns, the run is in the server's store whatever dies next.

        The same `idempotency_key` gives the same run, however often it is submitted; one is made up where none is
        given. `queue` accepts an ask that no node could satisfy today.
        """
        key = idempotency_key or secrets.token_hex(16)
        body = {"run": run, "queue": queue}
        return decode(Run, self.transport.json("POST", "/v1/runs", body=body, headers={"Idempotency-Key": key}))

    def runs(
        self,
        *,
        active: bool | None = None,
        recent_s: float | None = None,
        status: str | None = None,
        kind: str | None = None,
        name: str | None = None,
        mine: bool | None = None,
        limit: int | None = None,
    ) -> Iterator[Run]:
        """Runs, newest first. `active` with `recent_s`: the active ones and those that ended so many seconds ago."""
        query = {
            "active": active, "recent_s": recent_s, "status": status, "kind": kind, "name": name, "mine": mine,
        }  # fmt: skip
        return (decode(Run, row) for row in self._pages("/v1/runs", query, limit=limit))

    def names(self, beginning: str = "") -> tuple[str, ...]:
        """Names of the caller's runs that begin so, the one used last first."""
        return tuple(self.transport.json("GET", "/v1/names", query={"beginning": beginning})["items"])

    def run(self, run: str) -> Run:
        return decode(Run, self._get(_run(run)))

    def cancel(self, run: str, *, grace_s: float | None = None, unit: int | None = None) -> Run:
        """Wants the run (or one index of an array) cancelled; returns before it has ended."""
        return self._want(run, "cancelled", grace_s=grace_s, unit=unit)

    def stop(self, run: str, *, grace_s: float | None = None) -> Run:
        """Wants a dev run stopped; `start` starts it again."""
        return self._want(run, "stopped", grace_s=grace_s, unit=None)

    def start(self, run: str) -> Run:
        return self._want(run, "running", grace_s=None, unit=None)

    def _want(self, run: str, wanted: str, *, grace_s: float | None, unit: int | None) -> Run:
        given = {"wanted": wanted, "grace_s": grace_s, "unit": unit}
        body = {name: value for name, value in given.items() if value is not None}
        return decode(Run, self.transport.json("PATCH", _run(run), body=body))

    def units(self, run: str) -> Iterator[answers.runs.Unit]:
        return (decode(answers.runs.Unit, row) for row in self._pages(f"{_run(run)}/units", {}))

    def instances(self, run: str) -> Iterator[answers.runs.Instance]:
        return (decode(answers.runs.Instance, row) for row in self._pages(f"{_run(run)}/instances", {}))

    def why(self, run: str) -> answers.planning.Why:
        return decode(answers.planning.Why, self._get(f"{_run(run)}/why"))

    def wait(self, run: str, *, timeout_s: float | None = None, until: Callable[[Run], bool] | None = None) -> Run:
        """Waits until the run is terminal, or `until` says so of it. Raises TimeoutError after `timeout_s`."""
        done = until or (lambda row: row.ended)
        began, pause = self.transport.clock(), 0.05
        while not done(row := self.run(run)):
            run = row.id  # a name may come to mean a newer run
            if timeout_s is not None and self.transport.clock() - began > timeout_s:
                raise TimeoutError(f"{row.name} is still {row.status} after {timeout_s:g} s")
            self.transport.sleep(pause)
            pause = min(1.0, pause * 1.3)
        return row

    # Logs and events

    def logs(
        self,
        run: str,
        *,
        follow: bool = False,
        tail: int | None = None,
        since: str | float | None = None,
        unit: int | None = None,
        attempt: int | None = None,
        rank: int | None = None,
        on_trouble: Callable[[str], None] | None = None,
    ) -> Iterator[LogEvent]:
        """The log as it is, and with `follow` until the run ends; progress and changes of status come between.

        Survives a restart of the server: nothing is lost and nothing comes twice. `since` is ISO 8601 or seconds ago.
        """
        query = {
            "follow": follow or None, "tail": tail, "since": since, "unit": unit, "attempt": attempt, "rank": rank,
        }  # fmt: skip
        start_only = frozenset({"tail", "since"})
        path = f"{_run(run)}/logs"
        for event in sse.read(
            self.transport, path, query=query, follow=follow, start_only=start_only, on_trouble=on_trouble
        ):
            if read := _log_event(event):
                yield read
                if isinstance(read, answers.logs.Ended):
                    return

    def raw_log(
        self, run: str, *, unit: int | None = None, attempt: int | None = None, rank: int | None = None, offset: int = 0
    ) -> Iterator[bytes]:
        """The bytes of one instance's log, exactly as the run wrote them."""
        query = {"unit": unit, "attempt": attempt, "rank": rank, "offset": offset or None}
        headers = {"Accept": "application/octet-stream"}
        with self.transport.open("GET", f"{_run(run)}/logs", query=query, headers=headers) as response:
            while data := response.read1(1 << 16):
                yield data

    def events(
        self,
        *,
        run: str | None = None,
        after: int | None = None,
        newest: int | None = None,
        kind: str | None = None,
        limit: int | None = None,
    ) -> Iterator[answers.cloud.Event]:
        """Events, oldest first: all, the `newest` so many, or those after the sequence number `after`."""
        query = {"run": run, "after": after, "newest": newest, "kind": kind}
        return (decode(answers.cloud.Event, row) for row in self._pages("/v1/events", query, limit=limit))

    def follow_events(
        self, *, run: str | None = None, after: int | None = None, kind: str | None = None
    ) -> Iterator[answers.cloud.Event]:
        """Events as they happen. It never ends by itself."""
        query = {"run": run, "after": after, "kind": kind, "follow": True}
        for event in sse.read(self.transport, "/v1/events", query=query, follow=True, start_only=frozenset({"after"})):
            yield decode(answers.cloud.Event, sse.value(event))

    # Inside a run

    def exec(
        self,
        run: str,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        tty: tuple[int, int] | None = None,
        unit: int | None = None,
        rank: int | None = None,
    ) -> Channel:
        """Starts a command beside the run's own; `tty` is the rows and columns of a terminal for it.

        Close the channel to end it. Its output comes in one stream.
        """
        from cumulo.client.channel import open_channel

        query: dict[str, object] = {"unit": unit, "rank": rank}
        if tty:
            query |= {"tty": 1, "rows": tty[0], "columns": tty[1]}
        channel = open_channel(self.endpoint, f"{_run(run)}/exec", query)
        channel.control({"argv": list(argv), "env": dict(env or {})})
        return channel

    def port(self, run: str, port: int, *, unit: int | None = None, rank: int | None = None) -> Channel:
        """A TCP connection to a port that the run listens on."""
        from cumulo.client.channel import open_channel

        return open_channel(self.endpoint, f"{_run(run)}/ports/{port}", {"unit": unit, "rank": rank})

    @contextmanager
    def download(
        self, run: str, path: str, *, area: str, unit: int | None = None, rank: int | None = None
    ) -> Iterator[IO[bytes]]:
        """A tar of a file or folder; `area` is workdir, outputs or checkpoint. See `cumulo.client.files.unpack`."""
        query = {"area": area, "path": path, "unit": unit, "rank": rank}
        headers = {"Accept": "application/x-tar"}
        with self.transport.open("GET", f"{_run(run)}/files", query=query, headers=headers) as response:
            yield cast("IO[bytes]", response)

    def upload_files(
        self, run: str, path: str, payload: Payload, *, area: str, unit: int | None = None, rank: int | None = None
    ) -> None:
        """Unpacks a tar (`cumulo.client.files.packed`) below the folder `path`, which is made if it is missing."""
        query = {"area": area, "path": path, "unit": unit, "rank": rank}
        self.transport.send("PUT", f"{_run(run)}/files", query=query, payload=payload)

    # The cloud

    def queue(self) -> Iterator[answers.planning.QueueRow]:
        return (decode(answers.planning.QueueRow, row) for row in self._pages("/v1/queue", {}))

    def offers(self, gpu: str | None = None) -> tuple[answers.cloud.Offer, ...]:
        """What can be launched, for a GPU ask such as `A100:2` or for any."""
        items = self.transport.json("GET", "/v1/offers", query={"gpu": gpu})["items"]
        return tuple(decode(answers.cloud.Offer, item) for item in items)

    def prices(self, gpu: str | None = None, *, since: str | None = None) -> tuple[answers.market.SpotPrice, ...]:
        """Spot prices as they were since then (a week ago; ISO 8601 or seconds ago), oldest first."""
        items = self.transport.json("GET", "/v1/prices", query={"gpu": gpu, "since": since})["items"]
        return tuple(decode(answers.market.SpotPrice, item) for item in items)

    def reservations(self) -> tuple[answers.market.Reservation, ...]:
        """What is reserved, now or later."""
        return tuple(decode(answers.market.Reservation, row) for row in self._pages("/v1/reservations", {}))

    def reserve(
        self,
        gpus: str,
        term: str | float,
        *,
        project: str | None = None,
        name: str | None = None,
        starts_at: str | None = None,
        upfront: bool = False,
    ) -> answers.market.Reservation:
        """Reserves GPUs of one kind, such as `A100-80GB:4`, for a term such as `30d`. Admins only."""
        given = {"gpus": gpus, "term": term, "project": project, "name": name, "starts_at": starts_at}
        body = {key: value for key, value in given.items() if value is not None} | {"upfront": upfront}
        return decode(
            answers.market.Reservation, self.transport.json("POST", "/v1/reservations", body=body, repeat=False)
        )

    def give_back(self, reservation: str) -> answers.market.Reservation:
        """Ends a reservation now, by id or name. Admins only."""
        return decode(
            answers.market.Reservation, self.transport.json("DELETE", f"/v1/reservations/{part(reservation)}")
        )

    def advise(self, question: Mapping[str, Any]) -> answers.advice.Advice:
        """Which GPU, how many, how long, how much: `{"train": {"model": "llama-3.1-8b", "method": "lora"}}`.

        One of train, serve, vision, hpc, render, prove, hash and run, with `limits` and `limit`; see `POST /v1/advice`.
        """
        return decode(answers.advice.Advice, self._post("/v1/advice", dict(question)))

    def nodes(self, *, limit: int | None = None) -> tuple[answers.cloud.Node, ...]:
        return tuple(decode(answers.cloud.Node, node) for node in self._pages("/v1/nodes", {}, limit=limit))

    def node(self, name: str) -> answers.cloud.Node:
        return decode(answers.cloud.Node, self._get(f"/v1/nodes/{part(name)}"))

    def telemetry(self) -> answers.cloud.Telemetry:
        return decode(answers.cloud.Telemetry, self._get("/v1/telemetry"))

    def usage(self, *, since: str | None = None, until: str | None = None, group: str = "run") -> answers.cloud.Usage:
        """What was used and what it cost, by `run`, `account`, `project` or `purchase`; times are ISO 8601."""
        query = {"since": since, "until": until, "group": group}
        return decode(answers.cloud.Usage, self.transport.json("GET", "/v1/usage", query=query))

    def storage(self) -> tuple[answers.service.StorageRow, ...]:
        return tuple(decode(answers.service.StorageRow, row) for row in self._get("/v1/storage")["items"])

    def keep(self, days: Mapping[str, float | None]) -> tuple[answers.service.StorageRow, ...]:
        """Sets for how many days things are kept (None: for good), and gives what there is. Admins only.

        Names are logs, outputs, environments, blobs, events and idempotency; those that `days` lacks stay as they are.
        """
        kept = self.transport.json("PATCH", "/v1/storage", body={"kept_days": dict(days)})
        return tuple(decode(answers.service.StorageRow, row) for row in kept["items"])

    def sweep(self, *, dry_run: bool = False) -> tuple[answers.service.StorageRow, ...]:
        """Removes what retention no longer keeps; with `dry_run` only says what would go."""
        swept = self.transport.json("POST", "/v1/storage/sweep", body={"dry_run": dry_run})
        return tuple(decode(answers.service.StorageRow, row) for row in swept["items"])

    # Tokens

    def tokens(self) -> tuple[answers.service.Token, ...]:
        return tuple(decode(answers.service.Token, row) for row in self._pages("/v1/tokens", {}))

    def create_token(
        self, label: str, *, account: str | None = None, expires_in_s: float | None = None
    ) -> answers.service.Token:
        """A new token. Its secret is in this answer and nowhere else. For another account: admins only."""
        given = {"label": label, "account": account, "expires_in_s": expires_in_s}
        body = {name: value for name, value in given.items() if value is not None}
        return decode(answers.service.Token, self.transport.json("POST", "/v1/tokens", body=body, repeat=False))

    def revoke_token(self, token: str) -> None:
        self.transport.json("DELETE", f"/v1/tokens/{part(token)}")

    # Blobs

    def missing_blobs(self, digests: Iterable[str]) -> set[str]:
        """Which of these SHA-256 digests (hex) the server has no blob for."""
        return set(self._post("/v1/blobs/missing", {"digests": list(digests)})["missing"])

    def put_blobs(self, payload: Payload) -> int:
        """Stores blobs, in the framing that `cumulo.client.upload` writes; how many were stored."""
        return int(self.transport.send("POST", "/v1/blobs", payload=payload)["stored"])

    def _get(self, path: str) -> Any:
        return self.transport.json("GET", path)

    def _post(self, path: str, body: object) -> Any:
        return self.transport.json("POST", path, body=body)

    def _pages(self, path: str, query: Mapping[str, object], *, limit: int | None = None) -> Iterator[dict[str, Any]]:
        """All rows of a list, page by page, or the first `limit`."""
        cursor: str | None = None
        left = limit
        while left is None or left > 0:
            size = _PAGE if left is None else min(_PAGE, left)
            page = self.transport.json("GET", path, query={**query, "limit": size, "cursor": cursor})
            yield from page["items"]
            left = None if left is None else left - len(page["items"])
            cursor = page.get("next")
            if cursor is None or not page["items"]:
                return


def _run(run: str) -> str:
    if not run:
        raise CumuloError("run_not_found", "no run is named by an empty text")
    return f"/v1/runs/{part(run)}"


def _log_event(event: sse.ServerEvent) -> LogEvent | None:
    if event.data == "null":  # a new attempt has no progress yet
        return None
    data = sse.value(event)
    match event.kind:
        case "log":
            return decode(answers.logs.LogText, {**data, "cursor": event.cursor})
        case "progress":
            return decode(Progress, data)
        case "status":
            return decode(answers.logs.StatusChange, data)
        case "end":
            return decode(answers.logs.Ended, data)
        case "error":
            code = str(data.get("code"))
            raise CumuloError(code if code in KINDS else "internal", str(data.get("detail") or "the stream failed"))
    return None
