"""Unchanged programs on onnxruntime and on ort-core: ``python tools/downstream.py [NAME ...]``, ``nox -s downstream``.

Each program is run twice in processes of its own, by ``python`` and by ``python -m ort_core.dropin``, and leaves what
it found in a file: numbers and texts by name. Both must agree, numbers to a thousandth of the largest. The exit status
is the number of programs that differ; a program whose packages are not installed is said to be absent, and fails too.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from downstream_programs import PROGRAMS, WITH_TORCH

TOLERANCE = 1e-3  # of the largest number: quantized models may differ by a step, which is far below
TIME_LIMIT_S = 900
END = """
import pickle, sys
with open(sys.argv[1], "wb") as file:
    pickle.dump(result, file)
"""


def run(program: str, runner: list[str], folder: Path) -> tuple[object, str]:
    """Run a program; return what it left, and what it says where it left nothing."""
    path, target = folder / "program.py", folder / "result.pickle"
    path.write_text("import warnings\nwarnings.simplefilter('ignore')\n" + program + END, encoding="utf-8")
    target.unlink(missing_ok=True)
    command = [sys.executable, *runner, str(path), str(target)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIME_LIMIT_S)
    if done.returncode:
        return None, (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
    return pickle.loads(target.read_bytes()), ""


def differences(ours: object, theirs: object, where: str = "") -> list[str]:
    """Return where two results differ, in words."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        if ours.keys() != theirs.keys():
            return [f"{where}: other keys"]
        return [each for key in theirs for each in differences(ours[key], theirs[key], f"{where}/{key}")]
    if isinstance(theirs, (list, tuple)) and isinstance(ours, (list, tuple)):
        if len(ours) != len(theirs):
            return [f"{where}: {len(ours)} instead of {len(theirs)}"]
        pairs = enumerate(zip(ours, theirs, strict=True))
        return [each for number, pair in pairs for each in differences(*pair, f"{where}/{number}")]
    mine, wanted = np.asarray(ours), np.asarray(theirs)
    if mine.dtype != wanted.dtype or mine.shape != wanted.shape:
        return [f"{where}: {mine.dtype}{mine.shape} instead of {wanted.dtype}{wanted.shape}"]
    if wanted.dtype.kind not in "fiu":
        return [] if np.array_equal(mine, wanted) else [f"{where}: {ours!r} instead of {theirs!r}"[:200]]
    scale = float(np.abs(wanted[np.isfinite(wanted)]).max(initial=0)) or 1.0
    worst = float(np.abs(mine.astype(np.float64) - wanted).max(initial=0)) / scale
    return [f"{where}: {worst:.2g} of the largest number"] if not worst <= TOLERANCE else []


def count(result: object) -> int:
    """Return how many numbers and texts a result holds."""
    if isinstance(result, dict):
        return sum(map(count, result.values()))
    return sum(map(count, result)) if isinstance(result, (list, tuple)) else int(np.asarray(result).size)


def judge(name: str, folder: Path) -> bool:
    """Run one program on both, print its row, and return whether they agree."""
    start = time.perf_counter()
    theirs, problem = run(PROGRAMS[name], [], folder)
    middle = time.perf_counter()
    ours, own_problem = (None, "") if problem else run(PROGRAMS[name], ["-m", "ort_core.dropin"], folder)
    end = time.perf_counter()
    if problem:
        print(f"{name:14} absent  onnxruntime's own run fails: {problem}")
        return False
    found = [own_problem] if own_problem else differences(ours, theirs)
    outcome = "differ" if found else "pass"
    print(
        f"{name:14} {outcome:7} {count(theirs):7,} values, {middle - start:5.1f} s and {end - middle:5.1f} s",
        flush=True,
    )
    for each in found[:10]:
        print(f"    {each}")
    return not found


def main(names: list[str]) -> int:
    """Run the named programs, or all that need no torch; return how many do not agree."""
    with tempfile.TemporaryDirectory() as folder:
        return sum(
            not judge(name, Path(folder)) for name in names or [name for name in PROGRAMS if name not in WITH_TORCH]
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
