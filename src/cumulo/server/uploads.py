"""Whether all files that travel with a run are here: asked before it is accepted, not found out as it starts."""

from cumulo.domain.errors import CumuloError
from cumulo.domain.manifest import parse_manifest
from cumulo.domain.run import RunSpec
from cumulo.store.blobs import Blobs


def check_uploads(blobs: Blobs, spec: RunSpec) -> None:
    """Raises CumuloError: invalid_request for what was not uploaded, path_not_allowed for a path that leads outside.

    A blob that was asked for is spared by sweeps for hours, so what is here now will be when the run starts.
    """
    for key, digest in [("workdir", spec.workdir), *((mount.target, mount.manifest) for mount in spec.file_mounts)]:
        if digest:
            _check(blobs, key, digest)


def _check(blobs: Blobs, key: str, digest: str) -> None:
    try:
        text = blobs.read(digest)
    except KeyError:
        raise CumuloError(
            "invalid_request", f"{key}: the manifest {digest} was not uploaded", hint="upload it first"
        ) from None
    manifest = parse_manifest(text)
    missing = set(blobs.missing({digest, *manifest.digests}))
    first = next((entry.path for entry in manifest.entries if entry.digest in missing), None)
    if first is not None:
        raise CumuloError(
            "invalid_request",
            f"{key}: {len(missing)} of its files were not uploaded, the first is {first}",
            hint="upload what /v1/blobs/missing tells, then submit again",
        )
