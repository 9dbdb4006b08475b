"""What an instance that makes room for others is told: when it will be killed, in a file, before its SIGTERM.

A variable can't reach a process that runs, so the variable `CUMULO_NOTICE` names the file from the start, and the file
holds the line `CUMULO_PREEMPT_AT=<epoch seconds>` for a shell to source.
"""

import contextlib
import os
from pathlib import Path


def last_moment(preempt_at: float, grace_s: float, now: float) -> float:
    """When to kill what is told at `now`: at `preempt_at`, or a grace from now if less than half of it is left.

    So a gang ends at one moment, and who was out of reach, or has another clock, still gets its grace. It never gets
    more than one grace from now.
    """
    return min(preempt_at, now + grace_s) if preempt_at - now >= grace_s / 2 else now + grace_s


def write_notice(path: Path, preempt_at: float) -> None:
    """For the owner of the folder: all of it at once, and never through a link, since the folder is a user's.

    Where it can't be written (a full disk, or nothing has been made for the instance yet) the SIGTERM must do.
    """
    part = path.with_name(f".{path.name}")
    with contextlib.suppress(OSError):
        owner = path.parent.stat()
        part.unlink(missing_ok=True)
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        try:
            os.write(fd, f"CUMULO_PREEMPT_AT={preempt_at:.3f}\n".encode())
            if owner.st_uid != os.geteuid():
                os.fchown(fd, owner.st_uid, owner.st_gid)
        finally:
            os.close(fd)
        part.rename(path)
