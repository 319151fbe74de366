"""``python worker.py FIRST COUNT FILE`` runs random programs over onnxruntime's API, and writes what each step gave.

The same program runs on onnxruntime and, by the drop-in, on this project. What a program does depends on its seed
only, never on what a step gave. Each line of the file is a program: its seed, its model, and its steps.
"""

import json
import logging
import os
import sys
import warnings

import onnxruntime as ort
from programs import run_program

warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)


def main(first: int, count: int, target: str) -> None:
    """Write one line for each seed, so that one that ends the process is known."""
    ort.set_default_logger_severity(4)
    with open(target, "a", encoding="utf-8") as file:
        for seed in range(first, first + count):
            file.write(json.dumps({"began": seed}) + "\n")
            file.flush()
            file.write(json.dumps(run_program(seed)) + "\n")
            file.flush()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
