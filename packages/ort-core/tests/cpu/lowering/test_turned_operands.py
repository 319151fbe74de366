"""Expressions over transposed operands, columns beside rows, for every width of elements and odd sizes."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper
from test_groups import model_of, run, session

SHAPES = ((33, 65), (128, 9), (9, 128), (1, 2000), (2000, 1), (3, 47, 31), (5, 64, 16))
TYPES = (np.int8, np.uint8, np.int16, np.int32, np.int64, np.float16, np.float32, np.float64, np.bool_)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("is_open", [False, True])
def test_sum_of_a_tensor_and_its_transpose_reads_each_element_in_its_place(dtype: type, is_open: bool) -> None:
    elements, generator = helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), np.random.default_rng(3)
    for shape in SHAPES:
        order = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
        x = generator.integers(0, 2 if dtype is np.bool_ else 50, shape).astype(dtype)
        z = generator.integers(0, 2 if dtype is np.bool_ else 50, np.transpose(x, order).shape).astype(dtype)
        operator = "Xor" if dtype is np.bool_ else "Add"
        nodes = [helper.make_node("Transpose", ["x"], ["t"], perm=order), helper.make_node(operator, ["t", "z"], ["y"])]
        given = {
            name: (elements, [f"{name}{axis}" if is_open else size for axis, size in enumerate(each.shape)])
            for name, each in (("x", x), ("z", z))
        }
        compiled = session(model_of(nodes, given, {"y": elements}), "CPUExecutionProvider")
        turned = np.transpose(x, order)
        expected = turned ^ z if dtype is np.bool_ else turned + z
        np.testing.assert_array_equal(run(compiled, {"x": x, "z": z})[0], expected, f"{shape}")
