"""What the supervisor makes of a run's output: every byte, until a limit or a full disk says otherwise."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cumulo.node import instances
from cumulo.node.instances import Standing
from cumulo.node.supervisor import RESERVE_BYTES


@pytest.fixture
def small_disk(node_root: Path) -> Iterator[Path]:
    """Two megabytes, where the instances live."""
    place = node_root / "instances"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("needs root that may mount a tmpfs")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.fixture
def gates(node_root: Path) -> tuple[Path, Path]:
    """Pipes at which a run waits until the test writes to them."""
    first, second = node_root / "first", node_root / "second"
    for path in (first, second):
        os.mkfifo(path)
        path.chmod(0o666)
    return first, second


def fill(disk: Path) -> Path:
    """Take the last byte of it."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (65536, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue
    return filler


def test_both_streams_in_order(bench, runtime):
    folder = bench.launch("echo one; echo two >&2; echo three", runtime=runtime)
    assert bench.end(folder).log_bytes == 14
    assert bench.log(folder) == b"one\ntwo\nthree\n"


def test_bytes_that_are_no_utf8(bench, runtime):
    folder = bench.launch(r"printf '\377\376\000\200x'", runtime=runtime)
    bench.end(folder)
    assert bench.log(folder) == b"\xff\xfe\x00\x80x"


def test_a_line_of_five_megabytes(bench, runtime):
    folder = bench.launch("head -c 5000000 /dev/zero | tr '\\0' 'a'; echo", runtime=runtime)
    record = bench.end(folder)
    assert record.log_bytes == 5_000_001
    assert bench.log(folder) == b"a" * 5_000_000 + b"\n"


def test_the_tail_of_a_killed_run_is_there(bench):
    folder = bench.launch("seq 1 20000; kill -9 $$")
    assert bench.end(folder).signal == 9
    assert bench.log(folder).endswith(b"\n20000\n")


def test_log_limit(bench):
    folder = bench.launch("head -c 300000 /dev/zero | tr '\\0' 'a'; exit 9", log_limit_bytes=100_000)
    record = bench.end(folder)
    log = bench.log(folder)
    assert record.exit_code == 9
    assert log.startswith(b"a" * 100_000 + b"\n[cumulo: the log has reached its limit of 100000 bytes")
    assert log.count(b"cumulo") == 1
    assert record.log_bytes == len(log)
    assert record.log_lost_bytes == 200_000


def test_since(bench):
    folder = bench.launch("echo one; sleep 1.2; echo two; sleep 1.2; echo three")
    record = bench.end(folder)

    def since(seconds):
        return bench.log(folder)[instances.log_offset_since(folder, record.started_at + seconds) :]

    assert since(-10) == b"one\ntwo\nthree\n"
    assert since(1.1) == b"two\nthree\n"
    assert since(2.35) == b"three\n"
    assert since(100) == b""


def test_a_full_disk_costs_output_and_nothing_else(small_disk, bench):
    folder = bench.launch("head -c 5000000 /dev/zero; exit 7")
    record = bench.end(folder)
    assert (record.reason, record.exit_code) == ("finished", 7)
    assert record.log_lost_bytes > 2_500_000
    assert record.log_bytes + record.log_lost_bytes == 5_000_000
    assert (folder / "log").stat().st_size == record.log_bytes


def test_the_log_tells_of_the_gap_once_there_is_room(small_disk, bench, gates):
    first, second = gates
    folder = bench.launch(f"echo begun; read x < {first}; head -c 10000 /dev/zero; read x < {second}; echo after")
    bench.says(folder, b"begun")
    filler = fill(small_disk)
    first.write_text("on\n")
    bench.until(lambda: (folder / "log").stat().st_size > 6)  # the last page that the log has on the disk
    filler.unlink()
    second.write_text("on\n")
    record = bench.end(folder)
    lost = record.log_lost_bytes
    assert 0 < lost < 10000
    notice = b"\n[cumulo: %d bytes of output lost: the disk was full]\n" % lost
    assert bench.log(folder) == b"begun\n" + b"\0" * (10000 - lost) + notice + b"after\n"


def test_an_exit_record_fits_a_full_disk(small_disk, bench, gates):
    folder = bench.launch(f"read x < {gates[0]}; exit 6")
    bench.running(folder)
    assert (folder / "reserve").stat().st_size == RESERVE_BYTES
    fill(small_disk)
    gates[0].write_text("on\n")
    assert bench.end(folder).exit_code == 6
    assert not (folder / "reserve").exists()


def test_nothing_starts_on_a_full_disk_until_there_is_room(small_disk, bench):
    folder = bench.prepare("echo run")
    filler = fill(small_disk)
    bench.spawner.start(folder)
    bench.until(lambda: "No space left" in (bench.root / "spawner.log").read_text())
    bench.until(lambda: instances.look(folder).standing is Standing.NOT_STARTED)
    filler.unlink()
    bench.spawner.start(folder)
    assert bench.end(folder).exit_code == 0
    assert bench.log(folder) == b"run\n"
