"""`python -m bench`: the budgets of the design, measured here and now, in one table.

The machine may be busy with other things, so CPU time is measured where possible, medians of repetitions are taken, and
the load is told beside the figures. Exits with 1 if a budget is missed.
"""

import argparse
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from bench import commandline, installing, serving, working
from bench.table import Row, as_json, as_text
from bench.trial import Trial

# In this order: what comes later may use the runs that came before.
MEASUREMENTS: dict[str, Callable[[Trial], list[Row]]] = {
    "start": serving.start,
    "version": commandline.version,
    "latency": working.latency,
    "array": working.array,
    "throughput": working.throughput,
    "memory": serving.memory,
    "list": serving.listing,
    "status": commandline.status,
    "install": installing.install,
}


def main(words: Sequence[str] | None = None) -> int:
    arguments = _parser().parse_args(words)
    unknown = set(arguments.only) - MEASUREMENTS.keys()
    if unknown:
        print(f"error: there is no measurement {min(unknown)!r}; they are {', '.join(MEASUREMENTS)}", file=sys.stderr)
        return 2
    began, load = time.monotonic(), os.getloadavg()
    rows: list[Row] = []
    with Trial(quick=arguments.quick) as trial:
        for name, measure in MEASUREMENTS.items():
            if not arguments.only or name in arguments.only:
                print(f"measuring: {name} …", file=sys.stderr)
                rows += measure(trial)
    facts = _facts(load, time.monotonic() - began, quick=arguments.quick)
    print(as_json(rows, facts) if arguments.json else f"{as_text(rows)}\n{_footer(facts)}")
    return int(any(row.verdict == "MISSED" for row in rows))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measures the budgets on this machine.")
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions: under a minute")
    parser.add_argument("--only", nargs="+", metavar="NAME", default=[], help=", ".join(MEASUREMENTS))
    return parser


def _facts(load: tuple[float, ...], seconds: float, *, quick: bool) -> dict[str, Any]:
    return {
        "cpus": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "kernel": platform.release(),
        "bubblewrap": _bubblewrap(),
        "root": os.geteuid() == 0,
        "load_before": round(load[0], 2),
        "load_after": round(os.getloadavg()[0], 2),
        "seconds": round(seconds, 1),
        "quick": quick,
    }


def _bubblewrap() -> str | None:
    found = shutil.which("bwrap")
    return subprocess.run([found, "--version"], capture_output=True, text=True).stdout.split()[-1] if found else None


def _footer(facts: dict[str, Any]) -> str:
    bubblewrap = f"bubblewrap {facts['bubblewrap']}" if facts["bubblewrap"] else "no bubblewrap"
    user = "root" if facts["root"] else "an ordinary user"
    return (
        f"{facts['cpus']} CPUs, Linux {facts['kernel']}, Python {facts['python']}, {bubblewrap}, as {user}; "
        f"load average {facts['load_before']} before and {facts['load_after']} after; "
        f"{facts['seconds']:.0f} s{' (quick)' if facts['quick'] else ''}"
    )


if __name__ == "__main__":
    sys.exit(main())
