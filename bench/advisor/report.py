"""`python -m bench.advisor.report DIR`: writes docs/accuracy.md's tables and its plots of predicted against measured.

DIR is as for `python -m bench.advisor`. What stands between `<!-- measured: NAME -->` and `<!-- /measured -->` is
written here, all around it by hand. The plots are PNGs in docs/accuracy/, one for each target.
"""

import argparse
import importlib
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from bench.advisor.fit import BadData
from bench.advisor.plots import draw
from bench.advisor.score import Target, baseline_scores, gpu_family, grouped, score

DOCS: Final = Path(__file__).resolve().parents[2] / "docs"
MODULES: Final = ("training", "memory", "whole_runs", "serving", "laws")
PART: Final = re.compile(r"(<!-- measured: ([a-z-]+) -->\n)(.*?)(<!-- /measured -->)", re.DOTALL)
TITLES: Final = {
    "training_dense": "training, dense models: seconds a step",
    "training_moe": "training, mixtures of experts: seconds a step",
    "memory": "fine-tuning and generating: peak memory",
    "finetune_time": "fine-tuning: time",
    "llm_full_runs": "whole pretraining runs: GPU hours",
    "serving_offline": "serving, as much as possible: tokens a second",
    "decode_batch1": "one user's tokens a second",
    "mlperf_training": "MLPerf training: minutes",
    "mlperf_inference": "MLPerf inference: rate",
    "md": "molecular dynamics: ns a day",
    "hash": "hash rates",
    "zk": "proofs: time",
}
_ERRORS: Final = ("median", "mean", "90 of 100", "bias", "inside the range", "high/low")
_FEWEST: Final = 5
"""Rows of a GPU family below which its own line would say little."""


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.advisor.report", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("folder", metavar="DIR", type=Path, help="CSVs named as the calibration's")
    parser.add_argument("--docs", metavar="DIR", type=Path, default=DOCS, help="where accuracy.md is")
    options = parser.parse_args(words)
    if not options.folder.is_dir():
        print(f"error: {options.folder} is no folder", file=sys.stderr)
        return 2
    try:
        fitted, unseen = gather(options.folder, "targets"), gather(options.folder, "cross")
        orders = {name: _orders(options.folder, unseen=flag) for name, flag in (("fitted", False), ("unseen", True))}
    except BadData as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    write(options.docs, fitted, unseen, orders)
    return 0


def write(
    docs: Path, fitted: Mapping[str, Target], unseen: Mapping[str, Target], orders: Mapping[str, Mapping[str, Any]]
) -> None:
    """Fills the document and draws the plots, telling each file that it writes."""
    folder = docs / "accuracy"
    folder.mkdir(exist_ok=True)
    for name, target in fitted.items():
        draw(target.rows, title(name), folder / f"{name}.png")
        print(f"wrote {folder / name}.png")
    made = {
        "errors": errors(fitted),
        "unseen": errors(unseen),
        "rules": rules(fitted),
        "sources": sources(fitted),
        "ranking": ranking(orders),
        "families": families(fitted),
        "plots": (f"![{title(name)}](accuracy/{name}.png)" for name in fitted),
    }
    path = docs / "accuracy.md"
    path.write_text(fill(path.read_text(), {name: list(lines) for name, lines in made.items()}))
    print(f"wrote {path}")


def fill(text: str, made: Mapping[str, Sequence[str]]) -> str:
    """The document with its measured parts as they should be. Raises KeyError for a part that nobody makes."""
    return PART.sub(lambda found: f"{found[1]}\n{_joined(made[found[2]])}\n\n{found[4]}", text)


def gather(folder: Path, what: str) -> dict[str, Target]:
    """What each module of the bench makes of DIR: `targets`, or `cross`, by constants fitted without a row's family."""
    found: dict[str, Target] = {}
    for name in MODULES:
        module = importlib.import_module(f"bench.advisor.{name}")
        if hasattr(module, what):
            found |= getattr(module, what)(folder)
    return {name: target for name, target in found.items() if target.rows}


def _orders(folder: Path, *, unseen: bool) -> Mapping[str, Any]:
    module = importlib.import_module("bench.advisor.ranking")
    orders: Mapping[str, Any] = module.taus(folder, unseen=unseen)
    return orders


def title(name: str) -> str:
    """Of a target, or of one that was cross-validated: `md_by_gpu` is molecular dynamics, by GPU."""
    if name in TITLES:
        return TITLES[name]
    known = max((key for key in TITLES if name.startswith((key, key.replace("_", " ")))), key=len, default="")
    left = name[len(known) :].replace("_", " ").replace("by gpu", "by GPU").strip(" ,")
    return f"{TITLES[known].partition(':')[0]}, {left}" if known else left


def errors(targets: Mapping[str, Target]) -> Iterator[str]:
    """One row a target: how many rows, how far off, how often inside the range, how wide the range."""
    yield from _head(
        "target", "rows", "left out", "median", "mean", "90 of 100", "bias", "inside the range", "high/low"
    )
    for name, target in sorted(targets.items()):
        yield _row(title(name), target.rows, target.dropped)


def families(targets: Mapping[str, Target]) -> Iterator[str]:
    """The same by family of GPUs, where it has enough rows to tell."""
    yield from _head("target", "GPU", "rows", *_ERRORS)
    for name, target in sorted(targets.items()):
        for family, rows in grouped(target.rows, lambda row: gpu_family(row.gpu)).items():
            if len(rows) >= _FEWEST:
                yield _row(title(name), rows, family=family)


def rules(targets: Mapping[str, Target]) -> Iterator[str]:
    """What simpler rules come to on the same rows, beside the advisor."""
    yield from _head("target", "rule", "rows", "median", "mean", "bias")
    for name, target in sorted(targets.items()):
        scored = baseline_scores(target.rows)
        if not scored:
            continue
        own = score(target.rows, target.dropped)
        for rule, found in {"the advisor": own, **scored}.items():
            cells = [_percent(found[key]) for key in ("median_ape", "mape", "bias")]
            yield f"| {title(name)} | {rule} | {found['n']} | {' | '.join(cells)} |"


def sources(targets: Mapping[str, Target]) -> Iterator[str]:
    """Of dense training, which other estimators know: median errors by source, theirs beside the advisor's."""
    kept = grouped(targets["training_dense"].rows, lambda row: row.source) if "training_dense" in targets else {}
    names = sorted({name for rows in kept.values() for row in rows for name in row.baselines})
    yield from _head("source", "rows", "the advisor", *names)
    for source, rows in kept.items():
        own, others = score(rows)["median_ape"], baseline_scores(rows)
        cells = [_percent(others[name]["median_ape"]) if name in others else "–" for name in names]
        yield f"| {source.replace('_', ' ')} | {len(rows)} | {_percent(own)} | {' | '.join(cells)} |"


def ranking(orders: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Kendall's tau by round, with the constants as shipped and without each GPU's family."""
    yield from _head("round", "pairs", "tau", "tau, GPU unseen")
    for name, pairs in orders["fitted"].items():
        other = orders["unseen"].get(name)
        unseen = "–" if other is None else f"{other.tau:.2f}"
        yield f"| {name.replace('_', ' ')} | {sum(pairs)} | {pairs.tau:.2f} | {unseen} |"


def _row(name: str, rows: Sequence[Any], dropped: int | None = None, *, family: str | None = None) -> str:
    found = score(rows)
    cells = [name, *([family] if family else []), str(found["n"]), *([] if dropped is None else [str(dropped)])]
    cells += [_percent(found[key]) for key in ("median_ape", "mape", "p90_ape", "bias")]
    cells += [f"{100 * found['inside_80']:.0f} %", f"{found['range_ratio']:.2f}"]
    return f"| {' | '.join(cells)} |"


def _head(*titles: str) -> tuple[str, str]:
    return f"| {' | '.join(titles)} |", f"|{'---|' * len(titles)}"


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.1f} %".replace("-", "−")


def _joined(lines: Sequence[str]) -> str:
    """Rows of a table follow one another; pictures stand alone."""
    return ("\n\n" if lines and lines[0].startswith("!") else "\n").join(lines)


if __name__ == "__main__":
    sys.exit(main())
