"""Judge random models in random ways of quantizing beside onnxruntime's tool: first seed, count, file of findings.

Stops where it may be stopped: the same command goes on behind the seeds that stand in the file.
"""

from __future__ import annotations

import collections
import faulthandler
import json
import logging
import multiprocessing
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime

sys.path.insert(0, str(Path(__file__).parent))

from drawn_networks import drawn_network
from drawn_options import drawn_choices
from judged_options import judged

LIMIT_S = 120  # of a seed, most of which take a second: onnxruntime's tool goes round forever on a few


def row_of(seed: int) -> dict[str, object]:
    """What comes of one seed, as a line of JSON has it."""
    random = np.random.default_rng([32, seed])
    model = drawn_network(random)
    choices = drawn_choices(random, model)
    row: dict[str, object] = {"seed": seed, "opset": model.opset_import[0].version, "choices": choices}
    with tempfile.TemporaryDirectory() as folder:
        found = judged(model, choices, Path(folder))
    return {**row, "kind": found.kind, "reason": found.reason, "differences": found.differences, "errors": found.errors}


def seeds_of(path: Path) -> set[int]:
    """The seeds that stand in a file."""
    return {json.loads(line)["seed"] for line in path.read_text().splitlines()} if path.exists() else set()


def judge(seeds: list[int], path: Path) -> None:
    """Judge seeds in this process, and write a line for each."""
    logging.disable(logging.CRITICAL)
    onnxruntime.set_default_logger_severity(4)
    with path.open("a", encoding="utf-8") as file:
        for seed in seeds:
            faulthandler.dump_traceback_later(LIMIT_S, exit=True)
            file.write(json.dumps(row_of(seed)) + "\n")
            file.flush()
    faulthandler.cancel_dump_traceback_later()


def main() -> None:
    """Judge seeds in processes of their own: onnxruntime or the limit may end one, and the next goes on behind it."""
    first, count, path = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    while left := [seed for seed in range(first, first + count) if seed not in seeds_of(path)]:
        worker = multiprocessing.get_context("spawn").Process(target=judge, args=(left, path))
        worker.start()
        worker.join()
        ended = [seed for seed in left if seed not in seeds_of(path)]
        if worker.exitcode == 0 or not ended:
            break
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"seed": ended[0], "kind": f"process ended with {worker.exitcode}"}) + "\n")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    kinds = collections.Counter(row["kind"] for row in rows)
    sys.stdout.write("".join(f"{count:6} {kind}\n" for kind, count in kinds.most_common()))


if __name__ == "__main__":
    main()
