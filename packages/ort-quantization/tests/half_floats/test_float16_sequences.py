"""Sequences beside nodes that stay float32: nothing casts them, so their other readers stay so as well."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, parser

import ort_core
from ort_quantization.float16 import convert_float_to_float16

PARTS = """
    <ir_version: 8, opset_import: ["": 17]>
    g (float[4, 6] x) => (float[4, 6] y, float[4, 6] z)
    <int64 second = {1}>
    {
        [sine] a = Sin (x)
        [cut] parts = SplitToSequence <axis = 0> (a)
        [more] longer = SequenceInsert (parts, a)
        [pick] b = SequenceAt (longer, second)
        [join] y = ConcatFromSequence <axis = 0> (parts)
        [last] z = Add (a, b)
    }
"""
CHOSEN = """
    <ir_version: 8, opset_import: ["": 17]>
    g (float[4, 6] x, bool c) => (float[8, 6] y)
    {
        [pair] two = SequenceConstruct (x, x)
        [choice] some = If (c) <
            then_branch = t () => (seq(float[4, 6]) u) { [less] s = Sin (x)  [same] u = SequenceConstruct (s, x) },
            else_branch = e () => (seq(float[4, 6]) v) { v = Identity (two) }
        >
        [join] y = ConcatFromSequence <axis = 0> (some)
    }
"""
GIVEN = """
    <ir_version: 8, opset_import: ["": 17]>
    g (seq(float[4, 6]) x) => (float[8, 6] y) { [join] j = ConcatFromSequence <axis = 0> (x)  [sine] y = Sin (j) }
"""
X = np.linspace(-1, 1, 24, dtype=np.float32).reshape(4, 6)
CASES = [
    *((PARTS, {"node_block_list": [name]}, {"x": X}) for name in ("sine", "cut", "more", "pick", "join")),
    *((PARTS, {"op_block_list": [name]}, {"x": X}) for name in ("SequenceAt", "ConcatFromSequence")),
    *((CHOSEN, {"node_block_list": [name]}, {"x": X, "c": np.array(True)}) for name in ("choice", "join", "less")),
    *((CHOSEN, {"node_block_list": [name]}, {"x": X, "c": np.array(False)}) for name in ("pair", "same")),
    (GIVEN, {"node_block_list": ["join"]}, {"x": [X, X]}),
    (GIVEN, {}, {"x": [X, X]}),
]  # fmt: skip


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize(("text", "choices", "feeds"), CASES, ids=lambda each: str(each)[-25:])
def test_a_sequence_has_one_type_wherever_it_goes(tmp_path, text, choices, feeds, keeps):
    model = parser.parse_model(text)
    truth = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)
    made = convert_float_to_float16(model, keep_io_types=keeps, **choices)
    onnx.checker.check_model(made, full_check=True)
    kind = made.graph.input[0].type
    half = TensorProto.FLOAT16 in (kind.tensor_type.elem_type, kind.sequence_type.elem_type.tensor_type.elem_type)
    given = dict(feeds)
    if half:
        given["x"] = (
            [x.astype(np.float16) for x in feeds["x"]] if isinstance(feeds["x"], list) else X.astype(np.float16)
        )
    for engine in (ort_core, onnxruntime):
        session = engine.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
        for found, wanted in zip(session.run(None, given), truth, strict=True):
            np.testing.assert_allclose(found.astype(np.float32), wanted, atol=2e-3)
