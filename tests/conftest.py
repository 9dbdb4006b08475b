"""Counts what was skipped and why, on the session's last line, and keeps CI from passing by skipping.

A test that the machine cannot run is skipped with a reason. Under CI=true, where everything that can be
installed is, only reasons that no package cures are let through.
"""

import os
import signal
from collections import Counter
from collections.abc import Generator

import pytest

# What a shell starts in the background ignores these, and so would every process that a test starts and interrupts.
for _number, _default in ((signal.SIGINT, signal.default_int_handler), (signal.SIGQUIT, signal.SIG_DFL)):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _default)

INCURABLE = (
    "no GPU",
    "no cgroup v2 with delegation",
    "../shared is absent",
    "PyTorch is absent",  # CI has a stage for it
    # CI runs the system tests as both.
    "needs an ordinary user" if os.geteuid() == 0 else "needs root",
)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None]:
    """Outermost, so that our line comes after pytest's own."""
    result = yield
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None:  # a worker of xdist
        return result
    reasons = Counter(_reason(report) for report in reporter.stats.get("skipped", []))
    if os.environ.get("CI") == "true":
        for reason in sorted(reasons):
            if not reason.startswith(INCURABLE):
                reporter.write_line(f"CI may not skip for this reason: {reason}", red=True)
                session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED
    reporter.write_line(_last_line(reporter.stats, reasons))
    return result


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    """The words given to skip(), from the (path, line, words) that a skipped report holds."""
    words = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return words.removeprefix("Skipped: ").strip()


def _last_line(stats: dict[str, list[object]], reasons: Counter[str]) -> str:
    failed = len(stats.get("failed", [])) + len(stats.get("error", []))
    line = f"{len(stats.get('passed', []))} passed, {failed} failed"
    if reasons:
        told = "; ".join(f"{count}: {reason}" for reason, count in reasons.most_common())
        line += f", {reasons.total()} skipped ({told})"
    return line
