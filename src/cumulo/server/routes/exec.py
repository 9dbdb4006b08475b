"""Commands and connections inside an instance, over websockets.

`exec`: the first text frame is `{"argv": [...], "env": {...}}`. Binary frames are input and output. Further text frames
from the client are `{"resize": [rows, columns]}` and `{"eof": true}`. The server's last text frame is
`{"exit_code": n}`, or `{"error": problem}`.

`ports/PORT`: binary frames both ways.
"""

import asyncio
import json
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from pydantic_core import to_json
from sqlalchemy import Row
from starlette.concurrency import run_in_threadpool
from starlette.websockets import WebSocket, WebSocketDisconnect

from cumulo.domain.errors import CumuloError
from cumulo.domain.lifecycle import InstanceState
from cumulo.domain.streams import ByteStream, ExecRequest, PortRequest, StreamRequest
from cumulo.server import access, problems
from cumulo.server.auth import authenticate
from cumulo.server.bytestreams import blocking, open_stream, place
from cumulo.server.services import Services, services_of

router = APIRouter(tags=["exec"])

_FIRST_FRAME_S: Final = 10.0
Unit = Annotated[int | None, Query(ge=0, lt=2**53)]
Rank = Annotated[int, Query(ge=0, lt=2**31)]
Size = Annotated[int, Query(ge=1, le=10_000)]


@router.websocket("/v1/runs/{run}/exec")
async def exec_inside(
    socket: WebSocket,
    run: str,
    unit: Unit = None,
    rank: Rank = 0,
    tty: bool = False,
    rows: Size = 24,
    columns: Size = 80,
) -> None:
    """Runs a command inside an instance that is running."""
    services = services_of(socket)
    try:
        instance = await _instance(socket, run, unit, rank, "run commands inside")
        await socket.accept()
        argv, env = await _first_frame(socket)
        request = ExecRequest(argv=argv, tty=tty, rows=rows, columns=columns, env=env)
        await _carry(socket, services, instance, request)
    except CumuloError as error:
        await _refuse(socket, error)
    except WebSocketDisconnect:
        pass


@router.websocket("/v1/runs/{run}/ports/{port}")
async def port_inside(socket: WebSocket, run: str, port: int, unit: Unit = None, rank: Rank = 0) -> None:
    """A TCP connection to a port that an instance listens on."""
    services = services_of(socket)
    try:
        if not 0 < port < 65536:
            raise CumuloError("invalid_request", "port: must be 1 to 65535")
        instance = await _instance(socket, run, unit, rank, "reach the ports")
        await socket.accept()
        await _carry(socket, services, instance, PortRequest(port=port))
    except CumuloError as error:
        await _refuse(socket, error)
    except WebSocketDisconnect:
        pass


async def _instance(socket: WebSocket, run: str, unit: int | None, rank: int, what: str) -> Row[Any]:
    services, caller = services_of(socket), await authenticate(socket)

    def look() -> Row[Any]:
        with services.db.read() as tx:
            row = access.own_run(tx, run, caller, what)
        found = access.last_instance(services, row, unit=unit, rank=rank)
        if found.state != InstanceState.RUNNING:
            raise CumuloError("conflict", f"{row.name} is not running: its instance is {found.state}")
        return found

    return await run_in_threadpool(look)


async def _first_frame(socket: WebSocket) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """The command and its environment. Raises CumuloError (invalid_request)."""
    try:
        async with asyncio.timeout(_FIRST_FRAME_S):
            data = json.loads(await socket.receive_text())
        argv, env = data["argv"], data.get("env") or {}
        if not (argv and isinstance(argv, list) and all(_is_text(word) for word in argv)):
            raise ValueError
        if not all(_is_text(name) and _is_text(value) and "=" not in name for name, value in env.items()):
            raise ValueError
    except (ValueError, TypeError, KeyError, AttributeError, TimeoutError):
        raise CumuloError("invalid_request", 'the first frame must be {"argv": [words], "env": {}}') from None
    return tuple(argv), tuple(env.items())


def _is_text(value: object) -> bool:
    return isinstance(value, str) and "\0" not in value


async def _carry(socket: WebSocket, services: Services, instance: Row[Any], request: StreamRequest) -> None:
    """Carries bytes both ways until the stream ends or the client leaves."""
    with place(services):
        stream = await open_stream(services, instance, request)
        incoming = asyncio.create_task(_from_client(socket, stream))
        outgoing = asyncio.create_task(_to_client(socket, stream))
        leaving = asyncio.create_task(services.feed.closing.wait())
        tasks = {incoming, outgoing, leaving}
        try:
            # Input may end while output goes on, so only a client that has left ends the whole.
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if outgoing.done():
                outgoing.result()
            elif incoming.done():
                incoming.result()
            else:
                await _refuse(socket, CumuloError("starting", "the server is being restarted", hint="try again"))
        finally:
            for task in tasks:
                task.cancel()
            # Closing wakes a thread that waits in `read`: what that tells is of a stream cut off, not of a command.
            await blocking(stream.close)
            await asyncio.gather(*tasks, return_exceptions=True)


async def _from_client(socket: WebSocket, stream: ByteStream) -> None:
    while True:
        message = await socket.receive()
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message.get("code", 1006))
        if data := message.get("bytes"):
            try:
                await blocking(stream.write, data)
            except OSError:
                continue  # the command closed its input: what it still says is worth hearing
        elif text := message.get("text"):
            await _control(stream, text)


async def _control(stream: ByteStream, text: str) -> None:
    try:
        data = json.loads(text)
        if data.get("eof"):
            await blocking(stream.write_eof)
        elif size := data.get("resize"):
            rows, columns = (min(10_000, max(1, int(part))) for part in size)
            await blocking(stream.resize, rows, columns)
    except (ValueError, TypeError, AttributeError):
        raise CumuloError(
            "invalid_request", 'a text frame must be {"resize": [rows, columns]} or {"eof": true}'
        ) from None


async def _to_client(socket: WebSocket, stream: ByteStream) -> None:
    while data := await blocking(stream.read):
        await socket.send_bytes(data)
    if stream.exit_code is not None:
        await socket.send_text(to_json({"exit_code": stream.exit_code}).decode())
    await socket.close()


async def _refuse(socket: WebSocket, error: CumuloError) -> None:
    """Tells a problem: as the HTTP answer while the connection is not open yet, as the last frame after."""
    if socket.client_state.name == "CONNECTING":
        await socket.send_denial_response(problems.answer(error))
        return
    try:
        await socket.send_text(to_json({"error": problems.problem(error)}, fallback=str).decode())
        await socket.close(1011 if error.kind.http_status >= 500 else 1008)
    except (RuntimeError, WebSocketDisconnect):
        pass  # it has left already
