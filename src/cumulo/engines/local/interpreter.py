"""Which Python a run finds, and how it can be reached.

The server's base interpreter (below any virtual environment) builds the runs' environments. It may lie where only
root can go (/root/.pyenv); a sandbox then shows it all the same, and where there is no sandbox the system's own serves.
"""

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from cumulo.engines.local.variables import SYSTEM_PATH


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """The interpreter, the folder that holds all of it, and whether every account may go there."""

    executable: str
    prefix: str
    open_to_all: bool


def base() -> Interpreter:
    executable = getattr(sys, "_base_executable", None) or sys.executable
    prefix = Path(sys.base_prefix).resolve()
    return Interpreter(
        executable=os.path.realpath(executable),
        prefix=str(prefix),
        open_to_all=all(folder.stat().st_mode & 0o001 for folder in (prefix, *prefix.parents)),
    )


def system() -> Interpreter | None:
    found = shutil.which("python3", path=SYSTEM_PATH)
    return Interpreter(executable=found, prefix="/usr", open_to_all=True) if found else None


def link(folder: Path, interpreter: Interpreter) -> None:
    """Fills `folder`, which comes last on a run's PATH: so `python3` and `python` are there, and are the same."""
    python3 = shutil.which("python3", path=SYSTEM_PATH) or interpreter.executable
    for name in ("python3", "python"):
        here = folder / name
        if here.is_symlink() and os.readlink(here) == python3:
            continue
        fresh = folder / f".{name}.{os.getpid()}"
        fresh.symlink_to(python3)
        fresh.rename(here)
