"""What the session's last line tells about skips, and when a skip fails CI."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).with_name("conftest.py")
STORY = """
import pytest

def test_passes(): pass
def test_needs_a_gpu(): pytest.skip("no GPU")
"""
CURABLE = """
@pytest.mark.parametrize("n", [1, 2])
def test_needs_bubblewrap(n): pytest.skip("bubblewrap is not installed")
"""
FAILING = """
def test_fails(): assert 0
"""


@pytest.fixture
def session(tmp_path):
    """Runs pytest in a process of its own over one file: (exit code, lines it printed)."""

    def run(story, *args, ci=""):
        (tmp_path / "conftest.py").write_text(CONFTEST.read_text())
        (tmp_path / "test_story.py").write_text(story)
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *args, "test_story.py"],
            cwd=tmp_path,
            env={"PATH": os.environ["PATH"], "CI": ci, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            capture_output=True,
            text=True,
            timeout=60,
        )
        return done.returncode, done.stdout.splitlines()

    return run


def test_the_last_line_counts_skips_by_reason(session):
    code, lines = session(STORY + CURABLE)
    assert (code, lines[-1]) == (
        0,
        "1 passed, 0 failed, 3 skipped (2: bubblewrap is not installed; 1: no GPU)",
    )


def test_it_follows_the_closing_line_of_pytest(session):
    _, lines = session(STORY)
    assert lines[-2].startswith("1 passed, 1 skipped in ")


def test_workers_are_counted_together(session):
    _, lines = session(STORY + CURABLE, "-p", "xdist", "-n", "2")
    assert lines[-1] == "1 passed, 0 failed, 3 skipped (2: bubblewrap is not installed; 1: no GPU)"


def test_ci_passes_where_only_a_gpu_is_missing(session):
    code, lines = session(STORY, ci="true")
    assert (code, lines[-1]) == (0, "1 passed, 0 failed, 1 skipped (1: no GPU)")


def test_ci_fails_on_a_skip_that_a_package_would_cure(session):
    code, lines = session(STORY + CURABLE, ci="true")
    assert code == 1
    assert "CI may not skip for this reason: bubblewrap is not installed" in lines


def test_failures_are_counted(session):
    code, lines = session(STORY + FAILING)
    assert (code, lines[-1]) == (1, "1 passed, 1 failed, 1 skipped (1: no GPU)")
