"""Runs with setup or requirements, through all of it: built once, in the run's log, read-only afterwards."""

import os
from dataclasses import replace

import pytest

from cumulo.domain.lifecycle import EndReason, InstanceState
from tests.engines.conftest import ROOT, SOMEBODY, Bench

BUILDING = "cumulo: building this run's environment; the next launch finds it ready\n"
SETUP = """
echo setting up
echo 'word = 7' > $(echo $VIRTUAL_ENV/lib/python3*/site-packages)/greeting.py
echo made > product
"""


@pytest.fixture
def sandboxed(node_root, monkeypatch):
    """An engine whose environments have no pip, which would take most of the time."""
    monkeypatch.setenv("PIP_FIND_LINKS", "/nowhere")  # also: a site that configures pip does not want uv
    bench = Bench("direct", node_root)
    bench.runtime = "sandbox"
    launcher = bench.engine._starter.launcher
    if reason := launcher.runtimes["sandbox"].available():
        pytest.skip(reason)
    stub = node_root / "bin" / "base"
    stub.write_text(f'#!/bin/sh\nexec {launcher.base.executable} "$@" --without-pip\n')
    stub.chmod(0o755)
    bench.engine._starter.launcher = replace(launcher, base=replace(launcher.base, executable=str(stub)))
    yield bench
    bench.engine.close()


def test_an_environment_is_built_once_and_used_by_the_next_run(sandboxed):
    bench = sandboxed
    command = "python -c 'import greeting; print(greeting.word)'; cat product; which python"
    name = bench.start("first", command, setup=SETUP)
    bench.until(name, InstanceState.PREPARING)
    seen = bench.end(name, timeout=90)
    environments = bench.root / "environments" / str(SOMEBODY if ROOT else os.getuid())
    (folder,) = environments.iterdir()
    expected = f"7\nmade\n{folder}/venv/bin/python\n"
    assert (seen.reason, bench.log(name)) == (EndReason.SUCCEEDED, BUILDING + "setting up\n" + expected)
    seen, log = bench.run("second", command, setup=SETUP)
    assert (seen.reason, log) == (EndReason.SUCCEEDED, expected)
    _, log = bench.run("third", f"touch {folder}/x && echo written; rm {folder}/ready && echo removed", setup=SETUP)
    assert "written" not in log
    assert "removed" not in log
    assert (folder / "ready").exists()


def test_a_setup_that_fails_is_told_as_that(sandboxed):
    seen, log = sandboxed.run("bad", "echo never", setup="echo trying; exit 3", timeout=90)
    assert (seen.reason, seen.exit_code, seen.started_at) == (EndReason.SETUP_FAILED, 3, None)
    assert log == BUILDING + "trying\n"


def test_package_settings_reach_the_setup_alone(sandboxed):
    _, log = sandboxed.run("settings", "env", setup="env | sed s/^/setup:/", timeout=90)
    assert "setup:PIP_FIND_LINKS=" in log
    assert "\nPIP_FIND_LINKS=" not in log
