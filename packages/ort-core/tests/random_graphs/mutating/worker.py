"""Judges mutants of recorded models in this process, a line of JSON each, as ``random_graphs/worker.py`` does seeds.

    python worker.py FIRST COUNT EFFORT WITHOUT FOLDER    mutants FIRST to FIRST + COUNT - 1 of the models in FOLDER

FOLDER also gets the least model of what is not explained, with its feeds.
"""

from __future__ import annotations

import faulthandler
import json
import logging
import os
import pickle
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
os.environ.setdefault("ORT_STRICT_COMPILATION", "1")  # a fault of the compiler is a finding
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # workers share the cores: threads that wait busily take them away

from random_graphs.cases import Case
from random_graphs.explained import explanation, operators_of
from random_graphs.judging import Difference
from random_graphs.minimizing import minimized, shows_like
from random_graphs.mutating.mutants import COMPILED, FURTHER, AllPasses, judged, mutant_of
from random_graphs.mutating.records import MUTANTS_OF_EACH, recorded_model, recorded_paths
from random_graphs.worker import lower_effort

MINIMIZING_S = 8.0  # for each difference


def line_of_mutant(number: int, paths: Sequence[Path]) -> Mapping[str, Any]:
    """Return what is to be known of a mutant: its changes, how engines ended, differences with their least graphs."""
    start = time.process_time()
    path = paths[number // MUTANTS_OF_EACH % len(paths)]
    model = recorded_model(path)
    case = None if model is None else mutant_of(model, number)
    if case is None:
        return {"seed": number, "nodes": 0}
    engines = {each.name: each for each in (AllPasses(), COMPILED, FURTHER[number % len(FURTHER)])}
    differences, endings = judged(case, list(engines.values()))
    facts: dict[str, Any] = {
        "seed": number, "nodes": len(case.model.graph.node), "endings": endings, "flags": case.flags,
        "record": path.name, "s": round(time.process_time() - start, 3),
    }  # fmt: skip
    if differences:
        found = differences[0]  # the others are mostly the same
        least, found = minimized(case, found, MINIMIZING_S, shows_like(found, engines[found.engine]))
        facts["found"] = [_told(least, found, path.parent)]
    return facts


def _told(least: Case, found: Difference, folder: Path) -> Mapping[str, Any]:
    reason = explanation(least, found)
    if reason is None:
        kept = {"model": least.model.SerializeToString(), "feeds": [dict(each) for each in least.feeds]}
        (folder / f"mutant{least.seed}.least").write_bytes(pickle.dumps(kept))
    return {
        **found.as_json(),
        "operators": sorted(operators_of(least.model.graph)),
        "nodes": len(least.model.graph.node),
        "explained": reason,
    }


def main() -> None:
    """Judge the mutants of the command line."""
    first, count, effort, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], Path(sys.argv[5])
    faulthandler.enable()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    if effort == "low":
        lower_effort()
    paths = recorded_paths(folder)
    for number in range(first, first + count):
        print(json.dumps({"trying": number}), flush=True)
        print(json.dumps(line_of_mutant(number, paths), default=str), flush=True)


if __name__ == "__main__":
    main()
