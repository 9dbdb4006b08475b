"""Streams into instances, for coroutines. An engine's `ByteStream` blocks, and may for hours, so these have threads of
their own: however many terminals are open, requests never wait for one of them.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any, Final, TypeVar

from sqlalchemy import Row

from cumulo.domain.errors import CumuloError
from cumulo.domain.streams import ByteStream, StreamRequest
from cumulo.server.services import Services

MOST: Final = 256
Result = TypeVar("Result")


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(2 * MOST, "cumulo-stream")


async def blocking(call: Callable[..., Result], *args: Any) -> Result:
    """The result of a call that may block for long, on a thread that nothing else needs."""
    return await asyncio.get_running_loop().run_in_executor(_threads(), call, *args)


@contextmanager
def place(services: Services) -> Iterator[None]:
    """A place among the open streams. Raises CumuloError (conflict) when one more might wait for a thread."""
    if services.counters.streams >= MOST:
        raise CumuloError("conflict", f"{MOST} streams are open already", hint="close some and try again")
    services.counters.streams += 1
    try:
        yield
    finally:
        services.counters.streams -= 1


async def open_stream(services: Services, instance: Row[Any], request: StreamRequest) -> ByteStream:
    """Opens a stream into an instance. Raises CumuloError, also where the engine no longer knows the instance."""
    engine = services.control.engine_of(instance.region)
    try:
        return await blocking(engine.stream, instance.id, request)
    except KeyError:
        raise CumuloError(
            "not_found", f"nothing is left of {instance.id} on {instance.node_id}", hint="see `cumulo why`"
        ) from None


async def chunks(stream: ByteStream, first: bytes) -> AsyncGenerator[bytes]:
    """`first` and what comes after it, until the end; closes the stream, whoever leaves first."""
    try:
        data = first
        while data:
            yield data
            data = await blocking(stream.read)
    finally:
        stream.close()
