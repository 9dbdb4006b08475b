"""Virtual environments of runs, cached by what they are made from.

A run with `setup` or `requirements` gets its own environment, and the next run that asks for the same one starts at
once. An environment belongs to one uid, so that nobody can prepare what somebody else will execute; its name is a
digest of all that went in: requirements, setup text, interpreter, and the content of the workdir's files that take
part. It is built by a generated script in the run's `preparing` stage, as the user, with its output in the run's log.

What `setup` leaves in the workdir (a compiled program, a downloaded file) is part of its result: it is kept with the
environment as a tar and put back for the runs that find it ready.

A folder `environments/UID/DIGEST` holds: `lock` (one builder at a time), `venv`, `workdir.tar` (only if setup left
something), and `ready`, which appears last. Without `ready` it is nothing, and the next builder begins afresh.
"""

import hashlib
import json
import os
import re
import shlex
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cumulo.node.files import Owner, make_folder, remove_tree

# An editable install points into one instance's workdir, so its environment can serve no other.
_EDITABLE = re.compile(r"(^|\s)(-e|--editable|develop|sync)(\s|=|$)")
_TAKES_PART = re.compile(r"(requirements[^/]*\.(txt|in)|pyproject\.toml|setup\.(py|cfg)|uv\.lock|environment\.ya?ml)")
# Commands whose result depends on no file but those they name; after any other, every file of the workdir takes part.
_SELF_CONTAINED: Final = frozenset(
    (
        *("pip", "pip3", "uv", "apt", "apt-get", "conda", "mamba", "curl", "wget", "git"),
        *("echo", "export", "set", "true", "mkdir", "sleep", "nvidia-smi"),
    )
)
_INSTALLS_WORKDIR = re.compile(r"(^|\s)\.(/\S*)?(\[[^]]*\])?(\s|$)")
# Settings of the server's own package tools, which say where this site gets its packages from.
_SETTINGS = re.compile(
    r"(PIP_|UV_)\w+|(https?|all|no|ftp)_proxy|SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE", re.IGNORECASE
)
_OURS: Final = frozenset(
    {"PIP_CACHE_DIR", "UV_CACHE_DIR", "PIP_TARGET", "PIP_PREFIX", "PIP_USER", "UV_PYTHON", "UV_PROJECT_ENVIRONMENT"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What an environment is made from. `files` are the workdir's paths with the digests of their contents."""

    setup: str
    requirements: tuple[str, ...]
    python: str
    files: Mapping[str, str]
    instance_id: str

    @property
    def digest(self) -> str:
        """Same digest, same environment."""
        text = "\n".join((self.setup, *self.requirements))
        every = _reads_anything(self.setup) or _INSTALLS_WORKDIR.search(text) is not None
        ingredients = {
            "setup": self.setup,
            "requirements": self.requirements,
            "python": [self.python, sys.version.split()[0]],
            "files": sorted((path, digest) for path, digest in self.files.items() if every or _takes_part(path, text)),
            "only_for": self.instance_id if _EDITABLE.search(text) else None,
        }
        return hashlib.sha256(json.dumps(ingredients).encode()).hexdigest()[:32]


def _reads_anything(setup: str) -> bool:
    """Whether setup runs a command that may read files it does not name, such as make."""
    for command in re.split(r"\n|;|&&|\|\|?", setup.replace("\\\n", " ")):
        words = command.split("#")[0].split()
        if words[:1] == ["sudo"]:
            words = words[1:]
        if re.fullmatch(r"python3?", words[0] if words else "") and words[1:3] == ["-m", "pip"]:
            continue
        if words and words[0] not in _SELF_CONTAINED:
            return True
    return False


def _takes_part(path: str, text: str) -> bool:
    """Whether the environment may depend on a file: by its name, or because setup or requirements mention it."""
    name = path.rpartition("/")[2]
    return (
        _TAKES_PART.fullmatch(path) is not None
        or re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", text) is not None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """One environment's folder. `ready`: there is nothing to build. `restores`: setup left files for the workdir."""

    folder: Path
    digest: str
    ready: bool
    restores: bool

    @property
    def venv(self) -> Path:
        return self.folder / "venv"

    @property
    def needs_stage(self) -> bool:
        return not self.ready or self.restores


class Environments:
    """All environments of a node, below `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def find(self, recipe: Recipe, *, owner: Owner | None) -> Environment:
        """The environment for a recipe, its folder made if this is the first time it is asked for."""
        uid = os.geteuid() if owner is None else owner.uid
        digest = recipe.digest
        make_folder(self.root, owner=None, mode=0o711)
        make_folder(self.root / str(uid), owner=None, mode=0o711)
        folder = self.root / str(uid) / digest
        make_folder(folder, owner=owner)
        os.utime(folder)  # when it was last used
        return Environment(
            folder=folder,
            digest=digest,
            ready=(folder / "ready").exists(),
            restores=(folder / "workdir.tar").exists(),
        )

    def unused(self, *, unused_s: float, keep: frozenset[str], now: float | None = None) -> list[Path]:
        """Those that nobody has asked for in `unused_s` seconds, `keep` (digests) excepted."""
        before = (time.time() if now is None else now) - unused_s
        return [folder for folder in self.folders() if folder.name not in keep and folder.stat().st_mtime < before]

    def folders(self) -> Iterator[Path]:
        """All environments, whole or not."""
        for account in self.root.iterdir() if self.root.exists() else ():
            for folder in account.iterdir():
                if folder.name.startswith("."):
                    remove_tree(folder)  # left by a removal that was killed
                else:
                    yield folder

    @staticmethod
    def remove(folder: Path) -> None:
        """Renamed first, so that no run finds half of it."""
        doomed = folder.with_name(f".{folder.name}.gone")
        folder.rename(doomed)
        remove_tree(doomed)


def settings(environ: Mapping[str, str]) -> dict[str, str]:
    """The server's settings for package tools, for the preparing stage alone: runs need no index of ours."""
    return {name: value for name, value in environ.items() if _SETTINGS.fullmatch(name) and name.upper() not in _OURS}


def find_uv(search: str, base_prefix: str, environ: Mapping[str, str]) -> str | None:
    """uv, if it is a real program and this site configures no pip: uv reads neither pip.conf nor PIP_*."""
    configured = any(
        name in environ for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_CONFIG_FILE")
    )
    if configured and not any(name.startswith(("UV_INDEX", "UV_DEFAULT_INDEX", "UV_FIND_LINKS")) for name in environ):
        return None
    for folder in (*search.split(":"), f"{base_prefix}/bin"):
        candidate = os.path.join(folder, "uv")
        try:
            with open(candidate, "rb") as file:
                if file.read(4) == b"\x7fELF" and os.access(candidate, os.X_OK):
                    return os.path.realpath(candidate)
        except OSError:
            continue
    return None


def arguments(requirements: Sequence[str]) -> list[str]:
    """Requirements as pip's arguments: a line is one requirement, or options such as `-r requirements.txt`."""
    found: list[str] = []
    for raw in requirements:
        line = raw.strip()
        if line.startswith("-"):
            found += shlex.split(line, comments=True)
        elif line and not line.startswith("#"):
            found.append(re.split(r"\s#", line)[0].strip())
    return found


_SCRIPT = """\
# Builds the virtual environment of a run, unless it is there. Its folder, when whole, has a file `ready`.
set -e
env={env}
exec 9>>"$env/lock"
flock 9
if [ -e "$env/ready" ]; then
  if [ -e "$env/workdir.tar" ]; then tar -xf "$env/workdir.tar" 9>&-; fi
  exit 0
fi
echo "cumulo: building this run's environment; the next launch finds it ready"
find "$env" -mindepth 1 -maxdepth 1 ! -name lock -exec rm -rf {{}} +
{make_venv}
export VIRTUAL_ENV="$env/venv" PATH="$env/venv/bin:$PATH"
{install}
{setup}
sync -f "$env"
: > "$env/ready.new"
mv "$env/ready.new" "$env/ready"
"""

# Files made before are older than `begun` by their change time, which no tool can set.
_SETUP = """\
: > "$env/begun"
sleep 0.02
/bin/bash -e {setup} 9>&-
find . -mindepth 1 -cnewer "$env/begun" \\( ! -type d -o -empty \\) -print0 > "$env/left"
if [ -s "$env/left" ]; then
  tar --no-recursion --null -cf "$env/workdir.tar.new" -T "$env/left" 9>&-
  mv "$env/workdir.tar.new" "$env/workdir.tar"
fi
rm "$env/left"
"""


def build_script(
    environment: Environment, *, python: str, uv: str | None, requirements: Sequence[str], setup: Path | None
) -> str:
    """The preparing stage's script, for bash in the workdir. `setup` is the file with the run's setup."""
    if uv:
        make = f'{shlex.quote(uv)} venv --quiet --python {shlex.quote(python)} "$env/venv" 9>&-'
        if setup:
            make += '\n"$env/venv/bin/python" -m ensurepip --default-pip >/dev/null 9>&-'
    else:
        make = (
            f'if ! {shlex.quote(python)} -m venv "$env/venv" 9>&-; then\n'
            "  echo 'cumulo: no virtual environment could be made; on Debian and Ubuntu: apt install python3-venv'\n"
            "  exit 1\nfi"
        )
    install = ""
    if wanted := arguments(requirements):
        tool = f'{shlex.quote(uv)} pip install --python "$env/venv/bin/python"' if uv else "python -m pip install"
        install = f"{tool} {shlex.join(wanted)} 9>&-"
    return _SCRIPT.format(
        env=shlex.quote(str(environment.folder)),
        make_venv=make,
        install=install,
        setup=_SETUP.format(setup=shlex.quote(str(setup))) if setup else "",
    )
