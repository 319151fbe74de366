"""Quantisation to 8-bit floats and 4-bit integers at run time: the bytes are those of the reference kernels."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

import ort_core as ort
from ort_core.cpu.partition import CpuPartition

N = helper.make_node
FLOAT8 = ("FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ")
INT4 = ("INT4", "UINT4")


def every_kind_of_number() -> np.ndarray:
    """Return floats around every border of the formats: all of bfloat16's, their neighbours, halves between, NaN."""
    high = np.arange(1 << 16, dtype=np.uint32) << 16
    bits = np.concatenate([high + low for low in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF)])
    return bits.view(np.float32)


def run_both(
    partitions: list[CpuPartition], nodes: list[NodeProto], constants: dict[str, object], x: np.ndarray, kind: int,
    result: int,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Return what the compiled program and the reference kernels make of ``x``."""
    initializers = [
        each if isinstance(each, TensorProto) else numpy_helper.from_array(np.asarray(each), name)
        for name, each in constants.items()
    ]
    info = helper.make_tensor_value_info
    ins, outs = [info("x", kind, ["N", *x.shape[1:]])], [info("y", result, None)]
    graph = helper.make_graph(nodes, "small", ins, outs, initializer=initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()
    reference = ort.InferenceSession(model, providers=["ReferenceExecutionProvider"])
    partitions.clear()
    compiled = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    refusals = {node.op_type: reason for each in partitions for node, reason in each.refusals.items()}
    assert not refusals, f"not compiled: {refusals}"
    assert sum(len(each.native_programs) for each in partitions) == 1, "not one program"
    (found,), (expected,) = compiled.run(None, {"x": x}), reference.run(None, {"x": x})
    assert isinstance(found, np.ndarray)
    assert isinstance(expected, np.ndarray)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    return found, expected


def zero_point(name: str, shape: list[int], seed: int | None) -> TensorProto:
    kind = getattr(TensorProto, name)
    count = int(np.prod(shape)) if shape else 1
    numbers = [0.0] * count if seed is None else list(np.random.default_rng(seed).integers(0, 6, count).astype(float))
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


@pytest.mark.parametrize("name", INT4)
def test_every_float_becomes_the_nibble_of_the_reference(partitions: list[CpuPartition], name: str) -> None:
    nodes = [N("Neg", ["x"], ["n"]), N("QuantizeLinear", ["n", "s", "z"], ["y"])]
    constants = {"s": np.float32(0.75), "z": zero_point(name, [], 1)}
    kind = getattr(TensorProto, name)
    found, expected = run_both(partitions, nodes, constants, every_kind_of_number(), TensorProto.FLOAT, kind)
    np.testing.assert_array_equal(found.view(np.uint8), expected.view(np.uint8))


@pytest.mark.parametrize("has_zero_point", [False, True])
@pytest.mark.parametrize("name", [*FLOAT8, *INT4])
def test_every_byte_stands_for_the_number_of_the_reference(
    partitions: list[CpuPartition], name: str, has_zero_point: bool
) -> None:
    kind = getattr(TensorProto, name)
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    codes = np.arange(256 if name in FLOAT8 else 16, dtype=np.uint8).view(dtype)
    names = ["x", "s", "z"] if has_zero_point else ["x", "s"]
    nodes = [N("DequantizeLinear", names, ["d"]), N("Neg", ["d"], ["y"])]
    constants: dict[str, object] = {"s": np.float32(0.37)}
    if has_zero_point:
        constants["z"] = zero_point(name, [], 1)
    found, expected = run_both(partitions, nodes, constants, codes, kind, TensorProto.FLOAT)
    np.testing.assert_array_equal(found, expected)
    is_zero = expected == 0
    np.testing.assert_array_equal(np.signbit(found[is_zero]), np.signbit(expected[is_zero]), "the sign of zero")


@pytest.mark.parametrize("name", [*FLOAT8, *INT4])
def test_scales_of_an_axis_go_there_and_back_in_one_program(partitions: list[CpuPartition], name: str) -> None:
    x = (np.random.default_rng(3).standard_normal((5, 7, 19)) * 9).astype(np.float32)
    nodes = [
        N("Sigmoid", ["x"], ["a"]), N("Mul", ["a", "x"], ["b"]), N("QuantizeLinear", ["b", "s", "z"], ["q"], axis=1),
        N("DequantizeLinear", ["q", "s", "z"], ["d"], axis=1), N("Tanh", ["d"], ["y"]),
    ]  # fmt: skip
    scales = np.linspace(0.1, 2, 7, dtype=np.float32)
    constants = {"s": scales, "z": zero_point(name, [7], 2 if name in INT4 else None)}
    found, expected = run_both(partitions, nodes, constants, x, TensorProto.FLOAT, TensorProto.FLOAT)
    # Sigmoid may lie one rounding elsewhere, and so, rarely, a neighbour of the quantised number.
    far = np.abs(found - expected) > 1e-5
    assert far.mean() < 0.01
