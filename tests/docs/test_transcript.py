"""What the documents' tests take for the same, and what they don't."""

import pytest

from tests.docs.documents import anchors, blocks, links
from tests.docs.transcript import alike, matches, steps

SESSION = """\
Text.

```console
$ cumulo status
ID            NAME   STATUS
1ngtqhh7ntth  train  running
$ cat > a.yaml <<'E'
> name: a
> E
$ cumulo stop nobody
error: there is no run 'nobody'
```
"""


def test_a_block_is_cut_into_commands_and_what_they_show():
    (block,) = blocks(SESSION, "console")
    first, second, third = steps(block)
    assert (first.line, first.command, len(first.shown)) == (4, "cumulo status", 2)
    assert second.command == "cat > a.yaml <<'E'\nname: a\nE"
    assert second.shown == ()
    assert third.fails
    assert not first.fails


def test_a_block_without_an_end_and_output_without_a_command_are_mistakes():
    with pytest.raises(ValueError, match="line 1 has no end"):
        blocks("```console\n$ true\n")
    with pytest.raises(ValueError, match="line 2 shows output"):
        steps(blocks("```console\nhello\n```\n")[0])


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        ("train (1ngtqhh7ntth) is accepted", "train (1ngtzzz0000a) is accepted"),
        ("1ngtqhh7ntth-0-1-0  running", "1ngtzzz0000a-0-1-0   running"),
        ("ended in 3.2s", "ended in 1m 05s"),
        ("at 11:30:26 (4s ago)", "at 2026-11-30 23:59:59 (2h 01m ago)"),
        ("http://127.0.0.1:7070 is up", "http://127.0.0.1:40123 is up"),
        ("files  ~/cumulo/examples/gang: 2 files, 1.4 kB", "files  /tmp/x/cumulo/examples/gang: 2 files, 1.5 MB"),
        ("3/20 step 15%", "19/20 step 95%"),
        ("held by ada", "held by root"),
        ("two … words", "two or three words"),
    ],
)
def test_what_differs_between_machines_and_moments_is_the_same(shown, said):
    assert matches((shown,), f"{said}\n", user="root")


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        ("6 of 8 A100-80GB held", "5 of 8 A100-80GB held"),
        ("3/20 step 15%", "3/30 step 10%"),
        ("files  ~/examples/gang: 2 files", "files  ~/examples/array: 2 files"),
        ("train succeeded", "train failed"),
        ("exit code 3", "exit code 4"),
        ("one", "one\ntwo"),
        ("one", ""),
    ],
)
def test_what_tells_something_else_is_not(shown, said):
    assert not matches((shown,), said)


def test_an_ellipsis_alone_stands_for_any_lines_and_none():
    assert matches(("first", "…", "last"), "first\nsecond\nthird\nlast\n")
    assert matches(("first", "…", "last"), "first\nlast\n")
    assert not matches(("first", "…", "last"), "first\nlast\nmore\n")


def test_lines_of_several_ranks_come_in_any_order():
    assert matches(("[rank 0] a", "[rank 1] b", "done"), "[rank 1] b\n[rank 0] a\ndone\n")
    assert not matches(("[rank 0] a", "[rank 1] b", "done"), "[rank 1] a\n[rank 0] b\ndone\n")


def test_a_hash_or_a_word_is_no_id():
    assert alike("information is not an id") == "information is not an id"


def test_links_and_anchors_are_found_outside_blocks_only():
    text = "# One: `two`\n[a](b.md#c) ![i](p.png)\n```sh\n# no heading\n[x](y)\n```\n"
    assert links(text) == ["b.md#c"]
    assert anchors(text) == {"one-two"}
