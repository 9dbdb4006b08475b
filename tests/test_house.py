"""The rules of the house that import-linter cannot see.

Each rule is a function from source text to what breaks it, so that it is also shown to find what it must.
"""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src" / "cumulo"
MODULES = sorted(SRC.rglob("*.py"))

PURE = ("domain", "placement", "market", "advisor")
PURE_MODULES = [path for path in MODULES if path.relative_to(SRC).parts[0] in PURE]
# Files, clocks, processes, networks, and randomness that no argument brings.
IMPURE_IMPORTS = {
    *("asyncio", "glob", "http", "io", "multiprocessing", "os", "secrets", "shutil", "socket"),
    *("sqlite3", "subprocess", "tempfile", "threading", "time", "urllib"),
}
IMPURE_CALLS = {
    "open", "input", "print",
    "datetime.now", "datetime.utcnow", "datetime.today", "date.today",
    "uuid.uuid1", "uuid.uuid4", "uuid4", "uuid1",
}  # fmt: skip
FILE_METHODS = {
    "read_text",
    "read_bytes",
    "write_text",
    "write_bytes",
    "iterdir",
    "glob",
    "rglob",
    "exists",
    "stat",
}
# What makes a generator from a seed; with no seed it would be random.
SEEDED = {"Random", "default_rng", "Generator", "SeedSequence", "PCG64", "Philox", "RandomState"}

STANDALONE = [path for name in ("node/supervisor.py", "job.py") if (path := SRC / name).exists()]
NAMES_THAT_SAY_NOTHING = {"utils", "util", "helpers", "helper", "manager", "common", "misc"}

FUNCTION_LINES = 80
MODULE_LINES = 450
# One file by design: it must not import, so it cannot be split.
LONGER_MODULES = {"node/supervisor.py": 1000}


def dotted(node: ast.expr) -> str:
    """`np.random.rand` of such an expression; empty when it is no plain name."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        owner = dotted(node.value)
        return f"{owner}.{node.attr}" if owner else ""
    return ""


def imported_modules(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, module) of every import; a relative one starts with a dot."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, name.name) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, "." * node.level + (node.module or "")


def impurities(source: str) -> list[str]:
    """What a pure package may not do: open a file, read a clock, draw randomness that it was not given."""
    tree = ast.parse(source)
    found = [
        f"line {line}: imports {module}"
        for line, module in imported_modules(tree)
        if module.partition(".")[0] in IMPURE_IMPORTS
    ]
    drawn = {
        name.asname or name.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module in ("random", "numpy.random")
        for name in node.names
    }
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        name = dotted(call.func)
        owner, _, last = name.rpartition(".")
        random = owner.split(".")[-1] == "random" or name in drawn
        unseeded = random and not (last in SEEDED and (call.args or call.keywords))
        clock = ".".join(name.split(".")[-2:]) in IMPURE_CALLS
        method = isinstance(call.func, ast.Attribute) and call.func.attr in FILE_METHODS
        if unseeded or clock or method:
            found.append(f"line {call.lineno}: calls {name or ast.unparse(call.func)}")
    return found


def imports_beyond_the_standard_library(source: str) -> list[str]:
    return [
        f"line {line}: imports {module}"
        for line, module in imported_modules(ast.parse(source))
        if module.partition(".")[0] not in sys.stdlib_module_names
    ]


def long_functions(source: str) -> list[str]:
    """Functions over the limit; a class inside a function counts towards it."""
    return [
        f"line {node.lineno}: {node.name} has {length} lines"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (length := (node.end_lineno or node.lineno) - node.lineno + 1) > FUNCTION_LINES
    ]


def room(path: Path) -> str:
    return path.relative_to(SRC).as_posix()


@pytest.mark.parametrize("path", PURE_MODULES, ids=room)
def test_pure_packages_do_no_io_read_no_clock_and_draw_nothing(path):
    assert impurities(path.read_text()) == []


@pytest.mark.parametrize(
    "line",
    [
        "open('x')",
        "import time",
        "from time import monotonic",
        "import os.path",
        "datetime.datetime.now(UTC)",
        "datetime.now()",
        "random.random()",
        "random.Random()",
        "from random import choice\nchoice([1])",
        "np.random.default_rng()",
        "np.random.rand(3)",
        "uuid.uuid4()",
        "path.read_text()",
        "Path('x').read_text()",
    ],
)
def test_what_is_not_pure_is_found(line):
    assert impurities(line) != []


@pytest.mark.parametrize(
    "line",
    [
        "rng.random()",
        "random.Random(7)",
        "np.random.default_rng(seed)",
        "def f(rng: random.Random, now: float): ...",
    ],
)
def test_given_randomness_and_given_time_are_pure(line):
    assert impurities(line) == []


@pytest.mark.parametrize("path", STANDALONE, ids=room)
def test_what_runs_outside_cumulo_uses_the_standard_library_alone(path):
    assert imports_beyond_the_standard_library(path.read_text()) == []


@pytest.mark.parametrize("line", ["import cumulo.domain", "from . import x", "from .x import y", "import numpy as np"])
def test_an_import_beyond_the_standard_library_is_found(line):
    assert imports_beyond_the_standard_library(line) != []


@pytest.mark.parametrize("path", MODULES, ids=room)
def test_every_module_says_why_it_exists(path):
    assert ast.get_docstring(ast.parse(path.read_text())), f"{path} opens with no docstring"


def test_no_name_says_nothing():
    parts = {part.removesuffix(".py") for path in MODULES for part in path.relative_to(SRC).parts}
    assert parts & NAMES_THAT_SAY_NOTHING == set()


# A migration is one list of statements, never touched again.
@pytest.mark.parametrize("path", [path for path in MODULES if path.parent.name != "versions"], ids=room)
def test_functions_fit_a_screen_or_nearly(path):
    assert long_functions(path.read_text()) == []


def test_a_long_function_is_found():
    assert long_functions("def f():\n" + "    x = 1\n" * FUNCTION_LINES) == ["line 1: f has 81 lines"]
    assert long_functions("def f():\n" + "    x = 1\n" * (FUNCTION_LINES - 1)) == []


@pytest.mark.parametrize("path", MODULES, ids=room)
def test_modules_are_of_one_idea(path):
    lines = len(path.read_text().splitlines())
    assert lines <= LONGER_MODULES.get(room(path), MODULE_LINES)


# What names a package index, a mirror or a place on one machine; in pieces, so that none stands here either.
ADDRESSES = re.compile(
    "|".join(
        [
            "python" + r"hosted\.org",
            "py" + r"pi\.org/(simple|pypi)",
            r"pkg\." + "dev",
            "registry\\." + "npm",
            "deb\\." + r"debian\.org",
            "--(extra-)?" + "index-url",
            '"resolved": ' + '"http',
            "@ " + "file:",
        ]
    )
)
LOCK_FILES = {"uv.lock", "poetry.lock", "package-lock.json", "Pipfile.lock"}


@pytest.fixture(scope="module")
def repository_files():
    """Every file of the repository: what git tracks and what it does not ignore."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True
    )
    if listed.returncode:
        pytest.skip("not a git clone")
    return [path for name in listed.stdout.decode().split("\0") if name and (path := ROOT / name).is_file()]


def test_no_file_holds_the_address_of_a_registry(repository_files):
    holding = [
        f"{path.relative_to(ROOT)}: {found[0]}"
        for path in repository_files
        if (found := ADDRESSES.search(path.read_bytes().decode(errors="replace")))
    ]
    assert holding == []


def test_there_is_no_lock_file(repository_files):
    assert [path for path in repository_files if path.name in LOCK_FILES] == []


def pins(name: str) -> dict[str, str]:
    """{package: version} of a file in requirements/, names in the form of PEP 503."""
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", text, flags=re.MULTILINE))


def packages(requirements: list[str]) -> set[str]:
    return {re.split(r"[\[<>=~! ]", requirement)[0].lower().replace("_", "-") for requirement in requirements}


def test_every_dependency_is_pinned():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    groups = project["dependency-groups"]
    runtime = packages(project["project"]["dependencies"])
    postgres = packages(project["project"]["optional-dependencies"]["postgres"])
    build = packages(groups["build"])
    dev = packages([entry for entry in groups["dev"] if isinstance(entry, str)])
    wanted = {
        "runtime": runtime,
        "postgres": runtime | postgres,
        "build": build,
        "dev": runtime | postgres | build | dev,
    }
    assert {name: needed - pins(name).keys() for name, needed in wanted.items()} == {name: set() for name in wanted}


@pytest.mark.parametrize("name", ["runtime", "postgres", "build"])
def test_what_is_installed_is_what_is_tested(name):
    assert pins(name).items() <= pins("dev").items()


@pytest.mark.parametrize("name", ["runtime", "postgres", "build", "dev"])
def test_every_pin_has_hashes(name):
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    blocks = re.split(r"^(?=[a-z0-9])", text, flags=re.MULTILINE)
    assert [block.split()[0] for block in blocks if block.strip() and "--hash=sha256:" not in block] == []
