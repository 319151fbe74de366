"""Convolutions of images of one column, as exporters write those of sequences, run along the column as along a row."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from onnx import helper

from ort_core.cpu.partition.partition import CpuPartition

N = helper.make_node


def weights(seed: int, *shape: int) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)


@pytest.mark.sweep
@pytest.mark.parametrize("pads", [[0, 0, 0, 0], [2, 0, 1, 0]], ids=["no border", "border"])
@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (3, 1), (1, 2)])
@pytest.mark.parametrize("group", [1, 2, 12])
def test_convolution_of_a_column_equals_the_reference(
    group: int, stride: int, dilation: int, pads: list[int], agrees: Callable[..., None]
) -> None:
    channels = 12
    constants = {
        "w": weights(1, 24, channels // group, 5, 1),
        "b": weights(2, 24, 1)[:, 0],
        "v": weights(3, 24, 24, 1, 1),
    }
    nodes = [
        N("Conv", ["x", "w", "b"], ["c"], group=group, strides=[stride, 2], dilations=[dilation, 1], pads=pads),
        N("Relu", ["c"], ["r"]), N("Conv", ["r", "v"], ["d"]), N("Add", ["d", "r"], ["y"]),
    ]  # fmt: skip
    agrees(nodes, constants, ["N", channels, "H", 1], (1, channels, 37, 1), (3, channels, 22, 1))


def test_column_with_a_residual_is_stored_beside_another(
    agrees: Callable[..., None], partitions: list[CpuPartition]
) -> None:
    constants = {"w": weights(1, 8, 8, 1, 1), "c": weights(2, 6, 8, 3, 1), "a": weights(3, 8, 8, 3, 1)}
    nodes = [
        N("Conv", ["x", "w"], ["p"]), N("Conv", ["p", "c"], ["q"]), N("Conv", ["p", "a"], ["s0"]),
        N("Slice", ["p", "one", "end", "axis"], ["middle"]), N("Add", ["s0", "middle"], ["s"]),
        N("Concat", ["q", "s"], ["y0"], axis=1), N("Neg", ["y0"], ["y"]),
    ]  # fmt: skip
    constants |= {name: np.array([number]) for name, number in (("one", 1), ("end", -1), ("axis", 2))}
    agrees(nodes, constants, ["N", 8, 19, 1], (1, 8, 19, 1), (2, 8, 19, 1))
    words = [str(step.kernel) for made in partitions for program in made.native_programs for step in program.steps]
    assert sum(word.startswith("conv") for word in words) == 3
