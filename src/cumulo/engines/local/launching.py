"""From an InstanceSpec to what its supervisor shall do: whom it runs as, its folders, its files, its stages.

It runs in a worker of the engine, once for each instance; and again, from the start, if the server was killed in
between. All steps can be repeated, and the supervisor sees to it that nothing runs twice.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cumulo.domain.errors import CumuloError
from cumulo.domain.instance import InstanceSpec
from cumulo.engines.local import interpreter
from cumulo.engines.local.accounts import Account, account_for, home_for, resolve_mounts
from cumulo.engines.local.layout import PASSAGE, Layout
from cumulo.engines.local.pulling import Puller
from cumulo.engines.local.stages import Setting, StageMaker
from cumulo.node.cgroups import Cgroups
from cumulo.node.files import make_folder
from cumulo.node.instances import SupervisorSpec
from cumulo.node.runtimes import ProcessRuntime, Runtime, SandboxRuntime

PIDS_MAX: Final = 16384
LOG_LIMIT_BYTES: Final = 10 << 30
OPEN_FILES: Final = (65536, 1 << 20)


def all_runtimes() -> dict[str, Runtime]:
    """The strongest first: a run that names none gets the first that can be had."""
    return {runtime.name: runtime for runtime in (SandboxRuntime(), ProcessRuntime())}


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """Composes the instances of one node. `device_files` tells what a process must open to use devices (uuids)."""

    layout: Layout
    puller: Puller
    cgroups: Cgroups
    hidden: tuple[Path, ...]
    notify: str | None
    device_files: Callable[[tuple[str, ...]], tuple[str, ...]]
    runtimes: dict[str, Runtime] = field(default_factory=all_runtimes)
    base: interpreter.Interpreter = field(default_factory=interpreter.base)

    def compose(self, spec: InstanceSpec, *, cancelled: Callable[[], bool]) -> SupervisorSpec:
        """Makes all that the instance needs and says what its supervisor shall do.

        Raises CumuloError with a sentence for the person who launched it, Cancelled, or OSError.
        """
        setting = self._setting(spec)
        owner = setting.account.owner
        self.puller.fill(setting.workdir, spec.files, owner=owner, cancelled=cancelled)
        maker = StageMaker(
            layout=self.layout,
            base=self.base,
            hidden=self.hidden,
            devices=self.device_files(spec.device_uuids),
            contents=self.puller.contents,
        )
        return SupervisorSpec(
            instance_id=spec.instance_id,
            cloud_id=spec.cloud_id,
            run_id=spec.run_id,
            stages=maker.stages(setting),
            cgroup=self.cgroups.plan(
                spec.instance_id,
                cpus_milli=spec.cpus_milli or None,
                memory_bytes=spec.memory_bytes or None,
                pids_max=PIDS_MAX,
            ),
            grace_s=spec.grace_s,
            uid=owner.uid if owner else None,
            gid=owner.gid if owner else None,
            groups=owner.groups if owner else (),
            umask=0o022,
            rlimits={"RLIMIT_NOFILE": OPEN_FILES, "RLIMIT_CORE": (0, 0)},
            max_duration_s=spec.max_duration_s,
            log_limit_bytes=LOG_LIMIT_BYTES,
            notify=self.notify,
        )

    def runtime(self, wanted: str | None) -> Runtime:
        """The runtime asked for, or the best that can be had. Raises CumuloError in words."""
        if wanted is None:
            return next(runtime for runtime in self.runtimes.values() if runtime.available() is None)
        runtime = self.runtimes.get(wanted)
        if runtime is None:
            known = ", ".join(self.runtimes)
            raise CumuloError("not_supported_yet", f"this node has no runtime {wanted!r}; it has {known}")
        if reason := runtime.available():
            raise CumuloError("not_supported_yet", f"the runtime {wanted} can't be used on this node: {reason}")
        return runtime

    def _setting(self, spec: InstanceSpec) -> Setting:
        runtime = self.runtime(spec.runtime)
        sandboxed = runtime.name != "process"
        account = account_for(spec.identity, sandboxed=sandboxed)
        if not sandboxed:
            self._check_reach(account)
        mounts = resolve_mounts(spec.mounts, account, sandboxed=sandboxed) if spec.mounts else ()
        layout = self.layout
        unit = layout.unit(spec)
        for folder in (unit.parent, unit):
            make_folder(folder, owner=None, mode=PASSAGE)
        setting = Setting(
            spec=spec,
            runtime=runtime,
            sandboxed=sandboxed,
            account=account,
            mounts=mounts,
            area=layout.area(spec.instance_id),
            workdir=layout.workdir(spec),
            checkpoint=unit / "checkpoint",
            outputs=unit / "outputs",
            home=home_for(account, mounts=spec.mounts, sandboxed=sandboxed, homes=layout.homes),
        )
        for folder in (setting.area, setting.tmp, setting.checkpoint, setting.outputs):
            make_folder(folder, owner=account.owner)
        return setting

    def _check_reach(self, account: Account) -> None:
        """Without a sandbox the folders are reached by the ordinary way, where somebody may have shut a door."""
        if account.owner is None:
            return
        for folder in self.layout.root.parents:
            if not folder.stat().st_mode & 0o001:
                text = f"{account.name} can't reach its folders below {folder} in the process runtime"
                hint = "use the sandbox runtime, or move the state folder to where all may go, such as /var/lib/cumulo"
                raise CumuloError("path_not_allowed", text, hint=hint)
