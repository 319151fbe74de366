"""Reduces seeds that a campaign found, and writes the failing test of each.

    python minimize.py FOLDER SEED [SEED...]      test_seed_SEED.py in FOLDER, and the graph as text on stdout
    python minimize.py PROVIDER SEED [SEED...]    the graph alone, as a provider shows it whose file that is

A seed whose process crashes is not reduced: run it in guarded memory first, which says what was touched.
"""

from __future__ import annotations

import re
import sys
import warnings
from pathlib import Path

import onnx

sys.path.insert(0, str(Path(__file__).parents[1]))

from random_graphs.cases import Case, case_of_seed
from random_graphs.explained import explanation
from random_graphs.judging import judge
from random_graphs.minimizing import minimized, shows_like
from random_graphs.on_provider import GraphsProvider, provider_of_file
from random_graphs.writing import written

LIMIT_S = 120.0


def main() -> None:
    """Reduce the seeds of the command line."""
    warnings.simplefilter("ignore")
    folder = Path(sys.argv[1])
    provider = provider_of_file(sys.argv[1]) if folder.suffix == ".py" else None
    for seed in map(int, sys.argv[2:]):
        case = case_of_seed(seed)
        if case is None:
            continue
        if provider is not None:
            _show(case, provider)
            continue
        for found in judge(case).differences[:1]:
            least, difference = minimized(case, found, LIMIT_S)
            path = written(least, difference, folder)
            print(onnx.printer.to_text(least.model))
            reason = explanation(least, difference) or "not explained"
            print(f"{path}: {difference.engine}, {difference.kind}: {difference.text} ({reason})")


def _show(case: Case, provider: GraphsProvider) -> None:
    engine = provider.engine(case.seed)
    for found in judge(case, [engine]).differences:
        least, difference = minimized(case, found, LIMIT_S, shows_like(found, engine))
        reason = provider.explanation(least, difference) or "not explained"
        print(re.sub(r"\{[^{}]{200,}\}", "{...}", onnx.printer.to_text(least.model)), str(least.feeds)[:600])
        print(f"seed {case.seed}, {engine}: {difference.kind}: {difference.text} ({reason})")


if __name__ == "__main__":
    main()
