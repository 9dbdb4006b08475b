"""Files of an instance, out and in, as an uncompressed tar. The engine keeps paths inside their area."""

from collections.abc import AsyncGenerator
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Query, Request
from sqlalchemy import Row
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse

from cumulo.domain.streams import FilesRequest
from cumulo.server import access
from cumulo.server.auth import Auth
from cumulo.server.bytestreams import blocking, chunks, open_stream, place
from cumulo.server.services import Services, Serving
from cumulo.store.people import Caller

router = APIRouter(tags=["files"])

TAR: Final = "application/x-tar"
_GATHER: Final = 256 << 10
Area = Annotated[Literal["workdir", "outputs", "checkpoint"], Query(description="where the path begins")]
Path = Annotated[str, Query(max_length=4096, pattern=r"^[^\x00]*$", description="relative to the area")]
Unit = Annotated[int | None, Query(ge=0, lt=2**53, description="the array index")]
Rank = Annotated[int, Query(ge=0, lt=2**31)]


@router.get(
    "/v1/runs/{run}/files",
    response_class=StreamingResponse,
    responses={200: {"content": {TAR: {}}, "description": "The files as a tar"}},
)
async def get_files(
    run: str,
    services: Serving,
    caller: Auth,
    area: Area = "outputs",
    path: Path = ".",
    unit: Unit = None,
    rank: Rank = 0,
) -> Response:
    """Files of the last attempt. Outputs and checkpoint are there after the end too."""
    instance = await run_in_threadpool(_instance, services, caller, run, unit, rank)
    stream = await open_stream(services, instance, FilesRequest(direction="get", path=path, area=area))
    try:
        # The first bytes are waited for, so that a path that is not there is still a problem and no broken tar.
        first = await blocking(stream.read)
    except BaseException:
        stream.close()
        raise
    return StreamingResponse(_counted(services, chunks(stream, first)), media_type=TAR)


@router.put(
    "/v1/runs/{run}/files",
    status_code=204,
    openapi_extra={"requestBody": {"content": {TAR: {"schema": {"type": "string", "format": "binary"}}}}},
)
async def put_files(
    run: str,
    request: Request,
    services: Serving,
    caller: Auth,
    area: Area = "workdir",
    path: Path = ".",
    unit: Unit = None,
    rank: Rank = 0,
) -> Response:
    """Unpacks a tar below `path`. Answered once the files are there."""
    instance = await run_in_threadpool(_instance, services, caller, run, unit, rank)
    stream = await open_stream(services, instance, FilesRequest(direction="put", path=path, area=area))
    with place(services):
        try:
            gathered = bytearray()
            async for piece in request.stream():
                gathered += piece
                if len(gathered) >= _GATHER:
                    await blocking(stream.write, bytes(gathered))
                    gathered.clear()
            await blocking(stream.write, bytes(gathered))
            await blocking(stream.write_eof)
            while await blocking(stream.read):
                pass
        finally:
            stream.close()
    return Response(status_code=204)


def _instance(services: Services, caller: Caller, run: str, unit: int | None, rank: int) -> Row[Any]:
    with services.db.read() as tx:
        row = access.own_run(tx, run, caller, "touch the files")
    return access.last_instance(services, row, unit=unit, rank=rank)


async def _counted(services: Services, data: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    with place(services):
        async for piece in data:
            yield piece
