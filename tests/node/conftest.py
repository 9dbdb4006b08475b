"""A node folder, a spawner and a few words to launch real instances with, as root and as an ordinary user alike."""

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest

from cumulo.node import instances, processes
from cumulo.node.cgroups import Cgroups, claim
from cumulo.node.instances import ExitRecord, Standing, View
from cumulo.node.runtimes import ProcessRuntime, Runtime, SandboxRuntime, Stage, StageRequest
from cumulo.node.spawner import Spawner

T = TypeVar("T")
UID = 4242  # nobody's: the tests make no users
AS_ROOT = os.geteuid() == 0
PATH = "/usr/local/bin:/usr/bin:/bin"


@dataclass
class Bench:
    """Launches instances in a node folder of its own."""

    root: Path
    cgroups: Cgroups
    spawner: Spawner
    folders: list[Path] = field(default_factory=list)

    @staticmethod
    def until(true: Callable[[], T | None], *, seconds: float = 20.0) -> T:
        """What `true` answers once that is true. Real processes need real time, but no more of it than they take."""
        deadline = time.monotonic() + seconds
        while not (answer := true()):
            assert time.monotonic() < deadline, "waited in vain"
            time.sleep(0.005)
        return answer

    def new_id(self) -> str:
        return f"test-{os.getpid()}-{self.root.name}-{len(self.folders)}"

    def prepare(
        self,
        *argv: str,
        runtime: Runtime | None = None,
        setup: tuple[str, ...] = (),
        cwd: str = "/",
        env: dict[str, str] | None = None,
        limits: dict[str, Any] | None = None,
        request: dict[str, Any] | None = None,
        **spec: Any,
    ) -> Path:
        """Write the folder and its spec, start nothing. A single argument is a shell script."""
        name = self.new_id()
        runtime = runtime or ProcessRuntime()
        identity: dict[str, Any] = {"uid": UID, "gid": UID} if AS_ROOT else {}
        environment = {"PATH": PATH, "CUMULO_INSTANCE_ID": name} | (env or {})

        def stage(kind: Any, command: tuple[str, ...]) -> Stage:
            words = ("/bin/sh", "-c", *command) if len(command) == 1 else command
            wish = StageRequest(argv=words, env=environment, cwd=cwd, **identity, **(request or {}))
            return runtime.stage(kind, wish)

        stages = [stage("preparing", setup)] if setup else []
        written = instances.SupervisorSpec(
            instance_id=name,
            cloud_id="test",
            run_id="run",
            stages=(*stages, stage("running", argv)),
            cgroup=self.cgroups.plan(name, **(limits or {"memory_bytes": 256 << 20})),
            **{"grace_s": 10.0, **identity, **spec},
        )
        folder = instances.create(self.root, written)
        self.folders.append(folder)
        return folder

    def launch(self, *argv: str, **options: Any) -> Path:
        folder = self.prepare(*argv, **options)
        self.spawner.start(folder)
        return folder

    def running(self, folder: Path) -> View:
        """Wait until the run's own command is there."""

        def there() -> View | None:
            view = instances.look(folder)
            return view if view.state and view.state.payload_pid else None

        return self.until(there)

    def end(self, folder: Path, *, seconds: float = 20.0) -> ExitRecord:
        return self.until(lambda: instances.look(folder).exit, seconds=seconds)

    def run(self, *argv: str, **options: Any) -> ExitRecord:
        return self.end(self.launch(*argv, **options))

    def log(self, folder: Path) -> bytes:
        return (folder / "log").read_bytes()

    def says(self, folder: Path, text: bytes) -> None:
        self.until(lambda: (folder / "log").exists() and text in self.log(folder))

    def living(self, folder: Path) -> set[int]:
        """Every process that the instance has anywhere."""
        return processes.with_environment("CUMULO_INSTANCE_ID", folder.name)

    def clear(self) -> None:
        for folder in self.folders:
            view = instances.look(folder)
            if view.standing is Standing.ALIVE:
                instances.request_stop(folder, grace_s=0)
                self.end(folder)
            elif view.standing is Standing.ORPHANED:
                instances.reap_orphan(folder)
        self.spawner.close()


@pytest.fixture(scope="session")
def cgroups() -> Iterator[Cgroups]:
    claimed = claim(name=f"cumulo-test{os.getpid()}")  # two suites at once must not meet
    yield claimed
    claimed.leave()


@pytest.fixture
def enforcing(cgroups: Cgroups) -> None:
    """For tests of limits."""
    if not all(entry.enforced for entry in cgroups.report):
        pytest.skip("no cgroup v2 with delegation, nor a v1 that we may write")


@pytest.fixture
def node_root() -> Iterator[Path]:
    """A folder that every uid may enter, unlike pytest's own."""
    root = Path(tempfile.mkdtemp(prefix="cumulo-test-"))
    root.chmod(0o755)
    yield root
    shutil.rmtree(root)


@pytest.fixture
def bench(node_root: Path, cgroups: Cgroups) -> Iterator[Bench]:
    bench = Bench(root=node_root, cgroups=cgroups, spawner=Spawner(node_root))
    yield bench
    bench.clear()


@pytest.fixture(params=["process", "sandbox"])
def runtime(request: pytest.FixtureRequest) -> Runtime:
    chosen: Runtime = ProcessRuntime() if request.param == "process" else SandboxRuntime()
    reason = chosen.available()
    if reason:
        pytest.skip(reason)
    return chosen


@pytest.fixture
def sandbox() -> SandboxRuntime:
    chosen = SandboxRuntime()
    reason = chosen.available()
    if reason:
        pytest.skip(reason)
    return chosen
