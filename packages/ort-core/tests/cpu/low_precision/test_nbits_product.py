"""MatMulNBits of any number of rows, compiled, against float64: of floats few and many are read by different code."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from onnx import ModelProto
from test_groups import FLOAT, N, model_of
from test_quantized_groups import run_native

from ort_core.cpu.codegen.llvm_ir.emitter import module_text
from ort_core.cpu.codegen.machine_code.jit import assembly
from ort_core.cpu.codegen.machine_code.llvm_targets import host_target, target_of
from ort_core.cpu.codegen.products.bfloat16_product import rounds_both
from ort_core.cpu.codegen.quantized.nbits_byte_tile import multiplies_bytes
from ort_core.cpu.codegen.quantized.nbits_product import FEW_ROWS, NBitsKernel, nbits_functions
from ort_core.cpu.codegen.quantized.nbits_tile import NBitsProduct
from ort_core.plugin.ir import DataType
from ort_core.plugin.loops import element
from ort_core.tolerances import compare

RANDOM = np.random.default_rng(41)
ROWS = [1, FEW_ROWS - 1, FEW_ROWS, FEW_ROWS + 1, 40, 300]


def case(
    bits: int, block: int, columns: int, depth: int, zeros: bool, level: int = 0
) -> tuple[ModelProto, np.ndarray, np.ndarray]:
    """Return ``y = relu(x @ w + b + r)``, the weights and the bias in float64."""
    blocks = -(-depth // block)
    levels = RANDOM.integers(0, 1 << bits, (columns, blocks * block)).astype(np.uint8)
    scales = RANDOM.uniform(0.01, 0.1, (columns, blocks)).astype(np.float32)
    offsets = RANDOM.uniform(0, 9, (columns, blocks)).astype(np.float32)
    packed = levels if bits == 8 else levels[:, ::2] | levels[:, 1::2] << 4
    bias = RANDOM.standard_normal(columns).astype(np.float32)
    constants = {"w": packed.reshape(columns, blocks, -1), "s": scales.reshape(-1), "b": bias}
    if zeros:
        constants["z"] = offsets.reshape(-1)
    node = N(
        "MatMulNBits", ["x", "w", "s", "z" if zeros else "", "", "b"], ["m"], domain="com.microsoft", K=depth,
        N=columns, bits=bits, block_size=block, accuracy_level=level,
    )  # fmt: skip
    nodes = [node, N("Add", ["m", "r"], ["t"]), N("Relu", ["t"], ["y"])]
    inputs = {"x": (FLOAT, ["B", "M", depth]), "r": (FLOAT, ["B", "M", columns])}
    middle = np.repeat(offsets, block, axis=1) if zeros else 2.0 ** (bits - 1)
    real = (levels - middle) * np.repeat(scales.astype(np.float64), block, axis=1)
    return model_of(nodes, inputs, {"y": FLOAT}, constants), real[:, :depth].T, bias.astype(np.float64)


@pytest.mark.sweep
@pytest.mark.parametrize("zeros", [False, True], ids=["symmetric", "zero points"])
@pytest.mark.parametrize(
    ("bits", "block", "columns", "depth"),
    [(4, 32, 40, 96), (4, 16, 17, 77), (4, 128, 70, 1700), (8, 32, 33, 64), (8, 64, 48, 100), (4, 32, 16, 2048)],
)
def test_product_of_any_number_of_rows_equals_float64(
    bits: int, block: int, columns: int, depth: int, zeros: bool
) -> None:
    model, real, bias = case(bits, block, columns, depth, zeros)
    for rows in ROWS:
        x, r = (RANDOM.standard_normal((1, rows, size)).astype(np.float32) for size in (depth, columns))
        (found,) = run_native(model, {"x": x, "r": r})
        expected = np.maximum(x.astype(np.float64) @ real + bias + r, 0).astype(np.float32)
        comparison = compare(found, expected, "approximate")
        assert comparison.passes, f"{rows} rows: {comparison}"


@pytest.mark.parametrize("level", [3, 4])
@pytest.mark.parametrize(
    ("bits", "block", "columns", "depth"), [(4, 32, 40, 90), (4, 128, 70, 3000), (8, 64, 48, 100), (4, 16, 33, 77)]
)
def test_many_rows_are_rounded_as_the_accuracy_level_allows(
    bits: int, block: int, columns: int, depth: int, level: int
) -> None:
    model, real, bias = case(bits, block, columns, depth, zeros=True, level=level)
    x, r = (RANDOM.standard_normal((1, 40, size)).astype(np.float32) for size in (depth, columns))
    (found,) = run_native(model, {"x": x, "r": r})
    left, right = x.astype(np.float64), real
    if level == 4 and multiplies_bytes(bits, host_target()):
        left = as_bytes(x, block)
    elif rounds_both(host_target()):
        left, right = (each.astype(np.float32).astype(ml_dtypes.bfloat16).astype(np.float64) for each in (left, right))
    expected = np.maximum(left @ right + bias + r, 0)
    bound = (np.abs(left) @ np.abs(right) + np.abs(bias) + np.abs(r)) * (depth + 4) * 2.0**-24
    # A weight on the border of two bfloat16 may round to either: the unpacking rounds once more in float32.
    assert (np.abs(found - expected) <= bound + 2.0**-9 * np.abs(left).max() * np.abs(right).max()).all()


def as_bytes(x: np.ndarray, block: int) -> np.ndarray:
    """Return rows as signed bytes with a scale for each block stand for them, in float64."""
    padded = np.zeros((*x.shape[:-1], -(-x.shape[-1] // block), block), np.float32)
    padded.reshape(*x.shape[:-1], -1)[..., : x.shape[-1]] = x
    largest = np.abs(padded).max(axis=-1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        inverse = np.minimum(np.float32(127) / largest, np.finfo(np.float32).max)
    rounded = np.rint(padded * inverse).astype(np.float64) * (largest / np.float32(127))
    return rounded.reshape(*x.shape[:-1], -1)[..., : x.shape[-1]]


@pytest.mark.parametrize(
    ("bits", "block", "columns", "depth", "zeros"),
    [
        (4, 16, 17, 77, True),
        (4, 32, 40, 96, False),
        (4, 32, 40, 20, False),
        (4, 128, 50, 1700, False),
        (8, 64, 48, 100, True),
        (8, 32, 33, 100, False),
    ],
)
def test_any_number_of_rows_is_rounded_to_bytes_where_the_accuracy_level_allows(
    bits: int, block: int, columns: int, depth: int, zeros: bool
) -> None:
    model, real, bias = case(bits, block, columns, depth, zeros, level=4)
    rounds = multiplies_bytes(bits, host_target())
    most = 3 * FEW_ROWS + 9 if rounds else FEW_ROWS
    whole = (RANDOM.standard_normal((1, most, depth)) * np.exp(RANDOM.uniform(-9, 9, (depth,)))).astype(np.float32)
    whole[0, 1, :block] = 0
    results = []
    for rows in (1, 3, 7, FEW_ROWS, FEW_ROWS + 1, most) if rounds else (1, 3, 7, FEW_ROWS):
        x, r = whole[:, :rows], np.ones((1, rows, columns), np.float32)
        (found,) = run_native(model, {"x": x, "r": r})
        left = as_bytes(x, block) if rounds else x.astype(np.float64)
        expected = np.maximum(left @ real + bias + r, 0)
        bound = (np.abs(left) @ np.abs(real) + np.abs(bias) + np.abs(r)) * (depth + 4) * 2.0**-24
        assert (np.abs(found - expected) <= bound).all(), f"{rows} rows"
        results.append(found[0])
    if rounds:  # what stands beside a row changes nothing in it: alone, in a batch, among drafts
        for fewer in results[:-1]:
            np.testing.assert_array_equal(fewer, results[-1][: len(fewer)])


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize(("has_zero_points", "instruction"), [(False, "tdpbssd"), (True, "tdpbsud")])
def test_rows_of_bytes_run_in_registers_of_tiles_where_they_may(
    has_zero_points: bool, instruction: str, parts: int
) -> None:
    features = "+amx-int8,+amx-tile,+avx512bw,+avx512dq,+avx512f,+avx512vl,+avx512vnni"
    target = target_of("x86_64-unknown-linux-gnu", "sapphirerapids", features)
    spec = NBitsProduct(
        256, 64, element(0, DataType.FLOAT), bits=4, block=64, has_zero_points=has_zero_points, x_pixel=288 * parts,
        parts=parts,
    )  # fmt: skip
    kernel = NBitsKernel(spec, None, 0, in_bytes=True, in_tiles=True)
    text = assembly(module_text(nbits_functions("kernel", kernel, target)), target, is_vectorized=True)
    assert text.count("\tldtilecfg") == text.count("\ttilerelease") == 1
    for rows in (16 // parts, 8 // parts):
        body = text.split(f"\nkernel.1x{rows}:", 1)[1].split(".Lfunc_end", 1)[0]
        assert body.count(f"\t{instruction}") == body.count("\ttilestored") == 1
        assert "vpdpbusd" not in body
    assert "vpdpbusd" in text.split("\nkernel.1x1:", 1)[1].split(".Lfunc_end", 1)[0]


def test_rows_of_bytes_keep_what_is_no_number_and_infinities_to_their_rows() -> None:
    model, real, bias = case(4, 32, 40, 96, zeros=False, level=4)
    x = RANDOM.standard_normal((1, 4, 96)).astype(np.float32)
    x[0, 0, 5], x[0, 1, 40], x[0, 2, :] = np.nan, np.inf, 1e-42
    (found,) = run_native(model, {"x": x, "r": np.zeros((1, 4, 40), np.float32)})
    assert np.isnan(found[0, 0]).all()
    sure = real[40] != 0
    np.testing.assert_array_equal(found[0, 1][sure], np.where(real[40] > 0, np.inf, 0)[sure])
    np.testing.assert_allclose(found[0, 2], np.maximum(bias, 0), rtol=1e-6)
    expected = np.maximum(x[0, 3].astype(np.float64) @ real + bias, 0)
    assert (np.abs(found[0, 3] - expected) <= np.abs(x[0, 3]).max() * np.abs(real).sum(axis=0) / 254 + 1e-4).all()
