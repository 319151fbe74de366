"""Convolutions write their channels where a concatenation wants them; what cannot is copied there."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from onnx import NodeProto, helper

from ort_core.cpu.partition import CpuPartition

N = helper.make_node
Constants = dict[str, np.ndarray]


def weights(seed: int, *shape: int) -> np.ndarray:
    depth = int(np.prod(shape[1:]))
    return (np.random.default_rng(seed).standard_normal(shape) / np.sqrt(depth)).astype(np.float32)


def concatenations(partitions: list[CpuPartition]) -> int:
    """Return how many steps of the compiled programs copy a part."""
    steps = [step for made in partitions for program in made.native_programs for step in program.steps]
    return sum(getattr(op, "op_type", op) == "Concat" for step in steps for op in step.operators)


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


def test_part_that_is_read_again_and_part_of_the_input_are_copied(
    agrees: Callable[..., None], partitions: list[CpuPartition]
) -> None:
    constants = {"a": weights(1, 6, 8, 1, 1), "b": weights(2, 6, 6, 3, 3), "after": weights(3, 5, 20, 1, 1)}
    nodes = [
        N("Conv", ["x", "a"], ["p"]), N("Conv", ["p", "b"], ["q"], pads=[1, 1, 1, 1]),
        N("Concat", ["p", "q", "x"], ["all"], axis=1), N("Conv", ["all", "after"], ["y"]),
    ]  # fmt: skip
    agrees(nodes, constants, ["N", 8, 7, 9], (1, 8, 7, 9), (2, 8, 7, 9))
    assert concatenations(partitions) == 2
