"""The runtime `sandbox`: bubblewrap, with its own pid, ipc, uts and mount namespaces and no capability at all.

Started by root, bubblewrap stays root while it builds the sandbox, without a user namespace: so it can bind what lies
below folders that the run's uid may not enter (a Python under /root, the server's state folder), and files keep their
owners. The change to the run's uid, and the loss of all capabilities, happen inside, right before the command.
Therefore nothing that a person may choose reaches bubblewrap or setpriv while they are root: the run's environment
(LD_PRELOAD!) is set only after the change, by a shell script on stdin. That also keeps secrets out of argv.

Started by an ordinary user, the same sandbox lives in a user namespace.
"""

import os
import re
import shlex
import shutil
import stat
import subprocess
from collections.abc import Iterable, Mapping
from functools import cache

from cumulo.node.runtimes.protocol import Stage, StageName, StageRequest
from cumulo.node.supervisor import REPORT_FD, STATUS_FD

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_READ_ONLY_IN_BASH = frozenset({"UID", "EUID", "PPID", "SHELLOPTS", "BASHOPTS", "BASH_VERSINFO"})
_IDENTITY = ("CUMULO_INSTANCE_ID", "CUMULO_CLOUD_ID")  # by these the processes of a lost supervisor are found
_PRIVATE_FOLDERS = ("/dev/shm", "/var/tmp")  # noqa: S108 (mount points of the sandbox)


class SandboxRuntime:
    """bubblewrap for whoever runs the server: root, or an ordinary user."""

    name = "sandbox"
    isolation = (
        "sees no other process, its own /tmp, a read-only file system except its own folders and its mounts, "
        "only the devices it holds; no capabilities; shares the kernel and the network with the host"
    )

    def available(self) -> str | None:
        return _trial(os.geteuid())

    def stage(self, name: StageName, request: StageRequest) -> Stage:
        """Raises ValueError for an environment variable no shell could set."""
        argv = ["bwrap", "--json-status-fd", str(STATUS_FD), *_namespaces(request), *_file_system(request)]
        argv += ["--chdir", "/", "--", *_inner_user(request), "/bin/sh", "-s", "--", *request.argv]
        env = {"PATH": _PATH} | {key: request.env[key] for key in _IDENTITY if key in request.env}
        script = _script(request.env, request.cwd)
        return Stage(name=name, argv=tuple(argv), env=env, cwd=request.cwd, drop=False, stdin=script, json_status=True)


def _namespaces(request: StageRequest) -> list[str]:
    args = ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--hostname", request.hostname]
    if request.uid is None:
        user = ["--unshare-user", "--uid", str(os.geteuid()), "--gid", str(os.getegid())]
        return [*args, *user, "--cap-drop", "ALL"]
    for capability in ("ALL", "CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP"):  # the three that _inner_user needs
        args += ["--cap-drop" if capability == "ALL" else "--cap-add", capability]
    return args


def _inner_user(request: StageRequest) -> list[str]:
    if request.uid is None:
        return []
    groups = f"--groups={','.join(map(str, request.groups))}" if request.groups else "--clear-groups"
    user = [f"--reuid={request.uid}", f"--regid={request.gid}", groups]
    return ["setpriv", *user, "--inh-caps=-all", "--bounding-set=-all", "--"]


def _file_system(request: StageRequest) -> list[str]:
    args = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    for node in request.device_nodes:
        args += ["--dev-bind", node, node]
    for folder in _PRIVATE_FOLDERS:
        args += ["--perms", "1777", "--tmpfs", folder]
    if request.tmp_folder is not None:
        args += ["--bind", request.tmp_folder, "/tmp"]  # noqa: S108
    else:
        size = [] if request.tmp_bytes is None else ["--size", str(request.tmp_bytes)]
        args += ["--perms", "1777", *size, "--tmpfs", "/tmp"]  # noqa: S108
    binds = {os.path.realpath(path): "--ro-bind" for path in request.read_only}
    binds |= {os.path.realpath(path): "--bind" for path in (*request.writable, *request.mounts)}
    hidden = {os.path.realpath(path) for path in request.hidden if os.path.isdir(path)}
    empty = hidden | _unreachable(binds, request)
    # bubblewrap would give the folders in between the mode of what is bound, as 0700.
    steps = {
        path: ["--perms", "0755", "--dir", path]
        for path in _between({"/tmp", *_PRIVATE_FOLDERS, *empty}, binds)  # noqa: S108
    }
    steps |= {path: ["--perms", "0755", "--tmpfs", path] for path in empty}
    steps |= {path: [how, path, path] for path, how in binds.items()}
    # A folder before what lies in it: what is hidden stays so below a mount, and what is bound shows below that.
    return args + [word for path in sorted(steps) for word in steps[path]]


def _unreachable(paths: Iterable[str], request: StageRequest) -> set[str]:
    """For each path the topmost folder above it that the run's uid may not enter; it is replaced by an empty one."""
    found = set()
    looked_at: dict[str, bool] = {}
    for path in paths if request.uid is not None else ():
        for parent in _parents(path):
            if parent not in looked_at:
                looked_at[parent] = _may_enter(os.stat(parent), request)
            if not looked_at[parent]:
                found.add(parent)
                break
    return found


def _between(empty: Iterable[str], binds: Iterable[str]) -> set[str]:
    """The folders on the way from an emptied folder to what is bound below it."""
    above = tuple(folder + "/" for folder in empty)
    return {parent for path in binds for parent in _parents(path) if parent.startswith(above)}


def _parents(path: str) -> list[str]:
    """The folders above an absolute path, the topmost first."""
    ends = [place for place, letter in enumerate(path) if letter == "/"]
    return [path[:end] or "/" for end in ends]


def _may_enter(folder: os.stat_result, request: StageRequest) -> bool:
    if folder.st_uid == request.uid:
        return bool(folder.st_mode & stat.S_IXUSR)
    if folder.st_gid in (request.gid, *request.groups):
        return bool(folder.st_mode & stat.S_IXGRP)
    return bool(folder.st_mode & stat.S_IXOTH)


def _script(env: Mapping[str, str], cwd: str) -> str:
    """Sets the environment, enters the working folder, tells the supervisor, becomes the command.

    The folder is entered only here, since the run's uid may where root without its capabilities may not.
    """
    bad = next((name for name in env if not _NAME.match(name)), None)
    if bad is not None:
        raise ValueError(f"the environment variable {bad!r} cannot be set in a sandbox: its name is no shell name")
    exports = [f"export {name}={shlex.quote(env[name])}" for name in env if name not in _READ_ONLY_IN_BASH]
    no_folder = shlex.quote(f"failed cannot enter the working folder {cwd}")
    missing = f'echo "failed command not found: $1" >&{REPORT_FD}; exit 127'
    return "\n".join(
        (
            *exports,
            f"cd -- {shlex.quote(cwd)} 2>/dev/null || {{ echo {no_folder} >&{REPORT_FD}; exit 127; }}",
            "unset OLDPWD",
            f'command -v "$1" >/dev/null 2>&1 || {{ {missing}; }}',
            f"echo started >&{REPORT_FD}",
            f'exec "$@" {REPORT_FD}>&- </dev/null',
            "",
        )
    )


@cache
def _trial(euid: int) -> str | None:
    """Why no sandbox can be had here. Really builds one, once."""
    if shutil.which("bwrap") is None:
        return "bubblewrap is not installed (Debian: apt install bubblewrap)"
    if euid == 0 and shutil.which("setpriv") is None:
        return "setpriv is not installed (Debian: apt install util-linux)"
    request = StageRequest(argv=(), env={}, cwd="/", uid=65534, gid=65534) if euid == 0 else None
    request = request or StageRequest(argv=(), env={}, cwd="/")
    argv = ["bwrap", *_namespaces(request), *_file_system(request), "--", *_inner_user(request), "true"]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bubblewrap cannot be run: {error}"
    if done.returncode == 0:
        return None
    complaint = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    hint = "; are user namespaces allowed here (sysctl kernel.unprivileged_userns_clone, AppArmor)?" if euid else ""
    return f"bubblewrap cannot build a sandbox here: {complaint}{hint}"
