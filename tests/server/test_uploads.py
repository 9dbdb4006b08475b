"""Files that travel with a run: refused at once where something is missing or leads outside."""

import hashlib
import json

import pytest

from tests.server.test_runs import problem


def put(box, data):
    digest = hashlib.sha256(data).hexdigest()
    box.blobs.put(digest, data)
    return digest


def manifest(box, *entries):
    return put(box, json.dumps({"version": 1, "entries": list(entries)}).encode())


def file(path, digest):
    return {"path": path, "mode": 0o644, "size": 1, "digest": digest}


def submitted(box, **keys):
    return box.ask("POST", "/v1/runs", {"run": {"run": "true", **keys}})


def test_a_run_whose_files_are_all_here_is_accepted(box):
    digest = manifest(box, file("a.txt", put(box, b"a")), {"path": "empty", "dir": True})
    answer = submitted(box, workdir={"manifest": digest}, file_mounts={"data": {"manifest": digest}})
    assert answer.status == 201
    assert answer.json["spec"]["workdir"] == digest
    assert answer.json["spec"]["file_mounts"] == {"data": digest}


def test_a_missing_file_is_told_by_its_path(box):
    digest = manifest(box, file("a.txt", put(box, b"a")), file("lost.txt", "ab" * 32))
    told = problem(submitted(box, workdir={"manifest": digest}), "invalid_request", 422)
    assert told.detail == "workdir: 1 of its files were not uploaded, the first is lost.txt"


def test_a_missing_manifest_is_told(box):
    told = problem(submitted(box, file_mounts={"data": {"manifest": "cd" * 32}}), "invalid_request", 422)
    assert told.detail == f"data: the manifest {'cd' * 32} was not uploaded"


@pytest.mark.parametrize("path", ["../up", "/etc/passwd", "a/../../b", "a\\..\\b", "a\0b", ""])
def test_a_path_that_leads_outside_is_refused(box, path):
    digest = manifest(box, file(path, put(box, b"a")))
    answer = submitted(box, workdir={"manifest": digest})
    problem(answer, "path_not_allowed", 422)


def test_what_is_no_manifest_is_refused(box):
    assert submitted(box, workdir={"manifest": put(box, b"just a file")}).status == 422
