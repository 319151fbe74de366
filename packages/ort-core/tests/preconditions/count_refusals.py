"""Breaks one precondition at a time in valid cases and counts who refuses; arguments: forms per operator, a filter.

Prints, for each operator, where onnxruntime refuses and a result comes here, and the reverse, and every crash.
"""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from pathlib import Path

from asking import verdicts
from breaks import breaks
from node_cases import chosen, onnx_cases, recorded_cases

UNSUPPORTED = ("NOT_IMPLEMENTED", "is not a registered function", "No corresponding Numpy", "RuntimeError: ")


def main(forms: int = 2, pattern: str = "") -> int:
    """Run the sweep and return the number of crashes here."""
    data = os.environ.get("ORT_TEST_DATA")
    recorded = recorded_cases(Path(data, "cases", "operators")) if data else ()
    cases = [c for c in chosen([*onnx_cases(), *recorded], forms) if re.search(pattern, ":".join(c.operator))]
    broken = [(case, what, other) for case in cases for what, other in breaks(case)]
    print(f"{len(cases)} cases, {len(broken)} broken ones")  # noqa: T201  # a report
    crashes = 0
    for shapes in ("stated", "named", "fixed"):
        theirs = verdicts("onnxruntime", shapes, [each[2] for each in broken])
        ours = verdicts("cpu", shapes, [each[2] for each in broken])
        pairs: Counter[tuple[str, str]] = Counter()
        lenient: Counter[str] = Counter()
        strict: Counter[str] = Counter()
        for (case, what, _), left, right in zip(broken, theirs, ours, strict=True):
            kind = "unsupported" if any(text in left[1] for text in UNSUPPORTED) else left[0]
            pairs[kind, right[0]] += 1
            lenient[":".join(case.operator)] += (kind, right[0]) == ("refused", "ok")
            strict[":".join(case.operator)] += (kind, right[0]) == ("ok", "refused")
            if right[0] in ("crash", "hang"):
                crashes += 1
                print(f"{right[0]}: {case.name}: {what} ({shapes})")  # noqa: T201  # a report
        print(shapes, dict(pairs), "lenient", +lenient, "strict", +strict, sep="\n  ")  # noqa: T201  # a report
    return crashes


if __name__ == "__main__":
    sys.exit(min(main(int(sys.argv[1]) if sys.argv[1:] else 2, sys.argv[2] if sys.argv[2:] else ""), 1))
