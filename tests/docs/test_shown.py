"""Every command that the documents show is run, in the order in which they show it, and prints what they show."""

import re

import pytest

from tests.docs.documents import CHINESE, DOCUMENTS, ENGLISH, ROOT, Block, blocks
from tests.docs.shell import Shell
from tests.docs.transcript import matches, steps

# What no test can run, by document: it installs, measures, or needs another machine, a GPU or rights. `make demo`,
# `make test` and `make bench` have stages of CI of their own.
NOT_RUN = {
    "README.md": (
        "make demo",
        "cumulo up -d --port 0 --emulate A100-80GB:2",  # these three it shows itself
        "cumulo launch examples/digits/task.yaml -y",
        "cumulo down --cancel",
        "make test",
        "cumulo up -d",
        "cumulo launch --gpus 1 -- nvidia-smi",
        "sudo cumulo up -d",
        "sudo cumulo up -d --host 0.0.0.0 --tls-cert box.crt --tls-key box.key",
        "cumulo token create laptop --expires 90d",
        "cumulo login https://box.example:7070 --ca box.crt",
        "make bench",
    ),
    "api.md": ('curl -s --unix-socket "$CUMULO_HOME/server.sock" http://localhost/v1/runs?limit=1',),
}

# Documents that show GPUs which cost something, and so are not emulated: how many.
GPUS = {"market.md": 4}


def shown_in(path, *languages):
    return blocks(path.read_text(), *languages)


def unprompted(found: list[Block]) -> list[str]:
    """The commands of blocks that are not run: their lines after `$ `."""
    return [line.removeprefix("$ ") for block in found for line in block.lines if line.startswith("$ ")]


DOCUMENTS_WITH_SESSIONS = [path for path in DOCUMENTS if path != CHINESE and shown_in(path, "console")]


@pytest.mark.system
@pytest.mark.timeout(300)  # a tour takes 40 s on two idle cores
@pytest.mark.parametrize("path", DOCUMENTS_WITH_SESSIONS, ids=lambda path: path.name)
def test_a_session_prints_what_is_shown(path):
    shell = Shell(gpus=GPUS.get(path.name, 0))
    try:
        for block in shown_in(path):
            name = block.lines[0].removeprefix("# ") if block.lines else ""
            if block.language in ("yaml", "python") and re.fullmatch(r"[\w-]+\.(yaml|py)", name):
                (shell.folder / "cumulo" / name).write_text(block.text)
            for step in steps(block) if block.language == "console" else ():
                said = shell.follow(step)
                where = f"{path.relative_to(ROOT)}:{step.line}: $ {step.command}"
                assert matches(step.shown, said.text, user=shell.user), (
                    f"{where}\nshows\n" + "\n".join(step.shown) + f"\nand printed\n{said.text}"
                )
                assert (said.code != 0) == step.fails, f"{where}: exit code {said.code}"
    finally:
        shell.close()


def test_both_readmes_show_the_same_blocks():
    english, chinese = ([(block.language, block.lines) for block in shown_in(path)] for path in (ENGLISH, CHINESE))
    assert english == chinese


@pytest.mark.parametrize("path", [path for path in DOCUMENTS if path != CHINESE], ids=lambda path: path.name)
def test_what_is_not_run_is_known(path):
    assert tuple(unprompted(shown_in(path, "sh"))) == NOT_RUN.get(path.name, ())


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_blocks_say_what_they_are(path):
    """A command without its language would be run by nobody."""
    known = {"console", "sh", "yaml", "text", "python", "ini", "json"}
    assert {block.language for block in shown_in(path)} <= known
