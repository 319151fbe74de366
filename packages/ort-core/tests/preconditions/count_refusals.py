"""Breaks one precondition at a time in valid cases, counts who refuses; arguments: forms per operator, filter, seeds.

Prints every difference from onnxruntime that ``deliberate`` has no reason for: who refuses, other results, crashes.
"""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from asking import Outcome, outcomes
from breaks import breaks
from deliberate import DIFFERENT, LENIENT, STRICT, find_reason
from drawn_cases import drawn_cases
from node_cases import NodeCase, chosen, onnx_cases, recorded_cases

UNSUPPORTED = ("NOT_IMPLEMENTED", "is not a registered function", "No corresponding Numpy", "RuntimeError: ")

SHAPES = ("stated", "named", "fixed", "known")


def main(forms: int = 2, pattern: str = "", seeds: int = 400) -> int:
    """Run the sweep and return the number of crashes, of unexplained differences, and of reasons without one."""
    data = os.environ.get("ORT_TEST_DATA")
    recorded = recorded_cases(Path(data, "cases", "operators")) if data else ()
    everything = [*onnx_cases(), *recorded, *drawn_cases(seeds)]
    cases = [c for c in chosen(everything, forms) if re.search(pattern, ":".join(c.operator))]
    broken = [(case, what, other) for case in cases for what, other in breaks(case)]
    print(f"{len(cases)} cases, {len(broken)} broken ones")  # noqa: T201  # a report
    found, used = 0, set()
    for shapes in SHAPES:
        theirs = outcomes("onnxruntime", shapes, [each[2] for each in broken])
        ours = outcomes("cpu", shapes, [each[2] for each in broken])
        counts: Counter[str] = Counter()
        for (case, what, _), left, right in zip(broken, theirs, ours, strict=True):
            kind, reason = compared(case, what, left, right)
            used.add(reason)
            counts[f"{kind}, {'on purpose' if reason else 'unexplained'}" if kind != "alike" else kind] += 1
            if kind != "alike" and reason is None:
                found += 1
                text = " ".join((left[1] or right[1]).split())[-160:]
                print(f"{kind}: {':'.join(case.operator)} {case.name}: {what}: {text}")  # noqa: T201  # a report
        print(shapes, dict(counts))  # noqa: T201  # a report
    stale = [row for row in (*LENIENT, *STRICT, *DIFFERENT) if row.reason not in used and not pattern]
    for row in stale:
        print(f"nothing needs this any more: {row}")  # noqa: T201  # a report
    return found + len(stale)


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
        right = right.view(f"u{right.dtype.itemsize}") if left.dtype.kind == "u" else right
    if not isinstance(right, np.ndarray) or left.shape != right.shape or left.dtype != right.dtype:
        return False
    if left.dtype.kind not in "fiub":
        return bool(np.array_equal(left, right))
    with np.errstate(all="ignore"):
        return bool(np.allclose(right.astype(float), left.astype(float), rtol=2e-3, atol=1e-4, equal_nan=True))


if __name__ == "__main__":
    asked = [int(sys.argv[1]), *sys.argv[2:3], *map(int, sys.argv[3:4])] if sys.argv[1:] else []
    sys.exit(min(main(*asked), 1))  # type: ignore[arg-type]  # a number, a text, a number
