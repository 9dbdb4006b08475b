"""Blobs over HTTP: what is missing, and an upload that is kept whole or not at all."""

import hashlib

import pytest

from tests.server.test_runs import problem

HEADERS = {"Content-Type": "application/x-cumulo-blobs"}


def digest_of(data):
    return hashlib.sha256(data).hexdigest()


def frame(data, *, digest=None, size=None):
    head = bytes.fromhex(digest or digest_of(data)) + (len(data) if size is None else size).to_bytes(8, "big")
    return head + data


def test_what_was_uploaded_is_no_longer_missing(box):
    blobs = [b"", b"one", b"two" * 100_000, bytes(range(256)) * 4096]
    digests = [digest_of(blob) for blob in blobs]
    assert box.ask("POST", "/v1/blobs/missing", {"digests": digests}).json == {"missing": digests}
    answer = box.ask("POST", "/v1/blobs", b"".join(frame(blob) for blob in blobs), headers=HEADERS)
    assert answer.json == {"stored": 4}
    assert box.ask("POST", "/v1/blobs/missing", {"digests": digests}).json == {"missing": []}
    assert [box.blobs.read(digest) for digest in digests] == blobs


def test_an_upload_may_come_in_the_smallest_pieces(box):
    blobs = [b"tiny pieces", b"of two blobs"]
    connection = box.connection()
    data = b"".join(frame(blob) for blob in blobs)
    headers = HEADERS | {"Authorization": f"Bearer {box.token}"}
    connection.request("POST", "/v1/blobs", (data[n : n + 1] for n in range(len(data))), headers, encode_chunked=True)
    assert connection.getresponse().read() == b'{"stored":2}'
    connection.close()
    assert box.blobs.missing([digest_of(blob) for blob in blobs]) == []


@pytest.mark.parametrize(
    "data",
    [
        frame(b"good") + frame(b"bad", digest=digest_of(b"other")),
        frame(b"good") + frame(b"cut off")[:-1],
        frame(b"good") + frame(b"x")[:20],
        frame(b"good") + b"\0" * 39,
    ],
)
def test_a_spoilt_upload_keeps_nothing(box, data):
    problem(box.ask("POST", "/v1/blobs", data, headers=HEADERS), "invalid_request", 422)
    assert box.blobs.missing([digest_of(b"good")]) == [digest_of(b"good")]
    assert not list((box.home / "blobs" / "incoming").iterdir())


def test_a_size_beyond_all_measure_is_refused_at_once(box):
    problem(box.ask("POST", "/v1/blobs", frame(b"x", size=1 << 60), headers=HEADERS), "too_large", 413)


def test_an_uploader_that_vanishes_leaves_nothing(box):
    connection = box.connection()
    connection.putrequest("POST", "/v1/blobs")
    connection.putheader("Authorization", f"Bearer {box.token}")
    connection.putheader("Content-Length", "1000000")
    connection.endheaders()
    connection.send(frame(b"y" * 500_000, size=900_000))
    connection.close()
    assert box.get("/v1/health", token="")["status"] == "ok"
    assert box.blobs.missing([digest_of(b"y" * 500_000)]) != []


@pytest.mark.parametrize("digests", [["../../etc/passwd"], ["AB" * 32], ["ab"], [1], "ab" * 32, None, [None]])
def test_what_is_no_digest_is_refused(box, digests):
    problem(box.ask("POST", "/v1/blobs/missing", {"digests": digests}), "invalid_request", 422)


def test_an_empty_upload_stores_nothing(box):
    assert box.ask("POST", "/v1/blobs", b"", headers=HEADERS).json == {"stored": 0}
