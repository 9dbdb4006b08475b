"""One more command in a living instance, for `exec` and `ssh`: inside its namespaces, cgroups and user."""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from cumulo.node.instances import look
from cumulo.node.spawner import supervisor_argv
from cumulo.node.supervisor import read_json


@dataclass(slots=True, kw_only=True)
class Entered:
    """The command's process; its exit code is the command's (128 + n after signal n, 126 where it never began)."""

    process: subprocess.Popen[bytes]
    _lifeline: int

    def close(self) -> None:
        """Kill the command, and all it started, if it still runs. The end of our process does the same."""
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1


def enter(
    root: Path,
    folder: Path,
    *,
    argv: Sequence[str],
    env: Mapping[str, str],
    cwd: str,
    stdin: int | IO[bytes],
    stdout: int | IO[bytes],
    stderr: int | IO[bytes],
    pty: bool = False,
) -> Entered:
    """Start it. `env` is its complete environment; with `pty`, stdin is the slave side of a terminal.

    Raises ValueError where the instance has no running command to join.
    """
    view = look(folder)
    spec = read_json(str(folder / "spec.json"))
    if spec is None or view.supervisor_pid is None or view.state is None or view.state.payload_pid is None:
        raise ValueError(f"the instance {folder.name} is not running")
    sandboxed = bool(spec["stages"][-1]["json_status"])
    lifeline, ours = os.pipe()
    request = {key: spec[key] for key in ("uid", "gid", "groups")}
    request |= {"argv": list(argv), "env": dict(env), "cwd": cwd, "pty": pty, "no_new_privs": sandboxed}
    request |= {"cgroup_dirs": spec["cgroup"]["dirs"], "target_pid": view.state.payload_pid, "lifeline": lifeline}
    text = os.memfd_create("exec")
    try:
        os.write(text, json.dumps(request).encode())
        os.lseek(text, 0, os.SEEK_SET)
        process = subprocess.Popen(
            supervisor_argv(root, "exec", text),
            pass_fds=(text, lifeline),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            cwd="/",
            env={"PATH": os.defpath, "CUMULO_INSTANCE_ID": folder.name},
        )
    except BaseException:
        os.close(ours)
        raise
    finally:
        os.close(text)
        os.close(lifeline)
    return Entered(process=process, _lifeline=ours)
