"""Sends files as content-addressed blobs: asks which the server lacks, and sends those only, in batches.

A batch is a sequence of (32 bytes of SHA-256, 8 bytes of length, big-endian, the data), read from the files as it is
sent.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

from cumulo.client.api import Client
from cumulo.client.digests import Digests
from cumulo.client.transport import Payload
from cumulo.client.workdir import Manifest, Tree, manifest
from cumulo.domain.errors import CumuloError

CONTENT_TYPE = "application/x-cumulo-blobs"
_BATCH_BYTES = 8 << 20
_BATCH_BLOBS = 500
_ASK = 10_000
_CHUNK = 1 << 18

Blob = tuple[str, Path | bytes, int]  # digest, where its bytes are, how many
Progress = Callable[[int, int], None]  # bytes sent, bytes to send


def upload(client: Client, tree: Tree, digests: Digests, *, on_progress: Progress | None = None) -> str:
    """Sees to it that the server has all of `tree`; the digest of its manifest. Raises CumuloError."""
    described = manifest(tree, digests)
    digests.save()
    missing = _missing(client, [*described.sources, described.digest])
    blobs = list(_blobs(described, missing))
    total, sent = sum(size for _, _, size in blobs), 0
    for batch in _batches(blobs):
        client.put_blobs(_payload(batch))
        sent += sum(size for _, _, size in batch)
        if on_progress:
            on_progress(sent, total)
    return described.digest


def _missing(client: Client, digests: list[str]) -> set[str]:
    missing: set[str] = set()
    for begin in range(0, len(digests), _ASK):
        missing |= client.missing_blobs(digests[begin : begin + _ASK])
    return missing


def _blobs(described: Manifest, missing: set[str]) -> Iterator[Blob]:
    """What has to be sent, the manifest last, so that whoever has a manifest has its files."""
    for digest, (source, size) in described.sources.items():
        if digest in missing:
            yield digest, Path(source), size
    if described.digest in missing:
        yield described.digest, described.data, len(described.data)


def _batches(blobs: list[Blob]) -> Iterator[list[Blob]]:
    batch: list[Blob] = []
    size = 0
    for blob in blobs:
        if batch and (size + blob[2] > _BATCH_BYTES or len(batch) >= _BATCH_BLOBS):
            yield batch
            batch, size = [], 0
        batch.append(blob)
        size += blob[2]
    if batch:
        yield batch


def _payload(batch: list[Blob]) -> Payload:
    def chunks() -> Iterator[bytes]:
        for digest, source, size in batch:
            yield bytes.fromhex(digest) + size.to_bytes(8, "big")
            yield from [source] if isinstance(source, bytes) else _read(source, size)

    return Payload(chunks=chunks, length=sum(40 + size for _, _, size in batch), content_type=CONTENT_TYPE)


def _read(path: Path, size: int) -> Iterator[bytes]:
    """Exactly `size` bytes of a file, as the header promised."""
    left = size
    try:
        with path.open("rb") as file:
            while left and (data := file.read(min(_CHUNK, left))):
                left -= len(data)
                yield data
    except OSError as error:
        raise CumuloError("path_not_allowed", f"{path} can't be read: {error.strerror}") from None
    if left:
        raise CumuloError("conflict", f"{path} changed while it was sent", hint="launch again")
