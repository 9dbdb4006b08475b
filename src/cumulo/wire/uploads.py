"""Files that travel with a run: as people name them (a path), and as they arrive (the digest of a manifest).

The client replaces each path by `{"manifest": DIGEST}` once its content is uploaded. The server never reads a path of a
person's machine.
"""

import posixpath
import re
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from cumulo.domain.names import printable

_DIGEST = re.compile(r"[0-9a-f]{64}")
_REMOTE = re.compile(r"[a-z0-9+]+://|[\w.-]+@[\w.-]+:")


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """Either a `path` on the machine of who writes the run file, or the digest of an uploaded `manifest`."""

    path: str | None = None
    manifest: str | None = None


def read_upload(value: Any) -> Upload:
    """Reads a path or `{"manifest": digest}`. Raises ValueError; for remote addresses, not_supported_yet."""
    if isinstance(value, Upload):
        return value
    if isinstance(value, dict) and set(value) == {"manifest"}:
        digest = value["manifest"]
        if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
            raise ValueError("manifest must be a SHA-256 digest in lower-case hex")
        return Upload(manifest=digest)
    if not isinstance(value, str) or not value or "\0" in value or len(value) > 4096:
        raise ValueError("must be the path of a file or folder")
    if _REMOTE.match(value):
        raise PydanticCustomError(
            "not_supported_yet",
            "{text}",
            {"text": f"{printable(value, 80)!r} is a remote address; only local files and folders can travel yet"},
        )
    return Upload(path=value)


def read_file_mounts(value: Any) -> dict[str, Upload]:
    """Targets (relative to the workdir, or absolute inside a sandbox) and what appears there."""
    if not isinstance(value, dict):
        raise ValueError("must be a mapping of targets to files or folders, such as {data: ./data}")
    if len(value) > 100:
        raise ValueError("at most 100 files or folders can be mounted")
    return {_target(target): read_upload(source) for target, source in value.items()}


def _target(value: object) -> str:
    text = str(value)
    if not text or "\0" in text or len(text) > 1024 or ".." in text.split("/"):
        raise ValueError(f"{printable(text, 80)!r} can't be a target: no '..', no NUL, 1 to 1024 characters")
    target = posixpath.normpath(text)
    if target in (".", "/", "~"):
        raise ValueError(f"{printable(text, 80)!r} can't be a target: name a file or folder below it")
    return target


_UPLOAD_SCHEMA = {
    "anyOf": [
        {"type": "string", "description": "a path on your machine"},
        {
            "type": "object",
            "properties": {"manifest": {"type": "string", "pattern": "^[0-9a-f]{64}$"}},
            "required": ["manifest"],
            "additionalProperties": False,
        },
    ]
}
UploadField = Annotated[Upload, BeforeValidator(read_upload), WithJsonSchema(_UPLOAD_SCHEMA)]
FileMounts = Annotated[
    dict[str, Upload],
    BeforeValidator(read_file_mounts),
    WithJsonSchema({"type": "object", "additionalProperties": _UPLOAD_SCHEMA}),
]
