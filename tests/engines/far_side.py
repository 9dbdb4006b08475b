"""The far side of the pipe in tests: a local engine in a process of its own. Arguments: its options, as JSON."""

import json
import os
import sys
from pathlib import Path

from cumulo.engines.local import LocalEngine
from cumulo.engines.pipe import serve_pipe

if __name__ == "__main__":
    options = json.loads(sys.argv[1])
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what prints by mistake must not speak into the pipe
    serve_pipe(
        lambda blobs: LocalEngine(
            root=Path(options["root"]), cloud_id=options["cloud_id"], blobs=blobs, emulate=options["emulate"]
        ),
        sys.stdin.buffer,
        out,
    )
