"""`status` and `queue`: what runs, what ran lately, and what waits."""

import json

import click

from cumulo.cli import phrases
from cumulo.cli.phrases import DASH, clean
from cumulo.cli.session import RUN, Session, with_session
from cumulo.cli.tables import Column, pairs, render, status_style, styled
from cumulo.cli.watch import show, watch_option
from cumulo.client.answers.runs import Instance, Run
from cumulo.client.decode import encode
from cumulo.domain.quantities import format_duration

RECENT_S = 86400.0
_ORDER = {name: place for place, name in enumerate(("running", "recovering", "stopping", "starting", "queued"))}
_COLUMNS = (
    Column("ID"), Column("NAME", shrinks=True), Column("KIND"), Column("STATUS"), Column("ASK", shrinks=True),
    Column("WHERE", shrinks=True), Column("TIME", right=True), Column("PROGRESS", shrinks=True),
    Column("COST", right=True), Column("USER", shrinks=True),
)  # fmt: skip


@click.command("status")
@click.argument("runs", nargs=-1, type=RUN, metavar="[RUN]...")
@click.option("-a", "--all", "everything", is_flag=True, help="Also what ended more than a day ago.")
@click.option("--mine", is_flag=True, help="Only my own runs.")
@click.option("-n", "--limit", type=click.IntRange(1, 10_000), default=50, help="At most this many (default 50).")
@watch_option
@with_session
def status_command(
    session: Session, runs: tuple[str, ...], everything: bool, mine: bool, limit: int, watch: bool
) -> None:
    """List active and recent runs, running ones first; or show RUNs in full.

    TIME is how long a run has run, or ran, or has waited so far.
    """
    if runs:
        found = [session.client.run(run) for run in runs]
        if session.as_json:
            session.print_json(run_json(found[0]) if len(found) == 1 else [run_json(run) for run in found])
        else:
            show(lambda: "\n\n".join(details(session.client.run(run.id)) for run in found), watch=watch)
        return

    def look() -> list[Run]:
        scope = {} if everything else {"active": True, "recent_s": RECENT_S}
        rows = session.client.runs(**scope, mine=mine or None, limit=limit)  # type: ignore[arg-type]
        return sorted(rows, key=lambda run: _ORDER.get(run.status, len(_ORDER)))

    if session.as_json:
        show(lambda: json.dumps([run_json(run) for run in look()], indent=None if watch else 2), watch=watch)
    else:
        show(lambda: table(look(), limit=limit, everything=everything), watch=watch)


def run_json(run: Run) -> dict[str, object]:
    """A run as `--json` prints it: the API's row, with the cost as a number of USD too."""
    return {**encode(run), "cost": float(run.cost_usd or 0)}


def table(runs: list[Run], *, limit: int, everything: bool) -> str:
    """The list of runs as people read it."""
    if not runs:
        if everything:
            return "No runs yet. Launch one: cumulo launch -- echo hello"
        return "No run is active, and none ended within a day. Older ones: cumulo status --all"
    since = phrases.now()
    several = len({run.account for run in runs}) > 1
    rows = [
        [
            run.id, clean(run.name), run.kind, run.status, clean(run.ask), clean(run.placed_on) or DASH,
            phrases.age_or_duration(run, since=since), phrases.progress(run), phrases.usd(run.cost_usd),
            clean(run.account),
        ]
        for run in runs
    ]  # fmt: skip
    shown = len(_COLUMNS) if several else len(_COLUMNS) - 1
    text = render(_COLUMNS[:shown], [row[:shown] for row in rows])
    more = f"\nOnly the newest {limit}; more with -n." if len(runs) == limit else ""
    return text + more


def details(run: Run) -> str:
    """Everything about one run."""
    since = phrases.now()
    head = f"{clean(run.name)}  {run.id}  {styled(run.status, status_style(run.status))}"
    cost = phrases.usd(run.cost_usd)
    if run.rental_usd and float(run.rental_usd):
        cost += f" (the same GPUs rent for {phrases.usd(run.rental_usd)})"
    ran = phrases.seconds_between(run.started_at, run.ended_at)
    rows = [
        ("kind", run.kind),
        ("ask", clean(run.ask)),
        ("bought", _bought(run)),
        ("where", clean(run.placed_on)),
        ("priority", str(run.priority) if run.priority else ""),
        ("user", f"{clean(run.account)}, project {clean(run.project)}"),
        ("accepted", phrases.when(run.accepted_at, since=since)),
        ("deadline", phrases.deadline(run.deadline, since=since) if run.deadline else ""),
        ("work", phrases.work(run.deadline) if run.deadline else ""),
        ("placed", phrases.when(run.placed_at, since=since) if run.placed_at else ""),
        ("started", phrases.when(run.started_at, since=since) if run.started_at else ""),
        ("ended", phrases.when(run.ended_at, since=since) if run.ended_at else ""),
        ("ran", format_duration(ran) if ran is not None else ""),
        ("progress", _progress(run)),
        ("attempts", str(run.attempts) if run.attempts > 1 else ""),
        ("result", phrases.end_of(run) if run.ended else clean(run.message)),
        ("exit code", "" if run.exit_code is None else str(run.exit_code)),
        ("cost", cost),
    ]
    text = f"{head}\n{pairs(rows)}"
    return f"{text}\n\n{instances(run.instances)}" if run.instances else text


def _bought(run: Run) -> str:
    """How its GPUs are bought, where that is not on demand."""
    if run.purchase == "on-demand":
        return ""
    bid, reservation = run.spec.get("max_price_usd_h"), run.spec.get("reservation")
    if bid is not None:
        return f"as {run.purchase}, at most {phrases.usd(bid)}/h for a GPU"
    return f"as {run.purchase}, from reservation {clean(reservation)}" if reservation else f"as {run.purchase}"


def _progress(run: Run) -> str:
    if run.progress is None:
        return "" if run.units == 1 else phrases.progress(run)
    more = phrases.progress_more(run.progress)
    return phrases.progress(run) + (f" ({more})" if more and run.units == 1 else "")


def instances(found: tuple[Instance, ...]) -> str:
    """The instances of a run as a table."""
    columns = (
        Column("INSTANCE"), Column("NODE", shrinks=True), Column("STATUS"), Column("DEVICES", shrinks=True),
        Column("TIME", right=True), Column("EXIT", right=True), Column("MESSAGE", shrinks=True),
    )  # fmt: skip
    since = phrases.now()
    rows = []
    for one in found:
        state = f"{one.state} ({one.reason})" if one.state == "ended" and one.reason else one.state
        code = f"signal {one.signal}" if one.signal else DASH if one.exit_code is None else str(one.exit_code)
        took = phrases.ago(one.started_at, since=one.ended_at or since)
        devices = phrases.devices_of([one]) or DASH
        rows.append([one.id, phrases.node(one.node), state, devices, took, code, clean(one.message)])
    return render(columns, rows)


@click.command("queue")
@watch_option
@with_session
def queue_command(session: Session, watch: bool) -> None:
    """List what waits, in the order in which it is considered, and for what each waits."""
    if session.as_json:
        session.print_json(list(session.client.queue()))
        return

    def look() -> str:
        since = phrases.now()
        rows = [
            [
                str(row.place), row.run, clean(row.name), clean(row.account), clean(row.ask), str(row.priority),
                phrases.ago(row.accepted_at, since=since), phrases.clock(row.expected_start), clean(row.waiting_for),
            ]
            for row in session.client.queue()
        ]  # fmt: skip
        columns = (
            Column("#", right=True), Column("ID"), Column("NAME", shrinks=True), Column("USER", shrinks=True),
            Column("ASK", shrinks=True), Column("PRIORITY", right=True), Column("WAITED", right=True),
            Column("EXPECTED"), Column("WAITS FOR", shrinks=True),
        )  # fmt: skip
        return render(columns, rows) if rows else "Nothing waits."

    show(look, watch=watch)
