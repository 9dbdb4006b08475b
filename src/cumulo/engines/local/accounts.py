"""Whom an instance runs as on this node, where its home is, and which mounts that account may have.

Started by an ordinary user, everything runs as that user. Started by root, a run has its person's uid. root's own runs
have no uid of their own: in the process runtime they are root; in a sandbox they get a fixed account without rights,
since a sandbox whose user is root would be none.
"""

import os
import pwd
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cumulo.domain.errors import CumuloError
from cumulo.domain.instance import Identity
from cumulo.node.files import Owner, access_as, make_folder

ROOTS_UID: Final = 61999
_PRIVATE: Final = ("/", "/tmp", "/var/tmp", "/dev", "/proc", "/sys")  # noqa: S108  # a sandbox has its own


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """`owner` None: as the server itself. `real_home` None: it has none on this node."""

    name: str
    owner: Owner | None
    real_home: Path | None

    @property
    def uid(self) -> int:
        return os.geteuid() if self.owner is None else self.owner.uid


def account_for(identity: Identity, *, sandboxed: bool, euid: int | None = None) -> Account:
    """Raises CumuloError (forbidden) where this node can't run anything as that account."""
    euid = os.geteuid() if euid is None else euid
    uid = euid if identity.uid is None else identity.uid
    if euid != 0:
        if uid != euid:
            text = (
                f"{identity.name} (uid {uid}) can't run here: this server is not root and runs everything as uid {euid}"
            )
            raise CumuloError("forbidden", text)
        return Account(name=identity.name, owner=None, real_home=_home(euid, identity.home))
    if uid == 0:
        if sandboxed:
            return Account(name="cumulo", owner=Owner(ROOTS_UID, ROOTS_UID), real_home=None)
        return Account(name="root", owner=None, real_home=_home(0, identity.home))
    owner = Owner(uid, _gid(identity, uid), identity.groups)
    return Account(name=identity.name, owner=owner, real_home=_home(uid, identity.home))


def _home(uid: int, told: str | None) -> Path | None:
    """Asks the system only where it was not told, since that may mean asking a directory server for each run."""
    try:
        home = told or pwd.getpwuid(uid).pw_dir
    except KeyError:
        return None
    return Path(home) if os.path.isdir(home) else None


def _gid(identity: Identity, uid: int) -> int:
    if identity.gid is not None:
        return identity.gid
    try:
        return pwd.getpwuid(uid).pw_gid
    except KeyError as error:
        text = f"uid {uid} ({identity.name}) has no account on this node"
        raise CumuloError("forbidden", text, hint="add the account, or launch as somebody who has one") from error


def home_for(account: Account, *, mounts: Sequence[str], sandboxed: bool, homes: Path) -> Path:
    """The real home where it is in reach (process runtime, or `~` mounted), else a scratch home, made if missing."""
    if account.real_home and (not sandboxed or "~" in mounts):
        return account.real_home
    scratch = homes / str(account.uid)
    make_folder(scratch, owner=account.owner)
    return scratch


def resolve_mounts(mounts: Sequence[str], account: Account, *, sandboxed: bool) -> tuple[str, ...]:
    """The paths a person named, checked against what their uid may do with them; the paths a sandbox shall bind.

    They are bound for writing: what the account may not write, the kernel keeps from it there as everywhere, and the
    folder below that is theirs stays writable. Raises CumuloError (path_not_allowed) for one that is missing or that
    they may not read.
    """
    paths = [_expand(path, account) for path in mounts]
    binds = []
    for named, path, access in zip(mounts, paths, access_as(paths, account.owner), strict=True):
        if access in ("missing", "unreadable"):
            said = "is not there" if access == "missing" else "may not be read"
            text = f"the mount {named} ({path}) {said} for {account.name} (uid {account.uid})"
            hint = ""
            if account.uid == ROOTS_UID:
                hint = "root's runs in a sandbox have no rights of root; use the process runtime for root's own files"
            raise CumuloError("path_not_allowed", text, hint=hint)
        if sandboxed:
            binds.append(_steady(named, path, account))
    return tuple(binds)


def _expand(path: str, account: Account) -> str:
    if path == "~" or path.startswith("~/"):
        if account.real_home is None:
            text = f"the mount {path} can't be had: {account.name} has no home folder on this node"
            raise CumuloError("path_not_allowed", text)
        path = str(account.real_home) + path[1:]
    if not path.startswith("/"):
        raise CumuloError("path_not_allowed", f"the mount {path} must be an absolute path, or begin with ~")
    return os.path.realpath(path)


def _steady(named: str, path: str, account: Account) -> str:
    """The path to bind, such that nobody can put a link in its place between our look and root's bind.

    Where a folder above is somebody's who could do that, it is bound as a whole: it is what holds the path anyway.
    """
    steady = path
    if account.owner is not None:
        for parent in reversed(Path(path).parents):
            info = parent.stat()
            below = parent / Path(path).parts[len(parent.parts)]
            pinned = bool(info.st_mode & stat.S_ISVTX) and below.stat().st_uid == 0
            if info.st_uid != 0 or (info.st_mode & 0o022 and not pinned):
                steady = str(parent)
                break
    if steady in _PRIVATE:
        raise CumuloError("path_not_allowed", f"the mount {named} can't be had in a sandbox: {steady} is private there")
    return steady
