"""Windows with automatic pads over images whose sizes only a run knows: the border is sized then."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import helper

from ort_core.cpu.partition.partition import CpuPartition

Agrees = Callable[..., None]
SIZES = ((1, 16, 31, 17), (2, 16, 8, 33), (1, 16, 1, 2), (1, 16, 5, 64))


def numbers(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def same(op_type: str, inputs: list[str], kernel: list[int], strides: list[int], **others: object) -> onnx.NodeProto:
    attributes = {"auto_pad": "SAME_UPPER", "kernel_shape": kernel, "strides": strides, **others}
    return helper.make_node(op_type, inputs, ["y"], **attributes)


@pytest.mark.parametrize(
    ("kernel", "strides", "others"),
    [
        ([3, 3], [2, 2], {}),
        ([3, 3], [2, 2], {"auto_pad": "SAME_LOWER"}),
        ([5, 2], [3, 2], {}),
        ([3, 3], [2, 1], {"dilations": [1, 2]}),
        ([1, 1], [2, 2], {}),
        ([3, 3], [2, 2], {"group": 16}),
        ([3, 3], [2, 2], {"group": 4}),
    ],
)
def test_convolutions(agrees: Agrees, partitions: list[CpuPartition], kernel, strides, others) -> None:
    weights = numbers(1, 16, 16 // others.get("group", 1), *kernel)
    node = same("Conv", ["x", "w", "b"], kernel, strides, **others)
    agrees([node], {"w": weights, "b": numbers(2, 16)}, ["n", 16, "h", "w"], *SIZES)


def test_weights_that_a_node_computes(agrees: Agrees) -> None:
    made = helper.make_node("ReduceMean", ["x"], ["m"], axes=[0, 2, 3], keepdims=0)
    scaled = helper.make_node("Mul", ["w", "m2"], ["v"])
    shaped = helper.make_node("Reshape", ["m", "shape"], ["m2"])
    node = same("Conv", ["x", "v"], [3, 3], [2, 3])
    constants = {"w": numbers(1, 5, 6, 3, 3), "shape": np.array([1, 6, 1, 1])}
    agrees([made, shaped, scaled, node], constants, ["n", 6, "h", "w_"], (1, 6, 9, 8), (2, 6, 12, 4), opset=17)


def test_a_convolution_of_few_channels_and_its_neighbors(agrees: Agrees) -> None:
    first = helper.make_node(
        "Conv", ["x", "v"], ["z"], auto_pad="SAME_UPPER", kernel_shape=[3, 3], strides=[2, 2], name="first"
    )
    relu = helper.make_node("Relu", ["z"], ["r"])
    second = same("Conv", ["r", "w"], [3, 3], [2, 2])
    constants = {"v": numbers(1, 8, 3, 3, 3), "w": numbers(2, 5, 8, 3, 3)}
    agrees([first, relu, second], constants, ["n", 3, "h", "w"], (1, 3, 40, 21), (2, 3, 7, 130), (1, 3, 39, 128))


def test_a_convolution_of_sequences(agrees: Agrees) -> None:
    node = same("Conv", ["x", "w"], [5], [2])
    agrees([node], {"w": numbers(1, 24, 12, 5)}, ["n", 12, "t"], (1, 12, 30), (3, 12, 17), (1, 12, 1))


@pytest.mark.parametrize("kernel", [[3, 3], [2, 4]])
@pytest.mark.parametrize(
    ("op_type", "others"), [("MaxPool", {}), ("AveragePool", {}), ("AveragePool", {"count_include_pad": 1})]
)
@pytest.mark.parametrize("is_inner", [False, True])
def test_pools(agrees: Agrees, op_type: str, others: dict[str, int], kernel: list[int], *, is_inner: bool) -> None:
    nodes = [same(op_type, ["z" if is_inner else "x"], kernel, [2, 3], **others)]
    if is_inner:  # images that a convolution has turned
        nodes.insert(0, helper.make_node("Conv", ["x", "w"], ["z"]))
    agrees(nodes, {"w": numbers(1, 16, 16, 1, 1)} if is_inner else {}, ["n", 16, "h", "w"], *SIZES)


def test_a_border_of_the_least_float_is_no_maximum(agrees: Agrees) -> None:
    node = same("MaxPool", ["x"], [3, 3], [2, 2])
    low = helper.make_node("Sub", ["v", "c"], ["x_low"])
    node.input[0] = "x_low"
    low.input[0] = "x"
    agrees([low, node], {"c": np.float32(1e38)}, ["n", 4, "h", "w"], (1, 4, 5, 6), (1, 4, 8, 3))
