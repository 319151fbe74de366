"""Breaks one precondition at a time in valid cases, and counts who refuses.

    python count_refusals.py [FORMS [FILTER [SEEDS [FIRST [MOST]]]]]

``FORMS`` of each operator whose name contains ``FILTER``, also out of ``SEEDS`` random graphs from ``FIRST`` on;
``MOST`` broken cases of each operator, drawn by ``FIRST`` (0: all, which takes hours: 100,000 sessions of each engine).
Prints every difference from onnxruntime that ``deliberate`` has no reason for: who refuses, other results, crashes;
and where a compiled node ends otherwise than its kernel.
"""

from __future__ import annotations

import os
import random
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from asking import Outcome, outcomes
from breaks import breaks
from deliberate import COMPILED, DIFFERENT, LENIENT, STRICT, find_reason
from drawn_cases import FIRST_SEED, IS_RANDOM, drawn_cases
from node_cases import NodeCase, chosen, onnx_cases, recorded_cases

UNSUPPORTED = ("NOT_IMPLEMENTED", "is not a registered function", "No corresponding Numpy", "RuntimeError: ")

PART = 500  # cases between two lines of progress
ENGINES = ("onnxruntime", "cpu", "reference", "compiled")
SHAPES = ("stated", "named", "fixed", "known")
Change = tuple[NodeCase, str, NodeCase]  # a valid case, what was broken, and the broken one


def main(forms: int = 2, pattern: str = "", seeds: int = 400, first: int = FIRST_SEED, most: int = 0) -> int:
    """Run the sweep and return the number of crashes, of unexplained differences, and of reasons without one."""
    data = os.environ.get("ORT_TEST_DATA")
    recorded = recorded_cases(Path(data, "cases", "operators")) if data else ()
    everything = [*onnx_cases(), *recorded, *drawn_cases(seeds, first)]
    cases = [c for c in chosen(everything, forms) if re.search(pattern, ":".join(c.operator))]
    broken = drawn([(case, *each) for case in cases for each in breaks(case)], most, first)
    _report(f"{len(cases)} cases, {len(broken)} broken ones")
    counts: Counter[str] = Counter()
    used: set[str | None] = set()
    for shapes in SHAPES:
        for start in range(0, len(broken), PART):
            used |= _compare(shapes, broken[start : start + PART], counts)
            _report(f"{shapes} {min(start + PART, len(broken))}: {dict(counts)}")
    stale = [
        row for row in (*LENIENT, *STRICT, *DIFFERENT, *COMPILED) if row.reason not in used and not (pattern or most)
    ]
    for row in stale:
        _report(f"nothing needs this any more: {row}")
    return sum(count for kind, count in counts.items() if kind.endswith("unexplained")) + len(stale)


def drawn(broken: list[Change], most: int, seed: int) -> list[Change]:
    """Return at most so many broken cases of each operator, all of them where ``most`` is 0."""
    if not most:
        return broken
    found: dict[tuple[str, str], list[Change]] = defaultdict(list)
    for change in random.Random(seed).sample(broken, len(broken)):
        found[change[0].operator].append(change)
    return [change for changes in found.values() for change in changes[:most]]


def _compare(shapes: str, broken: Sequence[Change], counts: Counter[str]) -> set[str | None]:
    """Ask both engines, report what nobody explains, count all; return the reasons that were needed."""
    used: set[str | None] = set()
    theirs, ours, kernels, compiled = (outcomes(engine, shapes, [each[2] for each in broken]) for engine in ENGINES)
    for (case, what, _), left, right in zip(broken, kernels, compiled, strict=True):
        if case.op_type.startswith(IS_RANDOM) or not differ(left, right):
            continue
        reason = find_reason(COMPILED, case.operator, what)
        used.add(reason)
        counts[f"compiled, {'on purpose' if reason else 'unexplained'}"] += 1
        if reason is None:
            _report(f"compiled otherwise: {':'.join(case.operator)} {case.name} [{shapes}]: {what}: {left[1]}")
    for (case, what, _), left, right in zip(broken, theirs, ours, strict=True):
        kind, reason = compared(case, what, left, right)
        used.add(reason)
        counts[f"{kind}, {'on purpose' if reason else 'unexplained'}" if kind != "alike" else kind] += 1
        if kind != "alike" and reason is None:
            text = " ".join((left[1] or right[1]).split())[-160:]
            _report(f"{kind}: {':'.join(case.operator)} {case.name} [{shapes}]: {what}: {text}")
    return used


def differ(kernel: Outcome, compiled: Outcome) -> bool:
    """Return whether compiled code ends otherwise than the numpy kernel does."""
    if kernel[0] != compiled[0]:
        return True
    return kernel[0] == "ok" and not alike(kernel[2], compiled[2])


def _report(line: str) -> None:
    print(line, flush=True)  # noqa: T201  # a report


def compared(case: NodeCase, what: str, left: Outcome, right: Outcome) -> tuple[str, str | None]:
    """Return how an outcome here differs from onnxruntime's, and why it may."""
    if right[0] == "crash" or (right[0] == "hang" != left[0]):
        return right[0], None
    if left[0] == "refused" and right[0] == "ok" and not any(text in left[1] for text in UNSUPPORTED):
        return "lenient", find_reason(LENIENT, case.operator, left[1])
    if left[0] == "ok" and right[0] == "refused":
        return "strict", find_reason(STRICT, case.operator, right[1])
    if left[0] == right[0] == "ok" and not alike(left[2], right[2]):
        return "different", find_reason(DIFFERENT, case.operator, what)
    return "alike", None


def alike(theirs: Sequence[object], ours: Sequence[object]) -> bool:
    """Return whether results have the same shapes and types, and numbers as near as the broken case lets them be."""
    return all(_are_near(left, right) for left, right in zip(theirs, ours, strict=True))


def _are_near(left: object, right: object) -> bool:
    if not isinstance(left, np.ndarray):
        return True
    if isinstance(right, np.ndarray) and right.dtype.kind == "V":  # of a type of ml_dtypes: onnxruntime gives the bits
        right = right.view(f"u{right.dtype.itemsize}")
        left = left.view(right.dtype) if left.dtype.kind == "V" else left
    if not isinstance(right, np.ndarray) or left.shape != right.shape or left.dtype != right.dtype:
        return False
    if left.dtype.kind not in "fiub":
        return bool(np.array_equal(left, right))
    with np.errstate(all="ignore"):
        return bool(np.allclose(right.astype(float), left.astype(float), rtol=2e-3, atol=1e-4, equal_nan=True))


if __name__ == "__main__":
    asked = [int(sys.argv[1]), *sys.argv[2:3], *map(int, sys.argv[3:6])] if sys.argv[1:] else []
    sys.exit(min(main(*asked), 1))  # type: ignore[arg-type]  # a number, a text, a number
