"""Cases at the edges of operators, by the real DirectML, beside the reference provider."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from rig_provider import run

import ort_core as ort
from ort_core.tolerances import compare

GENERATOR = np.random.default_rng(8)


def floats(*sizes: int) -> np.ndarray:
    return GENERATOR.standard_normal(sizes).astype(np.float32)


REGIONS = np.array([[0.2, 0.3, 0.7, 0.9], [1, 1, 5, 4], [2, 2, 2, 2]], np.float32)
CASES = {
    "regions of less than a pixel": (
        "RoiAlign", [floats(1, 2, 6, 6), REGIONS, np.zeros(3, np.int64)], [],
        {"output_height": 2, "output_width": 2, "sampling_ratio": 2, "spatial_scale": 0.5,
         "coordinate_transformation_mode": "output_half_pixel"},
    ),
    "regions of less than a pixel that stay so": (
        "RoiAlign", [floats(1, 2, 6, 6), REGIONS, np.zeros(3, np.int64)], [],
        {"output_height": 2, "output_width": 2, "sampling_ratio": 2, "coordinate_transformation_mode": "half_pixel"},
    ),
    "a bias beyond what a transposed convolution reaches": (
        "ConvTranspose", [floats(2, 2, 2)], [floats(2, 1, 1), floats(1)], {"strides": [2], "auto_pad": "SAME_LOWER"},
    ),
    "a bias with padding of the result": (
        "ConvTranspose", [floats(1, 2, 3, 3)], [floats(2, 3, 2, 2), floats(3)],
        {"strides": [3, 3], "output_padding": [1, 2]},
    ),
    "logarithms of a softmax of infinities": (
        "LogSoftmax", [np.array([[-np.inf, 1, -np.inf, 2], [-np.inf] * 4, [np.inf, 0, 1, -np.inf]], np.float32)],
        [], {},
    ),
    "one element that is its own mean": (
        "InstanceNormalization", [floats(2, 6, 1), floats(6)], [floats(6)], {},
    ),
    "scales of columns with one zero point": (
        "QLinearMatMul", [GENERATOR.integers(-128, 128, (2, 4), np.int8)],
        [np.array(0.05, np.float32), np.array(-97, np.int8), GENERATOR.integers(-128, 128, (4, 3), np.int8),
         np.array([0.02, 0.05, 0.1], np.float32), np.array(-24, np.int8), np.array(0.9, np.float32),
         np.array(3, np.int8)], {},
    ),
    "padding of a result that was cut": (
        "ConvTranspose", [floats(1, 2, 3, 3)], [floats(2, 3, 3, 3), floats(3)],
        {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]},
    ),
    "reversed sequences of matrices": (
        "ReverseSequence", [floats(4, 3, 2, 5), np.array([1, 4, 2])], [], {"time_axis": 0, "batch_axis": 1},
    ),
    "reversed sequences whose batch comes first": (
        "ReverseSequence", [floats(3, 4, 2, 1, 2), np.array([3, 4, 1])], [], {"time_axis": 1, "batch_axis": 0},
    ),
    "powers that are one": (
        "Pow",
        [np.array([0, -2, 1, 1, 3, 0, np.inf], np.float32), np.array([0, 0, np.inf, -np.inf, 2, 3, 0], np.float32)],
        [], {},
    ),
    "powers by a zero that is known": (
        "Pow", [np.array([[0, 2, -3]], np.float32)], [np.array([[0], [1]], np.float32)], {},
    ),
    "a slice backwards from before the first element": (
        "Slice", [floats(2, 5)], [np.array([-3]), np.array([-(2**62)]), np.array([0]), np.array([-1])], {},
    ),
}  # fmt: skip
"""Operator, inputs, constants and attributes by what they show."""


@pytest.mark.usefixtures("rig")
@pytest.mark.parametrize("name", CASES)
def test_a_case_at_an_edge_gives_what_the_reference_does(name: str) -> None:
    op_type, inputs, constants, attributes = CASES[name]
    feeds = {f"i{place}": array for place, array in enumerate(inputs)}
    held = {f"c{place}": array for place, array in enumerate(constants)}
    kinds = {key: helper.np_dtype_to_tensor_dtype(array.dtype) for key, array in feeds.items()}
    graph = helper.make_graph(
        [helper.make_node(op_type, [*feeds, *held], ["y"], **attributes)],
        "g",
        [helper.make_tensor_value_info(key, kinds[key], array.shape) for key, array in feeds.items()],
        [onnx.ValueInfoProto(name="y")],
        [numpy_helper.from_array(array, key) for key, array in held.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()
    reference = ort.InferenceSession(model, providers=["ReferenceExecutionProvider"])
    facts = compare(run(model, feeds)[0], reference.run(None, feeds)[0], "approximate")
    assert facts.passes, facts
