"""A server whose local engine lives in another process, behind a pipe of bytes: nothing but data crosses.

`cumulo.server.compose` makes its engine by the name LocalEngine; here that name is the near end of a pipe. The far end
is this file again. Retention of the node's files is no part of the engine protocol, so it has nothing to keep.
"""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cumulo.domain.storage import Stored
from cumulo.engines.local import LocalEngine
from cumulo.engines.pipe import PipeEngine, serve_pipe
from cumulo.engines.protocol import BlobSource
from cumulo.server import compose
from cumulo.server.__main__ import main


class Piped(PipeEngine):
    """Takes LocalEngine's arguments, and hands them through the pipe's command line."""

    def __init__(self, *, root: Path, cloud_id: str, blobs: BlobSource, emulate: str | None, hidden: Any) -> None:
        told = {"root": str(root), "cloud_id": cloud_id, "emulate": emulate, "hidden": [str(path) for path in hidden]}
        super().__init__([sys.executable, __file__, "far", json.dumps(told)], blobs=blobs, name="local")

    def storage(self) -> Sequence[Stored]:
        return ()

    def sweep(self, **_: Any) -> Sequence[Stored]:
        return ()


def far(told: dict[str, Any]) -> None:
    """The far end: a local engine that speaks through stdin and stdout."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what prints by mistake must not speak into the pipe
    root, hidden = Path(told.pop("root")), tuple(map(Path, told.pop("hidden")))
    serve_pipe(lambda blobs: LocalEngine(root=root, blobs=blobs, hidden=hidden, **told), sys.stdin.buffer, out)


if __name__ == "__main__":
    if sys.argv[1:2] == ["far"]:
        far(json.loads(sys.argv[2]))
    else:
        setattr(compose, "LocalEngine", Piped)  # noqa: B010  # mypy rightly minds
        sys.exit(main())
