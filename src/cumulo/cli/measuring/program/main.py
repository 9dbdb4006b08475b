"""Begins and ends the program: what is found goes to the file RESULT as JSON, however the script ends."""

from __future__ import annotations

import json
import os
import runpy
import sys
from pathlib import Path
from typing import Any, NoReturn

from .probe import Probe

OLDEST = (2, 5)


def main(result: str, script: str, *arguments: str) -> NoReturn:
    """Ends the process itself once two steps are done, so that nothing the script catches or cleans up runs on."""
    here = Path(script).resolve()
    try:
        import torch
    except ImportError as error:
        _finish(result, {"error": "no_torch", "message": str(error)})
    if tuple(int(part) for part in torch.__version__.split(".")[:2]) < OLDEST:
        _finish(result, {"error": "old_torch", "message": torch.__version__})
    probe = Probe(here, lambda found: _finish(result, found))
    sys.argv = [script, *arguments]
    sys.path[0] = str(here.parent)
    try:
        with probe.watching():
            runpy.run_path(str(here), run_name="__main__")
        found = probe.at_end()
    except BaseException as error:
        found = probe.why_not(error)
    _finish(result, found)


def _finish(result: str, found: dict[str, Any]) -> NoReturn:
    Path(result).write_text(json.dumps(found))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
