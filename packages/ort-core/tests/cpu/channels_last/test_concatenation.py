"""Convolutions write their channels where a concatenation wants them; what cannot is copied there."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from onnx import NodeProto, helper

from ort_core.cpu.partition.partition import CpuPartition

N = helper.make_node
Constants = dict[str, np.ndarray]


def weights(seed: int, *shape: int) -> np.ndarray:
    depth = int(np.prod(shape[1:]))
    return (np.random.default_rng(seed).standard_normal(shape) / np.sqrt(depth)).astype(np.float32)


def concatenations(partitions: list[CpuPartition]) -> int:
    """Return how many steps of the compiled programs copy a part."""
    steps = [step for made in partitions for program in made.native_programs for step in program.steps]
    return sum(getattr(op, "op_type", op) == "Concat" for step in steps for op in step.operators)


def moved(partitions: list[CpuPartition]) -> int:
    """Return how many steps of the compiled programs do nothing but move."""
    steps = [step for made in partitions for program in made.native_programs for step in program.steps]
    return sum(step.operators in (("Copy",), ("Layout",)) for step in steps) + concatenations(partitions)


def branches(channels: int) -> tuple[dict[str, list[NodeProto]], Constants]:
    """Return kinds of parts by name, each of ``x`` with so many channels, and their weights."""
    constants = {
        "one": weights(1, 5, channels, 1, 1), "bias": weights(2, 5, 1)[:, 0], "three": weights(3, 32, channels, 3, 3),
        "strided": weights(4, 9, channels, 3, 3), "deep": weights(5, channels, 1, 3, 3),
        "same": weights(6, channels, channels, 1, 1),
    }  # fmt: skip
    border = {"pads": [1, 1, 1, 1]}
    kinds = {
        "pointwise": [N("Conv", ["x", "one", "bias"], ["p0"]), N("Relu", ["p0"], ["pointwise"])],
        "winograd": [N("Conv", ["x", "three"], ["winograd"], **border)],
        "window": [N("Conv", ["x", "strided"], ["w0"], **border), N("Sigmoid", ["w0"], ["window"])],
        "depthwise": [N("Conv", ["x", "deep"], ["depthwise"], group=channels, **border)],
        "residual": [N("Conv", ["x", "same"], ["r0"]), N("Add", ["r0", "x"], ["residual"])],
    }  # fmt: skip
    return kinds, constants


@pytest.mark.parametrize(
    "parts", [["pointwise", "winograd"], ["window", "pointwise", "depthwise"], ["depthwise", "residual", "winograd"]]
)
@pytest.mark.parametrize("size", [(13, 9), (8, 8), (16, 1)])
def test_convolutions_store_into_the_concatenation(
    parts: list[str], size: tuple[int, int], agrees: Callable[..., None], partitions: list[CpuPartition]
) -> None:
    channels = 32
    kinds, constants = branches(channels)
    total = {"pointwise": 5, "winograd": 32, "window": 9, "depthwise": channels, "residual": channels}
    constants["after"] = weights(9, 7, sum(total[part] for part in parts), 1, 1)
    nodes = [node for part in parts for node in kinds[part]]
    nodes += [N("Concat", parts, ["all"], axis=1), N("Conv", ["all", "after"], ["y"])]
    agrees(nodes, constants, ["N", channels, *size], (1, channels, *size), (3, channels, *size))
    assert concatenations(partitions) == 0


def test_rows_of_one_axis_are_stored_into_the_concatenation(
    agrees: Callable[..., None], partitions: list[CpuPartition]
) -> None:
    constants = {"a": weights(1, 6, 8, 3), "b": weights(2, 4, 8, 1), "after": weights(3, 5, 10, 1)}
    nodes = [
        N("Conv", ["x", "a"], ["p"], pads=[1, 1]), N("Conv", ["x", "b"], ["q"]),
        N("Concat", ["p", "q"], ["all"], axis=1), N("Conv", ["all", "after"], ["y"]),
    ]  # fmt: skip
    agrees(nodes, constants, ["N", 8, 21], (1, 8, 21), (2, 8, 21))
    assert concatenations(partitions) == 0


def test_part_that_is_read_again_is_stored_there_and_part_of_the_input_is_copied(
    agrees: Callable[..., None], partitions: list[CpuPartition]
) -> None:
    constants = {"a": weights(1, 6, 8, 1, 1), "b": weights(2, 6, 6, 3, 3), "after": weights(3, 5, 20, 1, 1)}
    nodes = [
        N("Conv", ["x", "a"], ["p"]), N("Conv", ["p", "b"], ["q"], pads=[1, 1, 1, 1]),
        N("Concat", ["p", "q", "x"], ["all"], axis=1), N("Conv", ["all", "after"], ["y"]),
    ]  # fmt: skip
    agrees(nodes, constants, ["N", 8, 7, 9], (1, 8, 7, 9), (2, 8, 7, 9))
    assert concatenations(partitions) == 1


@pytest.mark.parametrize("channels", [6, 32])
def test_halves_of_a_convolution_and_what_is_made_of_them_are_one_memory(
    agrees: Callable[..., None], partitions: list[CpuPartition], channels: int
) -> None:
    border = {"pads": [1, 1, 1, 1]}
    constants = {
        "w0": weights(1, 2 * channels, 3, 3, 3), "w1": weights(2, channels, channels, 3, 3),
        "w2": weights(3, channels, channels, 3, 3), "after": weights(4, 5, 4 * channels, 1, 1),
        "deep": weights(5, channels, 1, 3, 3),
    }  # fmt: skip
    nodes = [
        N("Conv", ["x", "w0"], ["a0"], **border), N("Sigmoid", ["a0"], ["a"]),
        N("Split", ["a", "sizes"], ["p", "q"], axis=1),
        N("Conv", ["q", "w1"], ["b0"], **border), N("Relu", ["b0"], ["b1"]), N("Add", ["q", "b1"], ["b"]),
        N("Conv", ["b", "deep"], ["c0"], group=channels, **border), N("Add", ["c0", "b"], ["c"]),
        N("Concat", ["p", "q", "b", "c"], ["all"], axis=1), N("Conv", ["all", "after"], ["y"]),
    ]  # fmt: skip
    constants["sizes"] = np.array([channels, channels])
    agrees(nodes, constants, ["N", 3, "H", 9], (1, 3, 13, 9), (3, 3, 8, 9))
    agrees(nodes, constants, ["N", 3, 16, 9], (1, 3, 16, 9), (2, 3, 16, 9))
    assert moved(partitions) == 2, "the input and the output alone"


@pytest.mark.parametrize("growth", [5, 16])
def test_growing_concatenations_are_parts_of_the_last_one(
    agrees: Callable[..., None], partitions: list[CpuPartition], growth: int
) -> None:
    constants = {"w0": weights(1, 24, 3, 3, 3), "s": weights(7, 1, 1)[0]}
    nodes, parts = [N("Conv", ["x", "w0"], ["f0"], strides=[2, 2], pads=[1, 1, 1, 1])], ["f0"]
    for k in range(1, 5):
        inputs = 24 + growth * (k - 1)
        constants |= {f"a{k}": weights(10 + k, 20, inputs, 1, 1), f"b{k}": weights(20 + k, growth, 20, 3, 3)}
        joined = parts[0]
        if k > 1:
            joined = f"c{k}"
            nodes.append(N("Concat", parts, [joined], axis=1))
        nodes += [
            N("Relu", [joined], [f"r{k}"]), N("Conv", [f"r{k}", f"a{k}"], [f"m{k}"]), N("Relu", [f"m{k}"], [f"n{k}"]),
            N("Conv", [f"n{k}", f"b{k}"], [f"f{k}"], pads=[1, 1, 1, 1]),
        ]  # fmt: skip
        parts = [*parts, f"f{k}"]
    nodes += [N("Concat", parts, ["all"], axis=1), N("AveragePool", ["all"], ["y"], kernel_shape=[2, 2])]
    agrees(nodes, constants, ["N", 3, 18, 22], (1, 3, 18, 22), (2, 3, 18, 22))
    assert concatenations(partitions) == 0
    assert moved(partitions) == 2


def test_skip_connection_is_read_by_pools_and_by_what_comes_back_up(
    agrees: Callable[..., None], partitions: list[CpuPartition]
) -> None:
    border = {"pads": [1, 1, 1, 1]}
    constants = {
        "w0": weights(1, 12, 3, 3, 3), "w1": weights(2, 20, 12, 3, 3), "w2": weights(3, 7, 32, 3, 3),
        "twice": np.array([1, 1, 2, 2], np.float32), "w3": weights(4, 9, 12, 3, 3),
    }  # fmt: skip
    nodes = [
        N("Conv", ["x", "w0"], ["a0"], **border), N("Relu", ["a0"], ["a"]),
        N("MaxPool", ["a"], ["d"], kernel_shape=[2, 2], strides=[2, 2]), N("Conv", ["d", "w1"], ["e"], **border),
        N("Resize", ["e", "", "twice"], ["u"], mode="nearest"), N("Concat", ["u", "a"], ["all"], axis=1),
        N("Conv", ["a", "w3"], ["z"], strides=[2, 2], **border), N("GlobalAveragePool", ["z"], ["g"]),
        N("Conv", ["all", "w2"], ["v"], **border), N("ReduceMean", ["g", "axes"], ["h"]), N("Mul", ["v", "h"], ["y"]),
    ]  # fmt: skip
    constants["axes"] = np.array([1, 2, 3])
    agrees(nodes, constants, ["N", 3, 8, 12], (1, 3, 8, 12), (2, 3, 8, 12))
    assert concatenations(partitions) == 0
    assert moved(partitions) == 1, "the input alone: a product writes the output as it is asked for"


READERS: dict[str, tuple[list[NodeProto], Constants]] = {
    "convolution_of_a_group": (
        [N("Conv", ["p", "grouped"], ["r"], group=3, dilations=[2, 2])], {"grouped": weights(5, 9, 2, 2, 2)},
    ),
    "narrow_groups": ([N("Conv", ["p", "g2"], ["r"], group=3, pads=[1] * 4)], {"g2": weights(5, 12, 2, 3, 3)}),
    "strided_points": ([N("Conv", ["p", "g4"], ["r"], strides=[2, 3])], {"g4": weights(5, 4, 6, 1, 1)}),
    "transposed_convolution": ([N("ConvTranspose", ["p", "t"], ["r"], strides=[2, 2])], {"t": weights(5, 6, 3, 2, 2)}),
    "linear_resize": (
        [N("Resize", ["p", "", "scales"], ["r"], mode="linear")], {"scales": np.array([1, 1, 2, 1.5], np.float32)},
    ),
    "flatten": ([N("Flatten", ["p"], ["f"]), N("Softmax", ["f"], ["r"], axis=1)], {}),
    "tokens": ([N("Transpose", ["p"], ["t0"], perm=[0, 2, 3, 1]), N("Softmax", ["t0"], ["r"])], {}),
    "softmax_of_channels": ([N("Softmax", ["p"], ["r"], axis=1)], {}),
    "mean": ([N("ReduceMean", ["p", "axes"], ["r"])], {"axes": np.array([2, 3])}),
    "largest": ([N("ArgMax", ["p"], ["i"], axis=1), N("Cast", ["i"], ["r"], to=1)], {}),
    "instance_norm": ([N("InstanceNormalization", ["p", "s", "s"], ["r"])], {"s": weights(5, 6, 1)[:, 0]}),
    "average": ([N("AveragePool", ["p"], ["r"], kernel_shape=[3, 2], pads=[1, 0, 1, 1])], {}),
    "whole_pool": ([N("GlobalMaxPool", ["p"], ["r"])], {}),
    "some_channels": ([N("Slice", ["p", "one", "five", "one"], ["r"])], {"one": np.array([1]), "five": np.array([5])}),
    "border": ([N("Pad", ["p", "wide"], ["r"])], {"wide": np.array([0, 0, 1, 2, 0, 0, 3, 1])}),
    "two_sizes": (
        [N("Resize", ["p", "", "factors"], ["r"], mode="nearest")], {"factors": np.array([1, 1, 2, 3], np.float32)},
    ),
    "group_norm": ([N("GroupNormalization", ["p", "s", "s"], ["r"], num_groups=2)], {"s": weights(5, 2, 1)[:, 0]}),
}  # fmt: skip


@pytest.mark.parametrize("halves", [False, True], ids=["part", "half_of_a_part"])
@pytest.mark.parametrize("reader", list(READERS))
def test_every_reader_of_a_part_reads_its_channels_alone(
    agrees: Callable[..., None], reader: str, halves: bool
) -> None:
    nodes, constants = READERS[reader]
    size = 12 if halves else 6
    constants = constants | {
        "a": weights(1, size, 8, 3, 3), "b": weights(2, 4, 6, 1, 1), "after": weights(3, 5, size + 4, 1, 1),
        "three": np.array([-3, -2, -1]), "sizes": np.array([6, 6]),
    }  # fmt: skip
    first = [N("Conv", ["x", "a"], ["c"]), N("Tanh", ["c"], ["w" if halves else "p"])]
    first += [N("Split", ["w", "sizes"], ["o", "p"], axis=1)] if halves else []
    parts = ["q", "o", "p"] if halves else ["q", "p"]
    behind = [
        N("Conv", ["p", "b"], ["q"]), N("Concat", parts, ["all"], axis=1), N("Conv", ["all", "after"], ["d"]),
        N("Flatten", ["d"], ["df"]), N("Flatten", ["r"], ["rf"]), N("Concat", ["df", "rf"], ["y"], axis=1),
    ]  # fmt: skip
    agrees([*first, *nodes, *behind], constants, ["N", 8, 7, 9], (1, 8, 7, 9), (2, 8, 7, 9))


@pytest.mark.parametrize("order", [["p", "p", "q"], ["q", "p"], ["p", "q", "n"]])
def test_part_in_several_places_or_concatenations_is_right_in_each(
    agrees: Callable[..., None], order: list[str]
) -> None:
    nodes = [
        N("Conv", ["x", "a"], ["p"]), N("Conv", ["p", "b"], ["q"]), N("Neg", ["q"], ["n"]),
        N("Concat", order, ["all"], axis=1), N("Concat", ["n", "q", "p"], ["other"], axis=1),
        N("Conv", ["all", "w0"], ["c"]), N("Conv", ["other", "w1"], ["d"]), N("Add", ["c", "d"], ["y"]),
    ]  # fmt: skip
    sizes = {"p": 6, "q": 4, "n": 4}
    constants = {
        "a": weights(1, 6, 8, 1, 1), "b": weights(2, 4, 6, 1, 1), "w0": weights(3, 5, sum(map(sizes.get, order)), 1, 1),  # type: ignore[arg-type]  # all of them are there
        "w1": weights(4, 5, 14, 1, 1),
    }  # fmt: skip
    agrees(nodes, constants, ["N", 8, 7, 9], (1, 8, 7, 9), (2, 8, 7, 9))


def test_part_whose_residual_and_bands_lie_among_others_has_equal_bits_alone(
    agrees: Callable[..., None], partitions: list[CpuPartition]
) -> None:
    nodes = [
        N("Conv", ["x", "a"], ["p"]), N("Conv", ["p", "deep"], ["b"], group=8, pads=[1] * 4), N("Relu", ["b"], ["c"]),
        N("Conv", ["c", "project"], ["d"]), N("Add", ["d", "p"], ["e"]), N("Concat", ["p", "e"], ["all"], axis=1),
        N("Conv", ["all", "after"], ["y"]),
    ]  # fmt: skip
    constants = {
        "a": weights(1, 8, 3, 1, 1), "deep": weights(2, 8, 1, 3, 3), "project": weights(3, 8, 8, 1, 1),
        "after": weights(4, 2, 16, 1, 1),
    }  # fmt: skip
    agrees(nodes, constants, ["N", 3, 130, 140], (1, 3, 130, 140))
    assert concatenations(partitions) == 0


def test_channels_of_the_input_get_a_border_of_their_own(agrees: Callable[..., None]) -> None:
    nodes = [
        N("Conv", ["x", "a"], ["p"], pads=[1] * 4), N("Split", ["x", "sizes"], ["o", "q"], axis=1),
        N("Conv", ["q", "b"], ["r"], pads=[1] * 4), N("Add", ["p", "r"], ["y"]),
    ]  # fmt: skip
    constants = {"a": weights(1, 5, 8, 3, 3), "b": weights(2, 5, 3, 3, 3), "sizes": np.array([5, 3])}
    agrees(nodes, constants, ["N", 8, 7, 70], (1, 8, 7, 70), (2, 8, 7, 70))
