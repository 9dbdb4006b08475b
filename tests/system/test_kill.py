"""SIGKILL of the server at random moments under load: nothing is lost, touched, started twice or held twice.

The seed fixes who does what; when it happens is the machine's. A failure names the seed and leaves the numbers.
"""

import contextlib
import os
import random
import re
import signal
import time
from collections.abc import Callable

import pytest

from cumulo.node import instances
from tests.system import evidence
from tests.system.cloud import Cloud, eventually
from tests.system.load import Load

pytestmark = pytest.mark.system

NODES = "2x A100-80GB:4,T4:2"


@pytest.fixture
def database(request: pytest.FixtureRequest) -> str | None:
    """None for SQLite, else the URL of a new database."""
    if request.param == "sqlite":
        return None
    url: str = request.getfixturevalue("new_postgresql")(prepared=False)
    return url


both_stores = pytest.mark.parametrize(
    "database", ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)], indirect=True
)


@both_stores
def test_a_few_kills(new_cloud, database):
    survives(new_cloud, database, kills=10 if database is None else 4, seed=1)


@pytest.mark.long
@pytest.mark.timeout(900)
@both_stores
def test_hundreds_of_kills(new_cloud, database):
    survives(new_cloud, database, kills=200, seed=2)


def survives(new_cloud: Callable[..., Cloud], database: str | None, *, kills: int, seed: int) -> None:
    """Kills the server so many times under load, and holds the outcome against the evidence."""
    cloud = new_cloud(emulate=NODES, database=database)
    cloud.start()
    load, rng = Load(cloud, seed), random.Random(seed)
    load.start()
    try:
        for _ in range(kills):
            # Most deaths come while it works; some while it starts, before anything was answered.
            cloud.await_answer() if rng.random() < 0.8 else time.sleep(rng.uniform(0.1, 0.9))
            time.sleep(rng.uniform(0.0, 0.8))
            before = evidence.working(cloud)
            cloud.kill()
            evidence.holds_are_sound(cloud)
            cloud.start(wait=False)
            evidence.untouched(cloud, before)
        cloud.await_answer()
    finally:
        load.stop()
    assert not load.errors, load.errors
    load.await_end()
    cloud.stop()
    ended = evidence.all_is_well(cloud, load.sent, load.cancelled)
    print(f"seed {seed}: {kills} kills, {len(load.sent)} runs: {dict(ended)}")
    assert ended["succeeded"] >= kills / 4, "too little was going on for this to mean anything"


def supervisor_of(cloud: Cloud, run: str) -> int:
    """The pid of the supervisor of a run's only instance, once the run's process is there."""
    folder = cloud.home / "node" / "instances" / f"{run}-0-1-0"
    eventually(lambda: folder.exists() and (state := instances.look(folder).state) and state.payload_pid)
    pid = instances.look(folder).supervisor_pid
    assert pid is not None
    return pid


def spawner_of(cloud: Cloud) -> int:
    """The server's own child that forks supervisors."""
    assert cloud.server is not None
    children = evidence.children_of(cloud.server.pid)
    assert len(children) == 1, children
    return children[0]


def test_the_spawner_is_killed(new_cloud):
    """Its supervisors live on, and the next run gets a new one."""
    cloud = new_cloud(emulate="T4:2")
    cloud.start()
    long = cloud.launch('for i in 1 2 3; do echo "beat $i"; sleep 0.5; done; exit 5', "--gpus", "T4")
    supervisor_of(cloud, long["id"])
    os.kill(spawner_of(cloud), signal.SIGKILL)
    other = cloud.launch("echo fine", "--gpus", "T4")
    assert cloud.cli("wait", other["id"]).code == 0
    assert cloud.cli("wait", long["id"]).code == 100
    assert cloud.run(long["id"])["exit_code"] == 5
    assert cloud.ok("logs", long["id"]) == "beat 1\nbeat 2\nbeat 3\n"


def test_a_supervisor_is_killed(new_cloud):
    """Its run is lost and says so; what it left behind ends before its GPU is given away; a retry starts anew."""
    cloud = new_cloud(emulate="T4:1")
    cloud.start()
    script = 'echo "life $CUMULO_ATTEMPT"; if [ "$CUMULO_ATTEMPT" = 1 ]; then exec sleep 7531; fi'
    (cloud.work / "task.yaml").write_text(
        f"name: hurt\ngpu: T4\nretry: {{on_events: [lost], max_attempts: 2, backoff: 0.1}}\nrun: |\n  {script}\n"
    )
    hurt = cloud.cli("launch", "-y", "-d", "--json", "task.yaml").json["id"]
    os.kill(supervisor_of(cloud, hurt), signal.SIGKILL)
    assert cloud.cli("wait", hurt).code == 0
    assert not evidence.with_argument("7531"), "the next attempt began while the first one lived"
    plain = cloud.launch("sleep 7532", "--gpus", "T4")["id"]
    os.kill(supervisor_of(cloud, plain), signal.SIGKILL)
    assert cloud.cli("wait", plain).code == 101
    assert not evidence.with_argument("7532"), "the GPU was given back while its process lived"
    assert "supervisor" in cloud.ok("why", plain)
    assert cloud.run(hurt)["attempts"] == 2


def test_the_machine_restarts(new_cloud):
    """Everything died at once, and the boot id is another: what ran is lost and says so; what waited goes on."""
    cloud = new_cloud(emulate="T4:1")
    cloud.start()
    run = cloud.launch("echo before; sleep 7533", "--gpus", "T4")
    waits = cloud.launch("echo after", "--gpus", "T4")
    supervisor_of(cloud, run["id"])
    eventually(lambda: cloud.ok("logs", run["id"]))
    cloud.kill()
    for pid in cloud.processes():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    eventually(lambda: not cloud.processes())
    state = cloud.home / "node" / "instances" / f"{run['id']}-0-1-0" / "state.json"
    state.write_text(re.sub(r'"boot_id": "[^"]*"', '"boot_id": "another"', state.read_text()))
    cloud.start()
    assert cloud.cli("wait", run["id"]).code == 101
    assert "restarted" in cloud.ok("why", run["id"])
    assert cloud.ok("logs", run["id"]) == "before\n"
    assert cloud.cli("wait", waits["id"]).code == 0
