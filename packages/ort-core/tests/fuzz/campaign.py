"""Run many mutants in this process, under a memory limit, and write what was no result and no clear OrtError.

    python campaign.py CORPUS FIRST COUNT OUT [TIME_LIMIT_S]     seeds FIRST to FIRST + COUNT - 1, findings in OUT

Each mutant is loaded and run with a time limit and an allocation limit. A finding is an error that is no ``OrtError``,
a built-in error that a kernel let out (its name stands in the message), memory beyond the limit, or a hang. The seed is
written before it is tried: after a crash the last line of OUT names it.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import logging
import math
import os
import random
import re
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from corpus import Seed, read_corpus  # isort: skip
from mutations import mutate  # isort: skip

import ort_core as ort

MEMORY_NBYTES = 4 << 30
VALUE_NBYTES = 64 << 20  # what one value may take: far above every seed, far below the memory limit
HANG_S = 30  # of processor time: how busy the machine is makes no finding
STUCK_S = 250  # of anybody's clock, for what waits and computes nothing
SLOW_S = 6.0  # of processor time
BARE = re.compile(
    r"(?<![A-Za-z])(?<!Fatal )"  # onnxruntime's own words for an operator that nobody registered
    r"(KeyError|IndexError|TypeError|ValueError|AttributeError|RecursionError|AssertionError|OverflowError|"
    r"UnicodeDecodeError|UnboundLocalError|ZeroDivisionError|MemoryError|_ArrayMemoryError|StopIteration|LinAlgError|"
    r"AxisError|NotImplementedError|UFuncTypeError|_UFunc\w+|DTypePromotionError|error|InvalidOperation|FloatingPointError)"
    r": "
)
_PLAIN_TYPES = (
    "float16", "float32", "float64", "bool", "object",
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
)  # fmt: skip


class Hang(BaseException):
    """A mutant took longer than it may; no ``Exception``, so that nothing on the way can hold it back."""


@contextlib.contextmanager
def alarm() -> Iterator[None]:
    """Raise ``Hang`` inside the block after ``HANG_S`` of processor time, or ``STUCK_S``."""

    def ring(*_: object) -> None:
        raise Hang

    signal.signal(signal.SIGPROF, ring)
    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_PROF, HANG_S)
    signal.alarm(STUCK_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)


def write_folder(folder: Path) -> Path:
    """Make the folder of a model: a short file, a folder, links that lead out."""
    inside = folder / "model"
    (inside / "folder").mkdir(parents=True)
    (folder / "outside.bin").write_bytes(b"secret" * 100)
    (inside / "short.bin").write_bytes(b"\0" * 16)
    (inside / "link.bin").symlink_to(folder / "outside.bin")
    (inside / "linked").symlink_to(folder)
    return inside


def fitting_feeds(session: ort.InferenceSession, feeds: dict[str, object], rng: random.Random) -> dict[str, object]:
    """Return the seed's feeds where they still fit, values of the declared type and shape elsewhere."""
    made: dict[str, object] = {}
    for argument in session.get_inputs():
        value = feeds.get(argument.name)
        shape = [dim if isinstance(dim, int) else rng.choice((0, 1, 2)) for dim in argument.shape]
        fits = isinstance(value, np.ndarray) and len(shape) == value.ndim
        is_small = math.prod(max(size, 1) for size in shape) < 1_000_000
        if is_small and (value is None or (not fits and argument.type.startswith("tensor("))):
            value = _ones(argument.type, shape)
        if isinstance(value, np.ndarray) and value.dtype.kind in "iu" and value.size and rng.random() < 0.3:
            value = value.copy()
            limits = np.iinfo(value.dtype)
            extremes = (limits.min, limits.max, 0, -1 if limits.min else 1, 1, 2**31 % limits.max)
            value.reshape(-1)[rng.randrange(value.size)] = rng.choice(extremes)
        made[argument.name] = value
    return made


def _ones(declared: str, shape: list[int]) -> object:
    names = {"float": "float32", "double": "float64", "string": "object"}
    name = declared.removeprefix("tensor(").removesuffix(")")
    name = names.get(name, name)
    if name not in _PLAIN_TYPES or any(size < 0 for size in shape):
        return None
    dtype = np.dtype(name)
    return np.full(shape, "text", object) if dtype.kind == "O" else np.ones(shape, dtype)


def try_mutant(seed: Seed, rng: random.Random, folder: Path, time_limit_s: float = 2.0) -> tuple[str, str, str]:
    """Return what was done, how it ended (``result`` or the name of the error), and the message."""
    name, content, feeds = seed
    done, broken = mutate(content, rng)
    done = f"{name}: {done}"
    path = folder / "model.onnx"
    path.write_bytes(broken)
    options = ort.SessionOptions()
    options.max_allocation_bytes = VALUE_NBYTES
    options.graph_optimization_level = rng.choice(list(ort.GraphOptimizationLevel))
    run_options = ort.RunOptions()
    run_options.time_limit_s = time_limit_s
    try:
        with alarm():
            session = ort.InferenceSession(str(path), options)
            session.run(None, fitting_feeds(session, feeds, rng), run_options)
        return done, "result", ""
    except Hang:
        return done, "Hang", traceback.format_exc(limit=-6)
    except ort.OrtError as error:
        return done, type(error).__name__, str(error)
    except Exception as error:  # noqa: BLE001 - the border to what is under test: anything but an OrtError is a finding
        return done, f"bare {type(error).__name__}", f"{error}\n{traceback.format_exc(limit=-6)}"


def outcome(ending: str, message: str, seconds: float) -> str | None:
    """Return what is wrong with how a mutant ended, ``None`` when nothing is."""
    if ending.startswith("bare") or ending == "Hang":
        return ending
    if ending != "result" and BARE.search(message):
        return f"inside {BARE.search(message).group(1)}"
    return f"slow {seconds:.1f} s" if seconds > SLOW_S else None


def run_seeds(corpus: list[Seed], first: int, count: int, out: Path, time_limit_s: float) -> None:
    """Try ``count`` mutants; writes findings, and at the end the counts of endings."""
    endings: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as folder, out.open("a") as file:
        inside = write_folder(Path(folder))
        for number in range(first, first + count):
            print(json.dumps({"trying": number}), file=file, flush=True)
            rng = random.Random(number)
            start = time.process_time()
            done, ending, message = try_mutant(rng.choice(corpus), rng, inside, time_limit_s)
            problem = outcome(ending, message, time.process_time() - start)
            endings[ending] = endings.get(ending, 0) + 1
            if problem is not None:
                finding = {
                    "seed": number,
                    "problem": problem,
                    "mutant": done,
                    "ending": ending,
                    "message": message[:1500],
                }
                print(json.dumps(finding), file=file, flush=True)
        print(json.dumps({"endings": endings}), file=file, flush=True)


def main() -> None:
    """Read the arguments, set the memory limit, run."""
    corpus, first, count, out = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    faulthandler.enable()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    os.environ["OMP_NUM_THREADS"] = "1"
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_NBYTES, MEMORY_NBYTES))
    run_seeds(read_corpus(corpus), first, count, out, float(sys.argv[5]) if len(sys.argv) > 5 else 2.0)


if __name__ == "__main__":
    main()
