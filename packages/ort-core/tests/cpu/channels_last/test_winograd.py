"""Winograd's transforms against their matrices, with borders, odd sizes and lesser vector units."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import ort_core as ort
from ort_core.cpu.codegen.convolutions.winograd import (
    NEAR_WINDOWS,
    PLACES,
    input_kernel,
    output_kernel,
    transformed_weights,
)
from ort_core.cpu.codegen.llvm_ir.emitter import module_text
from ort_core.cpu.codegen.machine_code.jit import assembly
from ort_core.cpu.codegen.machine_code.llvm_targets import target_of
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.lowering.rules.convolutions.winograd_steps import takes_winograd
from ort_core.cpu.partition.partition import CpuPartition
from ort_core.plugin.ir import SymbolicDim

RunKernel = Callable[..., np.ndarray]
INPUT = np.array([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]])
OUTPUT = np.array([[1, 1, 1, 0], [0, 1, -1, -1]])
CHANNELS, SKEW = 32, 16


def test_transforms_of_one_tile_give_the_sums_of_its_windows() -> None:
    random = np.random.default_rng(0)
    tile, window = random.standard_normal((4, 4)), random.standard_normal((1, 1, 3, 3))
    places = transformed_weights(window).reshape(4, 4).astype(np.float64)
    found = OUTPUT @ (places * (INPUT @ tile @ INPUT.T)) @ OUTPUT.T
    expected = [[(tile[i : i + 3, j : j + 3] * window[0, 0]).sum() for j in range(2)] for i in range(2)]
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_many_windows_are_transformed_as_one_is() -> None:
    weights = np.random.default_rng(9).standard_normal((80, 2 * NEAR_WINDOWS // 80 + 3, 3, 3)).astype(np.float32)
    halves = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])
    expected = halves @ weights.astype(np.float64) @ halves.T
    found = transformed_weights(weights).transpose(2, 1, 0).reshape(*weights.shape[:2], 4, 4)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("height", "width", "pads"), [(6, 8, (1, 1)), (5, 7, (0, 2)), (1, 1, (1, 1))])
def test_input_transform_reads_zeros_outside_the_image(
    run_kernel: RunKernel, target: Target, height: int, width: int, pads: tuple[int, int]
) -> None:
    x = np.random.default_rng(1).standard_normal((2, height, width, CHANNELS)).astype(np.float32)
    down, across = (height + 1) // 2, (width + 1) // 2
    stride = 2 * down * across * CHANNELS + SKEW
    entries = [
        x, np.zeros(PLACES * stride, np.float32), np.zeros(CHANNELS, np.float32), 2 * down * across, down, across,
        height, width, width * CHANNELS, height * width * CHANNELS, stride, 0,
    ]  # fmt: skip
    v = run_kernel(input_kernel("kernel", CHANNELS, pads, target), entries, 1, target)
    found = v.reshape(PLACES, stride)[:, :-SKEW].reshape(4, 4, 2, down, across, CHANNELS)
    padded = np.pad(x.astype(np.float64), ((0, 0), (pads[0], 6), (pads[1], 6), (0, 0)))
    for row in range(down):
        for column in range(across):
            tile = padded[:, 2 * row : 2 * row + 4, 2 * column : 2 * column + 4]
            expected = np.einsum("ij,njkc,lk->ilnc", INPUT, tile, INPUT)
            np.testing.assert_allclose(found[:, :, :, row, column], expected, atol=1e-5)


@pytest.mark.parametrize(("height", "width"), [(4, 6), (5, 3)])
def test_output_transform_writes_no_pixel_outside_the_image(
    run_kernel: RunKernel, target: Target, height: int, width: int
) -> None:
    down, across = (height + 1) // 2, (width + 1) // 2
    stride = 2 * down * across * CHANNELS + SKEW
    m = np.random.default_rng(2).standard_normal((PLACES, stride)).astype(np.float32)
    entries = [
        m, np.full((2, height, width, CHANNELS), np.nan, np.float32), 2 * down * across, down, across, height, width,
        width * CHANNELS, height * width * CHANNELS, stride, 0,
    ]  # fmt: skip
    is_whole = height % 2 == 0 and width % 2 == 0
    y = run_kernel(output_kernel("kernel", CHANNELS, None, is_whole, target), entries, 1, target)
    tiles = m[:, :-SKEW].astype(np.float64).reshape(4, 4, 2, down, across, CHANNELS)
    expected = np.einsum("ai,ijnrsc,bj->nrasbc", OUTPUT, tiles, OUTPUT).reshape(2, 2 * down, 2 * across, CHANNELS)
    np.testing.assert_allclose(y, expected[:, :height, :width], atol=1e-5)


@pytest.mark.parametrize(
    ("channels", "size", "dilation", "is_taken"),
    [
        (64, (33, 33), 2, True),
        (64, (33, 33), 4, False),  # steps of few tiles
        (256, (33, 33), 4, True),
        (512, (33, 33), 6, True),  # 36 phases of five and of six pixels along an axis
        (512, (33, 33), 7, False),
        (512, (13, 13), 6, False),  # more than half of the taps are in the border
        (64, ("h", "w"), 2, True),
        (64, ("h", "w"), 3, False),
        (512, (33, 33), 2, True),
        (512, ("h", 33), 2, True),
        (512, ("h", 7), 2, False),
    ],
)
def test_dilated_windows_are_transformed_where_that_saves_products(
    target: Target, channels: int, size: tuple[int | str, int | str], dilation: int, is_taken: bool
) -> None:
    weights = np.zeros((channels, channels, 3, 3), np.float32)
    height, width = (SymbolicDim.named(each) if isinstance(each, str) else each for each in size)
    shape = (1, channels, height, width)
    assert takes_winograd(weights, (1, 1), (dilation, dilation), 1, shape, target) == is_taken


def test_transforms_compile_for_arm() -> None:
    arm = target_of("aarch64-unknown-linux-gnu", "cortex-a76", "+neon,+fp-armv8")
    for functions in (
        input_kernel("kernel", CHANNELS, (1, 1), arm),
        output_kernel("kernel", CHANNELS, None, False, arm),
    ):
        assert "kernel:" in assembly(module_text(functions), arm, is_vectorized=True)


@pytest.mark.parametrize(
    ("sizes", "channels", "is_in_blocks"),
    [
        (("N", 32, 32), 64, False),  # transformed images of 2 MiB
        (("N", 64, 64), 64, True),
        (("N", 64, 64), 256, False),  # transformed weights of 4 MiB, which each of twenty blocks would read
        ((1, "H", "W"), 256, True),  # nobody knows how many blocks
        (("N", 128, 128), 256, True),  # transformed images of 128 MiB
        ((1, 8, 8), 512, False),  # transformed weights of 16 MiB, which threads share
        ((1, 64, 66), 512, True),  # transformed images of 66 MiB
    ],
)
def test_images_are_taken_in_blocks_where_that_saves_traffic(
    partitions: list[CpuPartition], sizes: tuple[int | str, ...], channels: int, is_in_blocks: bool
) -> None:
    names = _operators(partitions, sizes, channels)
    assert ("Winograd" in names) == is_in_blocks
    assert ("WinogradProduct" in names) != is_in_blocks


@pytest.mark.parametrize(
    ("sizes", "channels"),
    [
        ((1, 7, 7), 512),  # 185 multiplications less with each weight, of which there are 16/9 of the bytes
        (("N", 7, 7), 512),
        (("N", "H", 6), 512),
        ((1, 6, 8), 64),
    ],
)
def test_images_of_few_pixels_are_not_transformed(
    partitions: list[CpuPartition], sizes: tuple[int | str, ...], channels: int
) -> None:
    assert not any("Winograd" in name for name in _operators(partitions, sizes, channels))


def test_a_run_tells_whether_images_of_open_size_are_taken_in_blocks(partitions: list[CpuPartition]) -> None:
    names = _operators(partitions, ("N", "H", "W"), 512)
    assert {"WinogradProduct", "Winograd"} <= names


def _operators(partitions: list[CpuPartition], sizes: tuple[int | str, ...], channels: int) -> set[str]:
    """Return what the steps of a convolution are called."""
    shape = (sizes[0], channels, *sizes[1:])
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xy")
    weights = numpy_helper.from_array(np.full((channels, channels, 3, 3), 0.1, np.float32), "w")
    graph = helper.make_graph([helper.make_node("Conv", ["x", "w"], ["y"], pads=[1] * 4)], "g", [x], [y], [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    steps = [step for made in partitions for program in made.native_programs for step in program.steps]
    return {each for step in steps for each in step.operators if isinstance(each, str)}
