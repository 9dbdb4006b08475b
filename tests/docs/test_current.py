"""The documents say what the code says: generated parts, examples of run files, names of variables, links."""

import subprocess
import sys
from urllib.parse import unquote

import pytest
import yaml

from cumulo.cli.main import COMMANDS
from cumulo.domain.instance import Identity, InstanceSpec
from cumulo.domain.lifecycle import EndReason, RunStatus
from cumulo.engines.local.variables import ours
from cumulo.wire.run_file import RunFile, read_run_file, to_spec
from tests.docs.documents import DOCUMENTS, ROOT, anchors, blocks, links

DOCS = ROOT / "docs"


def test_generated_parts_are_current():
    done = subprocess.run(
        [sys.executable, ROOT / "tools/docs.py", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path):
    for link in links(path.read_text()):
        if link.startswith(("http://", "https://")):
            continue
        name, _, anchor = unquote(link).partition("#")
        target = (path.parent / name).resolve() if name else path
        assert target.exists(), f"{path.name} links to {link}"
        assert not anchor or anchor in anchors(target.read_text()), f"{path.name} links to {link}"


@pytest.mark.parametrize(
    "block",
    [pytest.param(block, id=f"line {block.line}") for block in blocks((DOCS / "run-file.md").read_text(), "yaml")],
)
def test_examples_of_run_files_are_accepted(block):
    to_spec(read_run_file(yaml.safe_load(block.text)), planning=True)


def test_every_key_of_the_run_file_has_an_example():
    text = "".join(block.text for block in blocks((DOCS / "run-file.md").read_text(), "yaml"))
    keys = {line.strip().split(":")[0] for line in text.splitlines() if ":" in line}
    called = {name: {name} for name in RunFile.model_fields}
    for alias, name in RunFile.aliases.items():
        called[name].add(alias)
    missing = [name for name, names in called.items() if not names & keys]
    assert missing == []


def test_every_variable_that_a_run_sees_is_told(tmp_path):
    spec = InstanceSpec(
        instance_id="i", cloud_id="c", run_id="r", run_name="n", project="p", unit=0, attempt=1, rank=0, node="n",
        slices=(), cpus_milli=1000, memory_bytes=1, identity=Identity(name="ada"), command="true", array_index=0,
        hazard=((0.0, 1e-4),),
    )  # fmt: skip
    text = (DOCS / "run-file.md").read_text()
    folders = dict.fromkeys(("checkpoint", "outputs", "progress", "notice", "library"), tmp_path)
    told = ours(spec, **folders, now=0.0)
    assert [name for name in told if f"`{name}`" not in text] == []


def test_every_status_and_reason_is_explained():
    text = (DOCS / "concepts.md").read_text()
    assert [str(word) for word in (*RunStatus, *EndReason) if f"`{word}`" not in text] == []


def test_the_tour_shows_the_commands_people_use():
    text = (ROOT / "README.md").read_text()
    admin = {"up", "down", "login", "context", "token", "doctor", "df", "sweep", "completion", "usage", "events"}
    rest = {"start", "wait", "offers", "top", "exec"}
    assert [name for name in COMMANDS if name not in admin | rest and f"cumulo {name}" not in text] == []
