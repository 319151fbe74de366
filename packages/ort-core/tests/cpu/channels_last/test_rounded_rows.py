"""Channels-first images of one and three channels as words of bfloat16 with a border, against numpy."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from ort_core.cpu.codegen.images.rounded_rows import CHANNELS, rounded_rows_kernel
from ort_core.cpu.codegen.llvm_ir.emitter import module_text
from ort_core.cpu.codegen.machine_code.jit import assembly
from ort_core.cpu.codegen.machine_code.llvm_targets import host_target, target_of

RunKernel = Callable[..., np.ndarray]


@pytest.mark.parametrize("channels", CHANNELS)
@pytest.mark.parametrize("size", [(2, 5, 16), (1, 7, 37), (1, 1, 48)])
@pytest.mark.parametrize("pads", [(0, 0, 0, 0), (1, 2, 3, 4)])
def test_channels_become_words_of_the_nearest_bfloat16(
    channels: int, size: tuple[int, int, int], pads: tuple[int, int, int, int], run_kernel: RunKernel
) -> None:
    if not host_target().has("avx512bf16"):
        pytest.skip("this processor rounds to bfloat16 by no instruction")
    batch, height, width = size
    top, left, bottom, right = pads
    x = np.random.default_rng(5).standard_normal((batch, channels, height, width)).astype(np.float32)
    x[0, 0, 0, :4] = np.nan, np.inf, -0.0, 3.4e38
    words = (channels + 1) // 2
    rows, columns = height + top + bottom, width + left + right
    out = np.full(batch * rows * columns * words, np.nan, np.float32)
    entries: list[int | np.ndarray] = [
        x, out, batch, height, width, width, channels * height * width, columns * words, rows * columns * words,
        top, bottom, left, right, height * width, 0, 0,
    ]  # fmt: skip
    found = run_kernel(rounded_rows_kernel("kernel", channels), entries, 1)
    wanted = np.zeros((batch, rows, columns, 2 * words), ml_dtypes.bfloat16)
    inside = wanted[:, top : top + height, left : left + width, :channels]
    inside[...] = x.transpose(0, 2, 3, 1).astype(ml_dtypes.bfloat16)
    numbers = found.view(ml_dtypes.bfloat16).reshape(wanted.shape)
    np.testing.assert_array_equal(numbers.astype(np.float32), wanted.astype(np.float32))


def test_rows_are_rounded_by_an_instruction() -> None:
    features = "+avx512f,+avx512bw,+avx512vl,+avx512dq,+avx512bf16"
    target = target_of("x86_64-unknown-linux-gnu", "sapphirerapids", features)
    text = module_text(rounded_rows_kernel("kernel", 3))
    assert "vcvtneps2bf16" in assembly(text, target, is_vectorized=True)
