"""What a command costs whoever types it: CPU time, user and system, of the whole process."""

import os
import statistics
import sys
from pathlib import Path

from bench.bare import python_cpu_seconds
from bench.processes import cost_of
from bench.table import Row
from bench.trial import Trial

TIMES = 15


def version(trial: Trial) -> list[Row]:
    return [_row("version", "CPU of cumulo --version", 60, trial, ["--version"], dict(os.environ))]


def status(trial: Trial) -> list[Row]:
    """With 50 runs to show."""
    box = trial.box
    for _ in range(50 - len(list(box.client.runs(limit=50)))):
        box.submit("true")
    box.wait_until_idle()
    return [_row("status", "CPU of cumulo status", 200, trial, ["status"], box.env)]


def _row(name: str, what: str, budget: float, trial: Trial, words: list[str], env: dict[str, str]) -> Row:
    times = trial.times(TIMES, 7)
    command = [str(Path(sys.executable).parent / "cumulo"), *words]
    cost_of(command, env)  # the first fills caches, of bytecode too
    measured = statistics.median(cost_of(command, env).cpu for _ in range(times))
    return Row(name=name, what=what, unit="ms", budget=budget, measured=measured * 1e3,
               bare=python_cpu_seconds(times) * 1e3, bare_of="python -c pass")  # fmt: skip
