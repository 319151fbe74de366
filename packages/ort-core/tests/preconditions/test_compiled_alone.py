"""Nodes that are compiled alone, however small: broken ones end as in the numpy kernels, refused or with numbers.

Lowering rules read attributes and shapes by themselves. What a kernel refuses, and no rule of attributes and no
precondition, they would compute.
"""

from __future__ import annotations

import random

import numpy as np
import pytest
from asking import ask
from breaks import breaks
from node_cases import NodeCase, chosen, onnx_cases

from ort_core.cpu.partition import admission

MOST = 4  # changes of one case
LEFT_OUT = ("Random", "Bernoulli", "Multinomial", "Dropout", "Loop")  # random, and without an end where M is left out
CASES = [case for case in chosen(onnx_cases(), 1) if not case.op_type.startswith(LEFT_OUT)]


@pytest.mark.sweep(parts=8)
@pytest.mark.parametrize("case", CASES, ids=lambda case: ":".join(case.operator))
def test_a_broken_node_ends_compiled_as_in_its_kernel(case: NodeCase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "_SMALL", 0)
    broken = [each for each in breaks(case) if not each[0].startswith("opset")]
    for what, changed in random.Random(case.name).sample(broken, min(MOST, len(broken))):
        kernel, compiled = (ask(engine, "fixed", changed) for engine in ("reference", "cpu"))
        assert compiled[0] == kernel[0], f"{case.name}: {what}: {kernel[1] or compiled[1]}"
        for left, right in zip(compiled[2], kernel[2], strict=True):
            if isinstance(left, np.ndarray) and left.dtype.kind in "iufb":
                np.testing.assert_allclose(left, right, rtol=1e-3, atol=1e-5, err_msg=f"{case.name}: {what}")
