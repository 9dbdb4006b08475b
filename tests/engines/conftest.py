"""An engine to try: the local one with emulated nodes, and the same behind a pipe of bytes."""

import hashlib
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

import pytest

from cumulo.domain.instance import Identity, InstanceSpec
from cumulo.domain.lifecycle import InstanceState
from cumulo.domain.manifest import ManifestEntry, make_manifest, render_manifest
from cumulo.engines.local import LocalEngine
from cumulo.engines.pipe import PipeEngine
from cumulo.node.runtimes import SandboxRuntime

CLOUD = f"test{os.getpid()}"  # two suites at once must not meet in the cgroups
ROOT = os.geteuid() == 0
SOMEBODY, SOMEBODY_ELSE = 4242, 4243
WAIT = "while [ ! -e gate ]; do sleep 0.02; done"
needs_root = pytest.mark.skipif(not ROOT, reason="needs root")


class Blobs(dict[str, bytes]):
    """Blobs in memory, by digest. As a BlobSource it has only `read`, which may be made to wait."""

    def __init__(self):
        super().__init__()
        self.before_read = lambda: None

    def add(self, data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()
        self[digest] = data
        return digest

    def tree(self, files) -> str:
        """Stores files ({path: text}) and their manifest, whose digest it returns."""
        entries = [
            ManifestEntry(path, 0o755 if text.startswith("#!") else 0o644, len(text.encode()), self.add(text.encode()))
            for path, text in files.items()
        ]
        return self.add(render_manifest(make_manifest(entries)))

    def read(self, digest):
        self.before_read()
        return self[digest]

    def chunks(self, digest):
        yield self.read(digest)


class Bench:
    """An engine with what a test needs around it. Instances are named by the test; runs get their name."""

    def __init__(self, kind, root):
        self.kind, self.root, self.blobs = kind, root, Blobs()
        self.engine = open_engine(kind, root, self.blobs)
        self.engine.pools()  # an answer means that it is there, also in another process
        self.runtime = "process"
        self.identity = Identity(name="somebody", uid=SOMEBODY, gid=SOMEBODY) if ROOT else Identity(name="me")
        self.epoch = 1

    def restart(self):
        """A new engine over the same folder, as after an upgrade."""
        self.engine.close()
        self.engine = open_engine(self.kind, self.root, self.blobs)

    def spec(self, name, command, **changes):
        values = {
            "instance_id": f"{name}-0-0-0",
            "cloud_id": CLOUD,
            "run_id": name,
            "run_name": name,
            "project": "default",
            "unit": 0,
            "attempt": 0,
            "rank": 0,
            "node": "emulated-0",
            "slices": (),
            "cpus_milli": 1000,
            "memory_bytes": 1 << 30,
            "identity": self.identity,
            "command": command,
            "runtime": self.runtime,
            "grace_s": 5.0,
        }
        return InstanceSpec(**(values | changes))

    def start(self, name, command="true", **changes):
        spec = self.spec(name, command, **changes)
        self.engine.ensure(spec, self.epoch)
        return spec.instance_id

    def look(self, instance_id):
        found = self.engine.observe(frozenset({instance_id})).instances
        return found[0] if found else None

    def until(self, instance_id, wanted, timeout=30.0):
        """Looks until `wanted` (a state or a predicate) holds; what was seen then."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            seen = self.look(instance_id)
            if seen and (wanted(seen) if callable(wanted) else seen.state is wanted):
                return seen
            time.sleep(0.005)
        raise AssertionError(f"{wanted} never came; last seen: {self.look(instance_id)}\n{self.log(instance_id)}")

    def end(self, instance_id, timeout=30.0):
        return self.until(instance_id, InstanceState.ENDED, timeout)

    def open_gate(self, instance_id):
        """Lets a command go on that waits by WAIT."""
        (self.root / "areas" / instance_id / "workdir" / "gate").touch()

    def run(self, name, command, timeout=30.0, **changes):
        """To its end: (what was observed, its log)."""
        instance_id = self.start(name, command, **changes)
        return self.end(instance_id, timeout), self.log(instance_id)

    def log(self, instance_id):
        return self.engine.read_log(instance_id, 0).decode(errors="replace")


EMULATED = "A100-80GB:2,T4:1"
FAR_SIDE = Path(__file__).with_name("far_side.py")


def open_engine(kind, root, blobs):
    if kind == "direct":
        return LocalEngine(root=root, cloud_id=CLOUD, blobs=blobs, emulate=EMULATED)
    options = {"root": str(root), "cloud_id": CLOUD, "emulate": EMULATED}
    return PipeEngine([sys.executable, str(FAR_SIDE), json.dumps(options)], blobs=blobs, name="local")


@pytest.fixture
def node_root():
    """A node's folder that every account can reach, as /var/lib/cumulo; pytest's own are shut to others."""
    base = Path(tempfile.mkdtemp(prefix="cumulo-test-"))
    base.chmod(0o711)
    yield base / "node"
    shutil.rmtree(base)


@pytest.fixture(params=["direct", "piped"])
def bench(node_root, request):
    bench = Bench(request.param, node_root)
    yield bench
    for seen in bench.engine.observe().instances:
        if seen.state is not InstanceState.ENDED:
            bench.engine.stop(seen.instance_id, 0.0, 1 << 40)
            bench.end(seen.instance_id)
    bench.engine.close()


def pytest_collection_modifyitems(config, items):
    """What crosses the pipe does not depend on the runtime: one of them is enough there."""
    twice = [item for item in items if _params(item).items() >= {"bench": "piped", "runtime": "process"}.items()]
    config.hook.pytest_deselected(items=twice)
    items[:] = [item for item in items if item not in twice]


def _params(item):
    return item.callspec.params if hasattr(item, "callspec") else {}


@pytest.fixture(params=["process", "sandbox"])
def runtime(request, bench):
    """Runs the test once in each runtime."""
    if request.param == "sandbox":
        skip_without_sandbox()
    bench.runtime = request.param
    return request.param


@pytest.fixture
def sandboxed(bench):
    """The engine with sandboxes only."""
    skip_without_sandbox()
    bench.runtime = "sandbox"
    return bench


def skip_without_sandbox():
    if reason := SandboxRuntime().available():
        pytest.skip(reason)
