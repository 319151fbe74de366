"""Judges seeds in this process, a line of JSON each; whoever started it restarts it behind a seed that crashed.

    python worker.py FIRST COUNT EFFORT [WITHOUT [PROVIDER]]    seeds FIRST to FIRST + COUNT - 1, lines on stdout

Before a seed is tried its number is written, so that the last line before a crash or a hang names it. EFFORT is
``full``, or ``low``: LLVM optimizes less then, and three times as many graphs are tried in the same time, with a cache
of its own; code that has been vectorized by its generator takes the same passes in both. WITHOUT names an engine that
is left out: one that crashed. PROVIDER is a file that describes a provider (``on_provider``); it alone is judged then.
"""

from __future__ import annotations

import faulthandler
import json
import logging
import os
import sys
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm

sys.path.insert(0, str(Path(__file__).parents[1]))
os.environ.setdefault("ORT_STRICT_COMPILATION", "1")  # a fault of the compiler is a finding
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # workers share the cores: threads that wait busily take them away

from ort_core.cache.folder import cache_directory
from ort_core.cpu.codegen.machine_code import jit, llvm_loader, llvm_targets
from ort_core.cpu.codegen.machine_code.target import Target
from random_graphs.cases import Case, case_of_seed
from random_graphs.engines import engines
from random_graphs.explained import explanation
from random_graphs.judging import Difference, judge
from random_graphs.minimizing import minimized, shows_like
from random_graphs.on_provider import GraphsProvider, provider_of_file

MINIMIZING_S = 20.0  # for each difference


def lower_effort() -> None:
    """Let LLVM take fewer passes and a quicker choice of instructions, and keep such code in a folder of its own."""
    folder = cache_directory()
    if folder is not None:
        os.environ["ORT_CACHE_DIR"] = os.path.join(folder, "low-effort")  # others would run it slowly

    def machine(target: Target) -> llvm.TargetMachine:
        llvm_targets.initialize(target)
        found = llvm.Target.from_triple(target.triple)
        return found.create_target_machine(
            cpu=target.cpu, features=target.features, opt=0, reloc="pic", codemodel="jitdefault"
        )

    options = llvm.create_pipeline_tuning_options
    for module in (jit, llvm_loader):
        module.target_machine = machine
    llvm.create_pipeline_tuning_options = lambda speed_level=0: options(0)


def line_of_seed(seed: int, without: str = "") -> Mapping[str, Any]:
    """Return what is to be known of a seed: nodes, families, endings, differences with their least graphs."""
    start = time.process_time()
    case = case_of_seed(seed)
    if case is None:
        return {"seed": seed, "nodes": 0}
    outcome = judge(case, [each for each in engines(seed) if without not in each.uses])
    facts: dict[str, Any] = {
        "seed": seed,
        "nodes": len(case.model.graph.node),
        "endings": outcome.endings,
        "s": round(time.process_time() - start, 3),
    }
    if case.flags:
        facts["flags"] = case.flags
    if outcome.differences:
        facts["families"] = sorted(set(case.families))
        facts["found"] = [_explained(case, each) for each in outcome.differences]
    return facts


def line_of_provider(seed: int, provider: GraphsProvider) -> Mapping[str, Any]:
    """Return the same of a seed that a provider runs, and which operators it claimed, as often as they were loaded."""
    start = time.process_time()
    case = case_of_seed(seed)
    if case is None:
        return {"seed": seed, "nodes": 0}
    engine = provider.engine(seed)
    outcome = judge(case, [engine])
    facts: dict[str, Any] = {
        "seed": seed,
        "nodes": len(case.model.graph.node),
        "endings": outcome.endings,
        "claimed": dict(sorted(engine.claimed.items())),
        "s": round(time.process_time() - start, 3),
    }
    found = []
    for difference in outcome.differences:
        least, shown = minimized(case, difference, MINIMIZING_S, shows_like(difference, engine))
        found.append(_facts(least, shown, provider.explanation(least, shown)))
    return {**facts, "found": found} if found else facts


def _explained(case: Case, found: Difference) -> Mapping[str, Any]:
    """Return a difference with the least graph that shows one of its kind, and why it is none, if that is known."""
    least, difference = minimized(case, found, MINIMIZING_S)
    return _facts(least, difference, explanation(least, difference))


def _facts(least: Case, difference: Difference, reason: str | None) -> Mapping[str, Any]:
    return {
        **difference.as_json(),
        "operators": sorted({node.op_type for node in least.model.graph.node}),
        "nodes": len(least.model.graph.node),
        "explained": reason,
    }


def main() -> None:
    """Judge the seeds of the command line."""
    first, count, effort = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    without = sys.argv[4] if len(sys.argv) > 4 else ""
    provider = provider_of_file(sys.argv[5]) if len(sys.argv) > 5 else None
    faulthandler.enable()
    if not sys.warnoptions:  # python -W error: what is warned of is a difference
        warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    if effort == "low":
        lower_effort()
    for seed in range(first, first + count):
        print(json.dumps({"trying": seed}), flush=True)
        line = line_of_seed(seed, without) if provider is None else line_of_provider(seed, provider)
        print(json.dumps(line, default=str), flush=True)


if __name__ == "__main__":
    main()
