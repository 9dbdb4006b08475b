"""Environments of runs: what they are named by, how they are built, and what a killed build leaves."""

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cumulo.node.environments import Environments, Recipe, arguments, build_script, find_uv, settings
from cumulo.node.files import Owner

PYTHON = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
FILES = {"train.py": "1", "requirements.txt": "2", "lib/util.py": "3", "data/big": "4", "install.sh": "5"}


def recipe(setup="", requirements=(), files=FILES, python=PYTHON, instance_id="i"):
    return Recipe(setup=setup, requirements=tuple(requirements), python=python, files=files, instance_id=instance_id)


# --- names ------------------------------------------------------------------------------------------------------------


def depends_on(path, **what):
    """Whether the environment changes with the content of that file."""
    return recipe(**what).digest != recipe(**what, files=FILES | {path: "changed"}).digest


def test_the_same_ingredients_give_the_same_environment():
    assert recipe("pip install a").digest == recipe("pip install a", instance_id="another").digest


def test_each_ingredient_counts():
    digests = {
        recipe(**what).digest
        for what in (
            {"setup": "pip install a"},
            {"setup": "pip install b"},
            {"requirements": ["a"]},
            {"requirements": ["a", "b"]},
            {"requirements": ["a"], "python": "/usr/bin/other"},
        )
    }
    assert len(digests) == 5


@pytest.mark.parametrize("setup", ["pip install numpy", "python -m pip install numpy", "sudo apt-get install -y gcc"])
def test_a_workdir_that_is_edited_keeps_its_environment(setup):
    assert not depends_on("train.py", setup=setup)
    assert depends_on("requirements.txt", setup=setup)


def test_files_that_setup_names_take_part():
    assert depends_on("train.py", setup="pip install numpy && echo train.py")
    assert depends_on("lib/util.py", requirements=["-r lib/util.py"])
    assert not depends_on("data/big", requirements=["-r lib/util.py"])


@pytest.mark.parametrize(
    "setup", ["make", "pip install x\nbash install.sh", "pip install .", "pip install ./lib[cuda]"]
)
def test_what_may_read_any_file_depends_on_all(setup):
    assert depends_on("data/big", setup=setup)


@pytest.mark.parametrize("what", [{"setup": "pip install -e ."}, {"requirements": ["-e ."]}])
def test_an_editable_install_serves_one_instance(what):
    assert recipe(**what).digest != recipe(**what, instance_id="another").digest


@given(st.text(), st.lists(st.text()))
def test_any_text_has_a_name(setup, requirements):
    digest = recipe(setup, requirements).digest
    assert len(digest) == 32
    assert digest == recipe(setup, requirements).digest


# --- settings ---------------------------------------------------------------------------------------------------------


def test_package_settings_pass_and_nothing_else():
    told = {"PIP_FIND_LINKS": "/w", "UV_OFFLINE": "1", "https_proxy": "p", "SSL_CERT_FILE": "c", "NO_PROXY": "n"}
    kept_back = {"PATH": "/x", "HOME": "/h", "PIP_TARGET": "/t", "AWS_SECRET_ACCESS_KEY": "s", "MY_PIP_X": "1"}
    assert settings(told | kept_back) == told


def test_requirements_become_arguments():
    lines = [
        "torch==2.1",
        "  numpy>=1,<2  # why",
        "-r requirements.txt",
        "--pre",
        "# nothing",
        "",
        "a; python_version>'3'",
    ]
    assert arguments(lines) == ["torch==2.1", "numpy>=1,<2", "-r", "requirements.txt", "--pre", "a; python_version>'3'"]


def test_uv_is_used_where_it_is_a_program_and_pip_is_not_configured(tmp_path):
    shim, real = tmp_path / "shim", tmp_path / "real"
    for folder, content in ((shim, b"#!/bin/sh\n"), (real, b"\x7fELF...")):
        folder.mkdir()
        (folder / "uv").write_bytes(content)
        (folder / "uv").chmod(0o755)
    found = str(real / "uv")
    assert find_uv(f"{shim}:{real}", str(tmp_path / "none"), {}) == found
    assert find_uv(str(shim), str(tmp_path / "none"), {}) is None
    assert find_uv(str(real), "", {"PIP_INDEX_URL": "x"}) is None
    assert find_uv(str(real), "", {"PIP_INDEX_URL": "x", "UV_INDEX_URL": "x"}) == found


# --- building ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def build(tmp_path):
    """Builds as the preparing stage does: (exit code, output, the environment as it is found afterwards)."""
    environments = Environments(tmp_path / "environments")
    without_pip = tmp_path / "python"  # pip is most of the time that an environment takes
    without_pip.write_text(f'#!/bin/sh\nexec {PYTHON} "$@" --without-pip\n')
    without_pip.chmod(0o755)

    def run(setup="", requirements=(), workdir="workdir", kill_after=None):
        where = tmp_path / workdir
        where.mkdir(exist_ok=True)
        environment = environments.find(recipe(setup, requirements, files={}), owner=None)
        file = tmp_path / "setup"
        file.write_text(setup + "\n")
        text = build_script(
            environment,
            python=PYTHON if requirements else str(without_pip),
            uv=None,
            requirements=requirements,
            setup=file if setup else None,
        )
        (tmp_path / "prepare").write_text(text)
        process = subprocess.Popen(
            ["/bin/bash", "-e", str(tmp_path / "prepare")],
            cwd=where,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        )
        if kill_after is not None:
            while not kill_after(environment):
                time.sleep(0.01)
            os.killpg(process.pid, 9)
        said, _ = process.communicate(timeout=60)
        return process.returncode, said, environments.find(recipe(setup, requirements, files={}), owner=None)

    return run


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A package to install without a network: its folder."""
    folder = tmp_path_factory.mktemp("package")
    (folder / "greeting.py").write_text("WORD = 'hello'\n")
    (folder / "pyproject.toml").write_text(
        "[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n"
    )
    (folder / "backend.py").write_text(BACKEND)
    return folder


# The least build backend: makes a wheel of one module.
BACKEND = """
import zipfile

def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    name = "greeting-1.0-py3-none-any.whl"
    info = "greeting-1.0.dist-info"
    with zipfile.ZipFile(f"{wheel_directory}/{name}", "w") as file:
        file.write("greeting.py")
        file.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\\nName: greeting\\nVersion: 1.0\\n")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        file.writestr(f"{info}/RECORD", "")
    return name
"""


def test_requirements_are_installed_once(build, wheel):
    code, said, environment = build(requirements=[str(wheel)])
    assert code == 0, said
    assert environment.ready
    assert not environment.needs_stage
    python = environment.venv / "bin/python"
    program = "import greeting; print(greeting.WORD)"
    assert subprocess.run([python, "-c", program], capture_output=True, text=True, check=True).stdout == "hello\n"
    begun = time.monotonic()
    code, said, _ = build(requirements=[str(wheel)])
    assert (code, said) == (0, "")
    assert time.monotonic() - begun < 2.0


def test_what_setup_makes_in_the_workdir_is_put_back(build):
    setup = "mkdir -p made/empty; echo compiled > made/program; chmod 755 made/program; which python"
    (code, said, environment) = build(setup)
    assert code == 0, said
    assert said.strip().endswith(f"{environment.venv}/bin/python")
    assert environment.ready
    assert environment.restores
    code, said, _ = build(setup, workdir="another")
    made = environment.folder.parents[2] / "another/made"
    assert (code, said) == (0, "")
    assert (made / "program").read_text() == "compiled\n"
    assert os.access(made / "program", os.X_OK)
    assert (made / "empty").is_dir()


def test_a_setup_that_fails_leaves_nothing_to_take(build):
    code, said, environment = build("echo trying\nfalse\necho never")
    assert (code, said.splitlines()[-1]) == (1, "trying")
    assert not environment.ready
    code, said, environment = build("echo trying\nfalse\necho never")
    assert (code, environment.ready) == (1, False)


def test_a_killed_build_leaves_nothing_to_take(build):
    marker = "half-made"
    setup = f"test -e stop || {{ touch stop $VIRTUAL_ENV/{marker}; sleep 600; }}"
    code, _, environment = build(setup, kill_after=lambda env: (env.venv / marker).exists())
    assert (code, environment.ready) == (-9, False)
    (environment.venv / "garbage").touch()
    code, said, environment = build(setup)
    assert (code, environment.ready) == (0, True), said
    assert not (environment.venv / "garbage").exists()


def test_two_builders_make_one(tmp_path, build):
    """The second waits for the first and finds it done."""
    shared = tmp_path / "count"
    setup = f"echo x >> {shared}; sleep 0.3"
    with ThreadPoolExecutor(2) as pool:
        codes = [code for code, _, _ in pool.map(lambda _: build(setup), range(2))]
    assert codes == [0, 0]
    assert shared.read_text() == "x\n"


# --- keeping ----------------------------------------------------------------------------------------------------------


def test_only_what_nobody_asked_for_in_a_while_is_unused(tmp_path):
    environments = Environments(tmp_path / "environments")
    old, used, held = (environments.find(recipe(name), owner=None) for name in ("old", "used", "held"))
    for each in (old, held):
        os.utime(each.folder, (1, 1))
    assert environments.unused(unused_s=3600, keep=frozenset({held.digest})) == [old.folder]
    environments.find(recipe("old"), owner=None)
    assert environments.unused(unused_s=3600, keep=frozenset({held.digest})) == []
    Environments.remove(used.folder)
    assert {folder.name for folder in environments.folders()} == {old.digest, held.digest}


def test_what_a_killed_removal_left_is_cleared(tmp_path):
    environments = Environments(tmp_path / "environments")
    kept = environments.find(recipe("kept"), owner=None).folder
    (kept.parent / ".half.gone").mkdir()
    assert list(environments.folders()) == [kept]
    assert os.listdir(kept.parent) == [kept.name]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_an_environment_belongs_to_one_account(tmp_path):
    environments = Environments(tmp_path / "environments")
    one, other = (environments.find(recipe("same"), owner=Owner(uid, uid)) for uid in (4242, 4243))
    assert one.digest == other.digest
    assert one.folder != other.folder
    assert (one.folder.stat().st_uid, other.folder.stat().st_uid) == (4242, 4243)
    assert one.folder.stat().st_mode & 0o077 == 0
