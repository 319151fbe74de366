"""Pooling against windows computed one by one with numpy."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from ort_core.cpu.codegen.images.channels_last import Epilogue, OperandKind
from ort_core.cpu.codegen.images.pooling import Pooling, RoundedPooling, pooling_kernel
from ort_core.cpu.codegen.llvm_ir.emitter import module_text
from ort_core.cpu.codegen.machine_code.jit import assembly
from ort_core.cpu.codegen.machine_code.llvm_targets import host_target, target_of
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.plugin.ir import DataType
from ort_core.plugin.loops import element, maximum

RunKernel = Callable[..., np.ndarray]


def output_size(spec: Pooling, size: tuple[int, int]) -> tuple[int, int]:
    """Return output height and width, rounding down."""
    if spec.kernel is None:
        return 1, 1
    height, width = (
        (size[i] + spec.pads[i] + spec.pads[i + 2] - (spec.kernel[i] - 1) * spec.dilations[i] - 1) // spec.strides[i]
        + 1
        for i in (0, 1)
    )
    return height, width


def expected(spec: Pooling, x: np.ndarray) -> np.ndarray:
    """Return the pooling in float64, one window at a time."""
    size = x.shape[1:3]
    height, width = output_size(spec, size)
    result = np.empty((x.shape[0], height, width, spec.channels))
    for row in range(height):
        for column in range(width):
            inside, counted = taps(spec, size, (row, column))
            window = x[:, inside[0]][:, :, inside[1]].astype(np.float64)
            if spec.is_maximum:
                # The lowest number, not -inf, is where a maximum begins, as in onnxruntime.
                lowest = float(np.finfo(np.float32).min)
                result[:, row, column] = np.maximum(np.maximum.reduce(window, axis=(1, 2)), lowest)
            else:
                result[:, row, column] = window.sum(axis=(1, 2)) / counted
    return result


def taps(spec: Pooling, size: tuple[int, int], place: tuple[int, int]) -> tuple[list[list[int]], int]:
    """Return the rows and columns of a window inside the image, and how many taps an average counts."""
    inside, counted = [], 1
    for i in (0, 1):
        kernel = spec.kernel[i] if spec.kernel else size[i]
        places = [place[i] * spec.strides[i] - spec.pads[i] + k * spec.dilations[i] for k in range(kernel)]
        inside.append([p for p in places if 0 <= p < size[i]])
        counted *= len([p for p in places if p < size[i] + spec.pads[i + 2]] if spec.counts_border else inside[-1])
    return inside, counted


def computed(run: RunKernel, spec: Pooling, x: np.ndarray, target: Target, *operands: np.ndarray) -> np.ndarray:
    """Return what the generated kernel makes of it."""
    batch, x_height, x_width, channels = x.shape
    height, width = output_size(spec, (x_height, x_width))
    y = np.full((batch, height, width, channels), np.nan, np.float32)
    y = y.astype(ml_dtypes.bfloat16).view(x.dtype) if isinstance(spec, RoundedPooling) else y
    strides = [x_width * channels, x_height * x_width * channels, width * channels, height * width * channels]
    entries = [x, y, batch, height, width, x_height, x_width, *strides, *operands]
    return run(pooling_kernel("kernel", spec, target), entries, 1, target)


CASES = [
    (Pooling(64, (3, 3), (2, 2), pads=(1, 1, 1, 1)), (2, 13, 14)),
    (Pooling(7, (2, 2), (2, 2)), (1, 9, 8)),
    (Pooling(83, (3, 2), (1, 2), (2, 3), (1, 2, 3, 0)), (1, 12, 11)),
    (Pooling(20, (3, 3), (2, 2), pads=(1, 1, 1, 1), is_maximum=False), (2, 9, 10)),
    (Pooling(20, (3, 3), (2, 2), pads=(1, 1, 1, 1), is_maximum=False, counts_border=True), (2, 9, 10)),
    (Pooling(33, (4, 3), (1, 2), (2, 2), (3, 0, 2, 2), is_maximum=False, counts_border=True), (1, 11, 12)),
    (Pooling(130, None, is_maximum=False), (2, 7, 9)),
    (Pooling(64, None, is_maximum=False), (1, 3, 5)),
    (Pooling(5, None, is_maximum=True), (3, 6, 4)),
    # neighboring pixels fill vectors
    (Pooling(1, (5, 9), pads=(2, 4, 2, 4)), (2, 8, 97)),
    (Pooling(3, (3, 5), (2, 1), (1, 2), (1, 3, 0, 2)), (1, 9, 41)),
    (Pooling(4, (2, 3), pads=(1, 1, 0, 2), is_maximum=False, counts_border=True), (1, 5, 30)),
    (Pooling(1, (3, 7), pads=(1, 6, 1, 6), is_maximum=False), (1, 4, 5)),
]


@pytest.mark.parametrize(("spec", "size"), CASES)
def test_pooling_equals_windows_computed_one_by_one(
    run_kernel: RunKernel, target: Target, spec: Pooling, size: tuple[int, int, int]
) -> None:
    x = np.random.default_rng(0).standard_normal((*size, spec.channels)).astype(np.float32)
    actual = computed(run_kernel, spec, x, target)
    np.testing.assert_allclose(actual, expected(spec, x), rtol=0, atol=1e-6 * (not spec.is_maximum))


@pytest.mark.parametrize("is_maximum", [True, False])
def test_pooling_keeps_nan_and_infinity(run_kernel: RunKernel, is_maximum: bool) -> None:
    spec = Pooling(20, (3, 3), (1, 1), pads=(1, 1, 1, 1), is_maximum=is_maximum)
    x = np.random.default_rng(0).standard_normal((1, 8, 9, 20)).astype(np.float32)
    x[0, 1, 1, 3], x[0, 5, 6, 4], x[0, 0, 0, 5], x[0, :, :, 6] = np.nan, np.inf, -np.inf, -np.inf
    np.testing.assert_allclose(computed(run_kernel, spec, x, host_target()), expected(spec, x), rtol=0, atol=1e-6)


MAXIMA = [case for case in CASES if case[0].is_maximum and case[0].kernel]


@pytest.mark.parametrize("has_nan", [False, True], ids=["numbers", "NaN and infinity"])
@pytest.mark.parametrize(("spec", "size"), MAXIMA)
def test_largest_numbers_of_bfloat16_are_exact(
    run_kernel: RunKernel, target: Target, spec: Pooling, size: tuple[int, int, int], has_nan: bool
) -> None:
    made = RoundedPooling(**{name: getattr(spec, name) for name in Pooling.__match_args__})
    x = np.random.default_rng(0).standard_normal((*size, spec.channels)).astype(ml_dtypes.bfloat16)
    if has_nan:
        x[0, 1, 1, -1], x[-1, 2, 1, 0], x[0, 0, 0, 0], x[0, :, :, spec.channels // 2] = np.nan, np.inf, -np.inf, -np.inf
    wanted = expected(spec, x.astype(np.float32)).astype(np.float32)
    lowest = wanted == np.finfo(np.float32).min  # the lowest bfloat16 stands for it
    wanted[lowest] = float(ml_dtypes.finfo(ml_dtypes.bfloat16).min)
    actual = computed(run_kernel, made, x.view(np.uint16), target).view(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(actual.astype(np.float32), wanted)


def test_what_is_no_maximum_of_bfloat16_is_refused() -> None:
    epilogue = Epilogue(maximum(element(0, DataType.FLOAT), 0.0))
    for spec in ({"is_maximum": False}, {"epilogue": epilogue}):
        with pytest.raises(ValueError, match="only the largest numbers"):
            RoundedPooling(8, (2, 2), **spec)


def test_pooling_applies_its_epilogue(run_kernel: RunKernel) -> None:
    value, scale = element(0, DataType.FLOAT), element(1, DataType.FLOAT)
    epilogue = Epilogue(maximum(value * scale, 0.0), (OperandKind.CHANNEL,))
    spec = Pooling(37, (3, 3), is_maximum=False, epilogue=epilogue)
    random = np.random.default_rng(0)
    x, factors = (random.standard_normal(shape).astype(np.float32) for shape in ((1, 6, 7, 37), (37,)))
    actual = computed(run_kernel, spec, x, host_target(), factors)
    np.testing.assert_allclose(actual, np.maximum(expected(spec, x) * factors, 0), rtol=0, atol=1e-6)


def test_pooling_compiles_for_arm() -> None:
    arm = target_of("aarch64-unknown-linux-gnu", "cortex-a76", "+neon,+fp-armv8")
    text = assembly(module_text(pooling_kernel("kernel", CASES[0][0], arm)), arm, is_vectorized=True)
    assert "fcmgt" in text or "fcmge" in text, "the maximum is not vectorized"
