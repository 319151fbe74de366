"""Pooling of images where they lie, channels-first, beside the numpy kernels and onnxruntime."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import helper

import ort_core as ort

FLOAT = 1


def model(op_type: str, rank: int, **attributes: object) -> bytes:
    node = helper.make_node(op_type, ["x"], ["y"], **attributes)
    names = ["N", "C", "H", "W"][: rank - 1] + ["W"] if rank == 3 else ["N", "C", "H", "W"]
    given = helper.make_tensor_value_info("x", FLOAT, names)
    graph = helper.make_graph([node], "g", [given], [helper.make_empty_tensor_value_info("y")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()


def images(*shape: int) -> np.ndarray:
    x = np.random.default_rng(shape[-1]).standard_normal(shape).astype(np.float32)
    odd = [-0.0, np.inf, -np.inf, np.nan]
    places = np.random.default_rng(1).integers(0, x.size, 2 * len(odd)) if x.size else []
    for value, place in zip(odd * 2, places):
        x.reshape(-1)[place] = value
    return x


WINDOWS = {
    "3x3": {"kernel_shape": [3, 3]},
    "3x3 with a border": {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]},
    "of every other pixel": {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
    "2x2": {"kernel_shape": [2, 2], "strides": [2, 2]},
    "uneven": {"kernel_shape": [2, 5], "strides": [3, 1], "pads": [0, 4, 1, 2]},
    "one line": {"kernel_shape": [1, 8], "strides": [1, 2], "pads": [0, 7, 0, 7]},
    "as large as the image": {"kernel_shape": [3, 3], "auto_pad": "SAME_UPPER", "strides": [2, 1]},
    "far steps": {"kernel_shape": [3, 3], "strides": [3, 3]},
    "wide": {"kernel_shape": [2, 11], "pads": [0, 5, 0, 5]},
    "9x9": {"kernel_shape": [9, 9], "pads": [4, 4, 4, 4]},
    "5x4 in steps": {"kernel_shape": [5, 4], "strides": [1, 2], "pads": [3, 0, 2, 3]},
    "rounded up": {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1},
}
KINDS = {
    "MaxPool": ("MaxPool", {}),
    "AveragePool": ("AveragePool", {}),
    "AveragePool with the border": ("AveragePool", {"count_include_pad": 1}),
}
SIZES = [(4, 11), (5, 16), (3, 17), (7, 33), (4, 64), (3, 70)]


def check(text: bytes, shapes: list[tuple[int, ...]]) -> None:
    engines = [
        ort.InferenceSession(text, providers=["CPUExecutionProvider"]),
        ort.InferenceSession(text, providers=["ReferenceExecutionProvider"]),
    ]
    peer = onnxruntime.InferenceSession(text, providers=["CPUExecutionProvider"])
    for shape in shapes:
        x = images(*shape)
        found, wanted = (each.run(None, {"x": x})[0] for each in engines)
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
        numbers = np.clip(np.nan_to_num(x, nan=1.0), -9, 9)  # what becomes of NaN depends on its processor there
        (other,) = peer.run(None, {"x": numbers})
        np.testing.assert_allclose(engines[0].run(None, {"x": numbers})[0], other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("window", WINDOWS)
def test_windows_are_pooled_for_every_width(window: str, kind: str) -> None:
    op_type, attributes = KINDS[kind]
    with np.errstate(all="ignore"):
        check(model(op_type, 4, **WINDOWS[window], **attributes), [(2, 3, *size) for size in SIZES] + [(0, 3, 8, 16)])


@pytest.mark.parametrize("kind", KINDS)
def test_lines_are_pooled(kind: str) -> None:
    op_type, attributes = KINDS[kind]
    with np.errstate(all="ignore"):
        check(
            model(op_type, 3, kernel_shape=[3], strides=[2], pads=[1, 1], **attributes),
            [(2, 3, width) for width in (3, 16, 31, 64, 100)],
        )


def test_images_that_a_convolution_makes_are_pooled_as_it_lays_them_out() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("MaxPool", ["c"], ["y"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("AveragePool", ["x"], ["z"], kernel_shape=[2, 2], strides=[2, 2]),
    ]
    given = [
        helper.make_tensor_value_info(name, FLOAT, shape)
        for name, shape in (("x", ["N", 3, 12, 20]), ("w", [4, 3, 3, 3]))
    ]
    outputs = [helper.make_empty_tensor_value_info(name) for name in "yz"]
    graph = helper.make_graph(nodes, "g", given, outputs)
    text = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()
    x = np.clip(np.nan_to_num(images(2, 3, 12, 20)), -9, 9)
    feeds = {"x": x, "w": np.ones((4, 3, 3, 3), np.float32)}
    wanted = onnxruntime.InferenceSession(text, providers=["CPUExecutionProvider"]).run(None, feeds)
    for found, other in zip(ort.InferenceSession(text).run(None, feeds), wanted, strict=True):
        np.testing.assert_allclose(found, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "attributes",
    [
        {"kernel_shape": [5, 5], "pads": [2, 2, 2, 2]},
        {"kernel_shape": [13, 9], "strides": [2, 3], "pads": [6, 4, 5, 3]},
        {"kernel_shape": [4, 6], "dilations": [2, 1], "pads": [0, 5, 3, 0]},
    ],
    ids=str,
)  # fmt: skip
def test_large_windows_of_many_channels_are_pooled_down_and_then_along(attributes: dict[str, object]) -> None:
    node = helper.make_node("MaxPool", ["x"], ["y"], **attributes)
    for shape in ((1, 17, 13, 20), (2, 33, 9, 11)):
        given = helper.make_tensor_value_info("x", FLOAT, shape)
        graph = helper.make_graph([node], "g", [given], [helper.make_empty_tensor_value_info("y")])
        text = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()
        check(text, [shape])
