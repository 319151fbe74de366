"""Integer convolution kernels against sums of int64, on the host and without AVX-512."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest
from kernel_calls import BYTE_TARGETS, TARGETS, compiled

from ort_core.cpu.codegen.llvm_ir.emitter import module_text
from ort_core.cpu.codegen.machine_code.jit import assembly
from ort_core.cpu.codegen.machine_code.llvm_targets import target_of
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.quantized.integer_convolution import integer_convolution_kernel
from ort_core.cpu.codegen.quantized.integer_convolution_plan import (
    ARGUMENTS,
    IntegerConvolution,
    IntegerOperand,
    aligned,
    arranged,
    in_pairs,
    pack_weights,
)
from ort_core.cpu.guarded.arrays import GuardedArrays
from ort_core.cpu.guarded.mode import GuardedMode
from ort_core.cpu.threads.pool import ThreadPool
from ort_core.cpu.threads.pool_code import BARRIER, PIECES_AT
from ort_core.plugin.ir import DataType
from ort_core.plugin.loops import cast, element, unary

SUM = element(0, DataType.INT32)


@dataclasses.dataclass(frozen=True)
class Case:
    """A convolution of ``height x width`` images with their border already there."""

    inputs: int
    outputs: int
    height: int = 1
    width: int = 1
    batch: int = 1
    kernel: tuple[int, int] = (1, 1)
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    groups: int = 1
    is_signed: bool = False
    expected_width: int | None = None
    is_placed: bool = False  # whether the strides of the input are known when the kernel is generated


CASES = [
    Case(1, 1), Case(3, 5, 1, 7), Case(4, 16, 1, 29), Case(64, 32, 1, 57), Case(31, 33, 1, 15, is_signed=True),
    Case(257, 48, 1, 3), Case(16, 17, 9, 8, 2, (3, 3)), Case(3, 20, 11, 12, 2, (5, 3), (2, 2)),
    Case(5, 40, 9, 9, 1, (3, 3), (1, 1), (2, 2), is_signed=True), Case(8, 12, 7, 7, 2, (3, 3), groups=2),
    Case(12, 12, 7, 9, 2, (3, 3), groups=12), Case(33, 33, 12, 30, 1, (3, 3), (2, 2), groups=33, is_signed=True),
    Case(32, 64, 9, 9, 1, (3, 3), expected_width=7), Case(16, 16, 9, 9, 2, (5, 5), groups=16, expected_width=5),
    Case(8, 8, 1, 14, 0), Case(64, 24, 1, 13), Case(83, 40, 5, 6, 1, (3, 3), is_signed=True),
    Case(70, 12, 7, 9, 2, (3, 3), dilations=(2, 2), groups=2),
    Case(70, 12, 7, 9, 2, (3, 3), dilations=(2, 1), groups=2, is_placed=True),
    Case(19, 20, 11, 12, 2, (5, 3), (2, 2), is_signed=True, is_placed=True),
    Case(3, 40, 15, 16, 1, (7, 7), (2, 2), is_placed=True), Case(16, 40, 16, 16, 2, (3, 3)),
    Case(64, 48, 30, 33, 2, (3, 3), (2, 2), is_signed=True), Case(100, 64), Case(100, 70, 1, 50, 3, is_signed=True),
    Case(160, 96, 4, 21, 2, (3, 1), (1, 2), (1, 2), 2, is_signed=True), Case(64, 48, 7, 9, 2, (3, 3), (2, 2)),
]  # fmt: skip


def run(
    spec: IntegerConvolution, x: np.ndarray, weights: np.ndarray, operands: list[np.ndarray], pool: ThreadPool,
    target: Target, edge: GuardedMode = GuardedMode.END, flags: int = BARRIER,
) -> np.ndarray:  # fmt: skip
    """Run a kernel over channels-last images with their border; operands are dense, and all lie on guarded memory."""
    batch, height, width, channels = x.shape
    out_h, out_w = (
        (size - (taps - 1) * dilation - 1) // stride + 1
        for size, taps, dilation, stride in zip((height, width), spec.kernel, spec.dilations, spec.strides, strict=True)
    )
    dtype = spec.expression.dtype.numpy
    result = np.zeros((batch, out_h, out_w, spec.out_channels), dtype)
    guarded = GuardedArrays([x, pack_weights(spec, weights, target), *operands], [result], edge)
    words = [0] * ARGUMENTS.epilogue
    words[:3] = [guarded.address(0), guarded.address(1), guarded.address(2 + len(operands))]
    words[ARGUMENTS.batch : ARGUMENTS.width + 1] = [batch, out_h, out_w]
    words[ARGUMENTS.x_row :] = [
        width * channels, height * width * channels, out_w * spec.out_channels, out_h * out_w * spec.out_channels,
        channels, spec.out_channels,
    ]  # fmt: skip
    for number, operand in enumerate(spec.operands, 2):
        words.append(guarded.address(number))
        if operand.words > 1:
            pixel = spec.out_channels if operand.kind == "tensor" else 1
            words.extend([out_w * pixel, out_h * out_w * pixel, pixel])
    text = module_text(integer_convolution_kernel("kernel", spec, target))
    module = compiled(text, target, is_vectorized=True)
    table = np.array(words, np.int64)
    steps = np.array([module.address("kernel"), table.ctypes.data, flags, 0], np.int64)
    pool.run(int(steps.ctypes.data), 1)
    guarded.check("an integer convolution")
    return guarded.arrays[-1].copy()


def expected_sums(case: Case, x: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the sums of products in int64."""
    out_h, out_w = (
        (x.shape[1 + a] - (case.kernel[a] - 1) * case.dilations[a] - 1) // case.strides[a] + 1 for a in (0, 1)
    )
    total = np.zeros((x.shape[0], out_h, out_w, case.outputs), np.int64)
    per_in, per_out = case.inputs // case.groups, case.outputs // case.groups
    for row in range(case.kernel[0]):
        for column in range(case.kernel[1]):
            top, left = row * case.dilations[0], column * case.dilations[1]
            part = x[:, top :: case.strides[0], left :: case.strides[1]][:, :out_h, :out_w].astype(np.int64)
            for group in range(case.groups):
                ins = slice(group * per_in, (group + 1) * per_in)
                outs = slice(group * per_out, (group + 1) * per_out)
                total[..., outs] += part[..., ins] @ weights[outs, :, row, column].astype(np.int64).T
    return total


def arrays(case: Case, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Return activations and weights.

    Args:
        case: says their shapes.
        kind: ``random``; ``few``, weights of six bits, whose pairs are all bounded, beside a few that are not;
            ``ends``, activations at their largest and weights at the ends of their type, where saturating sums go
            wrong; ``borders``, pairs that are just bounded and just not.
    """
    random = np.random.default_rng(7)
    low, high = (-128, 127) if case.is_signed else (0, 255)
    x_type = np.int8 if case.is_signed else np.uint8
    shape = (case.batch, case.height, case.width, case.inputs)
    taps = (case.outputs, case.inputs // case.groups, *case.kernel)
    x = random.integers(low, high + 1, shape).astype(x_type)
    if kind == "few":
        return x, np.where(random.random(taps) < 0.002, -128, random.integers(-64, 65, taps)).astype(np.int8)
    if kind == "ends":
        return np.full(shape, high, x_type), (random.integers(0, 2, taps) * 255 - 128).astype(np.int8)
    if kind == "borders":
        weights = (
            np.where(random.random(taps) < 0.001, 65, 64)
            * np.where(random.random(taps[:1]) < 0.5, 1, -1)[:, None, None, None]
        )
        return np.full(shape, high, x_type), weights.astype(np.int8)
    return x, random.integers(-128, 128, taps).astype(np.int8)


def spec_of(case: Case, **changes: object) -> IntegerConvolution:
    spec = IntegerConvolution(
        case.inputs, case.outputs, SUM, (), case.is_signed, case.kernel, case.strides, case.dilations, case.groups,
        case.expected_width,
    )  # fmt: skip
    return dataclasses.replace(spec, **changes)  # type: ignore[arg-type]  # fields by name


@pytest.mark.sweep(parts=4)
@pytest.mark.parametrize("target", BYTE_TARGETS.values(), ids=BYTE_TARGETS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_sums_are_exact(case: Case, target: object, pool: ThreadPool) -> None:
    machine = target()  # type: ignore[operator]  # a function that gives a target
    plain = spec_of(case, x_pixel=case.inputs if case.is_placed else None)
    spec = arranged(plain, case.width * case.inputs if case.is_placed else None, machine)
    for kind, edge in zip(("random", "few", "ends", "borders"), 2 * [GuardedMode.END, GuardedMode.BEGIN], strict=True):
        x, weights = arrays(case, kind)
        found = run(spec, x, weights, [], pool, machine, edge)
        sums = expected_sums(case, x, weights)
        if case.is_signed and not spec.is_depthwise:  # signed bytes are read as unsigned ones, larger by 128
            sums = sums + 128 * weights.reshape(case.outputs, -1).sum(axis=1, dtype=np.int64)
        np.testing.assert_array_equal(found, sums.astype(np.int32))


@pytest.mark.parametrize("threads", [1, 3, 4])
@pytest.mark.parametrize(
    "case",
    [
        Case(64, 70, 1, 301, is_signed=True), Case(64, 48, 30, 33, 2, (3, 3)), Case(128, 40, 7, 9, 2, (3, 3), (2, 2)),
        Case(3, 33, 19, 20, 2, (3, 3), (2, 2)),
    ],
    ids=str,
)  # fmt: skip
def test_threads_share_outputs_in_any_number_of_pieces(case: Case, threads: int) -> None:
    target = TARGETS["host"]()
    x, weights = arrays(case, "random")
    sums = expected_sums(case, x, weights)
    if case.is_signed:
        sums = sums + 128 * weights.reshape(case.outputs, -1).sum(axis=1, dtype=np.int64)
    pool = ThreadPool(threads)
    try:
        for pieces in (0, 1, 5):
            flags = BARRIER | pieces << PIECES_AT
            found = run(arranged(spec_of(case), None, target), x, weights, [], pool, target, flags=flags)
            np.testing.assert_array_equal(found, sums.astype(np.int32))
    finally:
        pool.close()


@pytest.mark.parametrize("stored", [DataType.UINT8, DataType.INT8, DataType.INT32, DataType.FLOAT], ids=str)
@pytest.mark.parametrize("inputs", [10, 72], ids=str)
def test_epilogue_reads_every_kind_of_operand(stored: DataType, inputs: int, pool: ThreadPool) -> None:
    case = Case(inputs, 37, 6, 5, 2, (3, 3), is_signed=inputs > 64)
    x, weights = arrays(case, "random")
    random = np.random.default_rng(3)
    sums = expected_sums(case, x, weights)
    if case.is_signed:
        sums = sums + 128 * weights.reshape(case.outputs, -1).sum(axis=1, dtype=np.int64)
    bias = random.integers(-9999, 9999, case.outputs).astype(np.int32)
    scale = random.uniform(1e-4, 1e-3, case.outputs).astype(np.float32)
    other = random.integers(0, 256, sums.shape).astype(np.uint8)
    row = random.integers(-50, 50, sums.shape[:3]).astype(np.int32)
    one = np.array(0.5, np.float32)
    kinds = [
        IntegerOperand("channel", DataType.INT32), IntegerOperand("channel", DataType.FLOAT),
        IntegerOperand("tensor", DataType.UINT8), IntegerOperand("row", DataType.INT32),
        IntegerOperand("one", DataType.FLOAT),
    ]  # fmt: skip
    inputs = [element(index + 1, kind.dtype) for index, kind in enumerate(kinds)]
    value = cast(SUM + inputs[0] - inputs[3], DataType.FLOAT) * inputs[1]
    value = value + cast(inputs[2], DataType.FLOAT) * inputs[4]
    spec = spec_of(case, expression=cast(unary("rint", value), stored), operands=tuple(kinds))
    target = TARGETS["host"]()
    found = run(arranged(spec, None, target), x, weights, [bias, scale, other, row, one], pool, target)
    real = (sums + bias - row[..., None]).astype(np.float32) * scale + other.astype(np.float32) * one
    if stored is DataType.FLOAT:
        assert np.abs(found - np.rint(real)).max() <= 1
    else:
        limits = np.iinfo(stored.numpy)
        difference = np.abs(found.astype(np.int64) - np.clip(np.rint(real), limits.min, limits.max).astype(np.int64))
        assert difference.max() <= 1, "beyond a rounding of the border"
        assert (difference != 0).mean() < 0.01, "the border is rare"


@pytest.mark.sweep
@pytest.mark.parametrize("target", BYTE_TARGETS.values(), ids=BYTE_TARGETS)
@pytest.mark.parametrize("outputs", [1, 5, 8, 16, 17, 24, 33, 37])
@pytest.mark.parametrize("stored", [DataType.UINT8, DataType.INT8], ids=str)
def test_bytes_saturate_and_round_to_even_on_every_target(
    stored: DataType, outputs: int, target: object, pool: ThreadPool
) -> None:
    machine = target()  # type: ignore[operator]  # a function that gives a target
    case = Case(64, outputs, 1, 19)
    x, weights = arrays(case, "random")
    edges = [0.5, 1.5, 2.5, -0.5, -1.5, 126.5, 127.5, 254.5, 255.5, -127.5, -128.5, 3e9, -3e9, 2.0**31, -(2.0**31)]
    special = np.array([*edges, np.inf, -np.inf, np.nan, 1e38, -1e38, 0.49999997, -0.0], np.float32)
    values = np.resize(special, (1, 1, 19, outputs))
    limits = np.iinfo(stored.numpy)
    for rounds in (True, False):
        value = element(1, DataType.FLOAT)
        expression = cast(unary("rint", value) if rounds else value, stored)
        spec = spec_of(case, expression=expression, operands=(IntegerOperand("tensor", DataType.FLOAT),))
        found = run(arranged(spec, None, machine), x, weights, [values], pool, machine)
        whole = np.nan_to_num((np.rint if rounds else np.trunc)(values.astype(np.float64)), nan=float(limits.min))
        np.testing.assert_array_equal(found, np.clip(whole, limits.min, limits.max).astype(stored.numpy))


def test_steps_of_avx2_take_few_instructions_beside_their_products() -> None:
    """Where a core is shared, every instruction counts: a step of 4 pixels has 48 of products, 8 shuffles, 4 loads."""
    target = target_of("x86_64-unknown-linux-gnu", "haswell", "+avx2,+fma")
    spec = in_pairs(spec_of(Case(256, 64), x_pixel=256), None, target)
    text = assembly(module_text(integer_convolution_kernel("kernel", spec, target)), target, is_vectorized=True)
    body = text.split("\nkernel.1x4:", 1)[1].split(".Lfunc_end", 1)[0]
    loops = [block for block in re.split(r"\n\.LBB\w+:", body) if "vpmaddubsw" in block]
    assert len(loops) == 1
    lines = [line for line in loops[0].splitlines() if line.startswith("\t")]
    step = lines[: next(i for i, line in enumerate(lines) if line.startswith("\tj")) + 1]
    assert sum("vpmaddubsw" in line for line in step) == 16
    assert not [line for line in step if "(%rsp" in line], "spills"
    assert len(step) <= 72


def test_products_run_in_registers_of_tiles_where_they_may() -> None:
    """A step of 32 places and channels is four products and four loads; tiles are configured once for a kernel."""
    features = "+amx-int8,+amx-tile,+avx512bw,+avx512dq,+avx512f,+avx512vl,+avx512vnni"
    target = target_of("x86_64-unknown-linux-gnu", "sapphirerapids", features)
    for is_signed, instruction in ((False, "tdpbusd"), (True, "tdpbssd")):
        spec = arranged(spec_of(Case(256, 64, is_signed=is_signed), x_pixel=256), None, target)
        text = assembly(module_text(integer_convolution_kernel("kernel", spec, target)), target, is_vectorized=True)
        assert text.count("\tldtilecfg") == text.count("\ttilerelease") == 1
        body = text.split("\nkernel.2x16:", 1)[1].split(".Lfunc_end", 1)[0]
        loops = [block for block in re.split(r"\n\.LBB\w+:", body) if instruction in block]
        assert [(block.count(f"\t{instruction}"), block.count("\ttileloadd")) for block in loops] == [(4, 4)]


@pytest.mark.parametrize(
    "case",
    [Case(64, 64, groups=64, kernel=(3, 3)), Case(3, 64), Case(8, 64)],
    ids=["by channels", "parts of words", "few words"],
)
def test_products_stay_in_vectors_where_tiles_gain_nothing(case: Case) -> None:
    target = target_of("x86_64-unknown-linux-gnu", "sapphirerapids", "+amx-int8,+amx-tile,+avx512f,+avx512vnni")
    assert not arranged(spec_of(case), None, target).in_tiles


@pytest.mark.parametrize(
    ("target", "instruction"),
    [
        (target_of("x86_64-unknown-linux-gnu", "znver4", "+avx512f,+avx512bw,+avx512vl,+avx512vnni"), "vpdpbusd"),
        (target_of("x86_64-unknown-linux-gnu", "haswell", "+avx2,+fma"), "vpmaddwd"),
        (target_of("aarch64-unknown-linux-gnu", "generic", "+neon"), "mla"),
    ],
    ids=["AVX512-VNNI", "AVX2", "NEON"],
)
def test_products_of_bytes_use_the_instruction_of_the_target(target: Target, instruction: str) -> None:
    text = assembly(
        module_text(integer_convolution_kernel("kernel", spec_of(Case(64, 64)), target)), target, is_vectorized=True
    )
    assert instruction in text
    assert "vpmaddubsw" not in text, "its sums saturate"


@pytest.mark.parametrize(
    ("features", "is_paired"),
    [("+avx2,+fma", True), ("+avx2,+fma,+avxvnni", False), ("+avx512f,+avx512bw,+avx512vl", False)],
    ids=["AVX2", "AVX-VNNI", "AVX-512 without VNNI"],
)
def test_pairs_are_bounded_only_without_other_products_of_bytes(features: str, is_paired: bool) -> None:
    target = target_of("x86_64-unknown-linux-gnu", "x86-64-v3", features)
    spec = in_pairs(spec_of(Case(64, 64)), None, target)
    assert spec.is_paired == is_paired
    text = assembly(module_text(integer_convolution_kernel("kernel", spec, target)), target, is_vectorized=True)
    assert ("vpmaddubsw" in text) == is_paired


PACKING_FOR = {
    "dot products": "+avx512f,+avx512bw,+avx512vl,+avx512vnni", "pairs": "+avx2,+fma,+ssse3",
    "tiles": "+amx-int8,+amx-tile,+avx512bw,+avx512f,+avx512vnni", "words": "+avx512f",
}  # fmt: skip


@pytest.mark.parametrize("features", PACKING_FOR.values(), ids=PACKING_FOR)
@pytest.mark.parametrize("case", [CASES[3], CASES[6], CASES[8], CASES[10]], ids=str)
def test_weights_are_packed_where_they_are_to_stay(case: Case, features: str) -> None:
    _, weights = arrays(case, "random")
    target = target_of("x86_64-unknown-linux-gnu", "generic", features)
    spec, given = arranged(spec_of(case), None, target), []

    def place(array: np.ndarray) -> np.ndarray:
        given.append(aligned(array))
        return given[-1]

    packed = pack_weights(spec, weights, target, place)
    assert packed is given[-1]
    assert len(given) == 1
    np.testing.assert_array_equal(packed, pack_weights(spec, weights, target))
