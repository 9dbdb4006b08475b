"""/metrics, as Prometheus reads it; storage and doctor."""

import shutil
import subprocess

import pytest

from cumulo.control.histogram import BOUNDS_S, Histogram
from tests.server.test_runs import problem


def metrics(box):
    answer = box.ask("GET", "/metrics")
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return answer.body.decode()


def test_promtool_accepts_it(box):
    if not shutil.which("promtool"):
        pytest.skip("promtool is not installed")
    box.running({"gpu": 1})
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=metrics(box), capture_output=True, text=True, timeout=30, check=False
    )
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


def test_it_tells_what_goes_on(box):
    box.running({"gpu": "A100:2", "name": "measured"})
    text = metrics(box)
    assert 'cumulo_runs{status="running"} 1' in text
    assert 'cumulo_devices{model="A100-80GB",state="held"} 2' in text
    assert 'cumulo_devices{model="A100-80GB",state="free"} 2' in text
    assert 'cumulo_nodes{state="ready"} 2' in text
    assert 'cumulo_http_requests_total{method="POST",status="201"}' in text
    assert 'cumulo_loop_age_seconds{loop="control"}' in text
    assert 'cumulo_loop_age_seconds{loop="engine local"}' in text
    assert "cumulo_scheduling_seconds_count" in text


def test_it_needs_a_token(box):
    problem(box.ask("GET", "/metrics", token=""), "unauthenticated", 401)


def test_a_histogram_only_grows():
    histogram = Histogram()
    for seconds in (0.001, 0.005, 0.3, 1e6):
        histogram.append(seconds)
    counts = histogram.cumulative()
    assert counts == sorted(counts)
    assert (counts[0], counts[-1], len(counts)) == (2, 4, len(BOUNDS_S) + 1)
    assert counts[BOUNDS_S.index(0.5)] == 3
    assert histogram.total_s == pytest.approx(1e6 + 0.306)


def test_storage_tells_the_stores_part_and_the_nodes(box):
    rows = {row["what"]: row for row in box.get("/v1/storage")["items"]}
    assert {"database", "logs", "blobs", "events", "environments"} <= set(rows)
    assert rows["environments"] == {
        "what": "environments", "bytes": 5, "count": 1, "path": "/nowhere", "kept_days": 30.0,
    }  # fmt: skip
    assert rows["logs"]["path"].startswith(str(box.home))


def test_a_sweep_can_be_tried_first(box):
    swept = box.ask("POST", "/v1/storage/sweep", {"dry_run": True})
    assert swept.status == 200
    assert "environments" in [row["what"] for row in swept.json["items"]]
    assert box.ask("POST", "/v1/storage/sweep").status == 200


def test_doctor_tells_the_servers_checks_and_the_engines(box):
    checks = {check["name"]: check for check in box.get("/v1/doctor")["checks"]}
    assert checks["scripted"]["status"] == "info"
    assert checks["database"]["status"] == "ok"
    assert checks["control loop"]["status"] == "ok"
