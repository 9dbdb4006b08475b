"""An engine at the other end of two streams of bytes: another process now, another machine later.

`PipeEngine` is an Engine that starts a command and speaks to it; `serve_pipe` is what that command runs. Nothing but
data crosses, which CI proves by running the local engine's tests through it. Calls are numbered and answered in any
order, so a slow one holds up nobody; the bytes of a stream are asked for, so neither side can flood the other. Files
are fetched the other way round: the far side asks for a blob when it needs one.

A frame is JSON with bytes beside it (`frames`):

    near → far   {"id", "call", "args"}      a call of the protocol, or of a stream: {"stream", "call", "args"}
                 {"blob", "found"} + bytes   a blob that was asked for
    far → near   {"id", "ok"} + bytes, or {"id", "error": {"kind", ...}}
                 {"hint": instance id}, {"blob": digest}
"""

import contextlib
import itertools
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import IO, Any, Final

from cumulo.domain.check import Check
from cumulo.domain.errors import CumuloError
from cumulo.domain.instance import InstanceSpec, Observation
from cumulo.domain.node import Node, Pool
from cumulo.engines.frames import Broken, decode, encode, read_frame, write_frame
from cumulo.engines.protocol import BlobSource, ByteStream, Engine, Readings, StaleEpoch, StreamRequest

# What may be called, with the types of what goes and what comes back. `bytes` travel beside the JSON.
CALLS: Final[dict[str, tuple[tuple[Any, ...], Any]]] = {
    "pools": ((), tuple[Pool, ...]),
    "nodes": ((), tuple[Node, ...]),
    "ensure": ((InstanceSpec, int), None),
    "stop": ((str, float, int, float | None), None),
    "release": ((str, int), None),
    "observe": ((frozenset[str] | None,), Observation),
    "read_log": ((str, int, int), bytes),
    "stream": ((str, StreamRequest), int),
    "telemetry": ((), Readings),
    "doctor": ((), tuple[Check, ...]),
}
STREAM_CALLS: Final[dict[str, tuple[tuple[Any, ...], Any]]] = {
    "read": ((int,), bytes),
    "write": ((), None),
    "write_eof": ((), None),
    "resize": ((int, int), None),
    "close": ((), None),
    "exit_code": ((), int | None),
}


class _Wire:
    """Frames both ways. Writing is one frame at a time; a far side that is gone is Broken."""

    def __init__(self, source: IO[bytes], out: IO[bytes]) -> None:
        self.source, self._out = source, out
        self._lock = threading.Lock()

    def send(self, head: dict[str, Any], data: bytes = b"") -> None:
        try:
            with self._lock:
                write_frame(self._out, head, data)
        except (OSError, ValueError) as error:  # ValueError: the stream was closed here
            raise Broken("the other side of the pipe is gone") from error


# --- near -------------------------------------------------------------------------------------------------------------


class PipeEngine:
    """See Engine. `command` is started with a pipe to its stdin and from its stdout; its stderr is ours.

    Every call raises CumuloError (engine_unreachable) once the far side is gone.
    """

    kind = "remote"

    def __init__(self, command: Sequence[str], *, blobs: BlobSource, name: str) -> None:
        self.name = name
        self._blobs = blobs
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._source, self._out = _ends(self._process)
        self._wire = _Wire(self._source, self._out)
        self._numbers = itertools.count(1)
        self._waiting: dict[int, Future[tuple[Any, bytes]]] = {}
        self._listeners: list[Callable[[str], None]] = []
        self._gone = False
        self._lock = threading.Lock()
        self._reader = threading.Thread(target=self._read, name=f"pipe-{name}", daemon=True)
        self._reader.start()

    def pools(self) -> tuple[Pool, ...]:
        found: tuple[Pool, ...] = self._call("pools")
        return found

    def nodes(self) -> tuple[Node, ...]:
        found: tuple[Node, ...] = self._call("nodes")
        return found

    def ensure(self, spec: InstanceSpec, epoch: int) -> None:
        self._call("ensure", spec, epoch)

    def stop(self, instance_id: str, grace_s: float, epoch: int, preempt_at: float | None = None) -> None:
        self._call("stop", instance_id, grace_s, epoch, preempt_at)

    def release(self, instance_id: str, epoch: int) -> None:
        self._call("release", instance_id, epoch)

    def observe(self, only: frozenset[str] | None = None) -> Observation:
        found: Observation = self._call("observe", only)
        return found

    def read_log(self, instance_id: str, offset: int, limit: int = 1 << 20) -> bytes:
        data: bytes = self._call("read_log", instance_id, offset, limit)
        return data

    def stream(self, instance_id: str, request: StreamRequest) -> ByteStream:
        return _NearStream(self._call, self._call("stream", instance_id, request))

    def telemetry(self) -> Readings:
        found: Readings = self._call("telemetry")
        return found

    def doctor(self) -> tuple[Check, ...]:
        found: tuple[Check, ...] = self._call("doctor")
        return found

    def on_change(self, listener: Callable[[str], None]) -> None:
        self._listeners.append(listener)

    def close(self) -> None:
        """The far side sees the end of its input, lets go of its engine and leaves."""
        with contextlib.suppress(OSError):  # it is gone already
            self._out.close()
        self._process.wait()
        self._reader.join(timeout=5)
        self._source.close()

    def _call(self, name: str, *args: Any, stream: int | None = None, data: bytes = b"") -> Any:
        answer: Future[tuple[Any, bytes]] = Future()
        head = {"id": next(self._numbers), "call": name, "args": encode(args)}
        if stream is not None:
            head["stream"] = stream
        with self._lock:
            if self._gone:
                raise _unreachable(self.name)
            self._waiting[head["id"]] = answer
        try:
            self._wire.send(head, data)
        except Broken as error:
            with self._lock:
                self._waiting.pop(head["id"], None)
            raise _unreachable(self.name) from error
        result, beside = answer.result()
        kind = (CALLS if stream is None else STREAM_CALLS)[name][1]
        return beside if kind is bytes else decode(kind, result)

    def _read(self) -> None:
        try:
            while frame := read_frame(self._wire.source):
                self._take(*frame)
        except (Broken, ValueError, OSError):
            pass  # whatever it was, the far side can't be understood any more
        with self._lock:
            self._gone = True
            left, self._waiting = self._waiting, {}
        for answer in left.values():
            answer.set_exception(_unreachable(self.name))

    def _take(self, head: dict[str, Any], data: bytes) -> None:
        if "hint" in head:
            for listener in self._listeners:
                listener(head["hint"])
        elif "blob" in head:
            threading.Thread(target=self._send_blob, args=(head["blob"],), name="pipe-blob", daemon=True).start()
        else:
            with self._lock:
                answer = self._waiting.pop(head["id"])
            if "error" in head:
                answer.set_exception(_error_from(head["error"]))
            else:
                answer.set_result((head["ok"], data))

    def _send_blob(self, digest: str) -> None:
        try:
            data: bytes | None = self._blobs.read(digest)
        except (KeyError, OSError):
            data = None
        try:
            self._wire.send({"blob": digest, "found": data is not None}, data or b"")
        except Broken:
            return  # nobody waits for it any more


def _ends(process: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes]]:
    if process.stdout is None or process.stdin is None:
        raise ValueError("the far side must be started with pipes")
    return process.stdout, process.stdin


class _NearStream:
    """A stream whose bytes come on demand."""

    def __init__(self, call: Callable[..., Any], number: int) -> None:
        self._call, self._number = call, number
        self._closed = False

    def read(self, size: int = 65536) -> bytes:
        data: bytes = self._call("read", size, stream=self._number)
        return data

    def write(self, data: bytes) -> None:
        self._call("write", stream=self._number, data=data)

    def write_eof(self) -> None:
        self._call("write_eof", stream=self._number)

    def resize(self, rows: int, columns: int) -> None:
        self._call("resize", rows, columns, stream=self._number)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._call("close", stream=self._number)

    @property
    def exit_code(self) -> int | None:
        code: int | None = self._call("exit_code", stream=self._number)
        return code


def _unreachable(name: str) -> CumuloError:
    return CumuloError("engine_unreachable", f"the engine {name} does not answer: its process has ended")


# --- far --------------------------------------------------------------------------------------------------------------


def serve_pipe(make_engine: Callable[[BlobSource], Engine], source: IO[bytes], out: IO[bytes]) -> None:
    """Serves an engine over two byte streams until the end of `source`, then closes it. Touches no workload.

    `make_engine` is given where the engine can get blobs from: the other side.
    """
    far = _Far(_Wire(source, out))
    far.serve(make_engine(far))


class _Far:
    """The far side: carries out calls, each in a thread, and is the engine's BlobSource."""

    def __init__(self, wire: _Wire) -> None:
        self._wire = wire
        self._streams: dict[int, ByteStream] = {}
        self._numbers = itertools.count(1)
        self._blobs: dict[str, list[Future[bytes | None]]] = {}
        self._lock = threading.Lock()

    def read(self, digest: str) -> bytes:
        """Raises KeyError where the near side has no such blob."""
        answer: Future[bytes | None] = Future()
        with self._lock:
            waiting = self._blobs.setdefault(digest, [])
            waiting.append(answer)
        if len(waiting) == 1:
            self._wire.send({"blob": digest})
        data = answer.result()
        if data is None:
            raise KeyError(digest)
        return data

    def chunks(self, digest: str) -> Iterator[bytes]:
        """In one piece: a frame carries a blob whole."""
        yield self.read(digest)

    def serve(self, engine: Engine) -> None:
        engine.on_change(self._hint)
        # Reading a stream may take for ever, so each such read has a thread of its own.
        calls = ThreadPoolExecutor(8, thread_name_prefix="pipe-call")
        try:
            while frame := read_frame(self._wire.source):
                head, data = frame
                if "blob" in head:
                    self._take_blob(head["blob"], data if head["found"] else None)
                elif head["call"] == "read":
                    threading.Thread(target=self._carry_out, args=(engine, head, data), daemon=True).start()
                else:
                    calls.submit(self._carry_out, engine, head, data)
        finally:
            for stream in list(self._streams.values()):
                stream.close()
            with self._lock:
                left, self._blobs = self._blobs, {}
            for answer in (each for waiting in left.values() for each in waiting):
                answer.set_result(None)
            calls.shutdown(wait=True)
            engine.close()

    def _take_blob(self, digest: str, data: bytes | None) -> None:
        with self._lock:
            waiting = self._blobs.pop(digest, [])
        for answer in waiting:
            answer.set_result(data)

    def _hint(self, instance_id: str) -> None:
        try:
            self._wire.send({"hint": instance_id})
        except Broken:
            return

    def _carry_out(self, engine: Engine, head: dict[str, Any], data: bytes) -> None:
        try:
            result = self._stream_call(head, data) if "stream" in head else self._engine_call(engine, head)
            beside = result if isinstance(result, bytes) else b""
            answer = {"id": head["id"], "ok": None if isinstance(result, bytes) else encode(result)}
        except Exception as error:
            answer, beside = {"id": head["id"], "error": _error_to(error)}, b""
        try:
            self._wire.send(answer, beside)
        except Broken:
            return

    def _engine_call(self, engine: Engine, head: dict[str, Any]) -> Any:
        name = head["call"]
        args = [decode(kind, arg) for kind, arg in zip(CALLS[name][0], head["args"], strict=True)]
        result = getattr(engine, name)(*args)
        if name != "stream":
            return result
        number = next(self._numbers)
        self._streams[number] = result
        return number

    def _stream_call(self, head: dict[str, Any], data: bytes) -> Any:
        name, number = head["call"], head["stream"]
        kinds = STREAM_CALLS[name][0]
        stream = self._streams[number] if name != "close" else self._streams.pop(number)
        if name == "exit_code":
            return stream.exit_code
        if name == "write":
            return stream.write(data)
        return getattr(stream, name)(*(decode(kind, arg) for kind, arg in zip(kinds, head["args"], strict=True)))


# --- errors -----------------------------------------------------------------------------------------------------------


def _error_to(error: Exception) -> dict[str, Any]:
    if isinstance(error, CumuloError):
        told = {"code": error.code, "message": error.message, "hint": error.hint, "details": encode(error.details)}
        return {"kind": "cumulo", **told}
    if isinstance(error, StaleEpoch):
        return {"kind": "stale", "message": str(error)}
    if isinstance(error, KeyError):
        return {"kind": "key", "message": str(error.args[0]) if error.args else ""}
    return {"kind": "other", "message": f"{type(error).__name__}: {error}"}


def _error_from(data: dict[str, Any]) -> Exception:
    if data["kind"] == "cumulo":
        return CumuloError(data["code"], data["message"], hint=data["hint"], details=data["details"])
    if data["kind"] == "stale":
        return StaleEpoch(data["message"])
    if data["kind"] == "key":
        return KeyError(data["message"])
    return CumuloError("internal", f"the engine failed: {data['message']}")
