"""`make demo`: starts a cloud on this machine, trains `examples/digits` on it, and tells how it went.

Uses the command line as a person would. State lives in `.demo/` of the checkout, so that a second demo finds the run's
environment ready. Nothing is left running unless `--keep` is given.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STATE = ROOT / ".demo"
CUMULO = [str(Path(sys.executable).with_name("cumulo"))]
EMULATED = "A100-80GB:2"


def cumulo(*args: str, capture: bool = False, check: bool = True) -> str:
    """Runs a command of the command line and shows it first. Exits with its code when it fails."""
    if not capture:
        print(f"\n$ cumulo {' '.join(args)}", flush=True)
    done = subprocess.run([*CUMULO, *args], cwd=ROOT, stdout=subprocess.PIPE if capture else None, text=True)
    if check and done.returncode != 0:
        if capture:
            print(f"cumulo {' '.join(args)} failed with code {done.returncode}", file=sys.stderr)
        raise SystemExit(done.returncode)
    return done.stdout or ""


def has_gpu() -> bool:
    """Whether NVML shows a GPU on this machine."""
    from cumulo.node.devices.nvml import NvmlBackend

    backend = NvmlBackend()
    try:
        return bool(backend.devices())
    finally:
        backend.close()


def report(run: dict[str, object], results: Path) -> None:
    """The summary: accuracy, the model file, how long on what, and what it cost."""
    from cumulo.domain.quantities import format_duration

    measured = json.loads((results / "report.json").read_text())
    started, ended = (run[name] for name in ("started_at", "ended_at"))
    print("\nThe digits example has been trained:")
    print(f"  test accuracy  {measured['accuracy']:.2%} on {measured['tested']} handwritten digits it had not seen")
    print(f"  model          {results / 'model.pickle'}")
    print(f"  ran            {format_duration(seconds_between(str(started), str(ended)))} on {run['placed_on']}")
    print(f"  cost           {cost(run)}")


def seconds_between(start: str, end: str) -> float:
    from datetime import datetime

    return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()


def cost(run: dict[str, object]) -> str:
    """What it cost on this machine, and what the same GPU rents for."""
    from cumulo.catalog.prices import price
    from cumulo.domain.quantities import format_usd

    model = str(run["instances"][0]["device_model"])  # type: ignore[index]
    listed = price(model)
    own = f"${float(str(run['cost_usd'])):.2f}, since this is your own machine"
    if listed is None:
        return own
    least, most = format_usd(listed.on_demand.least), format_usd(listed.on_demand.most)
    return f"{own}; a real {model} rents for {least} to {most} an hour ({listed.describe()})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave the cloud running")
    keep = parser.parse_args().keep
    STATE.mkdir(exist_ok=True)
    os.environ["CUMULO_HOME"] = str(STATE / "home")
    for name in ("CUMULO_SERVER", "CUMULO_TOKEN"):
        os.environ.pop(name, None)

    emulate = () if has_gpu() else ("--emulate", EMULATED)
    if emulate:
        print(f"There is no GPU here, so {EMULATED} are EMULATED: scheduled and accounted, but computing nothing.")
    cumulo("up", "-d", "--port", "0", *emulate)
    try:
        cumulo("launch", "examples/digits/task.yaml", "-y")
        run = json.loads(cumulo("status", "digits", "--json", capture=True))
        results = STATE / "results"
        shutil.rmtree(results, ignore_errors=True)
        cumulo("cp", "digits:outputs", str(results), capture=True)
        report(run, results)
    finally:
        if not keep:
            cumulo("down", "--cancel", check=False)
    if keep:
        print(f"\nThe cloud keeps running. Try:\n  export CUMULO_HOME={os.environ['CUMULO_HOME']}\n  cumulo status")


if __name__ == "__main__":
    main()
