"""ConvTranspose of row-major images to a few channels, against the numpy kernel and onnxruntime."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import ort_core as ort
from ort_core.tolerances import compare

FLOAT = TensorProto.FLOAT


def numbers(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def transposed(
    depth: int, filters: int, kernel: Sequence[int], shape: Sequence[int | str], *, has_bias: bool, **attributes: object
) -> bytes:
    constants = {"w": numbers(1, depth, filters, *kernel), **({"b": numbers(2, filters)} if has_bias else {})}
    nodes = [
        helper.make_node("ConvTranspose", ["x", *constants], ["t"], **attributes),
        helper.make_node("Sigmoid", ["t"], ["y"]),
    ]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "columns", [info("x", FLOAT, shape)], [info("y", FLOAT, None), info("t", FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    return bytes(model.SerializeToString())


@pytest.mark.parametrize("filters", [1, 3, 4])
@pytest.mark.parametrize(
    ("kernel", "attributes"),
    [
        ((4, 4), {"strides": [2, 2], "pads": [1] * 4}), ((3, 3), {"strides": [2, 2]}), ((3, 2), {}),
        ((2, 2), {"strides": [3, 3], "output_padding": [1, 2]}),
        ((3, 3), {"strides": [2, 1], "dilations": [2, 3], "pads": [2, 0, 1, 4]}),
        ((5, 5), {"strides": [2, 2], "auto_pad": "SAME_UPPER"}),
    ],
    ids=str,
)  # fmt: skip
def test_columns_are_added_as_by_the_kernel(filters: int, kernel: Sequence[int], attributes: dict[str, object]) -> None:
    depth = 8 + filters
    for has_bias, shape in ((False, [2, depth, 7, 9]), (True, ["N", depth, "H", "W"])):
        if "auto_pad" in attributes and has_bias:
            continue  # pads of open sizes are left to the kernel
        model = transposed(depth, filters, kernel, shape, has_bias=has_bias, **attributes)
        session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
        assert not session._loaded.prepared.plan.steps[0].step.compiled.refusals, "not compiled"
        others = [
            ort.InferenceSession(model, providers=["ReferenceExecutionProvider"]),
            onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]),
        ]
        for sizes in [(2, 7, 9)] if not has_bias else [(2, 7, 9), (1, 1, 1), (3, 4, 33)]:
            x = numbers(3, sizes[0], depth, *sizes[1:])
            found = session.run(None, {"x": x})
            for other in others:
                for one, wanted in zip(found, other.run(None, {"x": x}), strict=True):
                    assert compare(one, wanted, "approximate").passes, (sizes, has_bias)


def test_halves_are_multiplied_as_floats() -> None:
    w = numpy_helper.from_array(numbers(1, 8, 3, 2, 2).astype(np.float16), "w")
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT16, ["N", None, "H", "W"]) for name in "xy")
    x.type.tensor_type.shape.dim[1].dim_value = 8
    graph = helper.make_graph([helper.make_node("ConvTranspose", ["x", "w"], ["y"])], "halves", [x], [y], [w])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9).SerializeToString()
    feeds = {"x": numbers(2, 2, 8, 5, 3).astype(np.float16)}
    found, expected = (
        ort.InferenceSession(model, providers=[f"{name}ExecutionProvider"]).run(None, feeds)[0]
        for name in ("CPU", "Reference")
    )
    assert compare(found, expected, "approximate").passes
