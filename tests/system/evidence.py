"""What must be true after any number of deaths, read from the store and from what the payloads wrote themselves."""

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import Table, select

from cumulo.node import instances
from cumulo.node.instances import Standing
from cumulo.node.supervisor import start_ticks
from cumulo.store import tables
from cumulo.store.database import Database
from tests.system.cloud import Cloud, eventually, pids
from tests.system.load import Sent, outputs

TERMINAL = {"succeeded", "failed", "cancelled", "lost"}
Row = dict[str, Any]


class Working(NamedTuple):
    """A run's process: its pid on this machine, and when it began, in ticks."""

    pid: int
    began: int


def working(cloud: Cloud) -> dict[str, Working]:
    """The run's own process of every instance that lives now."""
    found = {}
    for folder in instances.folders(cloud.home / "node"):
        view = instances.look(folder)
        state = view.state
        if view.standing is Standing.ALIVE and state and state.payload_pid and state.payload_start:
            found[folder.name] = Working(state.payload_pid, state.payload_start)
    return found


def untouched(cloud: Cloud, before: dict[str, Working]) -> None:
    """Whoever worked before works still in the same process, or has an exit record that its supervisor wrote.

    Between the end of a process and its record lies a moment in which its supervisor looks for what it left behind.
    """
    for name, process in before.items():
        if start_ticks(process.pid) == process.began:
            continue
        record = _await_record(cloud, name)
        assert record is not None, f"{name}: its process {process} is gone without a record"
        assert record.reason in ("finished", "stopped"), (name, record)


def _await_record(cloud: Cloud, name: str) -> instances.ExitRecord | None:
    found: instances.ExitRecord | None = eventually(lambda: record_of(cloud, name), or_else=lambda: "")
    return found


def record_of(cloud: Cloud, name: str) -> instances.ExitRecord | None:
    """How an instance ended, released or not; None if it has not."""
    for kind in ("instances", "ended"):
        folder = cloud.home / "node" / kind / name
        if folder.exists() and (record := instances.read_exit(folder)):
            return record
    return None


class Store:
    """The store as it lies there, while no server has it open or beside one that does."""

    def __init__(self, cloud: Cloud) -> None:
        self._db = Database.open(cloud.database, home=cloud.home)

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()

    def rows(self, table: Table) -> list[Row]:
        with self._db.read() as tx:
            return [dict(row) for row in tx.execute(select(table)).mappings()]


def holds_are_sound(cloud: Cloud) -> None:
    """Each living instance holds exactly its devices, and nobody else holds anything."""
    with Store(cloud) as store:
        held = defaultdict(set)
        for row in store.rows(tables.hold):
            held[row["instance_id"]].add(row["device_uuid"])
        living = [row for row in store.rows(tables.instance) if row["state"] != "ended"]
    assert dict(held) == {row["id"]: set(row["devices"].split(",")) for row in living if row["devices"]}
    taken = Counter(device for devices in held.values() for device in devices)
    assert not [device for device, count in taken.items() if count > 1]


class Life(NamedTuple):
    """One life of an instance as its payload wrote it down; `last` is the last sign of it."""

    instance: str
    devices: frozenset[str]
    begin: float
    last: float
    beats: int
    ended: bool


def lives(folder: Path) -> list[Life]:
    """The lives in an outputs folder. Raises AssertionError where an instance's count has a gap or two processes."""
    if not (folder / "lives").exists():
        return []
    lines = [line.split() for line in (folder / "lives").read_text().splitlines()]
    ends = {words[0]: float(words[2]) for words in lines if words[1] == "end"}
    found = []
    for name, _, begin, devices in (words for words in lines if words[1] == "begin"):
        beats = [line.split() for line in _text(folder / f"{name}.beats").splitlines()]
        assert [int(beat[0]) for beat in beats] == list(range(len(beats))), f"{name} lost count"
        assert len({beat[1] for beat in beats}) <= 1, f"{name} was two processes"
        last = ends.get(name, float(beats[-1][2]) if beats else float(begin))
        found.append(
            Life(
                name,
                frozenset(filter(None, devices.strip("-").split(","))),
                float(begin),
                last,
                len(beats),
                name in ends,
            )
        )
    return found


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def all_is_well(cloud: Cloud, sent: list[Sent], cancelled: set[str]) -> dict[str, int]:
    """Holds the whole store against the whole evidence, after everything has ended; how many ended how."""
    with Store(cloud) as store:
        runs = {row["id"]: row for row in store.rows(tables.run)}
        found = store.rows(tables.instance)
        usage = {row["instance_id"]: row for row in store.rows(tables.usage)}
        events = sorted(store.rows(tables.event), key=lambda row: row["seq"])
        units = store.rows(tables.unit)
        assert store.rows(tables.hold) == []
    by_id = {row["id"]: row for row in found}
    assert sorted(runs) == sorted({one.id for one in sent}), "what was accepted is what is there"
    for one in sent:
        _one_end(runs[one.id], [event for event in events if event["run_id"] == one.id])
        _ended_as_told(one, runs[one.id], [row for row in units if row["run_id"] == one.id], one.id in cancelled)
    told: list[Life] = []
    for run_id, unit in {(row["run_id"], row["unit"]) for row in found}:
        told += lives(outputs(cloud, run_id, unit))
    twice = [name for name, count in Counter(life.instance for life in told).items() if count > 1]
    assert not twice, f"started twice: {twice}"
    by_run = {one.id: one for one in sent}
    for life in told:
        _as_observed(cloud, life, by_id[life.instance], by_run[by_id[life.instance]["run_id"]])
    for row in found:
        _metered(cloud, row, usage.get(row["id"]))
    one_at_a_time([(device, life.begin, life.last, life.instance) for life in told for device in life.devices])
    one_at_a_time(
        [(device, row["started_at"], row["ended_at"], row["id"])
         for row in found if row["started_at"] for device in row["devices"].split(",") if device]
    )  # fmt: skip
    return Counter(row["status"] for row in runs.values())


def _one_end(run: Row, events: list[Row]) -> None:
    kinds = [event["kind"] for event in events]
    ends = [kind for kind in kinds if kind.removeprefix("run.") in TERMINAL]
    assert kinds[0] == "run.accepted", kinds
    assert kinds.count("run.accepted") == 1, kinds
    assert ends == [f"run.{run['status']}"] == kinds[-1:], (run["id"], kinds)
    assert run["ended_at"] is not None
    assert run["units_active"] == 0


def _ended_as_told(one: Sent, run: Row, units: list[Row], cancelled: bool) -> None:
    """A run that nobody cancelled ended as its payload was told to."""
    allowed = {"failed"} if one.code else {"succeeded"}
    allowed |= {"cancelled"} if cancelled else set()
    if run["reason"] == "dependency_failed":
        assert "after" in one.data
        return
    told = {key: run[key] for key in ("id", "status", "reason", "message", "exit_code", "wanted")} | {"code": one.code}
    assert run["status"] in allowed | ({"failed"} if cancelled else set()), told
    if run["status"] == "failed" and not cancelled:
        assert run["exit_code"] == one.code, told
    if not cancelled:
        assert len(units) == run["units"], run["id"]
    assert {unit["status"] for unit in units} <= TERMINAL, units


def _as_observed(cloud: Cloud, life: Life, row: Row, one: Sent) -> None:
    assert life.devices == frozenset(filter(None, row["devices"].split(","))), row
    assert row["started_at"] is not None, f"{row['id']} ran, and the store does not know when it began"
    assert life.last <= row["ended_at"] + 0.05, f"{row['id']} lived longer than the store says"
    if life.ended:
        assert life.beats == one.beats, row["id"]
    if row["reason"] == "succeeded":
        assert life.ended, row["id"]
    if row["reason"] in ("succeeded", "failed"):
        assert row["exit_code"] in (one.code, 9 if one.data["envs"]["TRAP"] == "1" else one.code), row


def _metered(cloud: Cloud, row: Row, segment: Row | None) -> None:
    """Usage is what the supervisor saw, to the last digit."""
    assert row["state"] == "ended", row
    record = record_of(cloud, row["id"])
    if row["started_at"] is None:
        assert segment is None, row
        assert record is None or record.started_at is None, row
        return
    assert record is not None, row
    assert segment is not None, row
    assert (segment["started_at"], segment["ended_at"]) == (record.started_at, record.ended_at), row
    assert (row["started_at"], row["ended_at"]) == (record.started_at, record.ended_at), row


def one_at_a_time(spans: list[tuple[str, float, float, str]]) -> None:
    """No device is with two instances at the same time."""
    before: dict[str, tuple[float, str]] = {}
    for device, begin, end, name in sorted(spans):
        until, other = before.get(device, (0.0, ""))
        assert begin >= until - 0.02, f"{device} was with {other} until {until} and with {name} from {begin}"
        before[device] = (end, name)


def children_of(pid: int) -> list[int]:
    """The children of all threads of a process."""
    texts = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    return [int(word) for text in texts for word in text.split()]


def with_argument(word: str) -> list[int]:
    """Living processes that have this word among their arguments."""
    return [pid for pid in pids() if word.encode() in arguments(pid)]


def arguments(pid: int) -> list[bytes]:
    """Of a process that is gone or a zombie, none."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []
