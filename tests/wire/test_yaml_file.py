"""YAML as people write it, and the accidents that a plain loader lets happen."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cumulo.domain.errors import CumuloError
from cumulo.wire.yaml_file import MAX_BYTES, read_yaml


def refused(text):
    with pytest.raises(CumuloError) as caught:
        read_yaml(text, source="task.yaml")
    assert caught.value.code == "invalid_run_file"
    assert "\n" not in caught.value.message
    return caught.value.message


def test_every_key_knows_its_line():
    document = read_yaml("name: a\n\nresources:\n  cpus: 4\nmounts:\n- /data\n- /more\n")
    assert document.data == {"name": "a", "resources": {"cpus": 4}, "mounts": ["/data", "/more"]}
    assert document.line_of(("name",)) == 1
    assert document.line_of(("resources", "cpus")) == 4
    assert document.line_of(("mounts", 1)) == 7


def test_a_key_that_is_not_there_has_the_line_of_what_encloses_it():
    document = read_yaml("resources:\n  cpus: 4\n")
    assert document.line_of(("resources", "memory")) == 1
    assert document.line_of(("nothing",)) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("NO", "NO"),
        ("yes", "yes"),
        ("on", "on"),
        ("true", True),
        ("1:30:00", "1:30:00"),
        ("2026-01-01", "2026-01-01"),
        ("012", 12),
        ("1_000", "1_000"),
        ("0x10", 16),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("~", None),
        ("null", None),
        ("", None),
        ("'8'", "8"),
        ("!!str 8", "8"),
    ],
)
def test_scalars_mean_what_they_look_like(text, value):
    assert read_yaml(f"key: {text}").data == {"key": value}


def test_anchors_and_merges_work():
    text = "base: &base {a: 1, b: 2}\nother:\n  <<: *base\n  b: 3\n"
    assert read_yaml(text).data["other"] == {"a": 1, "b": 3}


def test_a_byte_order_mark_is_no_part_of_the_first_key():
    assert read_yaml("\ufeffrun: x".encode()).data == {"run": "x"}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("run: a\nrun: b\n", "task.yaml:2: the key 'run' is given twice"),
        ("run: [a\n", "task.yaml:2: not valid YAML"),
        ("run: x\n\tb: c\n", "task.yaml:2: a tab is used for indentation"),
        ("- a\n", "must be a mapping of keys such as 'run:', but is a list"),
        ("", "but is empty"),
        ("just words", "but is a text"),
        ("a: 1\n---\nb: 2\n", "task.yaml:2: not valid YAML"),
        ("a: !!python/object/apply:os.system [ls]\n", "os.system' is not allowed here"),
        ("a: !!int abc\n", "task.yaml:1: 'abc' is not what its tag says"),
        ("a: !!set {x}\n", "task.yaml:1: the YAML tag"),
        ("a: !secret x\n", "task.yaml:1: the YAML tag '!secret' is not allowed here"),
        ("? [a, b]\n: c\n", "task.yaml:1: a key must be a plain word"),
        ("a: &a [*a]\n", "task.yaml:1: nested deeper"),
        ("a: *nowhere\n", "task.yaml:1: not valid YAML: found undefined alias"),
        ("a: " + "9" * 40, "task.yaml:1: the number is too long"),
        ("a: \0", "unacceptable character"),
        (b"a: \xff", "not UTF-8 text"),
        ("a: " + "[" * 100, "task.yaml"),
        ("#" + "x" * MAX_BYTES, "larger than 1 MB"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(text, told):
    assert told in refused(text)


def test_a_file_of_aliases_cannot_grow():
    levels = ["a0: &a0 [x,x,x,x,x,x,x,x,x,x]"]
    levels += [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    assert "aliases included" in refused("\n".join(levels))


@given(st.text(max_size=300))
def test_any_text_is_read_or_refused_in_words(text):
    code = "invalid_run_file"
    try:
        read_yaml(text)
    except CumuloError as error:
        code = error.code
    assert code == "invalid_run_file"


def test_an_error_about_a_key_is_pointed_at_its_line():
    document = read_yaml("run: x\nresources:\n  cpus: many\n", source="task.yaml")
    error = CumuloError("invalid_run_file", "resources.cpus: wrong", details={"path": ["resources", "cpus"]})
    pointed = document.point(error)
    assert pointed.message == "task.yaml:3: resources.cpus: wrong"
    assert pointed.details["line"] == 3
