"""Convolutions over many channels, whose sums are those of several parts of their input."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from onnx import helper

from ort_core.cpu.codegen.convolutions.convolution_plan import Convolution
from ort_core.cpu.codegen.machine_code.llvm_targets import target_of
from ort_core.cpu.lowering.rules.convolutions.input_parts import input_parts

Agrees = Callable[..., None]
WIDE = target_of("x86_64-unknown-linux-gnu", "sapphirerapids", "+avx512f,+avx2,+fma")
NARROW = target_of("x86_64-unknown-linux-gnu", "haswell", "+avx2,+fma")
PADS = (1, 1, 1, 1)


@pytest.mark.parametrize(
    ("inputs", "window", "groups", "sizes", "parts"),
    [
        (2048, (3, 3), 1, (1, 12, 14), 8),
        (1024, (3, 3), 1, (1, 12, 14), 4),
        (1040, (3, 3), 1, (1, 12, 14), 5),
        (512, (7, 7), 1, (1, 12, 14), 8),
        (512, (7, 7), 1, (1, 1, 1), 1),  # all weights are read once
        (1030, (3, 3), 1, (1, 12, 14), 1),  # its parts would share lines of the cache
        (512, (3, 3), 1, (1, 12, 14), 1),
        (2048, (3, 3), 32, (1, 12, 14), 1),
        (2048, (1, 1), 1, (1, 1, 168), 1),
    ],
)
def test_channels_are_cut_where_panels_of_weights_are_far(
    inputs: int, window: tuple[int, int], groups: int, sizes: tuple[int, int, int], parts: int
) -> None:
    pads = (0, 0, 0, 0) if window == (1, 1) else PADS
    assert input_parts(Convolution(inputs, 512, window, groups=groups), sizes, pads, WIDE) == parts


def test_panels_of_small_vectors_are_small() -> None:
    spec = Convolution(1024, 512, (3, 3))
    assert input_parts(spec, (1, 12, 14), PADS, NARROW) == 1


@pytest.mark.usefixtures("nothing_runs_by_numpy")
@pytest.mark.parametrize("shape", [[2, 1040, 5, 9], ["n", 1040, "h", "w"]])
@pytest.mark.parametrize(("pads", "dilation"), [((1, 1, 1, 1), 1), ((0, 2, 1, 0), 1), ((4, 4, 4, 4), 4), ((0,) * 4, 2)])
def test_parts_add_up_to_the_convolution(
    agrees: Agrees, shape: list[int | str], pads: tuple[int, ...], dilation: int
) -> None:
    random = np.random.default_rng(7)
    constants = {
        "w": random.standard_normal((72, 1040, 3, 3)).astype(np.float32) / 100,
        "b": random.standard_normal(72).astype(np.float32),
        "v": random.standard_normal((40, 72, 1, 1)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Conv", ["r", "w", "b"], ["c"], pads=pads, dilations=[dilation] * 2),
        helper.make_node("Sigmoid", ["c"], ["s"]),
        helper.make_node("Mul", ["c", "s"], ["a"]),
        helper.make_node("Conv", ["a", "v"], ["y"]),
    ]
    sizes = [(2, 1040, 5, 9)] if shape[0] == 2 else [(2, 1040, 5, 9), (1, 1040, 7, 6), (0, 1040, 5, 5)]
    agrees(nodes, constants, shape, *sizes)


@pytest.mark.usefixtures("nothing_runs_by_numpy")
def test_last_part_adds_a_residual_and_is_stored_among_other_channels(agrees: Agrees) -> None:
    random = np.random.default_rng(8)
    constants = {
        "w": random.standard_normal((48, 1024, 3, 3)).astype(np.float32) / 100,
        "v": random.standard_normal((48, 1024, 1, 1)).astype(np.float32) / 10,
        "u": random.standard_normal((16, 96, 1, 1)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Conv", ["r", "v"], ["a"]),
        helper.make_node("Conv", ["r", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["c", "a"], ["s"]),
        helper.make_node("Relu", ["s"], ["t"]),
        helper.make_node("Concat", ["t", "a"], ["k"], axis=1),
        helper.make_node("Conv", ["k", "u"], ["y"]),
    ]
    agrees(nodes, constants, ["n", 1024, "h", "w"], (1, 1024, 6, 7), (3, 1024, 3, 2))
