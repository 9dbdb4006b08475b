"""`python -m bench.advisor DIR [--json]`: how far advice is from published results; `fit` and `cross` beside it.

DIR holds CSVs with the names and columns of the calibration data; a file that it lacks is skipped.
`python -m bench.advisor fit [SECTION ...] --data DIR` fits constants and writes them into the catalogue.
`python -m bench.advisor cross DIR [--json]` scores each row by constants that were fitted without the row's family.
"""

import argparse
import importlib
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench.advisor.fit import SECTIONS, BadData, fit
from bench.advisor.score import Target, as_json, as_text, report

MODULES = ("training", "memory", "whole_runs", "serving", "laws", "ranking")


def main(words: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if words is None else words)
    try:
        if words[:1] == ["fit"]:
            return _fit(words[1:])
        return _score(words[1:], "cross") if words[:1] == ["cross"] else _score(words, "targets")
    except BadData as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _score(words: Sequence[str], what: str) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.advisor", description="Scores advice on published results.")
    parser.add_argument("folder", metavar="DIR", type=Path, help="CSVs named as the calibration's")
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.add_argument("--only", nargs="+", metavar="MODULE", default=MODULES, choices=MODULES, help="some targets")
    options = parser.parse_args(words)
    if not options.folder.is_dir():
        raise BadData(f"{options.folder} is no folder")
    targets: dict[str, Target] = {}
    for name in options.only:
        module = _module(name)
        if hasattr(module, what):
            targets |= getattr(module, what)(options.folder)
    found = report(targets)
    if "ranking" in options.only:
        orders = _module("ranking").taus(options.folder, unseen=what == "cross")
        found["ranking"] = {name: {"pairs": sum(pairs), "tau": pairs.tau} for name, pairs in orders.items()}
    print(as_json(found) if options.json else as_text(found))
    return 0


def _fit(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.advisor fit", description="Fits the advisor's constants.")
    parser.add_argument(
        "sections", nargs="*", metavar="SECTION", help=f"of {', '.join(SECTIONS)}; all if none is named"
    )
    parser.add_argument("--data", metavar="DIR", type=Path, required=True, help="CSVs named as the calibration's")
    options = parser.parse_args(words)
    if unknown := set(options.sections) - set(SECTIONS):
        raise BadData(f"there is no section {min(unknown)!r}; they are {', '.join(SECTIONS)}")
    if not options.data.is_dir():
        raise BadData(f"{options.data} is no folder")
    for section in options.sections or SECTIONS:
        module = _module(section)
        if module is not None:
            fit(section, module, options.data)
            print(f"{section}: fitted")
    return 0


def _module(name: str) -> Any:
    return importlib.import_module(f"bench.advisor.{name}") if find_spec(f"bench.advisor.{name}") else None


if __name__ == "__main__":
    sys.exit(main())
