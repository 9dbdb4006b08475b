"""The server as such: how soon it answers, how much memory it takes, what a list costs."""

import statistics
import time

from bench.bare import bare_server, unix_connection
from bench.box import Box
from bench.processes import MB, cpu_seconds, pss_bytes
from bench.table import Row
from bench.trial import Trial

SETTLE_S = 3.0  # an idle server has done its first looks by then


def start(trial: Trial) -> list[Row]:
    """From the exec of the server to its first answer; the state folder is new, so the tables are made as well."""
    seconds = []
    for _ in range(trial.times(5, 2)):
        with Box() as box:
            seconds.append(box.started_in)
    with bare_server(100) as bare:
        limit = bare.started_in
    return [
        Row(name="start", what="server start to first answer", unit="s", budget=2, measured=statistics.median(seconds),
            bare=limit, bare_of="uvicorn alone")
    ]  # fmt: skip


def memory(trial: Trial) -> list[Row]:
    """PSS of the server process, just started and after it has worked; that of the small processes as a note."""
    with Box() as fresh:
        time.sleep(SETTLE_S)
        idle = pss_bytes(fresh.pid)
        run = fresh.submit("sleep 60")
        fresh.wait_until(lambda: fresh.client.run(run.id).status == "running")
        spawner = fresh.spawner()
        small = f"spawner {pss_bytes(spawner) / MB:.1f} MB, a supervisor {_supervisor_pss(spawner) / MB:.1f} MB"
    done = trial.run_until_worked()
    time.sleep(1.0)
    worked = pss_bytes(trial.box.pid)
    with bare_server(100) as bare:
        limit = bare.pss() / MB
    return [
        Row(name="memory", what="server memory (PSS), idle", unit="MB", budget=120, measured=idle / MB,
            bare=limit, bare_of="uvicorn alone", note=small),
        Row(name="memory", what=f"server memory (PSS) after {done:,} runs", unit="MB", budget=180,
            measured=worked / MB),
    ]  # fmt: skip


def _supervisor_pss(spawner: int) -> int:
    from bench.processes import children_of

    return max((pss_bytes(pid) for pid in children_of(spawner)), default=0)


def listing(trial: Trial) -> list[Row]:
    """CPU of the server for one list of 50 runs, all its threads counted, over the unix socket."""
    trial.run_until_worked()
    box = trial.box
    for _ in range(50 - len(list(box.client.runs(limit=50)))):
        box.submit("true")
    box.wait_until_idle()
    time.sleep(1.0)
    connection = unix_connection(str(box.socket))
    times = trial.times(400, 150)
    costs, size = [], 0
    for _ in range(times):
        before = cpu_seconds(box.pid)
        connection.request("GET", "/v1/runs?limit=50")
        size = len(connection.getresponse().read())
        costs.append(cpu_seconds(box.pid) - before)
    connection.close()
    with bare_server(size) as bare:
        limit = bare.request_cpu_seconds(times)
    return [
        Row(name="list", what="CPU of a list of 50 runs", unit="ms", budget=5, measured=statistics.median(costs) * 1e3,
            bare=limit * 1e3, bare_of="uvicorn alone, as many bytes")
    ]  # fmt: skip
