"""A share of the sweep: a broken rank or size of one input of a node, in onnxruntime and here."""

from __future__ import annotations

import pytest
from asking import ask
from breaks import breaks
from count_refusals import SHAPES
from node_cases import chosen, onnx_cases

OPERATORS = ("Attention", "ConvTranspose", "GRU", "LSTM", "RNN", "RotaryEmbedding")


@pytest.mark.parametrize("op_type", OPERATORS)
def test_what_onnxruntime_refuses_of_shapes_is_refused(op_type: str) -> None:
    cases = [case for case in chosen(onnx_cases(), 1) if case.operator == ("", op_type)]
    assert cases, op_type
    broken = [each for case in cases for each in breaks(case) if each[0].startswith(("input 1: size", "input 2: size"))]
    assert broken
    for what, case in broken:
        if ask("onnxruntime", "named", case)[0] == "refused":
            for shapes in SHAPES:
                assert ask("cpu", shapes, case)[0] == "refused", f"{case.name}: {what}, sizes {shapes}"
