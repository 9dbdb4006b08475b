"""The folder from which runs import cumulo.job."""

import os
import subprocess
import sys

from cumulo.engines.local.library import install


def imported(folder, **env):
    """Where another Python, without our packages, finds cumulo.job."""
    program = "from cumulo import job; print(job.__file__)"
    told = {"PATH": os.environ["PATH"], "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1", **env}
    done = subprocess.run([sys.executable, "-S", "-c", program], env=told, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_it_holds_one_module_and_no_package(tmp_path):
    install(tmp_path)
    assert [path.name for path in (tmp_path / "cumulo").iterdir()] == ["job.py"]
    assert imported(tmp_path) == str(tmp_path / "cumulo" / "job.py")
    assert (tmp_path / "cumulo" / "job.py").stat().st_mode & 0o777 == 0o644


def test_an_upgrade_brings_the_new_one_and_leaves_the_same_alone(tmp_path):
    install(tmp_path)
    there = tmp_path / "cumulo" / "job.py"
    before, inode = there.read_bytes(), there.stat().st_ino
    install(tmp_path)
    assert there.stat().st_ino == inode
    there.write_text("# of an older version")
    install(tmp_path)
    assert there.read_bytes() == before
