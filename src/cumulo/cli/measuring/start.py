"""Starts the program that measures a script, in the right Python and with a time limit, and reads what it found.

The person's packages are in the person's Python, which need not be the one that runs Cumulo. So the program is started
there: named by `--python`, else ours where it has PyTorch, else the `python3` or `python` of the shell.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from cumulo.advisor.measured import MeasuredStep, Operation
from cumulo.domain.errors import CumuloError

PROGRAM: Final = Path(__file__).with_name("program")
# Loads that folder as a package of its own, since the person's Python can't import Cumulo.
_BOOT: Final = """
import importlib.util, sys
folder = sys.argv[1]
spec = importlib.util.spec_from_file_location(
    "cumulo_measuring", folder + "/__init__.py", submodule_search_locations=[folder]
)
sys.modules[spec.name] = importlib.util.module_from_spec(spec)
from cumulo_measuring.main import main
main(*sys.argv[2:])
"""
LIMIT_S: Final = 300.0
_LAST_LINES = 6
_RETURNS_IN = 10.0

_HINTS = {
    "no_torch": "pip install 'cumulo[torch]' (PyTorch's CPU build will do), or name the Python that has it: --python",
    "old_torch": "PyTorch 2.5 or later is needed",
    "no_model": "run the training loop when the script is run as it is, under `if __name__ == '__main__':` or outside",
    "no_step": "let the script call step() of a torch.optim optimizer at least once when it is run as it is",
    "data_dependent": (
        "values on the GPU aren't computed here: decide by something on the host, or leave that part out while "
        "measuring: `if not os.environ.get('CUMULO_MEASURES'):`"
    ),
    "needs_gpu": (
        "this needs a real GPU: leave it out while measuring (`if not os.environ.get('CUMULO_MEASURES'):`), and use "
        "PyTorch's own operations"
    ),
    "no_module": "install it for that Python, or name the Python that has it: --python",
    "exit": "give the script its arguments after --: cumulo advise train.py --torch -- --epochs 1",
    "raised": "the script must run as it is; CUMULO_MEASURES=1 is set while it is measured",
    "killed": "it may need more memory than this machine has: keep data small while measuring",
    "time": "measure with less data before the first step, or give it longer: --limit 20m",
}
_SAID = {
    "no_torch": "{python} has no PyTorch",
    "old_torch": "{python} has PyTorch {message}",
    "no_model": "{script} can't be measured: {message}",
    "no_step": "{script} can't be measured: {message}",
    "data_dependent": "{where} decides by values on the GPU, so it can't be measured: {line}",
    "needs_gpu": "{where} needs a GPU: {line} ({message})",
    "no_module": "{script} imports {message}, which {python} doesn't have",
    "exit": "{script} ended before it trained: {message}",
    "raised": "{script} failed at {where}: {message}",
}


def measure(
    script: Path, arguments: Sequence[str] = (), *, python: str | None = None, limit_s: float = LIMIT_S
) -> MeasuredStep:
    """Runs the script until it has taken two steps. Raises CumuloError (`invalid_request`) with what to change."""
    if not script.is_file():
        raise CumuloError("invalid_request", f"{script}: there is no such file")
    chosen = python or _python_with_torch()
    with tempfile.TemporaryDirectory(prefix="cumulo-measure-") as folder:
        result = Path(folder, "found.json")
        command = [chosen, "-c", _BOOT, str(PROGRAM), str(result), str(script), *arguments]
        code, said = _run(command, limit_s, script)
        if not result.is_file():
            raise _refusal("killed", f"{script} ended early ({_ended(code)}){_last(said)}")
        found: dict[str, Any] = json.loads(result.read_text())
    if problem := found.get("error"):
        words = {"script": script.name, "python": chosen, "where": script.name, "line": ""} | found
        told = _SAID[problem].format(**{name: " ".join(str(each).split()) for name, each in words.items()})
        raise _refusal(problem, told + (_last(said) if problem == "exit" else ""))
    return _step(found)


def _run(command: Sequence[str], limit_s: float, script: Path) -> tuple[int, str]:
    """The exit code and all that was printed. What the script started ends with it."""
    env = os.environ | {"CUMULO_MEASURES": "1", "PYTHONUNBUFFERED": "1", "CUDA_VISIBLE_DEVICES": ""}
    try:
        process = subprocess.Popen(
            command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace", start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise _refusal("no_torch", f"{command[0]} can't be started: {error.strerror}") from None
    try:
        said, _ = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        _end(process)
        raise _refusal("time", f"{script} took no two steps within {limit_s:g} s") from None
    except BaseException:
        _end(process)
        raise
    return process.returncode, said


def _end(process: "subprocess.Popen[str]") -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=_RETURNS_IN)


def _python_with_torch() -> str:
    if find_spec("torch"):
        return sys.executable
    for name in ("python3", "python"):
        path = shutil.which(name)
        if path and not Path(path).samefile(sys.executable) and _has_torch(path):
            return path
    raise _refusal("no_torch", "PyTorch isn't installed, neither beside Cumulo nor in the python3 on PATH")


def _has_torch(python: str) -> bool:
    look = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
    try:
        return (
            subprocess.run([python, "-c", look], capture_output=True, timeout=_RETURNS_IN, check=False).returncode == 0
        )
    except (OSError, subprocess.TimeoutExpired):
        return False


def _step(found: dict[str, Any]) -> MeasuredStep:
    return MeasuredStep(
        torch=found["torch"],
        models=tuple(found["models"]),
        inputs=tuple(found["inputs"]),
        parameters=found["parameters"],
        trainable=found["trainable"],
        peak_bytes=found["peak_bytes"],
        parts=found["parts"],
        operations=tuple(Operation(*each) for each in found["operations"]),
        stand_ins=found["stand_ins"],
        notes=tuple(found["notes"]),
    )


def _refusal(problem: str, message: str) -> CumuloError:
    return CumuloError("invalid_request", message, hint=_HINTS[problem], details={"problem": problem})


def _ended(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def _last(said: str) -> str:
    lines = [line.strip() for line in said.strip().splitlines() if line.strip()]
    return f"; its last words: {' / '.join(lines[-_LAST_LINES:])}" if lines else ""
