"""The quantizers of weights under the drop-in give onnxruntime's bytes, and refuse what does not fit."""

from __future__ import annotations

import numpy as np
import pytest
from onnxruntime.capi import _pybind_state as oracle

from ort_core.errors import InvalidType, InvalidValue
from ort_core.kernels import weight_quantizers

BITS = {"quantize_matmul_2bits": 2, "quantize_matmul_4bits": 4, "quantize_matmul_8bits": 8}
FILL = 0xA5  # what the arrays hold before: bytes that are not written show


def weights_of(rows: int, columns: int, dtype: type) -> np.ndarray:
    random = np.random.default_rng(rows * columns)
    found = random.normal(size=(rows, columns)) * random.choice([1e-3, 1, 50], size=(1, columns))
    found[:, 0] = np.arange(rows) % 15 - 7  # halves and ties
    if columns > 2:
        found[:, 1], found[:, 2] = 0, np.abs(found[:, 2]) + 1
    return found.astype(dtype)


@pytest.mark.parametrize("name", BITS)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("is_symmetric", [True, False])
@pytest.mark.parametrize(
    ("rows", "columns", "block_size"),
    [(64, 7, 16), (96, 300, 32), (37, 5, 16), (33, 4, 32), (65, 3, 16), (256, 33, 256), (1, 1, 16), (130, 600, 128)],
)
def test_columns_are_quantized_to_the_same_bytes(
    name: str, dtype: type, is_symmetric: bool, rows: int, columns: int, block_size: int
) -> None:
    weights, bits, blocks = weights_of(rows, columns, dtype), BITS[name], -(-rows // block_size)
    found = []
    for engine in (oracle, weight_quantizers):
        packed = np.full((columns, blocks, block_size * bits // 8), FILL, np.uint8)
        scales = np.zeros((columns, blocks), dtype)
        points = np.full((columns, -(-blocks * bits // 8)), FILL, np.uint8)
        getattr(engine, name)(packed, weights, scales, points, block_size, columns, rows, is_symmetric)
        found.append((packed, scales, points))
    for want, got in zip(*found, strict=True):
        assert got.tobytes() == want.tobytes()


@pytest.mark.parametrize("name", [*BITS, "quantize_qdq_matmul_4bits"])
def test_rows_that_fill_the_last_block_are_not_read(name: str) -> None:
    """Olive and onnxruntime's own tool pad weights to whole blocks and give the count of rows without them."""
    rows, columns, block_size = 48, 5, 32
    weights = weights_of(rows, columns, np.float32)
    padded = np.concatenate([weights, np.full((16, columns), 1e6, np.float32)])
    found = []
    for engine, given in ((oracle, padded), (weight_quantizers, padded), (weight_quantizers, weights)):
        arrays = np.zeros(columns * 64, np.uint8), np.zeros(columns * 2, np.float32), np.zeros(columns * 2, np.uint8)
        getattr(engine, name)(arrays[0], given, *arrays[1:], block_size, columns, rows, False)
        found.append([each.tobytes() for each in arrays])
    assert found[0] == found[1] == found[2]
    with pytest.raises(InvalidValue, match="are not a matrix of 48 rows and 5 columns"):
        getattr(weight_quantizers, name)(arrays[0], padded[:47], *arrays[1:], block_size, columns, rows, False)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("is_symmetric", [True, False])
@pytest.mark.parametrize(
    ("rows", "columns", "block_size"), [(64, 8, 16), (37, 5, 16), (33, 4, 33), (6, 3, 4), (1, 1, 1), (65, 301, 32)]
)
def test_rows_are_quantized_to_the_same_bytes(
    dtype: type, is_symmetric: bool, rows: int, columns: int, block_size: int
) -> None:
    weights, blocks = weights_of(rows, columns, dtype), -(-rows // block_size)
    found = []
    for engine in (oracle, weight_quantizers):
        packed = np.full((rows * columns + 1) // 2, FILL, np.uint8)
        scales = np.zeros((blocks, columns), dtype)
        points = np.full((blocks * columns + 1) // 2, FILL, np.uint8)
        call = engine.quantize_qdq_matmul_4bits
        is_signed = call(packed, weights, scales, points, block_size, columns, rows, is_symmetric)
        found.append((packed, scales, points, np.array(is_signed)))
    for want, got in zip(*found, strict=True):
        assert got.tobytes() == want.tobytes()


# onnxruntime's own quantize_qdq_matmul_2bits writes numbers over each other, and past the arrays: no tool calls it.
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("is_symmetric", [True, False])
@pytest.mark.parametrize(("rows", "columns", "block_size"), [(64, 8, 16), (37, 5, 16), (65, 301, 32), (1, 1, 16)])
def test_rows_of_2_bits_have_the_numbers_that_columns_have(
    dtype: type, is_symmetric: bool, rows: int, columns: int, block_size: int
) -> None:
    weights = np.random.default_rng(3).normal(size=(rows, columns)).astype(dtype)
    blocks = -(-rows // block_size)
    data = np.zeros((columns, blocks, block_size // 4), np.uint8)
    factors, centers = np.zeros((columns, blocks), dtype), np.zeros((columns, -(-blocks // 4)), np.uint8)
    oracle.quantize_matmul_2bits(data, weights, factors, centers, block_size, columns, rows, is_symmetric)
    packed = np.full(-(-rows * columns // 4), FILL, np.uint8)
    scales, points = np.zeros((blocks, columns), dtype), np.full(-(-blocks * columns // 4), FILL, np.uint8)
    call = weight_quantizers.quantize_qdq_matmul_2bits
    assert call(packed, weights, scales, points, block_size, columns, rows, is_symmetric) is is_symmetric
    expected = numbers_of_2_bits(data.reshape(columns, -1))[:, :rows].T
    found = numbers_of_2_bits(packed)[: rows * columns].reshape(rows, columns)
    if is_symmetric:
        found = (found + 2) & 3
    else:
        middles = numbers_of_2_bits(points)[: blocks * columns].reshape(blocks, columns)
        np.testing.assert_array_equal(middles, numbers_of_2_bits(centers)[:, :blocks].T)
    differences = np.abs(found.astype(int) - expected.astype(int))
    assert differences.max() <= 1
    assert np.mean(differences > 0) < 0.001, "only numbers that lie between two may fall apart"
    np.testing.assert_array_equal(scales, factors.T)


def numbers_of_2_bits(packed: np.ndarray) -> np.ndarray:
    """The numbers of bytes (..., count), low bits first."""
    return (packed[..., None] >> np.array([0, 2, 4, 6], np.uint8) & 3).reshape(*packed.shape[:-1], -1)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("quant_type", [0, 1])
@pytest.mark.parametrize(("rows", "columns", "block_size"), [(64, 8, 16), (37, 5, 16), (300, 301, 64), (1, 1, 256)])
def test_floats_of_4_bits_are_the_same(dtype: type, quant_type: int, rows: int, columns: int, block_size: int) -> None:
    weights = np.ascontiguousarray(weights_of(rows, columns, dtype).T)
    found = []
    for engine in (oracle, weight_quantizers):
        packed = np.full((rows * columns + 1) // 2, FILL, np.uint8)
        absmax = np.zeros(-(-rows * columns // block_size), dtype)
        engine.quantize_matmul_bnb4(packed, weights, absmax, block_size, quant_type, columns, rows)
        found.append((packed, absmax))
    for want, got in zip(*found, strict=True):
        assert got.tobytes() == want.tobytes()


def test_what_does_not_fit_is_refused() -> None:
    weights, packed = np.ones((32, 2), np.float32), np.zeros((2, 2, 8), np.uint8)
    scales, points = np.zeros((2, 2), np.float32), np.zeros((2, 1), np.uint8)
    run = weight_quantizers.quantize_matmul_4bits
    run(packed, weights, scales, points, 16, 2, 32, False)
    with pytest.raises(InvalidValue, match="packed"):
        run(packed[:1], weights, scales, points, 16, 2, 32, False)
    with pytest.raises(InvalidValue, match="zero_points"):
        run(packed, weights, scales, points[:1], 16, 2, 32, False)
    with pytest.raises(InvalidType, match="scales is float16"):
        run(packed, weights, scales.astype(np.float16), points, 16, 2, 32, False)
    with pytest.raises(InvalidType, match="float64"):
        run(packed, weights.astype(np.float64), scales, points, 16, 2, 32, False)
    with pytest.raises(InvalidValue, match="not a matrix of 33 rows"):
        run(packed, weights, scales, points, 16, 2, 33, False)
    with pytest.raises(InvalidValue, match="only block size"):
        run(packed, weights, scales, points, 8, 2, 32, False)
    with pytest.raises(InvalidValue, match="quant_type 2"):
        weight_quantizers.quantize_matmul_bnb4(packed.reshape(-1), weights, scales.reshape(-1), 16, 2, 2, 32)
