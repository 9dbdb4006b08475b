"""Staying with a run until it ends: its log, its progress, its own exit code."""

import sys

from cumulo.cli import phrases
from cumulo.cli.follow import LogWriter, ProgressBar, has_several
from cumulo.cli.main import INTERRUPTED
from cumulo.cli.outcome import own_code, summary
from cumulo.cli.session import Session, note
from cumulo.cli.status import run_json
from cumulo.client.answers.logs import LogText, StatusChange
from cumulo.client.answers.runs import Progress, Run
from cumulo.domain.errors import CumuloError


def attach(session: Session, run: Run, *, at_once: bool = False) -> int:
    """Follows `run`; the exit code of its own. On Ctrl-C, 130: the run goes on, and how to go on with it is said.

    With `--json` the log goes to stderr, and the run as it ended to stdout. Where it was to start `at_once`, its first
    steps are not worth a line.
    """
    out = sys.stderr.buffer if session.as_json else sys.stdout.buffer
    bar = ProgressBar.for_terminal()
    writer = LogWriter(out, has_several(run), bar)
    unsaid = {"queued", "starting", "running"} if at_once else {"starting"}
    try:
        for event in session.client.logs(run.id, follow=True, on_trouble=lambda reason: _trouble(bar, reason)):
            match event:
                case LogText():
                    writer.write(event)
                case Progress():
                    bar.progress(event)
                case StatusChange(status=status) if status in unsaid:
                    unsaid.discard(status)
                case StatusChange(status="queued"):
                    bar.say(f"queued: {phrases.clean(session.client.why(run.id).summary)}")
                case StatusChange():
                    bar.status(event)
        writer.close()
        bar.close()
        ended = session.client.run(run.id)
    except KeyboardInterrupt:
        writer.close()
        bar.close()
        note(_goes_on(run))
        return INTERRUPTED
    except CumuloError as error:
        bar.close()
        if error.code != "unreachable":
            raise
        raise CumuloError(error.code, f"{error.message}; the run itself is not touched", hint=_goes_on(run)) from None
    if session.as_json:
        session.print_json(run_json(ended))
    else:
        note(_farewell(ended))
    return own_code(ended)


def _trouble(bar: ProgressBar, reason: str) -> None:
    bar.say(f"the server went away ({reason}); waiting for it, the run goes on")


def _goes_on(run: Run) -> str:
    name = phrases.clean(run.name)
    return f"{name} ({run.id}) goes on. Follow: cumulo logs -f {run.id}   Cancel: cumulo cancel {run.id}"


def _farewell(run: Run) -> str:
    text = summary(run)
    if run.status in ("failed", "lost"):
        text += f"\nWhy: cumulo why {run.id}"
    return text
