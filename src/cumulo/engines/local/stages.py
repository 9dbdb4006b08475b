"""The stages of an instance: `preparing` where an environment must be built, and `running`.

A stage runs bash with `-e`: the first command that fails ends it. The run's own command is given to `bash -c`, which
becomes a single command itself, so that signals and the way it ends are the command's own and no shell's. What is too
long for an argument is a script in the instance's folder.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cumulo.domain.errors import CumuloError
from cumulo.domain.instance import InstanceSpec
from cumulo.engines.local import interpreter, variables
from cumulo.engines.local.accounts import ROOTS_UID, Account
from cumulo.engines.local.layout import Layout
from cumulo.node.environments import Environment, Environments, Recipe, build_script, find_uv, settings
from cumulo.node.runtimes import Runtime, Stage, StageName, StageRequest

_IDLE: Final = "exec sleep infinity"  # a dev run without a command is there to work in
_LONGEST_ARGUMENT: Final = 64 << 10  # bytes; the kernel takes twice as much


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One instance with all that has been decided about where and as whom it runs. `mounts` are paths to bind."""

    spec: InstanceSpec
    runtime: Runtime
    sandboxed: bool
    account: Account
    mounts: tuple[str, ...]
    area: Path
    workdir: Path
    checkpoint: Path
    outputs: Path
    home: Path

    @property
    def tmp(self) -> Path:
        return self.area / "tmp"

    @property
    def progress(self) -> Path:
        return self.area / "progress"


@dataclass(frozen=True, slots=True, kw_only=True)
class StageMaker:
    """Makes the stages of one instance. `contents` gives path → digest of its files."""

    layout: Layout
    base: interpreter.Interpreter
    hidden: tuple[Path, ...]
    devices: tuple[str, ...]
    contents: Callable[[tuple[tuple[str, str], ...]], dict[str, str]]

    def stages(self, setting: Setting) -> tuple[Stage, ...]:
        """Raises CumuloError where the stages can't be made, in words."""
        spec = setting.spec
        env = variables.defaults(user=setting.account.name, home=setting.home, python_links=self.layout.bin)
        env |= spec.env
        env |= variables.ours(
            spec,
            checkpoint=setting.checkpoint,
            outputs=setting.outputs,
            progress=setting.progress,
            notice=self.layout.notice(spec.instance_id),
            library=self.layout.lib,
            now=time.time(),
        )
        argv = self._command(setting, spec.command or (_IDLE if spec.dev else ""))
        if not (spec.setup.strip() or spec.requirements):
            return (self._stage("running", setting, env, argv),)
        environment = self._environment(setting)
        within = variables.with_environment(env, environment.venv)
        running = self._stage("running", setting, within, argv, read_only=(environment.folder,))
        return (self._preparing(setting, env, environment), running) if environment.needs_stage else (running,)

    def _command(self, setting: Setting, text: str) -> tuple[str, ...]:
        if len(text.encode()) <= _LONGEST_ARGUMENT:
            return "/bin/bash", "-e", "-c", text
        return "/bin/bash", "-e", str(_write(setting.area / "script", text, setting.account))

    def _environment(self, setting: Setting) -> Environment:
        recipe = Recipe(
            setup=setting.spec.setup,
            requirements=setting.spec.requirements,
            python=self._python(setting),
            files=self.contents(setting.spec.files),
            instance_id=setting.spec.instance_id,
        )
        return Environments(self.layout.environments).find(recipe, owner=setting.account.owner)

    def _python(self, setting: Setting) -> str:
        if setting.sandboxed or setting.account.owner is None or self.base.open_to_all:
            return self.base.executable
        if (found := interpreter.system()) is None:
            text = f"{setting.account.name} can't reach {self.base.executable}, and there is no other Python"
            raise CumuloError("path_not_allowed", text, hint="use the sandbox runtime, or install python3")
        return found.executable

    def _preparing(self, setting: Setting, env: dict[str, str], environment: Environment) -> Stage:
        spec, account = setting.spec, setting.account
        setup = _write(setting.area / "setup", spec.setup, account) if spec.setup.strip() else None
        uv = find_uv(os.environ.get("PATH", ""), self.base.prefix, os.environ)
        text = build_script(
            environment, python=self._python(setting), uv=uv, requirements=spec.requirements, setup=setup
        )
        script = _write(setting.area / "prepare", text, account)
        site = settings(os.environ) | _pip_configuration(account, setting.area) | {"UV_LINK_MODE": "copy"}
        return self._stage(
            "preparing",
            setting,
            site | env,
            ("/bin/bash", "-e", str(script)),
            writable=(environment.folder,),
            read_only=(Path(uv),) if uv else (),
        )

    def _stage(
        self,
        name: StageName,
        setting: Setting,
        env: dict[str, str],
        argv: tuple[str, ...],
        *,
        writable: tuple[Path, ...] = (),
        read_only: tuple[Path, ...] = (),
    ) -> Stage:
        owner = setting.account.owner
        folders = {setting.area, setting.checkpoint, setting.outputs, *writable}
        if setting.workdir.parent != setting.area:
            folders.add(setting.workdir)
        if setting.home != setting.account.real_home:
            folders.add(setting.home)
        if not self.base.open_to_all:
            read_only = (*read_only, Path(self.base.prefix))
        request = StageRequest(
            argv=argv,
            env=env,
            cwd=str(setting.workdir),
            uid=owner.uid if owner else None,
            gid=owner.gid if owner else None,
            groups=owner.groups if owner else (),
            writable=tuple(map(str, sorted(folders))),
            read_only=tuple(map(str, (self.layout.bin, self.layout.lib, *read_only))),
            hidden=tuple(map(str, self.hidden)),
            mounts=setting.mounts,
            device_nodes=self.devices,
            hostname=setting.spec.node,
            tmp_folder=str(setting.tmp),
        )
        try:
            return setting.runtime.stage(name, request)
        except ValueError as error:
            raise CumuloError("invalid_request", str(error)) from error


def _write(path: Path, text: str, account: Account) -> Path:
    """A script in the instance's area: made anew and never through a link, since the area is the user's."""
    path.unlink(missing_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        data = memoryview(f"{text}\n".encode())
        while data:
            data = data[os.write(fd, data) :]
        if account.owner is not None:
            os.fchown(fd, account.owner.uid, account.owner.gid)
    finally:
        os.close(fd)
    return path


def _pip_configuration(account: Account, area: Path) -> dict[str, str]:
    """Where pip finds its configuration, since HOME may be a scratch one: the person's own file, or the server's."""
    if account.owner is not None and account.owner.uid != ROOTS_UID:
        own = account.real_home / ".config/pip/pip.conf" if account.real_home else None
        return {"PIP_CONFIG_FILE": str(own)} if own and own.is_file() else {}
    told = os.environ.get("PIP_CONFIG_FILE")
    for file in (Path(told),) if told else (Path.home() / ".config/pip/pip.conf", Path.home() / ".pip/pip.conf"):
        if file.is_file():
            return {"PIP_CONFIG_FILE": str(_write(area / "pip.conf", file.read_text(), account))}
    return {}
