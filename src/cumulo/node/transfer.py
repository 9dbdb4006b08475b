"""Files of an instance to and from a tar stream, in a process that has become the user first.

The server may be root and the tree belongs to somebody who changes it meanwhile, so nothing here trusts a path: the
area's folder is opened, privileges are dropped for good, and every step below it is taken by directory descriptor
without following a link. It runs as `python -I -S transfer.py SPEC` and imports nothing of ours, since it drops
privileges and the package may lie where only root can read. SPEC is JSON: {direction: "get" | "put", root, path, uid,
gid, groups} (uid null: stay as we are). The tar goes through stdout or stdin; a refusal is one line on stderr and
exit code 1.
"""

import contextlib
import json
import os
import stat
import sys
import tarfile
from collections.abc import Iterator
from typing import IO, Any

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
CHUNK = 1 << 20
MAX_DEPTH = 100


class Refused(Exception):
    """What was asked can't be done; the text is for people."""


def parts_of(path: str) -> list[str]:
    """The parts of a relative path. Raises Refused for one that leads elsewhere."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if path.startswith("/") or ".." in parts or "\0" in path:
        raise Refused(f"{path!r} leads out of the folder")
    if len(parts) > MAX_DEPTH:
        raise Refused(f"{path[:60]!r}… is nested deeper than {MAX_DEPTH} folders")
    return parts


def enter(root: int, parts: list[str], *, make: bool = False) -> int:
    """A new descriptor of the folder below `root`; with `make`, missing folders are made."""
    here = os.dup(root)
    for place, part in enumerate(parts):
        try:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, 0o755, dir_fd=here)
            below = os.open(part, FOLDER, dir_fd=here)
        except OSError as error:
            raise Refused(f"{'/'.join(parts[: place + 1])}: {why(error)}") from error
        finally:
            os.close(here)
        here = below
    return here


def why(error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return "no such file or folder"
    if isinstance(error, NotADirectoryError) or error.errno == 40:  # ELOOP: a link where a folder should be
        return "not a folder (links are not followed)"
    return (error.strerror or "failed").lower()


# --- out --------------------------------------------------------------------------------------------------------------


class Steady:
    """A file read as exactly `size` bytes, whatever its writer does meanwhile: padded with zeros, or cut."""

    def __init__(self, fd: int, size: int) -> None:
        self._fd = fd
        self._left = size

    def read(self, size: int) -> bytes:
        data = os.read(self._fd, min(size, self._left)) or bytes(min(size, self._left))
        self._left -= len(data)
        return data


def send(root: int, path: str, out: IO[bytes]) -> None:
    """The file or folder as a tar; a folder's members are named from its own name on, those of "." from within."""
    parts = parts_of(path)
    parent = enter(root, parts[:-1])
    with tarfile.open(
        fileobj=out, mode="w|", format=tarfile.PAX_FORMAT, encoding="utf-8", errors="surrogateescape"
    ) as tar:
        if not parts:
            add_folder(tar, parent, "", depth=0)
            return
        try:
            info = os.stat(parts[-1], dir_fd=parent, follow_symlinks=False)
        except OSError as error:
            raise Refused(f"{path}: {why(error)}") from error
        add(tar, parent, parts[-1], info, parts[-1], depth=0)


def add(tar: tarfile.TarFile, parent: int, name: str, info: os.stat_result, arcname: str, *, depth: int) -> None:
    """One thing of a folder. What vanishes meanwhile, or is neither file, folder nor link, is left out."""
    member = tarfile.TarInfo(arcname)
    member.mtime, member.mode = info.st_mtime, stat.S_IMODE(info.st_mode) & 0o777
    if stat.S_ISLNK(info.st_mode):
        member.type, member.linkname = tarfile.SYMTYPE, os.readlink(name, dir_fd=parent)
        tar.addfile(member)
    elif stat.S_ISDIR(info.st_mode) and depth < MAX_DEPTH:
        below = os.open(name, FOLDER, dir_fd=parent)
        try:
            member.type = tarfile.DIRTYPE
            tar.addfile(member)
            add_folder(tar, below, arcname + "/", depth=depth + 1)
        finally:
            os.close(below)
    elif stat.S_ISREG(info.st_mode):
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent)
        try:
            found = os.fstat(fd)
            if stat.S_ISREG(found.st_mode):
                member.size = found.st_size
                tar.addfile(member, Steady(fd, member.size))  # type: ignore[arg-type]  # it only calls read
        finally:
            os.close(fd)


def add_folder(tar: tarfile.TarFile, folder: int, prefix: str, *, depth: int) -> None:
    for name in sorted(os.listdir(folder)):
        try:
            info = os.stat(name, dir_fd=folder, follow_symlinks=False)
            add(tar, folder, name, info, prefix + name, depth=depth)
        except OSError as error:
            print(f"left out: {prefix + name!r}: {why(error)}", file=sys.stderr)


# --- in ---------------------------------------------------------------------------------------------------------------


def receive(root: int, path: str, source: IO[bytes]) -> None:
    """Unpack a tar below the folder `path`, which is made where missing. Files replace files, never folders."""
    top = enter(root, parts_of(path), make=True)
    try:
        with tarfile.open(fileobj=source, mode="r|", encoding="utf-8", errors="surrogateescape") as tar:
            for member in tar:
                unpack(tar, member, top)
    except tarfile.TarError as error:
        raise Refused(f"not a tar stream: {error}") from error


def unpack(tar: tarfile.TarFile, member: tarfile.TarInfo, top: int) -> None:
    parts = parts_of(member.name)
    if not parts:
        return
    if member.isdir():
        os.close(enter(top, parts, make=True))
        return
    if not (member.isreg() or member.issym()):
        raise Refused(f"{member.name!r} is neither a file, a folder nor a symbolic link")
    folder = enter(top, parts[:-1], make=True)
    try:
        place(tar, member, folder, parts[-1])
    except OSError as error:
        raise Refused(f"{member.name}: {why(error)}") from error
    finally:
        os.close(folder)


def place(tar: tarfile.TarFile, member: tarfile.TarInfo, folder: int, name: str) -> None:
    """Written beside and renamed, so that a reader never sees half a file and a link is replaced, not followed."""
    temporary = f".{name[:200]}.{os.getpid()}.part"
    if member.issym():
        os.symlink(member.linkname, temporary, dir_fd=folder)
    else:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(temporary, flags, member.mode & 0o777 | 0o600, dir_fd=folder)
        content = tar.extractfile(member)
        try:
            for data in blocks(content):
                while data:
                    data = data[os.write(fd, data) :]
            os.utime(fd, (member.mtime, member.mtime))
        except BaseException:
            os.unlink(temporary, dir_fd=folder)
            raise
        finally:
            os.close(fd)
    try:
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        os.unlink(temporary, dir_fd=folder)
        raise


def blocks(content: IO[bytes] | None) -> Iterator[bytes]:
    while content is not None and (data := content.read(CHUNK)):
        yield data


def become(spec: dict[str, Any]) -> None:
    if spec["uid"] is not None and spec["uid"] != os.geteuid():
        os.setgroups(spec["groups"])
        os.setresgid(spec["gid"], spec["gid"], spec["gid"])
        os.setresuid(spec["uid"], spec["uid"], spec["uid"])


def main(argv: list[str]) -> int:
    spec = json.loads(argv[1])
    try:
        root = os.open(spec["root"], FOLDER)
        become(spec)
        os.umask(0o022)
        if spec["direction"] == "get":
            send(root, spec["path"], sys.stdout.buffer)
        else:
            receive(root, spec["path"], sys.stdin.buffer)
    except BrokenPipeError:
        return 1
    except (Refused, OSError) as error:
        print(error if isinstance(error, Refused) else why(error), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    code = main(sys.argv)
    try:
        sys.stdout.flush()
    finally:
        os._exit(code)
