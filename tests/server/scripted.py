"""An engine that starts nothing: the test says what its instances print and how they end."""

import threading
import time
from collections import defaultdict
from dataclasses import replace

from cumulo.domain.check import Check
from cumulo.domain.errors import CumuloError
from cumulo.domain.instance import InstanceSpec, Observation, ObservedInstance
from cumulo.domain.lifecycle import EndReason, InstanceState
from cumulo.domain.node import Device, DeviceReading, InstanceReading, Node
from cumulo.domain.quantities import GIB
from cumulo.domain.storage import Stored
from cumulo.engines.protocol import ExecRequest, FilesRequest, Readings

DEVICES = tuple(
    Device(uuid=f"GPU-{place}", index=place, model="A100-80GB", memory_bytes=80 * GIB, emulated=True)
    for place in range(4)
)


class Loop:
    """A stream that gives back what it gets, in capitals. `b"!"` in it ends the command with code 7."""

    def __init__(self, request):
        self.request = request
        self.written = bytearray()
        self.size = None
        self.closed = False
        self.exit_code = None
        self._arrived = threading.Condition()
        self._sent = 0
        self._ended = False

    def write(self, data):
        with self._arrived:
            self.written += data
            self._ended = self._ended or b"!" in data
            self._arrived.notify_all()

    def write_eof(self):
        with self._arrived:
            self._ended = True
            self._arrived.notify_all()

    def read(self, size=65536):
        with self._arrived:
            self._arrived.wait_for(lambda: len(self.written) > self._sent or self._ended or self.closed, 20)
            data = bytes(self.written[self._sent :][:size])
            self._sent += len(data)
        if not data and isinstance(self.request, ExecRequest):
            self.exit_code = 7
        return data.upper()

    def resize(self, rows, columns):
        self.size = (rows, columns)

    def close(self):
        with self._arrived:
            self.closed = True
            self._arrived.notify_all()


class Tar(Loop):
    """A stream of files: gives `name` and what it is, takes anything."""

    def __init__(self, request):
        super().__init__(request)
        if request.path == "nowhere":
            raise CumuloError("not_found", f"{request.area} has no {request.path}")
        self._left = [b"a tar of ", request.path.encode()] if request.direction == "get" else []

    def read(self, size=65536):
        if self._left:
            return self._left.pop(0)
        return b""


class ScriptedEngine:
    """Instances run as soon as they are asked for, until `finish` or a stop."""

    name, kind = "local", "scripted"

    def __init__(self, cloud_id):
        self.cloud_id = cloud_id
        self.specs: dict[str, InstanceSpec] = {}
        self.streams = []
        self.swept = []  # how long outputs and environments were to be kept, in seconds, for each sweep
        self._told: dict[str, ObservedInstance] = {}
        self._logs = defaultdict(bytes)
        self._listeners = []

    # What a test says

    def say(self, instance_id, text):
        self._logs[instance_id] += text if isinstance(text, bytes) else text.encode()
        self._hint(instance_id)

    def progress(self, instance_id, line):
        self._told[instance_id] = replace(self._told[instance_id], progress=line)
        self._hint(instance_id)

    def finish(self, instance_id, exit_code=0, reason=None, message=""):
        reason = reason or (EndReason.SUCCEEDED if exit_code == 0 else EndReason.FAILED)
        self._told[instance_id] = replace(
            self._told[instance_id],
            state=InstanceState.ENDED,
            ended_at=time.time(),
            exit_code=exit_code,
            reason=reason,
            message=message,
        )
        self._hint(instance_id)

    def _hint(self, instance_id):
        for listener in self._listeners:
            listener(instance_id)

    # The protocol

    def pools(self):
        return ()

    def nodes(self):
        return (
            Node(name="one", cpus_milli=64_000, memory_bytes=512 * GIB, devices=DEVICES[:2], emulated=True),
            Node(name="two", cpus_milli=64_000, memory_bytes=512 * GIB, devices=DEVICES[2:], emulated=True),
        )

    def ensure(self, spec, epoch):
        if spec.instance_id not in self.specs:
            self.specs[spec.instance_id] = spec
            self._told[spec.instance_id] = ObservedInstance(
                instance_id=spec.instance_id,
                cloud_id=self.cloud_id,
                state=InstanceState.RUNNING,
                node=spec.node,
                started_at=time.time(),
            )
            self._hint(spec.instance_id)

    def stop(self, instance_id, grace_s, epoch, preempt_at=None):
        told = self._told.get(instance_id)
        if told and told.state is not InstanceState.ENDED:
            self.finish(instance_id, exit_code=143, reason=EndReason.CANCELLED)

    def release(self, instance_id, epoch):
        self._told.pop(instance_id, None)

    def observe(self, only=None):
        told = [one for name, one in list(self._told.items()) if only is None or name in only]
        return Observation(instances=tuple(told), complete=only is None, as_of=time.time())

    def read_log(self, instance_id, offset, limit=1 << 20):
        if instance_id not in self.specs:
            raise KeyError(instance_id)
        return self._logs[instance_id][offset : offset + limit]

    def stream(self, instance_id, request):
        if instance_id not in self.specs:
            raise KeyError(instance_id)
        stream = Tar(request) if isinstance(request, FilesRequest) else Loop(request)
        self.streams.append(stream)
        return stream

    def telemetry(self):
        running = [one for one in self._told.values() if one.state is InstanceState.RUNNING]
        return Readings(
            devices=tuple(DeviceReading(uuid=device.uuid, memory_used_bytes=0, utilisation=0.5) for device in DEVICES),
            instances=tuple(
                InstanceReading(
                    instance_id=one.instance_id, memory_bytes=1 << 20, cpu_seconds=1.5, cpus_busy=0.5, processes=2
                )
                for one in running
            ),
        )

    def doctor(self):
        return (Check(name="scripted", status="info", text="nothing here is real"),)

    def on_change(self, listener):
        self._listeners.append(listener)

    def close(self):
        self._listeners.clear()

    def storage(self):
        return (Stored(what="environments", count=1, bytes=5, path="/nowhere"),)

    def sweep(self, *, keep_s, environments_s, active_runs, dry_run=False):
        self.swept.append((keep_s, environments_s))
        return (Stored(what="environments", count=1, bytes=5, path="/nowhere"),)
