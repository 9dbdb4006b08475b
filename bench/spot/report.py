"""`python -m bench.spot.report DIR`: writes docs/spot-policy.md's tables and its plots of cost against deadline.

DIR holds the traces as published (`availability/1-node/aws-10-26-2022` and `aws-02-15-2023`, `aws-extra-2022`), at any
depth. What stands between `<!-- measured: NAME -->` and `<!-- /measured -->` is written here, all around it by hand.
"""

import argparse
import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.spot import deadlines
from bench.spot.plots import draw
from bench.spot.traces import BadTrace, load

DOCS: Final = Path(__file__).resolve().parents[2] / "docs"
PART: Final = re.compile(r"(<!-- measured: ([a-z0-9-]+) -->\n)(.*?)(<!-- /measured -->)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One comparison: hazards learnt on one folder, jobs run on another, or on later days of the same one.

    In `hindsight` hazards are learnt from the very days that the jobs run on: nobody can, so that bounds what learning
    hazards can give.
    """

    name: str
    title: str
    learn: str
    test: str
    split_day: float | None = None
    hindsight: bool = False


CASES: Final = (
    Case(name="2022", title="learnt in October, run in December 2022", learn="aws-10-26-2022", test="aws-extra-2022"),
    Case(
        name="2023",
        title="learnt on 15 days, run on the 30 after, 2023",
        learn="aws-02-15-2023",
        test="aws-02-15-2023",
        split_day=15.0,
    ),
    Case(name="across", title="learnt in 2022, run in 2023", learn="aws-10-26-2022", test="aws-02-15-2023"),
    Case(name="back", title="learnt in 2023, run in 2022", learn="aws-02-15-2023", test="aws-10-26-2022"),
    Case(
        name="hindsight-2022",
        title="in hindsight, December 2022",
        learn="aws-extra-2022",
        test="aws-extra-2022",
        hindsight=True,
    ),
    Case(
        name="hindsight-2023",
        title="in hindsight, the 30 days of 2023",
        learn="aws-02-15-2023",
        test="aws-02-15-2023",
        split_day=15.0,
        hindsight=True,
    ),
)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.spot.report", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", metavar="DIR", type=Path, help="the traces")
    parser.add_argument("--docs", metavar="DIR", type=Path, default=DOCS, help="where spot-policy.md is")
    options = parser.parse_args(words)
    try:
        measured = {case: _measure(case, options.folder) for case in CASES}
    except BadTrace as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    write(options.docs, measured)
    return 0


def _measure(case: Case, folder: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    plan = deadlines.Plan(from_day=case.split_day or 0.0)
    learn, test = load(_below(folder, case.learn)), load(_below(folder, case.test))
    days = math.inf if case.split_day is None else case.split_day
    if case.hindsight:
        learn, days = tuple(trace.since(plan.from_day) for trace in learn), math.inf
    found = deadlines.measure(learn, test, plan, learn_days=days)
    return deadlines.rows(found, plan), deadlines.summary(found, plan)


def _below(folder: Path, name: str) -> Path:
    found = sorted(path for path in folder.rglob(name) if path.is_dir())
    if not found:
        raise BadTrace(f"{folder} holds no folder {name}")
    return found[0]


def write(docs: Path, measured: Mapping[Case, tuple[list[dict[str, Any]], dict[str, Any]]]) -> None:
    """Fills the document and draws the plots, telling each file that it writes."""
    folder = docs / "spot-policy"
    folder.mkdir(exist_ok=True)
    made = {"summary": summary_table(measured), "cpu": cpu_table(measured)}
    for case, (rows, _) in measured.items():
        if case.name.startswith("20"):
            draw(rows, case.title, folder / f"{case.name}.png")
            print(f"wrote {folder / case.name}.png")
            made[f"settings-{case.name}"] = settings_table(rows)
            made[f"plot-{case.name}"] = iter([f"![Cost against deadline, {case.title}](spot-policy/{case.name}.png)"])
    path = docs / "spot-policy.md"
    lines = {name: list(part) for name, part in made.items()}
    path.write_text(PART.sub(lambda found: _filled(found, lines), path.read_text()))
    print(f"wrote {path}")


def _filled(found: re.Match[str], made: Mapping[str, Sequence[str]]) -> str:
    return f"{found[1]}\n{chr(10).join(made[found[2]])}\n\n{found[4]}"


def summary_table(measured: Mapping[Case, tuple[list[dict[str, Any]], dict[str, Any]]]) -> Iterator[str]:
    """One row a comparison and policy: mean cost, pooled regret, jobs that were late, the gap that is closed."""
    yield "| | policy | cost | 95 of 100 regret less than | late | gap closed, of the means | mean of settings |"
    yield f"|{'---|' * 7}"
    for case, (_, told) in measured.items():
        for policy in ("cumulo",) if case.hindsight else deadlines.POLICIES:
            closed = ("", "")
            if policy == "cumulo":
                closed = (f"{told['gap_closed']:.0%}", f"{told['gap_closed_mean_of_settings']:.0%}")
            cells = (
                case.title,
                policy,
                f"{told['cost_ratio'][policy]:.3f}",
                f"{told['p95_regret'][policy]:.3f}",
                str(told["misses"][policy]),
                *(part.replace("%", " %") for part in closed),
            )
            yield f"| {' | '.join(cells)} |"


def cpu_table(measured: Mapping[Case, tuple[list[dict[str, Any]], dict[str, Any]]]) -> Iterator[str]:
    """CPU time of a solve and of one decision, the mean and the most over all comparisons."""
    yield "| | mean | most |"
    yield "|---|---|---|"
    for name, key in (("a solve", "solve_cpu_s"), ("a decision", "decision_cpu_s")):
        told = [summary[key] for _, summary in measured.values()]
        mean = sum(each["mean"] for each in told) / len(told)
        yield f"| {name}, ms of CPU | {1e3 * mean:.3g} | {1e3 * max(each['most'] for each in told):.3g} |"


def settings_table(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """One row a setting, the policies side by side."""
    yield f"| deadline | changeover | {' | '.join(deadlines.POLICIES)} | gap closed |"
    yield f"|{'---|' * (len(deadlines.POLICIES) + 3)}"
    costs = {(row["deadline_h"], row["overhead_h"], row["policy"]): row["cost_ratio"] for row in rows}
    for deadline, overhead in dict.fromkeys(key[:2] for key in costs):
        own = {policy: costs[deadline, overhead, policy] for policy in deadlines.POLICIES}
        gap = own["uniform-progress"] - own["optimum"]
        closed = (own["uniform-progress"] - own["cumulo"]) / gap if gap > 0 else math.nan
        cells = " | ".join(f"{cost:.3f}" for cost in own.values())
        yield f"| {deadline:g} h | {overhead:g} h | {cells} | {100 * closed:.0f} % |"


if __name__ == "__main__":
    sys.exit(main())
