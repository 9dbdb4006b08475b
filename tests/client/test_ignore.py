"""The rules of .gitignore, held against git itself."""

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cumulo.client.ignore import Rules, parse

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def ignores(lines: str, path: str, *, is_folder: bool = False) -> bool:
    return Rules().joined("", lines.splitlines()).ignores(path, is_folder=is_folder)


@pytest.mark.parametrize(
    ("line", "path", "expected"),
    [
        ("*.pt", "model.pt", True),
        ("*.pt", "a/b/model.pt", True),
        ("/data", "data", True),
        ("/data", "a/data", False),
        ("a/b", "a/b", True),
        ("a/b", "c/a/b", False),
        ("**/b", "c/a/b", True),
        ("a/**/b", "a/b", True),
        ("a/**/b", "a/x/y/b", True),
        ("a/**", "a/x/y", True),
        ("a/**", "a", False),
        ("run[0-9]", "run7", True),
        ("run[!0-9]", "run7", False),
        ("\\#x", "#x", True),
        ("# x", "# x", False),
        ("x ", "x", True),
        ("x\\ ", "x ", True),
        ("a?c", "a/c", False),
    ],
)
def test_patterns(line: str, path: str, *, expected: bool):
    assert ignores(line, path) is expected


def test_a_pattern_with_a_slash_behind_means_folders():
    assert ignores("build/", "build", is_folder=True)
    assert not ignores("build/", "build")


def test_the_last_match_wins():
    assert not ignores("*.log\n!keep.log", "keep.log")
    assert ignores("!keep.log\n*.log", "keep.log")


def test_rules_of_a_folder_hold_below_it_only():
    rules = Rules().joined("a", ["/x"])
    assert rules.ignores("a/x", is_folder=False)
    assert not rules.ignores("x", is_folder=False)
    assert not rules.ignores("a/b/x", is_folder=False)


@pytest.mark.parametrize("line", ["", "   ", "/", "# comment", "[", "a\\", "!"])
def test_lines_that_match_nothing(line: str):
    assert parse(line) is None


names = st.sampled_from(["a", "b", "ab", "a.b", "b.a", "a b"])
pieces = st.sampled_from(["a", "b", "*", "?", "**", "a*", "*b", "[ab]", "[!a]", "[a-c]b", "a.b", "\\a"])
lines = st.builds(
    lambda bang, root, parts, end: bang + root + "/".join(parts) + end,
    st.sampled_from(["", "", "", "!"]), st.sampled_from(["", "", "/"]), st.lists(pieces, min_size=1, max_size=3),
    st.sampled_from(["", "", "/"]),
)  # fmt: skip
paths = st.lists(names, min_size=1, max_size=3).map("/".join)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("repository")
    subprocess.run(["git", "init", "-q", folder], check=True)
    return folder


@needs_git
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(lines, min_size=1, max_size=4), st.lists(paths, min_size=1, max_size=12, unique=True))
def test_git_agrees(repository: Path, given_lines: list[str], given_paths: list[str]):
    (repository / ".gitignore").write_text("\n".join(given_lines) + "\n")
    asked = subprocess.run(
        ["git", "-c", "core.excludesFile=", "check-ignore", "--no-index", "--stdin", "-z"],
        cwd=repository, input="\0".join(given_paths).encode(), capture_output=True, check=False,
    )  # fmt: skip
    theirs = {path.decode() for path in asked.stdout.split(b"\0") if path}
    rules = Rules().joined("", given_lines)
    ours = {path for path in given_paths if _stays_behind(rules, path)}
    assert ours == theirs, (given_lines, given_paths)


def _stays_behind(rules: Rules, path: str) -> bool:
    """As the walk does it: an ignored folder on the way ends it. Nothing exists, so git takes leaves for files."""
    parts = path.split("/")
    above = ("/".join(parts[:end]) for end in range(1, len(parts)))
    return any(rules.ignores(one, is_folder=True) for one in above) or rules.ignores(path, is_folder=False)
