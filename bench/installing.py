"""What lands on a disk: the package and all it needs, installed from the pins into an environment of its own."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.processes import MB
from bench.table import Row
from bench.trial import Trial

ROOT = Path(__file__).resolve().parents[1]
NOT_OURS = frozenset({"pip", "setuptools", "wheel", "uv"})
BUDGET_MB, BUDGET_PACKAGES = 150, 45


def install(_: Trial) -> list[Row]:
    """Size without pip and bytecode, and the number of packages, ours included."""
    with tempfile.TemporaryDirectory(prefix="cumulo-bench-") as folder:
        try:
            site = _installed(Path(folder))
        except (OSError, subprocess.CalledProcessError) as error:
            said = getattr(error, "stderr", None) or str(error)
            return _rows(None, None, note=f"not installed: {said.strip().splitlines()[-1]}")
        packages = [one for one in site.glob("*.dist-info") if _name(one) not in NOT_OURS]
        size = sum(file.lstat().st_size for file in site.rglob("*") if file.is_file() and _counts(file, site))
        own = sum(
            file.stat().st_size for file in (site / "cumulo").rglob("*") if file.is_file() and _counts(file, site)
        )
        return _rows(size / MB, len(packages), note=f"{own / MB:.1f} MB of it are ours")


def _rows(size: float | None, packages: float | None, *, note: str) -> list[Row]:
    return [
        Row(name="install", what="installed size without extras", unit="MB", budget=BUDGET_MB,
            measured=size, note=note),
        Row(name="install", what="installed packages without extras", unit="", budget=BUDGET_PACKAGES,
            measured=packages),
    ]  # fmt: skip


def _installed(folder: Path) -> Path:
    """Installs into `folder`; its site-packages. Raises OSError, CalledProcessError."""
    venv, wheels = folder / "venv", folder / "wheels"
    uv = shutil.which("uv")
    _call([sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(wheels)])
    pins = ["--require-hashes", "--requirement", str(ROOT / "requirements" / "runtime.txt")]
    wheel = ["--no-deps", *map(str, wheels.glob("cumulo-*.whl"))]
    if uv:
        _call([uv, "venv", "--quiet", "--python", sys.executable, str(venv)])
        pip = [uv, "pip", "install", "--quiet", "--python", str(venv)]
    else:
        _call([sys.executable, "-m", "venv", str(venv)])
        pip = [str(venv / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _call([*pip, *pins])
    _call([*pip, *wheel])
    return next((venv / "lib").glob("python3*/site-packages"))


def _call(argv: list[str]) -> None:
    subprocess.run(argv, cwd=ROOT, check=True, capture_output=True, text=True)


def _name(info: Path) -> str:
    return info.name.partition("-")[0].lower()


def _counts(file: Path, site: Path) -> bool:
    """Neither bytecode nor an installer's own."""
    top = file.relative_to(site).parts[0].partition("-")[0].lower()
    return file.suffix != ".pyc" and top not in NOT_OURS and top != "_distutils_hack"
