"""Names of sizes that read like arithmetic of other sizes are names: nothing says that they are what they say."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import parser

import ort_core as ort

ONE = "int64[1] one = {1}, int64[1] two = {2}, int64[1] three = {3}, int64[1] five = {5}, float[1, 1, 1] c = {2.5}"
SHAPED = "s = Shape (x) k = Slice (s, two, three)"
CASES = {  # the name of w's last size: the graph whose y has the size that the name reads like
    "n//2": ("y = AveragePool <kernel_shape = [2], strides = [2]> (x)", lambda n: n // 2),
    "n%3": (f"{SHAPED} t = Mod (k, three) u = Concat <axis = 0> (one, one, t) y = Expand (c, u)", lambda n: n % 3),
    "max(n, 5)": (
        f"{SHAPED} t = Max (k, five) u = Concat <axis = 0> (one, one, t) y = Expand (c, u)",
        lambda n: max(n, 5),
    ),
    "max(5, n)": (
        f"{SHAPED} t = Max (k, five) u = Concat <axis = 0> (one, one, t) y = Expand (c, u)",
        lambda n: max(n, 5),
    ),
    "2*n": ("y = Concat <axis = 2> (x, x)", lambda n: 2 * n),
    "n//2//2": (
        "a = AveragePool <kernel_shape = [2], strides = [2]> (x) y = MaxPool <kernel_shape = [2], strides = [2]> (a)",
        lambda n: n // 2 // 2,
    ),
    "\0n//2": ("y = AveragePool <kernel_shape = [2], strides = [2]> (x)", lambda n: n // 2),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("level", ["ORT_DISABLE_ALL", "ORT_ENABLE_ALL"])
def test_a_size_has_no_other_one_s_value_because_of_its_name(name: str, level: str) -> None:
    body, size = CASES[name]
    model = parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17]> g (float[1, 1, n] x, float[1, 1, m] w) '
        f"=> (float[1, 1, p] y, float[1, 1, q] z) <{ONE}> {{ {body} z = Neg (w) }}"
    )
    model.graph.input[1].type.tensor_type.shape.dim[2].dim_param = name
    options = ort.SessionOptions()
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    session = ort.InferenceSession(model.SerializeToString(), options)
    for n, m in [(10, 3), (8, 500), (6, 4), (10, 3), (10, 3), (10, 3), (10, 5)]:
        w = np.ones((1, 1, m), np.float32)
        y, z = session.run(None, {"x": np.ones((1, 1, n), np.float32), "w": w})
        assert y.shape == (1, 1, size(n)), (n, m)
        np.testing.assert_array_equal(z, -w)
