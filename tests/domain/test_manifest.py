"""A manifest is refused unless everything it names lies inside its root, once."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cumulo.domain.errors import CumuloError
from cumulo.domain.manifest import (
    MAX_BYTES,
    MAX_DEPTH,
    MAX_ENTRIES,
    ManifestEntry,
    make_manifest,
    parse_manifest,
    render_manifest,
)

DIGEST = "0123456789abcdef" * 4
FILE = {"path": "train.py", "mode": 0o644, "size": 3, "digest": DIGEST}


def text_of(*entries, version=1):
    return json.dumps({"version": version, "entries": entries}).encode()


def refusal(text):
    with pytest.raises(CumuloError) as refused:
        parse_manifest(text)
    return refused.value.code, refused.value.message


def file(path):
    return {**FILE, "path": path}


def test_files_and_folders():
    manifest = parse_manifest(text_of(file("src/train.py"), {"path": "data", "dir": True}))
    assert manifest.entries == (ManifestEntry("data"), ManifestEntry("src/train.py", 0o644, 3, DIGEST))
    assert [entry.is_folder for entry in manifest.entries] == [True, False]
    assert manifest.total_bytes == 3
    assert manifest.digests == {DIGEST}


def test_an_empty_one_is_fine():
    assert parse_manifest(text_of()).entries == ()


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/etc/passwd",
        "..",
        "../up",
        "a/../../up",
        "a/..",
        ".",
        "./a",
        "a/./b",
        "a//b",
        "a/",
        "a\0b",
        "a\\b",
        "..\\up",
        "C:\\x",
        "\ud800",
        "x" * 256,
        "é" * 128,
        "/".join("d" * (MAX_DEPTH + 1)),
        "/".join(["d" * 200] * 11),
    ],
    ids=lambda path: f"{ascii(path)[:20]} {len(path)}",
)
def test_a_path_that_may_not_be(path):
    code, message = refusal(text_of(file(path)))
    assert code == "path_not_allowed"
    assert message.isprintable()


@pytest.mark.parametrize(
    "path", ["a", "...", "..a", "a..", ".git/x", "-rf", "~", "a b", "ü/ß", "a\nb", "/".join("d" * MAX_DEPTH)]
)
def test_a_path_that_may_be(path):
    assert parse_manifest(text_of(file(path))).entries[0].path == path


@pytest.mark.parametrize(
    "entries",
    [
        [file("a"), file("a")],
        [file("a"), {"path": "a", "dir": True}],
        [{"path": "a", "dir": True}, {"path": "a", "dir": True}],
        [file("a"), file("a/b")],
        [file("a/b/c"), file("a")],
        [{"path": "a/b", "dir": True}, file("a")],
    ],
)
def test_two_entries_that_claim_one_path(entries):
    assert refusal(text_of(*entries))[0] == "path_not_allowed"


MALFORMED = {
    "nothing": b"",
    "not UTF-8": b"\xff",
    "a list": b"[]",
    "too deep": b"[" * 100_000,
    "no entries": b'{"version": 1}',
    "entries no list": b'{"version": 1, "entries": {}}',
    "more keys": b'{"version": 1, "entries": [], "more": 1}',
    "another version": text_of(version=2),
    "a version with escape codes": text_of(version="\x1b[31m"),
    "entry no object": text_of("a"),
    "path no text": text_of({"path": 3}),
    "a link": text_of({"path": "a", "link": "/etc/passwd"}),
    "a folder that is none": text_of({"path": "a", "dir": False}),
    "a file with a link": text_of({**FILE, "link": "b"}),
    "setuid": text_of({**FILE, "mode": 0o4755}),
    "mode true": text_of({**FILE, "mode": True}),
    "mode as text": text_of({**FILE, "mode": "644"}),
    "negative size": text_of({**FILE, "size": -1}),
    "broken size": text_of({**FILE, "size": 1.5}),
    "huge size": text_of({**FILE, "size": 1 << 60}),
    "digest in capitals": text_of({**FILE, "digest": DIGEST.upper()}),
    "digest a path": text_of({**FILE, "digest": "../" + DIGEST[3:]}),
    "digest with newline": text_of({**FILE, "digest": DIGEST + "\n"}),
    "no digest": text_of({**FILE, "digest": None}),
}


@pytest.mark.parametrize("what", MALFORMED)
def test_what_is_no_manifest(what):
    code, message = refusal(MALFORMED[what])
    assert code == "invalid_request"
    assert message.startswith("the manifest can't be read: ")
    assert message.isprintable()


def test_too_many_entries():
    entries = (ManifestEntry(f"f{number}", 0o644, 0, DIGEST) for number in range(MAX_ENTRIES + 1))
    with pytest.raises(CumuloError, match="more than the 200,000"):
        make_manifest(entries)


def test_too_long_a_text():
    assert refusal(b" " * (MAX_BYTES + 1))[0] == "too_large"


NAMES = st.text("abc.", min_size=1, max_size=3).filter(lambda name: name not in (".", ".."))
PATHS = st.lists(NAMES, min_size=1, max_size=4).map("/".join)
ENTRIES = st.builds(
    lambda path, mode, size, folder: ManifestEntry(path) if folder else ManifestEntry(path, mode, size, DIGEST),
    PATHS,
    st.integers(0, 0o777),
    st.integers(0, 1 << 40),
    st.booleans(),
)


@given(st.lists(ENTRIES, max_size=8))
def test_what_is_accepted_reads_back_the_same_in_any_order(entries):
    try:
        manifest = make_manifest(entries)
    except CumuloError:
        return
    assert parse_manifest(render_manifest(manifest)) == manifest
    assert render_manifest(make_manifest(reversed(entries))) == render_manifest(manifest)


@given(st.lists(ENTRIES, max_size=8))
def test_what_is_accepted_can_be_made_one_after_the_other(entries):
    """A folder comes before what is in it, and nothing is both a file and a folder."""
    try:
        manifest = make_manifest(entries)
    except CumuloError:
        return
    files, folders = set(), {""}
    for entry in manifest.entries:
        above = entry.path.split("/")[:-1]
        folders |= {"/".join(above[: n + 1]) for n in range(len(above))}
        assert entry.path not in files
        if entry.is_folder:
            folders.add(entry.path)
        else:
            files.add(entry.path)
        assert not files & folders


JSON = st.recursive(st.none() | st.text() | st.integers(), st.lists)


@given(st.binary(max_size=60) | JSON.map(lambda entries: text_of_any(entries)))
def test_whatever_comes_is_no_surprise(text):
    with contextlib.suppress(CumuloError):
        parse_manifest(text)


def text_of_any(entries):
    return json.dumps({"version": 1, "entries": entries}).encode()
