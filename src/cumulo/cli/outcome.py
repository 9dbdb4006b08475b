"""How a run's end becomes an exit code, and the words that go with it."""

from cumulo.cli import phrases
from cumulo.client.answers.runs import Run
from cumulo.domain.quantities import format_duration

FAILED, LOST, CANCELLED = 100, 101, 103


def wait_code(run: Run) -> int:
    """The exit code of `cumulo wait`: 0 succeeded (or stopped), 100 failed, 101 lost, 103 cancelled."""
    return {"failed": FAILED, "lost": LOST, "cancelled": CANCELLED}.get(run.status, 0)


def own_code(run: Run) -> int:
    """The exit code of an attached launch: the run's own (128 + signal for a signal) if it has one."""
    if run.status != "failed":
        return wait_code(run)
    if run.exit_code:
        return run.exit_code
    signals = [instance.signal for instance in run.instances if instance.signal]
    return 128 + signals[0] if signals else FAILED


def summary(run: Run) -> str:
    """`train failed after 2m 05s on 2x A100-80GB (emulated): exit code 3; cost $0.00`."""
    ran = phrases.seconds_between(run.started_at, run.ended_at)
    how, colon, why = phrases.end_of(run).partition(": ")
    text = f"{phrases.clean(run.name)} {how}"
    if ran is not None and " after " not in f"{how}{why}":
        text += f" after {format_duration(ran)}"
    newest = max((instance.attempt for instance in run.instances), default=0)
    devices = phrases.devices_of(one for one in run.instances if one.attempt == newest and run.units == 1)
    if devices:
        text += f" on {devices}"
    text += f"{colon}{why}; cost {phrases.usd(run.cost_usd)}"
    if run.rental_usd and float(run.rental_usd):
        text += f" (renting the same: {phrases.usd(run.rental_usd)})"
    return text
