"""Streams into an instance: commands on a terminal, connections to a port, files."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecRequest:
    """A command to run inside an instance beside its own, on a terminal if `tty` (then rows and columns count)."""

    argv: tuple[str, ...]
    tty: bool = False
    rows: int = 24
    columns: int = 80
    env: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PortRequest:
    """A TCP connection to a port that the instance listens on."""

    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesRequest:
    """Files of an instance, as an uncompressed tar, from (`get`) or to (`put`) a path.

    `area` says where a relative path begins: the workdir, or the outputs, which are kept after the end.
    """

    direction: Literal["get", "put"]
    path: str
    area: Literal["workdir", "outputs", "checkpoint"] = "workdir"


StreamRequest = ExecRequest | PortRequest | FilesRequest


class ByteStream(Protocol):
    """Bytes both ways. `exit_code` is known once `read` has returned b"" (ExecRequest only)."""

    def read(self, size: int = 65536) -> bytes:
        """At most `size` bytes; waits for the first; b"" at the end."""
        ...

    def write(self, data: bytes) -> None: ...

    def write_eof(self) -> None: ...

    def resize(self, rows: int, columns: int) -> None: ...

    def close(self) -> None: ...

    @property
    def exit_code(self) -> int | None: ...


def chunks(stream: ByteStream) -> Iterator[bytes]:
    """The bytes of a stream until its end."""
    while data := stream.read():
        yield data
