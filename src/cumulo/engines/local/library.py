"""What a run may import of ours, put where its own Python finds it: `cumulo.job`, one file of the standard library.

The folder holds `cumulo/job.py` and no `cumulo/__init__.py`. Python takes such a folder only where no complete package
of that name is on its path, so a run that has installed Cumulo itself finds that, `job` included.
"""

import os
from importlib.resources import files
from pathlib import Path


def install(folder: Path) -> None:
    """Puts this version's `cumulo.job` into `folder`, at once, since runs may be importing it. Raises OSError."""
    package = folder / "cumulo"
    package.mkdir(mode=0o755, exist_ok=True)
    text, there = (files("cumulo") / "job.py").read_bytes(), package / "job.py"
    if there.exists() and there.read_bytes() == text:
        return
    fresh = package / f".job.py.{os.getpid()}"
    fresh.write_bytes(text)
    fresh.chmod(0o644)
    fresh.rename(there)
