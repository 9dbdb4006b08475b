"""What a runtime is: it turns a command into what the supervisor executes, and says honestly what that isolates."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

StageName = Literal["preparing", "running"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRequest:
    """A command and the world it wants. Paths are absolute and of the host; inside they are the same.

    `uid`, `gid` and `groups` are None and empty where the server is an ordinary user: then everything runs as it.
    `writable` are the instance's own folders (workdir, outputs, checkpoint, home, environment), `mounts` what the
    person named; `read_only` must be visible even where the uid could not reach it; `hidden` folders look empty except
    for what the others put back. `tmp_folder` becomes /tmp; without it /tmp is in memory, of at most `tmp_bytes`.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    uid: int | None = None
    gid: int | None = None
    groups: tuple[int, ...] = ()
    writable: tuple[str, ...] = ()
    read_only: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    mounts: tuple[str, ...] = ()
    device_nodes: tuple[str, ...] = ()
    hostname: str = "cumulo"
    tmp_folder: str | None = None
    tmp_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What the supervisor executes; the fields are those of `stages` in its spec.json."""

    name: StageName
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    drop: bool
    stdin: str | None = None
    json_status: bool = False

    def to_json(self) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return values | {"argv": list(self.argv), "env": dict(self.env)}


class Runtime(Protocol):
    """`isolation` says in a sentence what is fenced and what is not."""

    name: str
    isolation: str

    def available(self) -> str | None:
        """Why it cannot be used here, in words; None where it can."""
        ...

    def stage(self, name: StageName, request: StageRequest) -> Stage:
        """Raises ValueError for what this runtime cannot express."""
        ...
