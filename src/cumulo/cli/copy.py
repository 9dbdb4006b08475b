"""`cp`: files from a run to here, or from here to a run."""

from dataclasses import dataclass
from pathlib import Path

import click

from cumulo.cli import phrases
from cumulo.cli.session import RunName, Session, note, with_session
from cumulo.client.answers.runs import Run
from cumulo.domain.errors import CumuloError

_AREAS = ("outputs", "checkpoint", "workdir")
_RUN_PATH = RunName(suffix=":")


@dataclass(frozen=True, slots=True)
class Remote:
    """`RUN:PATH` as it was written."""

    run: str
    path: str

    def place(self, row: Run) -> tuple[str, str]:
        """The area and the path in it: named by the first part, else outputs after the end and workdir before."""
        first, _, rest = self.path.lstrip("/").partition("/")
        if first in _AREAS:
            return first, rest
        return ("outputs" if row.ended else "workdir"), self.path.lstrip("/")


def parse(text: str) -> Remote | None:
    """A remote place, or None for a path of this machine (`./a:b` is one)."""
    run, colon, path = text.partition(":")
    return Remote(run, path) if colon and run and "/" not in run and run != "." else None


@click.command("cp")
@click.argument("source", type=_RUN_PATH)
@click.argument("target", type=_RUN_PATH)
@click.option("--unit", type=click.IntRange(min=0), metavar="INDEX", help="Of an array: this index.")
@click.option("--rank", type=click.IntRange(min=0), help="Of a run on several nodes: this one.")
@click.option("-q", "--quiet", is_flag=True, help="Say nothing.")
@with_session
def cp_command(session: Session, source: str, target: str, unit: int | None, rank: int | None, quiet: bool) -> None:
    """Copy a file or folder from RUN:PATH to here, or from here to RUN:PATH.

    \b
    cumulo cp train:outputs/model.pt .
    cumulo cp train:outputs results
    cumulo cp data.csv train:workdir/data/

    PATH begins with outputs, checkpoint or workdir. Any other PATH lies in the outputs of a run that has ended, and in
    the workdir of one that lives. A target that ends in / (or is a folder here) receives the source under its own
    name; any other target is what the copy will be called. Of an array without --unit comes what every index has, in
    a folder for each.
    """
    there, here = parse(source), parse(target)
    if there and here:
        raise click.UsageError("one of the two must be on this machine")
    if there:
        row = session.client.run(there.run)
        if row.units > 1 and unit is None:
            count, size = _get_array(session, row, there, Path(target), rank=rank)
        else:
            count, size = _get(session, row, there, Path(target), into=target.endswith("/"), unit=unit, rank=rank)
    elif here:
        row = session.client.run(here.run)
        count, size = _put(session, row, Path(source), here, unit=unit, rank=rank)
    else:
        raise click.UsageError("write the run's side as RUN:PATH, such as train:outputs/model.pt")
    if session.as_json:
        session.print_json({"run": row.id, "files": count, "bytes": size})
    elif not quiet:
        note(f"copied {phrases.plural(count, 'file')}, {phrases.size(size)}")


def _get_array(session: Session, row: Run, there: Remote, target: Path, *, rank: int | None) -> tuple[int, int]:
    """From every index that has started, into `target`/INDEX."""
    count = size = 0
    for one in session.client.units(row.id):
        if one.placed_at is not None:
            got = _get(session, row, there, target / str(one.index), into=True, unit=one.index, rank=rank)
            count, size = count + got[0], size + got[1]
    return count, size


def _get(
    session: Session, row: Run, there: Remote, target: Path, *, into: bool, unit: int | None, rank: int | None
) -> tuple[int, int]:
    from cumulo.client.files import unpack

    area, path = there.place(row)
    name = Path(path).name if path.strip("/.") else ""
    sizes: list[int] = []
    # A whole area has no name of its own: its content goes into the target.
    inside = not name or into or target.is_dir()
    folder, rename = (target, None) if inside else (target.parent, target.name)
    with session.client.download(row.id, path, area=area, unit=unit, rank=rank) as stream:
        if not folder.exists():
            folder.mkdir(parents=True)
        count = unpack(stream, folder, rename=rename, on_file=lambda _, size: sizes.append(size))
    return count, sum(sizes)


def _put(
    session: Session, row: Run, source: Path, here: Remote, *, unit: int | None, rank: int | None
) -> tuple[int, int]:
    from cumulo.client.files import packed

    if not source.exists():
        raise CumuloError("path_not_allowed", f"{source} is not there")
    area, path = here.place(row)
    own = source.resolve().name
    if path == "" or path.endswith("/"):
        folder, name = path.strip("/"), own
    elif source.is_dir():
        folder, name = path, ""
    else:
        folder, _, name = path.rpartition("/")
    with packed(source, name) as payload:
        session.client.upload_files(row.id, folder, payload, area=area, unit=unit, rank=rank)
    sizes = [one.stat().st_size for one in (source.rglob("*") if source.is_dir() else [source]) if one.is_file()]
    return len(sizes), sum(sizes)
