"""Convolutions, dense, depthwise and grouped, against sums in float64, over shapes that are no multiple of anything."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from convolution_sums import Pads, expected

from ort_core.cpu.codegen.convolutions.convolution import convolution_kernel
from ort_core.cpu.codegen.convolutions.convolution_plan import (
    Convolution,
    RoundedInputConvolution,
    pack_weights,
    panels,
    register_tile,
)
from ort_core.cpu.codegen.convolutions.depthwise import is_narrow, narrow_kernel, pack_narrow_weights
from ort_core.cpu.codegen.images.channels_last import Epilogue, OperandKind
from ort_core.cpu.codegen.llvm_ir.emitter import module_text
from ort_core.cpu.codegen.machine_code.jit import assembly, compile_module
from ort_core.cpu.codegen.machine_code.llvm_targets import host_target, target_of
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.products.partial_sums import CHAIN
from ort_core.cpu.threads.pool import ThreadPool
from ort_core.cpu.threads.pool_code import BARRIER
from ort_core.plugin.ir import DataType
from ort_core.plugin.loops import cast, element, maximum, minimum, sigmoid

RunKernel = Callable[..., np.ndarray]


def computed(
    run: RunKernel, spec: Convolution, x: np.ndarray, weights: np.ndarray, pads: Pads, target: Target,
    operands: tuple[np.ndarray, ...] = (), scale: np.ndarray | None = None,
) -> np.ndarray:  # fmt: skip
    """Return what the generated kernel makes of it; the border is made here unless the kernel makes it up."""
    top, left, bottom, right = (0, 0, 0, 0) if spec.border else pads
    padded = np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)))
    shape = expected(spec, x[:1, :, :, :], weights, pads).shape
    batch, height, width, channels = x.shape[0], *shape[1:]
    narrow = is_narrow(spec, target)
    packed = (pack_narrow_weights if narrow else pack_weights)(spec, weights, target)
    functions = (narrow_kernel if narrow else convolution_kernel)("kernel", spec, target)
    row, image = padded.shape[2] * padded.shape[3], int(np.prod(padded.shape[1:]))
    y = np.full((batch, height, width, channels), np.nan, np.float32)
    y = y if spec.stored == "float" else np.zeros(y.shape, np.uint16)
    entries: list[int | np.ndarray] = [
        padded, packed, y, batch, height, width, row, image,
        width * channels, height * width * channels, x.shape[1], x.shape[2], 0 if scale is None else scale, x.shape[3],
        0, 0, 0,
    ]  # fmt: skip
    for operand in operands:
        entries.append(operand)
        entries.extend([width * channels, height * width * channels] if operand.ndim == 4 else [])
    return run(functions, entries, 2, target)


def arrays(spec: Convolution, size: tuple[int, int, int], seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return an image batch and weights."""
    random = np.random.default_rng(seed)
    x = random.standard_normal((*size, spec.in_channels)).astype(np.float32)
    weights = random.standard_normal((spec.out_channels, spec.group_inputs, *spec.kernel)) / np.sqrt(spec.depth)
    return x, weights.astype(np.float32)


def assert_close(actual: np.ndarray, wanted: np.ndarray, depth: int) -> None:
    """Compare with the error that a float32 sum of unit variance may have."""
    np.testing.assert_allclose(actual, wanted, rtol=0, atol=4 * np.finfo(np.float32).eps * (4 + depth**0.5))


DENSE = [
    (Convolution(3, 64, (7, 7), (2, 2)), (1, 37, 41), (3, 3, 3, 3)),
    (Convolution(64, 64, (3, 3), expected_width=14), (1, 14, 14), (1, 1, 1, 1)),
    (Convolution(40, 96, (3, 3), expected_width=7), (2, 7, 7), (1, 1, 1, 1)),
    (Convolution(17, 33, (3, 3), expected_width=5), (1, 9, 5), (1, 1, 1, 1)),
    (Convolution(5, 7, (1, 1)), (3, 6, 11), (0, 0, 0, 0)),
    (Convolution(64, 24, (1, 1), expected_width=49), (1, 1, 49), (0, 0, 0, 0)),
    (Convolution(32, 48, (1, 1), (2, 2)), (1, 13, 15), (0, 0, 0, 0)),
    (Convolution(8, 16, (3, 2), (1, 3), (2, 3)), (2, 12, 33), (2, 0, 1, 3)),
    (Convolution(1, 1, (5, 5), (1, 2), (1, 2)), (1, 20, 20), (2, 2, 2, 2)),
    (Convolution(16, 80, (1, 7), expected_width=30), (1, 4, 30), (0, 3, 0, 3)),
    (Convolution(300, 320, (3, 3)), (1, 6, 31), (1, 1, 1, 1)),
    (Convolution(1024, 72, (1, 1), expected_width=20), (1, 3, 20), (0, 0, 0, 0)),  # pixels a page apart
    (Convolution(12, 20, (3, 3), groups=2), (1, 8, 9), (1, 1, 1, 1)),
    (Convolution(6, 15, (3, 3), (2, 1), groups=3), (2, 8, 9), (1, 1, 1, 1)),
    (Convolution(128, 128, (3, 3), groups=2, expected_width=9), (1, 8, 9), (1, 1, 1, 1)),
]
NARROW = [
    (Convolution(32, 32, (3, 3), groups=32), (2, 9, 19), (1, 1, 1, 1)),
    (Convolution(19, 19, (3, 3), (2, 2), groups=19), (1, 14, 17), (0, 0, 1, 1)),
    (Convolution(150, 150, (5, 5), groups=150), (1, 7, 7), (2, 2, 2, 2)),
    (Convolution(24, 24, (5, 3), (2, 1), (1, 2), groups=24), (1, 15, 12), (2, 2, 2, 2)),
    (Convolution(17, 17, (7, 7), groups=17), (1, 12, 12), (3, 3, 3, 3)),
    (Convolution(36, 36, (3, 3), groups=9), (1, 7, 11), (1, 1, 1, 1)),
    (Convolution(32, 32, (3, 3), groups=4), (1, 5, 10), (1, 1, 1, 1)),
    (Convolution(10, 20, (3, 3), (2, 2), groups=10), (1, 9, 11), (1, 1, 1, 1)),
    (Convolution(40, 20, (3, 3), groups=20), (2, 5, 11), (1, 1, 1, 1)),
]

AVX512 = target_of("x86_64-unknown-linux-gnu", "skylake-avx512", "+avx512f,+avx512bw,+avx512dq,+avx512vl,+fma")
FEW_OUTPUTS = [
    (Convolution(32, 8, (3, 3), expected_width=20), (2, 7, 20), (1, 1, 1, 1)),
    (Convolution(24, 40, (3, 3)), (1, 6, 9), (1, 1, 1, 1)),
    (Convolution(20, 3, (3, 2), (2, 2), (1, 2)), (1, 9, 13), (1, 1, 1, 1)),
    (Convolution(64, 4, (1, 1)), (1, 5, 7), (0, 0, 0, 0)),
    (Convolution(772, 6, (1, 1)), (1, 5, 7), (0, 0, 0, 0)),
    (Convolution(1200, 36, (1, 1)), (1, 1, 2), (0, 0, 0, 0)),  # parts of 300 numbers
    (Convolution(404, 4, (1, 2), dilations=(1, 2)), (1, 3, 5), (0, 0, 0, 0)),
    (Convolution(36, 10, (3, 3), groups=2), (1, 6, 7), (1, 1, 1, 1)),
]


@pytest.mark.sweep
@pytest.mark.parametrize(("spec", "size", "pads"), DENSE + NARROW)
def test_convolution_equals_the_sum_in_float64(
    run_kernel: RunKernel, target: Target, spec: Convolution, size: tuple[int, int, int], pads: Pads
) -> None:
    x, weights = arrays(spec, size)
    actual = computed(run_kernel, spec, x, weights, pads, target)
    assert_close(actual, expected(spec, x, weights, pads), spec.depth)


@pytest.mark.parametrize(("spec", "size", "pads"), FEW_OUTPUTS)
def test_convolution_to_few_channels_equals_the_sum_in_float64(
    run_kernel: RunKernel, target: Target, spec: Convolution, size: tuple[int, int, int], pads: Pads
) -> None:
    x, weights = arrays(spec, size)
    actual = computed(run_kernel, spec, x, weights, pads, target)
    assert_close(actual, expected(spec, x, weights, pads), spec.depth)


@pytest.mark.parametrize(
    ("outputs", "fold"), [(3, 4), (4, 4), (8, 2), (9, 1), (16, 1), (24, 2), (28, 1), (40, 2), (56, 1), (1000, 1)]
)
def test_input_channels_share_the_vector_of_few_output_channels(outputs: int, fold: int) -> None:
    cut = panels(Convolution(32, outputs, (3, 3)), AVX512)
    assert [lanes.fold for lanes in (*cut.vectors, *cut.last)][-1] == fold
    assert cut.stored_channels == -(-outputs // (16 // fold)) * (16 // fold)


def test_numbers_that_share_a_vector_are_spread_once_for_all_taps_that_read_them() -> None:
    spec = Convolution(64, 8, (3, 3), expected_width=14)
    text = assembly(module_text(convolution_kernel("kernel", spec, AVX512)), AVX512, is_vectorized=True)
    inner = max(re.split(r"\n(?=\S+:)", text), key=lambda block: block.count("vfmadd"))
    assert inner.count("vfmadd") == 14 * 3, "pixels of a tile, taps of a row"
    assert inner.count("vbroadcastsd") == 14 + 2


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(Convolution(7, 8, (3, 3)), id="an odd number of input channels"),
        pytest.param(Convolution(8, 8), id="few products"),
        pytest.param(Convolution(64, 8, is_scaled=True), id="a scale for each input channel"),
    ],
)
def test_other_convolutions_leave_lanes_empty(spec: Convolution) -> None:
    assert [lanes.fold for lanes in panels(spec, AVX512).last] == [1]


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(Convolution(2050, 32), id="parts of a run"),
        pytest.param(Convolution(70, 32, (5, 5)), id="a window row"),
        pytest.param(Convolution(30, 32, (11, 3)), id="several window rows"),
        pytest.param(Convolution(160, 32, (3, 3), dilations=(1, 2)), id="taps"),
    ],
)
def test_errors_of_a_long_window_stay_those_of_one_chain_of_sums(
    run_kernel: RunKernel, target: Target, spec: Convolution
) -> None:
    """Of random numbers a chain of ``CHAIN`` sums is wrong by about 0.15 eps sqrt(CHAIN); these would exceed 0.2."""
    x, weights = arrays(spec, (1, 14, 14))
    wanted = expected(spec, x, weights, (0, 0, 0, 0))
    error = computed(run_kernel, spec, x, weights, (0, 0, 0, 0), target) - wanted
    assert np.sqrt(np.mean(error**2) / np.mean(wanted**2)) < 0.2 * np.finfo(np.float32).eps * CHAIN**0.5


@pytest.mark.sweep
@pytest.mark.parametrize("expected_width", [None, 7])
@pytest.mark.parametrize(("spec", "size", "pads"), NARROW)
def test_narrow_convolution_makes_up_the_border_that_is_not_in_memory(
    run_kernel: RunKernel, target: Target, spec: Convolution, size: tuple[int, int, int], pads: Pads,
    expected_width: int | None,
) -> None:  # fmt: skip
    if not is_narrow(spec, target):
        pytest.skip("vectors this short hold no whole group: the other kernel takes it")
    bordered = replace(spec, border=pads, expected_width=expected_width)
    for height, width in (size[1:], (5, 5), (size[1], 29)):
        x, weights = arrays(spec, (size[0], height, width))
        actual = computed(run_kernel, bordered, x, weights, pads, target)
        assert_close(actual, expected(spec, x, weights, pads), spec.depth)


def rounded_input(spec: Convolution) -> RoundedInputConvolution:
    """Return the same convolution of images in bfloat16."""
    return RoundedInputConvolution(**{name: getattr(spec, name) for name in Convolution.__match_args__})


DEPTHWISE = [case for case in NARROW if case[0].group_inputs == case[0].group_outputs == 1]


@pytest.mark.sweep(parts=2)  # any two of the three meet, for each target
@pytest.mark.parametrize("expected_width", [None, 7])
@pytest.mark.parametrize("in_memory", [True, False], ids=["border in memory", "border made up"])
@pytest.mark.parametrize(("spec", "size", "pads"), DEPTHWISE)
def test_depthwise_convolution_reads_bfloat16_and_nothing_beside_it(
    run_kernel: RunKernel, target: Target, spec: Convolution, size: tuple[int, int, int], pads: Pads, in_memory: bool,
    expected_width: int | None,
) -> None:  # fmt: skip
    made = replace(rounded_input(spec), border=None if in_memory else pads, expected_width=expected_width)
    for height, width in (size[1:], (5, 5), (size[1], 29)):
        x, weights = arrays(spec, (size[0], height, width))
        rounded = x.astype(ml_dtypes.bfloat16)
        actual = computed(run_kernel, made, rounded.view(np.uint16), weights, pads, target)
        assert_close(actual, expected(spec, rounded.astype(np.float32), weights, pads), spec.depth)


@pytest.mark.parametrize("spec", [Convolution(32, 32, (3, 3), groups=8), Convolution(32, 64, (3, 3), groups=32)])
def test_only_depthwise_convolutions_read_bfloat16(spec: Convolution) -> None:
    with pytest.raises(ValueError, match="only depthwise convolutions"):
        narrow_kernel("kernel", rounded_input(spec), host_target())


def rounding(spec: Convolution) -> RoundedInputConvolution:
    """Return a depthwise convolution of bfloat16 that adds a bias, takes off what is negative, and stores bfloat16."""
    value = maximum(element(0, DataType.FLOAT) + element(1, DataType.FLOAT), 0.0)
    epilogue = Epilogue(cast(value, DataType.BFLOAT16), (OperandKind.CHANNEL,))
    return replace(rounded_input(spec), epilogue=epilogue)


@pytest.mark.parametrize("channels", [32, 35])
def test_depthwise_convolution_of_bfloat16_rounds_its_results_to_the_nearest(
    run_kernel: RunKernel, target: Target, channels: int
) -> None:
    spec = rounding(Convolution(channels, channels, (3, 3), groups=channels, border=(1, 1, 1, 1)))
    random = np.random.default_rng(5)
    x, weights = (random.integers(-16, 17, s).astype(np.float32) for s in ((2, 9, 17, channels), (channels, 1, 3, 3)))
    bias = random.integers(-99, 100, channels).astype(np.float32)
    bits = x.astype(ml_dtypes.bfloat16).view(np.uint16)
    actual = computed(run_kernel, spec, bits, weights, (1, 1, 1, 1), target, (bias,)).view(ml_dtypes.bfloat16)
    wanted = np.maximum(expected(spec, x, weights, (1, 1, 1, 1)) + bias, 0)
    assert wanted.max() > 512, "all sums are such numbers anyway"
    np.testing.assert_array_equal(actual, wanted.astype(np.float32).astype(ml_dtypes.bfloat16))


@pytest.mark.parametrize(("cpu", "count"), [("sapphirerapids", 4), ("skylake-avx512", 0)])
def test_results_are_rounded_by_one_instruction_where_there_is_one(cpu: str, count: int) -> None:
    features = "+avx512f,+avx512bw,+avx512dq,+avx512vl,+fma" + (",+avx512bf16" if count else "")
    target = target_of("x86_64-unknown-linux-gnu", cpu, features)
    spec = rounding(Convolution(32, 32, (3, 3), groups=32, expected_width=4))
    text = assembly(module_text(narrow_kernel("kernel", spec, target)), target, is_vectorized=True)
    assert text[: text.index("1x16")].count("vcvtneps2bf16") == count


def test_a_number_of_an_image_in_bfloat16_is_widened_once_for_all_taps_that_use_it() -> None:
    spec = rounded_input(Convolution(32, 32, (3, 3), groups=32, expected_width=4))
    target = AVX512
    text = assembly(module_text(narrow_kernel("kernel", spec, target)), target, is_vectorized=True)
    tile = text[: text.index("1x16")]  # the one of four pixels stands first
    assert tile.count("vpmovzxwd") == 3 * (4 + 2), "a window of three rows over four pixels"
    assert len(re.findall(r"vfmadd\S+\s.*zmm", tile)) == 3 * 3 * 4


@pytest.mark.parametrize(
    "spec", [Convolution(40, 24), Convolution(17, 33, expected_width=14), Convolution(8, 70, strides=(2, 2))]
)
def test_pointwise_convolution_multiplies_the_channels_of_each_image(
    run_kernel: RunKernel, target: Target, spec: Convolution
) -> None:
    x, weights = arrays(spec, (3, 5, 17))
    scale = np.random.default_rng(2).standard_normal((3, spec.in_channels)).astype(np.float32)
    actual = computed(run_kernel, replace(spec, is_scaled=True), x, weights, (0, 0, 0, 0), target, scale=scale)
    assert_close(actual, expected(spec, x * scale[:, None, None, :], weights, (0, 0, 0, 0)), 4 * spec.depth)


@pytest.mark.parametrize("expected_width", [None, 4, 7, 20])
@pytest.mark.parametrize("groups", [1, 6])
def test_convolution_covers_every_width_whatever_width_was_expected(
    run_kernel: RunKernel, expected_width: int | None, groups: int
) -> None:
    for width in (1, 2, 6, 13, 14, 15, 29, 57):
        spec = Convolution(6, 18, (3, 3), groups=groups, expected_width=expected_width)
        x, weights = arrays(spec, (1, 7, width))
        actual = computed(run_kernel, spec, x, weights, (1, 1, 1, 1), host_target())
        assert_close(actual, expected(spec, x, weights, (1, 1, 1, 1)), spec.depth)


CHANNEL, TENSOR = OperandKind.CHANNEL, OperandKind.TENSOR
VALUE, FIRST, SECOND = (element(i, DataType.FLOAT) for i in range(3))


@pytest.mark.parametrize("groups", [1, 36])
def test_epilogue_adds_bias_and_residual_then_activates(run_kernel: RunKernel, target: Target, groups: int) -> None:
    epilogue = Epilogue(maximum(VALUE + FIRST + SECOND, 0.0), (CHANNEL, TENSOR))
    spec = Convolution(36, 36, (3, 3), groups=groups, epilogue=epilogue)
    x, weights = arrays(spec, (2, 9, 17))
    random = np.random.default_rng(1)
    bias, residual = (random.standard_normal(shape).astype(np.float32) for shape in ((36,), (2, 9, 17, 36)))
    actual = computed(run_kernel, spec, x, weights, (1, 1, 1, 1), target, (bias, residual))
    assert_close(actual, np.maximum(expected(spec, x, weights, (1, 1, 1, 1)) + bias + residual, 0), spec.depth)


@pytest.mark.parametrize("groups", [1, 20])
def test_epilogue_computes_clip_and_silu(run_kernel: RunKernel, groups: int) -> None:
    expressions = {"clip": minimum(maximum(VALUE, 0.0), 0.5), "silu": VALUE * sigmoid(VALUE)}
    meanings = {"clip": lambda v: np.clip(v, 0, 0.5), "silu": lambda v: v / (1 + np.exp(-v))}
    for name, expression in expressions.items():
        spec = Convolution(20, 20, (3, 3), groups=groups, epilogue=Epilogue(expression))
        x, weights = arrays(spec, (1, 5, 9))
        actual = computed(run_kernel, spec, x, weights, (1, 1, 1, 1), host_target())
        assert_close(actual, meanings[name](expected(spec, x, weights, (1, 1, 1, 1))), spec.depth)


@pytest.mark.parametrize("groups", [1, 16])
def test_convolution_keeps_nan_and_infinity_in_the_windows_that_hold_them(run_kernel: RunKernel, groups: int) -> None:
    epilogue = Epilogue(maximum(VALUE, 0.0))
    spec = Convolution(16, 16, (3, 3), groups=groups, epilogue=epilogue)
    x, weights = arrays(spec, (1, 8, 20))
    weights = np.abs(weights) + np.float32(0.01)
    x[0, 2, 3, 5], x[0, 6, 15, 5] = np.nan, np.inf
    actual = computed(run_kernel, spec, x, weights, (1, 1, 1, 1), host_target())
    with np.errstate(invalid="ignore"):
        wanted = np.maximum(expected(spec, x, weights, (1, 1, 1, 1)), 0)
    np.testing.assert_array_equal(np.isnan(actual), np.isnan(wanted))
    np.testing.assert_array_equal(np.isinf(actual), np.isinf(wanted))


@pytest.mark.parametrize("groups", [1, 6])
def test_convolution_of_no_images_does_nothing(run_kernel: RunKernel, groups: int) -> None:
    spec = Convolution(6, 6, (3, 3), groups=groups)
    x, weights = arrays(spec, (0, 5, 5))
    assert computed(run_kernel, spec, x, weights, (0, 0, 0, 0), host_target()).shape == (0, 3, 3, 6)


BORDERED = [(replace(spec, border=pads), size, pads) for spec, size, pads in NARROW]
ROUNDED = [(rounded_input(spec), size, pads) for spec, size, pads in DEPTHWISE]
ROUNDED += [(replace(spec, border=pads), size, pads) for spec, size, pads in ROUNDED]


@pytest.mark.sweep
@pytest.mark.skipif(sys.platform != "linux", reason="closes memory pages by a call of Linux")
@pytest.mark.parametrize(("spec", "size", "pads"), DENSE + NARROW + BORDERED + ROUNDED)
def test_convolution_reads_nothing_beside_its_tensors(
    closed_at_the_end: Callable[[np.ndarray], np.ndarray], spec: Convolution, size: tuple[int, int, int], pads: Pads
) -> None:
    narrow = is_narrow(spec, host_target())
    spec = spec if narrow else replace(spec, border=None)  # of other vectors, another kernel, which makes up none
    top, left, bottom, right = (0, 0, 0, 0) if spec.border else pads
    x, weights = arrays(spec, size)
    if isinstance(spec, RoundedInputConvolution):
        rounded = x.astype(ml_dtypes.bfloat16)
        wanted, x = expected(spec, rounded.astype(np.float32), weights, pads), rounded.view(np.uint16)
    else:
        wanted = expected(spec, x, weights, pads)
    padded = closed_at_the_end(np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0))))
    packed = closed_at_the_end((pack_narrow_weights if narrow else pack_weights)(spec, weights, host_target()))
    y = closed_at_the_end(np.zeros(wanted.shape, np.float32))
    batch, height, width, channels = wanted.shape
    table = np.array(
        [
            padded.ctypes.data, packed.ctypes.data, y.ctypes.data, batch, height, width, padded[0, 0].size,
            padded[0].size, width * channels, height * width * channels, x.shape[1], x.shape[2], 0, 0, 0, 0, 0,
        ],
        np.int64,
    )  # fmt: skip
    functions = (narrow_kernel if narrow else convolution_kernel)("kernel", spec, host_target())
    module = compile_module(module_text(functions), is_vectorized=True)
    steps = np.array([module.address("kernel"), table.ctypes.data, BARRIER, 0], np.int64)
    ThreadPool(1).run(steps.ctypes.data, 1)  # a read past the end stops the process: the next page is closed
    assert_close(y, wanted, spec.depth)


def test_convolution_reads_and_writes_channels_of_wider_tensors(run_kernel: RunKernel) -> None:
    spec = Convolution(8, 24, (3, 3), x_pixel=13, y_pixel=30)
    x, weights = arrays(spec, (1, 9, 10))
    wide = np.full((1, 9, 10, 13), 1e9, np.float32)
    wide[..., :8] = x
    y = np.full((1, 7, 8, 30), -1, np.float32)
    packed = pack_weights(spec, weights, host_target())
    functions = convolution_kernel("kernel", spec, host_target())
    actual = run_kernel(functions, [wide, packed, y, 1, 7, 8, 130, 1170, 240, 1680, 0, 0, 0, 0, 0, 0, 0], 2)
    assert_close(actual[..., :24], expected(spec, x, weights, (0, 0, 0, 0)), spec.depth)
    assert (actual[..., 24:] == -1).all(), "channels of other tensors were overwritten"


ARM = target_of("aarch64-unknown-linux-gnu", "cortex-a76", "+neon,+fp-armv8")


@pytest.mark.parametrize(("spec", "size", "pads"), [DENSE[0], DENSE[3], NARROW[0], NARROW[1], NARROW[5]])
def test_convolution_compiles_for_arm(spec: Convolution, size: tuple[int, int, int], pads: Pads) -> None:
    functions = (narrow_kernel if is_narrow(spec, ARM) else convolution_kernel)("kernel", spec, ARM)
    text = assembly(module_text(functions), ARM, is_vectorized=True)
    assert "kernel:" in text
    assert "fmla" in text, f"no fused multiply-adds for {size} with {pads}"


@pytest.mark.parametrize("expected_width", [7, 14, 56])
def test_inner_loop_of_the_full_tile_keeps_its_sums_in_registers(expected_width: int, target: Target) -> None:
    if "x86_64" not in target.triple or target.lanes < 8:
        pytest.skip("the test reads x86 assembly with fused multiply-adds")
    spec = Convolution(64, 64, (3, 3), expected_width=expected_width)
    text = assembly(module_text(convolution_kernel("kernel", spec, target)), target, is_vectorized=True)
    vectors, pixels = register_tile(target)
    full = vectors * (pixels // 7 * 7 if expected_width == 7 else pixels)
    loops = [loop for loop in blocks(text) if sum("vfmadd" in line for line in loop) >= min(full, 12)]
    assert loops, "no loop has the products of a full tile"
    for loop in loops:
        spills = [line for line in loop if "rsp" in line and "mm" in line]
        assert not spills, f"sums are stored to the stack inside of the loop: {spills}"


def blocks(text: str) -> list[list[str]]:
    """Return the basic blocks of an assembly text that jump back to their own start."""
    found: list[list[str]] = []
    label, lines = "", []
    for line in text.splitlines():
        if line.startswith(".LBB"):
            label, lines = line.partition(":")[0], []
        elif label:
            lines.append(line)
            if line.strip().startswith("j") and line.split()[-1] == label:
                found.append(list(lines))
    return found
