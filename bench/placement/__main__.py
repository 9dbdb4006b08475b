"""`python -m bench.placement NAME`: how good placement is, and how fast, each test a module of the same name.

A test gives rows: `--json` prints them as they are, otherwise they are shown as a table.
"""

import argparse
import importlib
import json
import sys
from collections.abc import Sequence
from typing import Any

from bench.placement.openb_trace import BadTrace

TESTS = {
    "openb": "the published evaluation of FGD: nothing leaves, how much is allocated",
    "churn": "arrivals and departures: allocation and rejections, with and without making room",
    "mig": "streams of MIG instances against first fit, best fit and the optimum",
    "queue": "published job traces as a queue: completion times and fairness",
    "speed": "decisions a second and memory, on 1,213 nodes and more",
    "why": "whether the reasons, the expected starts and the suggested changes hold",
    "served": "placements a second in a running server",
}


def main(words: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if words is None else words)
    name = words[0] if words and words[0] in TESTS else ""
    test: Any = importlib.import_module(f"bench.placement.{name}") if name else None
    options = _parser(name, test).parse_args(words)
    try:
        rows = test.run(options)
    except (BadTrace, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(json.dumps({"rows": rows}, indent=1) if options.json else test.table(rows))
    return 0


def _parser(name: str, test: Any) -> argparse.ArgumentParser:
    """Only the module of the test that is run is imported: some need what others do not."""
    parser = argparse.ArgumentParser(prog="python -m bench.placement", description="Measures placement.")
    tests = parser.add_subparsers(dest="test", required=True, metavar="NAME")
    for each, what in TESTS.items():
        of_test = tests.add_parser(each, help=what, description=what)
        if each == name:
            test.add_arguments(of_test)
            of_test.add_argument("--json", action="store_true", help="rows for programs")
    return parser


if __name__ == "__main__":
    sys.exit(main())
