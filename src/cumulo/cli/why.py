"""`why`: what a run waits for and what would start it, or why it ended."""

import shlex

import click

from cumulo.cli import phrases
from cumulo.cli.phrases import clean
from cumulo.cli.session import RUN, Session, with_session
from cumulo.cli.tables import styled
from cumulo.client.answers.planning import ExpectedStart, Why

_MOST = 12


@click.command("why")
@click.argument("run", type=RUN)
@with_session
def why_command(session: Session, run: str) -> None:
    """Explain where RUN is: which constraint binds, who is ahead, when it should start, and what would start it now."""
    why = session.client.why(run)
    if session.as_json:
        session.print_json(why)
    else:
        click.echo(text(why))


def text(why: Why) -> str:
    """The explanation: the sentence that matters first."""
    parts = [styled(clean(why.summary), "bold")]
    if why.last_attempt:
        parts.append(f"Before: {clean(why.last_attempt)}")
    if why.deadline:
        told = f"Deadline {phrases.deadline(why.deadline, since=phrases.now())}"
        parts.append(told if why.deadline.feasible else styled(told, "yellow"))
    if len(why.nodes) > _MOST:  # else the list below says it all
        parts.append("\n".join(f"  {clean(count.text)}" for count in why.counts))
    if len(why.nodes) > 1:
        lines = [f"  {phrases.node(node.node)}: {clean(node.text)}" for node in why.nodes[:_MOST]]
        parts.append("Per node:\n" + "\n".join(lines) + _more(len(why.nodes)))
    if why.ahead:
        lines = [f"  {clean(run.name)} ({run.run}): {clean(run.text)}" for run in why.ahead[:_MOST]]
        parts.append("Ahead of it:\n" + "\n".join(lines) + _more(len(why.ahead)))
    if why.expected_start and (why.expected_start.text or why.expected_start.at):
        parts.append(f"Expected start: {_expected(why.expected_start)}")
    if why.suggestion and why.suggestion.text:
        command = _command(why.suggestion.change)
        parts.append(f"Would start it now: {clean(why.suggestion.text)}" + (f"\n  {command}" if command else ""))
    if why.ended:
        if why.ended.text and why.ended.text != why.summary:
            parts.append(clean(why.ended.text))
        if why.ended.last_log_lines:
            parts.append("Its last lines:\n" + "\n".join(f"  {clean(line)}" for line in why.ended.last_log_lines))
    return "\n".join(parts)


def _expected(start: ExpectedStart) -> str:
    at, text = start.at, clean(start.text)
    if at is None:
        return text
    range_ = phrases.expected(at, start.earliest, start.latest, since=phrases.now())
    return f"{range_}; {text}" if text else range_


def _more(count: int) -> str:
    return f"\n  and {count - _MOST} more (--json shows all)" if count > _MOST else ""


_FLAGS = {
    "gpu": "--gpus", "accelerators": "--gpus", "cpus": "--cpus", "memory": "--memory", "nodes": "--nodes",
    "num_nodes": "--nodes", "gpu_memory": "--gpu-memory", "isolation": "--isolation",
    "priority": "--priority", "runtime": "--runtime", "max_duration": "--max-duration",
    "use_spot": "--spot",
}  # fmt: skip


def _command(change: dict[str, object]) -> str:
    """The change as what to add to `cumulo launch`; "" when it isn't one of flags."""
    flags = []
    for key, value in change.items():
        flag = _FLAGS.get(key.rpartition(".")[2])
        if flag is None:
            return ""
        flags += [flag] if value is True else [flag, shlex.quote(str(value))]
    return f"cumulo launch {' '.join(flags)} …" if flags else ""
