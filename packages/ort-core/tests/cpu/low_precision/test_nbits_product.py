"""MatMulNBits of any number of rows, compiled, against float64: few rows and many are read by different code."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from onnx import ModelProto
from test_groups import FLOAT, N, model_of
from test_quantized_groups import run_native

from ort_core.cpu.codegen.machine_code.llvm_targets import host_target
from ort_core.cpu.codegen.products.bfloat16_product import has_pair_products
from ort_core.cpu.codegen.quantized.nbits_product import FEW_ROWS
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
@pytest.mark.parametrize(("bits", "block", "columns", "depth"), [(4, 32, 40, 90), (4, 128, 70, 3000), (8, 64, 48, 100)])
def test_many_rows_are_rounded_to_bfloat16_where_the_accuracy_level_allows(
    bits: int, block: int, columns: int, depth: int, level: int
) -> None:
    model, real, bias = case(bits, block, columns, depth, zeros=True, level=level)
    x, r = (RANDOM.standard_normal((1, 40, size)).astype(np.float32) for size in (depth, columns))
    (found,) = run_native(model, {"x": x, "r": r})
    left, right = x.astype(np.float64), real
    if has_pair_products(host_target()):
        left, right = (each.astype(np.float32).astype(ml_dtypes.bfloat16).astype(np.float64) for each in (left, right))
    expected = np.maximum(left @ right + bias + r, 0)
    bound = (np.abs(left) @ np.abs(right) + np.abs(bias) + np.abs(r)) * (depth + 4) * 2.0**-24
    # A weight on the border of two bfloat16 may round to either: the unpacking rounds once more in float32.
    assert (np.abs(found - expected) <= bound + 2.0**-9 * np.abs(left).max() * np.abs(right).max()).all()
