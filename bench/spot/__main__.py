"""`python -m bench.spot --learn DIR --test DIR [--json]`: jobs with deadlines on traces of spot, by policy.

With `--split-day 15` hazards are learnt on the days before, and jobs start after: --learn and --test may then be one
folder. `python -m bench.spot fit DIR` writes the priors that are shipped. `python -m bench.spot replicas DIR` and
`python -m bench.spot checkpoint --learn DIR --test DIR` measure services on spot and checkpoint intervals.
"""

import argparse
import importlib
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.spot import deadlines
from bench.spot.fit import write_priors
from bench.spot.traces import BadTrace, load

OTHERS = ("replicas", "checkpoint")


def main(words: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if words is None else words)
    try:
        if words[:1] == ["fit"]:
            return _fit(words[1:])
        return _other(words[0], words[1:]) if words and words[0] in OTHERS else _deadlines(words)
    except (BadTrace, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _deadlines(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.spot", description="Replays deadline policies on spot traces."
    )
    parser.add_argument("--learn", metavar="DIR", type=Path, required=True, help="traces that hazards are learnt from")
    parser.add_argument("--test", metavar="DIR", type=Path, required=True, help="traces that jobs run on")
    parser.add_argument("--split-day", type=float, metavar="DAY", help="learn before that day, start jobs after it")
    parser.add_argument("--starts", type=int, default=60, help="random starts a trace (default 60)")
    parser.add_argument("--json", action="store_true", help="for programs")
    options = parser.parse_args(words)
    if options.starts < 1:
        raise ValueError("--starts must be 1 or more")
    plan = deadlines.Plan(starts=options.starts, from_day=options.split_day or 0.0)
    learn_days = math.inf if options.split_day is None else options.split_day
    results = deadlines.measure(load(options.learn), load(options.test), plan, learn_days=learn_days)
    if not results.costs:
        raise BadTrace(f"{options.test}: no trace is long enough for a job of {plan.deadlines_h[0]:g} h")
    rows, summary = deadlines.rows(results, plan), deadlines.summary(results, plan)
    print(json.dumps({"rows": rows, "summary": summary}, indent=1) if options.json else as_text(rows, summary))
    return 0


def as_text(rows: Sequence[dict[str, Any]], summary: dict[str, Any]) -> str:
    """A line a setting and policy, then what they come to."""
    head = f"{'deadline':>9} {'changeover':>11}  {'policy':<17}{'cost':>7}{'misses':>8}{'p95 regret':>12}{'jobs':>6}"
    lines = [head]
    lines += [
        f"{row['deadline_h']:>7g} h {row['overhead_h']:>9g} h  {row['policy']:<17}{row['cost_ratio']:>7.3f}"
        f"{row['misses']:>8}{row['p95_regret']:>12.3f}{row['jobs']:>6}"
        for row in rows
    ]
    lines.append("")
    for policy, cost in summary["cost_ratio"].items():
        regret, misses = summary["p95_regret"][policy], summary["misses"][policy]
        lines.append(f"{policy:<17} mean cost {cost:.4f}, pooled p95 regret {regret:.4f}, misses {misses}")
    lines.append(
        f"cumulo closes {summary['gap_closed']:.1%} of uniform-progress's gap to the optimum "
        f"({summary['gap_closed_mean_of_settings']:.1%} as the mean over settings); "
        f"worst setting {summary['worst_setting_above_uniform_progress']:+.4f} against uniform-progress"
    )
    solve, decide = summary["solve_cpu_s"], summary["decision_cpu_s"]
    lines.append(
        f"CPU: a solve {1e3 * solve['mean']:.0f} ms (most {1e3 * solve['most']:.0f}), "
        f"a decision {1e3 * decide['mean']:.2f} ms (most {1e3 * decide['most']:.2f})"
    )
    return "\n".join(lines)


def _fit(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.spot fit", description="Fits the priors that are shipped.")
    parser.add_argument("folder", metavar="DIR", type=Path, help="traces")
    priors = write_priors(parser.parse_args(words).folder)
    for name, prior in (("lost", priors.lost), ("back", priors.back)):
        print(f"{name}: weights {prior.pool_events:g} and {prior.age_events:g} events")
    return 0


def _other(name: str, words: Sequence[str]) -> int:
    module = importlib.import_module(f"bench.spot.{name}")
    parser = argparse.ArgumentParser(
        prog=f"python -m bench.spot {name}", description=(module.__doc__ or "").split("\n")[0]
    )
    module.add_arguments(parser)
    parser.add_argument("--json", action="store_true", help="for programs")
    options = parser.parse_args(words)
    rows = module.run(options)
    print(json.dumps({"rows": rows}, indent=1) if options.json else module.table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
