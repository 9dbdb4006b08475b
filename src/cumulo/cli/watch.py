"""`-w`: shows something again and again until the person has seen enough."""

import sys
import time
from collections.abc import Callable

import click

from cumulo.cli.phrases import clock, now
from cumulo.cli.tables import is_terminal, styled
from cumulo.domain.errors import CumuloError

watch_option = click.option("-w", "--watch", is_flag=True, help="Show it again every two seconds, until Ctrl-C.")


def show(render: Callable[[], str], *, watch: bool, interval_s: float = 2.0) -> None:
    """Prints what `render` gives: once, or over and over in place. Without a terminal, one below the other."""
    if not watch:
        click.echo(render())
        return
    in_place = is_terminal(sys.stdout)
    try:
        while True:
            text = _attempt(render)
            if in_place:
                head = styled(f"{clock(now())}  every {interval_s:g} s, Ctrl-C ends", "dim")
                # Line by line over the old picture, so that nothing flickers.
                lines = "".join(f"{line}\x1b[K\n" for line in [head, "", *text.split("\n")])
                sys.stdout.write(f"\x1b[H{lines}\x1b[J")
            else:
                sys.stdout.write(text + "\n")
            sys.stdout.flush()
            time.sleep(interval_s)
    except KeyboardInterrupt:
        if in_place:
            click.echo()


def _attempt(render: Callable[[], str]) -> str:
    """A watch outlives a server that restarts."""
    try:
        return render()
    except CumuloError as error:
        if error.code not in ("unreachable", "starting"):
            raise
        return f"{error.message}; trying again"
