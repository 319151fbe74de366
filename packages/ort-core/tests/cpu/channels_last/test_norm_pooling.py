"""LpPool, GlobalLpPool and LRN compiled: every node, and the results of the reference provider."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import ort_core as ort

N = helper.make_node
Agrees = Callable[..., None]


def numbers(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize(
    ("shape", "attributes"),
    [
        ((3, 7, 11), {"kernel_shape": [3], "strides": [2], "pads": [1, 0]}),
        ((2, 20, 9, 8), {"kernel_shape": [2, 3], "strides": [1, 2], "pads": [1, 0, 0, 2]}),
        ((2, 3, 9, 8), {"kernel_shape": [3, 3], "auto_pad": "SAME_LOWER"}),
        ((1, 5, 6, 7, 8), {"kernel_shape": [2, 3, 1], "strides": [2, 1, 1], "pads": [0, 1, 0, 1, 1, 0]}),
    ],
    ids=["1-D", "2-D", "automatic pads", "3-D"],
)
def test_norm_of_windows_is_the_references(
    agrees: Agrees,
    shape: tuple[int, ...],
    attributes: dict[str, Any],
    p: int,
) -> None:
    agrees([N("LpPool", ["x"], ["y"], p=p, **attributes)], {}, ["N", *shape[1:]], shape, (1, *shape[1:]))


def test_norm_of_windows_that_end_beyond_the_border_is_the_references(agrees: Agrees) -> None:
    node = N("LpPool", ["x"], ["y"], kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
    agrees([node], {}, ["N", 4, 8, 10], (2, 4, 8, 10), opset=22)


@pytest.mark.parametrize("p", [1, 2, 4])
@pytest.mark.parametrize("shape", [(2, 33, 5, 7), (3, 5, 6), (1, 4, 3, 4, 5)], ids=["2-D", "1-D", "3-D"])
def test_norm_of_whole_images_is_the_references(agrees: Agrees, shape: tuple[int, ...], p: int) -> None:
    nodes = [N("GlobalLpPool", ["x"], ["a"], p=p), N("Relu", ["a"], ["y"])]
    agrees(nodes, {}, ["N", *shape[1:]], shape)


@pytest.mark.parametrize("size", [1, 3, 5, 11])
@pytest.mark.parametrize("beta", [0.75, 0.5, 1.0, 0.3])
def test_response_is_normalized_over_neighboring_channels(agrees: Agrees, size: int, beta: float) -> None:
    node = N("LRN", ["x"], ["y"], size=size, beta=beta, alpha=0.5, bias=0.7)
    agrees([node], {}, ["N", 7, "H", "W"], (2, 7, 5, 6), (1, 7, 1, 1), (0, 7, 3, 3))


def test_response_of_channels_last_images_is_normalized_where_it_lies(agrees: Agrees) -> None:
    nodes = [
        N("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]), N("Relu", ["a"], ["b"]), N("LRN", ["b"], ["c"], size=5),
        N("MaxPool", ["c"], ["y"], kernel_shape=[3, 3], strides=[2, 2]),
    ]  # fmt: skip
    agrees(nodes, {"w": numbers(1, 40, 6, 3, 3)}, ["N", 6, "H", "W"], (2, 6, 9, 8), (1, 6, 12, 5))


def test_response_of_volumes_and_of_signals_is_normalized(agrees: Agrees) -> None:
    node = N("LRN", ["x"], ["y"], size=3)
    agrees([node], {}, ["N", 5, 3, 4, 5], (2, 5, 3, 4, 5))
    agrees([node], {}, ["N", 5, 9], (2, 5, 9))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of the reference: infinity over infinity
@pytest.mark.parametrize("operator", ["LRN", "LpPool", "GlobalLpPool"])
def test_nan_and_infinity_stay_in_their_windows(agrees: Agrees, operator: str) -> None:
    attributes = {"LRN": {"size": 3}, "LpPool": {"kernel_shape": [2, 2]}, "GlobalLpPool": {}}[operator]
    spoil = np.zeros((1, 4, 5, 6), np.float32)
    spoil[0, 0, 1, 1], spoil[0, 3, 4, 5] = np.nan, np.inf
    nodes = [N("Add", ["x", "spoil"], ["a"]), N(operator, ["a"], ["y"], **attributes)]
    agrees(nodes, {"spoil": spoil}, ["N", 4, 5, 6], (2, 4, 5, 6))


def test_pads_without_a_mode_are_those_that_are_given(agrees: Agrees) -> None:
    nodes = [
        N("LpPool", ["x"], ["a"], kernel_shape=[3, 2], pads=[1, 0, 0, 1], auto_pad=""),
        N("MaxPool", ["a"], ["b"], kernel_shape=[2, 2], auto_pad=""),
        N("ConvTranspose", ["b", "w"], ["y"], strides=[2, 2], auto_pad=""),
    ]
    agrees(nodes, {"w": numbers(1, 3, 4, 2, 2)}, ["N", 3, 8, 7], (2, 3, 8, 7))


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER"])
def test_sums_over_automatic_pads_of_an_open_size_are_not_divided(auto_pad: str, stride: int) -> None:
    node = helper.make_node("LpPool", ["x"], ["y"], auto_pad=auto_pad, kernel_shape=[3], p=1, strides=[stride])
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 2, "L"]) for name in ("x", "y"))
    graph = helper.make_graph([node], "pooled", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for length in (2, 3, 7, 8):
        numbers = np.random.default_rng(length).standard_normal((1, 2, length)).astype(np.float32)
        count = -(-length // stride)
        pads = max((count - 1) * stride + 3 - length, 0)
        before = pads // 2 if auto_pad == "SAME_UPPER" else pads - pads // 2
        padded = np.pad(np.abs(numbers.astype(np.float64)), [(0, 0), (0, 0), (before, pads - before)])
        expected = np.stack([padded[..., i * stride : i * stride + 3].sum(-1) for i in range(count)], -1)
        np.testing.assert_allclose(session.run(None, {"x": numbers})[0], expected, rtol=1e-5)
