"""Blobs: which are missing, and their upload in one stream of many."""

from contextlib import suppress
from typing import Final

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from cumulo.domain.errors import CumuloError
from cumulo.server import render
from cumulo.server.auth import Auth
from cumulo.server.services import Serving
from cumulo.store.blobs import Batch, Blobs, Incoming
from cumulo.wire import api

router = APIRouter(tags=["blobs"])

MEDIA_TYPE: Final = "application/x-cumulo-blobs"
_HEADER: Final = 32 + 8
_GATHER: Final = 256 << 10  # handed to a thread at once, so that small pieces don't each pay for the way there
_MOST: Final = 50_000
_LARGEST: Final = 1 << 40


@router.post("/v1/blobs/missing", response_model=api.Missing)
def missing(body: api.DigestList, services: Serving, _caller: Auth) -> Response:
    """Which of these SHA-256 digests have no blob here. To know a digest is to have had its content."""
    return render.answer({"missing": services.blobs.missing(body.digests)})


@router.post(
    "/v1/blobs",
    response_model=api.Stored,
    openapi_extra={"requestBody": {"content": {MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}}}},
)
async def upload(request: Request, services: Serving, _caller: Auth) -> Response:
    """Blobs one after the other, each as 32 bytes of digest, 8 bytes of length (big-endian) and its data.

    All are kept, or none.
    """
    receiver = BlobReceiver(services.blobs)
    services.counters.streams += 1
    try:
        gathered = bytearray()
        async for piece in request.stream():
            gathered += piece
            if len(gathered) >= _GATHER:
                await run_in_threadpool(receiver.feed, bytes(gathered))
                gathered.clear()
        await run_in_threadpool(receiver.feed, bytes(gathered))
        stored = await run_in_threadpool(receiver.finish)
    except BaseException as error:
        # Not awaited: when the client is gone this coroutine is being cancelled.
        receiver.abandon(error)
        raise
    finally:
        services.counters.streams -= 1
    return render.answer({"stored": stored})


class BlobReceiver:
    """Takes the stream apart as it comes and writes each blob; nothing is kept before `finish`."""

    def __init__(self, blobs: Blobs) -> None:
        self._batch: Batch = blobs.batch().__enter__()
        self._rest = bytearray()
        self._blob: Incoming | None = None
        self._left = 0
        self._count = 0

    def feed(self, data: bytes) -> None:
        """Raises CumuloError: invalid_request, storage_full, storage_read_only."""
        self._rest += data
        while self._header() if self._blob is None else self._data():
            pass

    def _header(self) -> bool:
        if len(self._rest) < _HEADER:
            return False
        digest, size = self._rest[:32].hex(), int.from_bytes(self._rest[32:_HEADER], "big")
        del self._rest[:_HEADER]
        self._count += 1
        if size > _LARGEST or self._count > _MOST:
            raise CumuloError("too_large", f"at most {_MOST} blobs of 1 TB each can be sent at once")
        self._blob, self._left = self._batch.incoming(digest), size
        return True

    def _data(self) -> bool:
        blob = self._blob
        assert blob is not None  # noqa: S101 (told apart by `feed`)
        piece = bytes(self._rest[: self._left])
        del self._rest[: len(piece)]
        self._left -= len(piece)
        try:
            blob.write(piece)
        except OSError as error:
            self._blob = None
            blob.__exit__(type(error), error, None)
        if self._left:
            return False
        self._blob = None
        blob.__exit__(None, None, None)
        return True

    def finish(self) -> int:
        """Checks that the stream ended where a blob did, and keeps them all. Raises CumuloError (invalid_request)."""
        if self._rest or self._blob is not None:
            raise CumuloError("invalid_request", "the upload ends in the middle of a blob", hint="send it again")
        self._batch.__exit__(None, None, None)
        return self._batch.stored

    def abandon(self, error: BaseException) -> None:
        """Leaves nothing of what came."""
        if self._blob is not None:
            blob, self._blob = self._blob, None
            with suppress(CumuloError):
                blob.__exit__(type(error), error, None)
        self._batch.__exit__(type(error), error, None)
