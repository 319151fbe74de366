"""A share of the sweep: where outcomes differ from onnxruntime's, ``deliberate`` says why."""

from __future__ import annotations

import pytest
from asking import ask
from breaks import breaks
from count_refusals import compared
from node_cases import chosen, onnx_cases

WHOLE = ("LRN", "MeanVarianceNormalization", "NonMaxSuppression", "RMSNormalization", "TopK", "Upsample")


@pytest.mark.parametrize("op_type", WHOLE)
def test_no_difference_is_unexplained(op_type: str) -> None:
    found = [case for case in chosen(onnx_cases(), 1) if case.operator == ("", op_type)]
    assert found, op_type
    for case in found:
        for what, broken in breaks(case):
            theirs, ours = ask("onnxruntime", "stated", broken), ask("cpu", "stated", broken)
            kind, reason = compared(case, what, theirs, ours)
            assert kind == "alike" or reason, f"{kind}: {case.name}: {what}: {theirs[1] or ours[1]}"
