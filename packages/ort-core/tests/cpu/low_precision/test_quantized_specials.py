"""NaN and infinities between QuantizeLinear and DequantizeLinear: as if the integers were stored."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import parser

import ort_core as ort

X = np.array(
    [np.nan, -np.inf, np.inf, -3e38, 3e38, 0, -0.0, 1.49, 200, -200, np.nan, 7, 5, 3, 1, 2, np.nan], np.float32
)
MODEL = """
    <ir_version: 10, opset_import: ["": 21]>
    g (float[N] x) => (float[N] y{more}) <float s = {{{scale}}}, {kind} z = {{{zero}}}>
    {{
        r = Mul (x, x0)
        q = QuantizeLinear (r, s, z)
        d = DequantizeLinear (q, s, z)
        y = {last}
    }}
"""


@pytest.mark.parametrize("last", ["Identity (d)", "Add (d, x)", "Relu (d)"])
@pytest.mark.parametrize(
    ("kind", "zero"),
    [("int8", -7), ("int8", 0), ("uint8", 0), ("uint8", 131), ("int16", 0), ("uint16", 1000)],
)
@pytest.mark.parametrize("scale", ["0.5", "1e-45", "3e38", "inf"])
def test_pairs_in_registers_give_what_stored_integers_give(kind: str, zero: int, scale: str, last: str) -> None:
    found = []
    for more in ("", f", {kind}[N] q"):
        text = MODEL.format(more=more, scale=scale if scale != "inf" else "1", kind=kind, zero=zero, last=last)
        model = parser.parse_model(text.replace("x0", "one").replace("<float s", "<float one = {1}, float s"))
        if scale == "inf":
            model.graph.initializer[1].float_data[:] = [np.inf]
        session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        found.append(session.run(["y"], {"x": X})[0])
    theirs = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], theirs.run(["y"], {"x": X})[0])
