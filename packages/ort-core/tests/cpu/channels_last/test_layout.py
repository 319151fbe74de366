"""Copies between layouts, exact, with and without borders."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ort_core.cpu.codegen.images.layout import (
    channels_first_kernel,
    channels_last_kernel,
    pad_kernel,
    padded_channels_last_kernel,
)
from ort_core.cpu.codegen.llvm_ir.emitter import module_text
from ort_core.cpu.codegen.machine_code.jit import assembly
from ort_core.cpu.codegen.machine_code.llvm_targets import host_target, target_of
from ort_core.cpu.codegen.machine_code.target import Target

RunKernel = Callable[..., np.ndarray]
SHAPES = [(1, 3, 20, 33), (2, 1, 5, 40), (2, 16, 7, 7), (1, 37, 16, 18), (1, 64, 1, 5), (1, 5, 30, 31), (1, 100, 3, 3)]


def image(shape: tuple[int, ...]) -> np.ndarray:
    """Return numbers that tell every place from every other."""
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


@pytest.mark.parametrize("shape", SHAPES)
def test_transposition_gives_channels_last_and_back(
    run_kernel: RunKernel, target: Target, shape: tuple[int, int, int, int]
) -> None:
    batch, channels, height, width = shape
    x = image(shape)
    pixels = height * width
    sizes = [batch, 1, pixels, pixels, pixels, channels * pixels, pixels * channels, pixels * channels]
    y = np.full((batch, height, width, channels), np.nan, np.float32)
    actual = run_kernel(channels_last_kernel("kernel", channels, target), [x, y, *sizes], 1, target)
    np.testing.assert_array_equal(actual, x.transpose(0, 2, 3, 1))
    back = run_kernel(channels_first_kernel("kernel", channels, target), [actual, np.empty_like(x), *sizes], 1, target)
    np.testing.assert_array_equal(back, x)


@pytest.mark.parametrize("channels", [3, 20])
def test_transposition_writes_the_inner_part_of_a_bordered_image(run_kernel: RunKernel, channels: int) -> None:
    x = image((2, channels, 9, 21))
    y = np.zeros((2, 11, 24, channels), np.float32)
    row = 24 * channels
    # The border lies right and below here: the pointer decides where it is.
    sizes = [2, 9, 21, 21, 189, 189 * channels, row, 11 * row]
    actual = run_kernel(channels_last_kernel("kernel", channels, host_target()), [x, y, *sizes], 1)
    np.testing.assert_array_equal(actual[:, :9, :21], x.transpose(0, 2, 3, 1))
    assert not actual[:, 9:].any(), "the border below was written"
    assert not actual[:, :, 21:].any(), "the border at the right was written"


@pytest.mark.parametrize("value", [0.0, -1.5])
def test_padding_copies_the_image_and_fills_the_border(run_kernel: RunKernel, value: float) -> None:
    x = image((2, 5, 7, 3))
    y = np.full((2, 5 + 1 + 2, 7 + 3 + 0, 3), np.nan, np.float32)
    sizes = [2, 5, 7, 21, 105, 30, 240, 1, 2, 3, 0, 0, 3, 3]
    actual = run_kernel(pad_kernel("kernel", value=value), [x, y, *sizes], 1, is_vectorized=False)
    wanted = np.pad(x, ((0, 0), (1, 2), (3, 0), (0, 0)), constant_values=value)
    np.testing.assert_array_equal(actual, wanted)


@pytest.mark.parametrize("channels", [1, 3, 5, 20])
def test_padding_of_a_channels_first_image_gives_a_channels_last_one(
    run_kernel: RunKernel, target: Target, channels: int
) -> None:
    x = image((2, channels, 5, 37))
    y = np.full((2, 5 + 1 + 2, 37 + 3 + 0, channels), np.nan, np.float32)
    plane, row = 5 * 37, 40 * channels
    sizes = [2, 5, 37, 37, plane * channels, row, 8 * row, 1, 2, 3, 0, plane]
    actual = run_kernel(padded_channels_last_kernel("kernel", channels, target), [x, y, *sizes], 1, target)
    wanted = np.pad(x.transpose(0, 2, 3, 1), ((0, 0), (1, 2), (3, 0), (0, 0)))
    np.testing.assert_array_equal(actual, wanted)


def test_transposition_compiles_for_arm() -> None:
    arm = target_of("aarch64-unknown-linux-gnu", "cortex-a76", "+neon,+fp-armv8")
    text = assembly(module_text(channels_last_kernel("kernel", 64, arm)), arm, is_vectorized=True)
    assert "kernel:" in text
