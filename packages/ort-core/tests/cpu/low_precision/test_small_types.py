"""Quantization to 8-bit floats and to integers of 4 and 2 bits at run time: bytes as of the reference kernels."""

from __future__ import annotations

import numpy as np
import pytest
from beside_reference import every_kind_of_number, run_both
from onnx import TensorProto, helper

from ort_core.cpu.partition.partition import CpuPartition

N = helper.make_node
FLOAT8 = ("FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ")
INTEGERS = ("INT4", "UINT4", "INT2", "UINT2")


def zero_point(name: str, shape: list[int], seed: int | None) -> TensorProto:
    kind = getattr(TensorProto, name)
    count = int(np.prod(shape)) if shape else 1
    above = 2 if "INT2" in name else 6
    numbers = [0.0] * count if seed is None else list(np.random.default_rng(seed).integers(0, above, count) * 1.0)
    return helper.make_tensor("z", kind, shape, numbers)


@pytest.mark.parametrize("saturate", [0, 1])
@pytest.mark.parametrize("name", FLOAT8)
def test_every_float_becomes_the_byte_of_the_reference(
    partitions: list[CpuPartition], name: str, saturate: int
) -> None:
    nodes = [N("QuantizeLinear", ["x", "s", "z"], ["y"], saturate=saturate)]
    constants = {"s": np.float32(1), "z": zero_point(name, [], None)}
    kind = getattr(TensorProto, name)
    found, expected = run_both(partitions, nodes, constants, every_kind_of_number(), TensorProto.FLOAT, kind)
    np.testing.assert_array_equal(found.view(np.uint8), expected.view(np.uint8))


@pytest.mark.parametrize("name", INTEGERS)
def test_every_float_becomes_the_nibble_of_the_reference(partitions: list[CpuPartition], name: str) -> None:
    nodes = [N("Neg", ["x"], ["n"]), N("QuantizeLinear", ["n", "s", "z"], ["y"])]
    constants = {"s": np.float32(0.75), "z": zero_point(name, [], 1)}
    kind = getattr(TensorProto, name)
    found, expected = run_both(partitions, nodes, constants, every_kind_of_number(), TensorProto.FLOAT, kind)
    np.testing.assert_array_equal(found.view(np.uint8), expected.view(np.uint8))


@pytest.mark.parametrize("has_zero_point", [False, True])
@pytest.mark.parametrize("name", [*FLOAT8, *INTEGERS])
def test_every_byte_stands_for_the_number_of_the_reference(
    partitions: list[CpuPartition], name: str, has_zero_point: bool
) -> None:
    kind = getattr(TensorProto, name)
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    codes = np.arange(256 if name in FLOAT8 else 4 if "INT2" in name else 16, dtype=np.uint8).view(dtype)
    names = ["x", "s", "z"] if has_zero_point else ["x", "s"]
    nodes = [N("DequantizeLinear", names, ["d"]), N("Neg", ["d"], ["y"])]
    constants: dict[str, object] = {"s": np.float32(0.37)}
    if has_zero_point:
        constants["z"] = zero_point(name, [], 1)
    found, expected = run_both(partitions, nodes, constants, codes, kind, TensorProto.FLOAT)
    np.testing.assert_array_equal(found, expected)
    is_zero = expected == 0
    np.testing.assert_array_equal(np.signbit(found[is_zero]), np.signbit(expected[is_zero]), "the sign of zero")


@pytest.mark.parametrize("name", [*FLOAT8, *INTEGERS])
def test_scales_of_an_axis_go_there_and_back_in_one_program(partitions: list[CpuPartition], name: str) -> None:
    x = (np.random.default_rng(3).standard_normal((5, 7, 19)) * 9).astype(np.float32)
    nodes = [
        N("Sigmoid", ["x"], ["a"]), N("Mul", ["a", "x"], ["b"]), N("QuantizeLinear", ["b", "s", "z"], ["q"], axis=1),
        N("DequantizeLinear", ["q", "s", "z"], ["d"], axis=1), N("Tanh", ["d"], ["y"]),
    ]  # fmt: skip
    scales = np.linspace(0.1, 2, 7, dtype=np.float32)
    constants = {"s": scales, "z": zero_point(name, [7], 2 if name in INTEGERS else None)}
    found, expected = run_both(partitions, nodes, constants, x, TensorProto.FLOAT, TensorProto.FLOAT)
    # Sigmoid may lie one rounding elsewhere, and so, rarely, a neighbor of the quantized number.
    far = np.abs(found - expected) > 1e-5
    assert far.mean() < 0.01
