"""Nodes that are compiled alone, however small: broken ones end as in the numpy kernels, refused or with numbers.

Lowering rules read attributes and shapes by themselves. What a kernel refuses, and no rule of attributes and no
precondition, they would compute.
"""

from __future__ import annotations

import inspect
import random
import sys

import numpy as np
import pytest
from asking import ask
from breaks import breaks
from deliberate import COMPILED, MS, find_reason
from drawn_cases import IS_RANDOM, cases_of_family
from node_cases import NodeCase, chosen, onnx_cases
from random_graphs.families import families
from random_graphs.family import Family

from ort_core.cpu.partition import admission

MOST = 4  # changes of one case
LEFT_OUT = ("Random", "Bernoulli", "Multinomial", "Dropout", "Loop")  # random, and without an end where M is left out
CASES = [case for case in chosen(onnx_cases(), 1) if not case.op_type.startswith(LEFT_OUT)]


OF_MICROSOFT = [each for each in families() if "MICROSOFT" in inspect.getsource(sys.modules[each.step.__module__])]


@pytest.fixture(autouse=True)
def _compiles_small_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "_SMALL", 0)


@pytest.mark.sweep(parts=8)
@pytest.mark.parametrize("case", CASES, ids=lambda case: ":".join(case.operator))
def test_a_broken_node_ends_compiled_as_in_its_kernel(case: NodeCase) -> None:
    _compare(case, "fixed", MOST)


@pytest.mark.sweep(parts=16)
@pytest.mark.parametrize("family", OF_MICROSOFT, ids=lambda family: family.name)
def test_a_broken_node_of_microsoft_ends_compiled_as_in_its_kernel(family: Family) -> None:
    cases = [case for case in cases_of_family(family, MS) if not case.op_type.startswith(IS_RANDOM)]
    for number, case in enumerate(chosen(cases, 2)):
        _compare(case, ("fixed", "named")[number % 2], 2)


def _compare(case: NodeCase, shapes: str, most: int) -> None:
    """Compare a case, and some that are broken, which end as in the kernel: refused, or with its numbers."""
    broken = [each for each in breaks(case) if not each[0].startswith("opset")]
    for what, changed in [("as it is", case), *random.Random(case.name).sample(broken, min(most, len(broken)))]:
        if find_reason(COMPILED, case.operator, what) is not None:
            continue
        kernel, compiled = (ask(engine, shapes, changed) for engine in ("reference", "cpu"))
        assert compiled[0] == kernel[0], f"{case.name}: {what}: {kernel[1] or compiled[1]}"
        for left, right in zip(compiled[2], kernel[2], strict=True):
            if isinstance(left, np.ndarray) and left.dtype.kind in "iufb":
                assert left.dtype == right.dtype, f"{case.name}: {what}"
                np.testing.assert_allclose(left, right, rtol=1e-3, atol=1e-4, err_msg=f"{case.name}: {what}")
