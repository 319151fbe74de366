"""Reduces seeds that a campaign found, and writes the failing test of each.

    python minimize.py FOLDER SEED [SEED...]      test_seed_SEED.py in FOLDER, and the graph as text on stdout

A seed whose process crashes is not reduced: run it in guarded memory first, which says what was touched.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import onnx

sys.path.insert(0, str(Path(__file__).parents[1]))

from random_graphs.cases import case_of_seed
from random_graphs.explained import explanation
from random_graphs.judging import judge
from random_graphs.minimizing import minimized
from random_graphs.writing import written

LIMIT_S = 120.0


def main() -> None:
    """Reduce the seeds of the command line."""
    warnings.simplefilter("ignore")
    folder = Path(sys.argv[1])
    for seed in map(int, sys.argv[2:]):
        case = case_of_seed(seed)
        if case is None:
            continue
        for found in judge(case).differences[:1]:
            least, difference = minimized(case, found, LIMIT_S)
            path = written(least, difference, folder)
            print(onnx.printer.to_text(least.model))
            reason = explanation(least, difference) or "not explained"
            print(f"{path}: {difference.engine}, {difference.kind}: {difference.text} ({reason})")


if __name__ == "__main__":
    main()
