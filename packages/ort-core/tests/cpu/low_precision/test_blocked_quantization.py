"""QuantizeLinear and DequantizeLinear with a scale for each block of an axis, compiled: equal to the reference."""

from __future__ import annotations

import numpy as np
import pytest
from beside_reference import run_both
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import ort_core as ort
from ort_core.cpu.partition.partition import CpuPartition

N = helper.make_node
WHOLE = ("INT8", "UINT8", "INT16", "UINT16", "INT4", "UINT4", "INT2", "UINT2")
FLOAT8 = ("FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ")
SHAPE = (4, 6, 10)
AXES = [(0, 2), (0, 3), (1, 4), (1, 6), (2, 5), (-1, 4), (-2, 1), (2, 32)]  # with a block; some do not divide


def dtype_of(name: str) -> np.dtype:
    return np.dtype(helper.tensor_dtype_to_np_dtype(getattr(TensorProto, name)))


def blocked(axis: int, block: int) -> tuple[int, ...]:
    shape = list(SHAPE)
    shape[axis] = -(-shape[axis] // block)
    return tuple(shape)


def zero_points(name: str, shape: tuple[int, ...]) -> np.ndarray:
    above = 2 if "INT2" in name else 6
    whole = np.random.default_rng(7).integers(0, above, shape)
    return whole.astype(np.float32).astype(dtype_of(name)) if name in WHOLE else np.zeros(shape, dtype_of(name))


def parameters(name: str, axis: int, block: int, kind: type = np.float32) -> dict[str, object]:
    shape = blocked(axis, block)
    scales = np.random.default_rng(3).uniform(0.01, 0.9, shape).astype(kind)
    return {"s": scales, "z": tensor("z", zero_points(name, shape), name)}


def tensor(name: str, array: np.ndarray, kind: str) -> TensorProto:
    return helper.make_tensor(name, getattr(TensorProto, kind), array.shape, array.astype(np.float32).reshape(-1))


def numbers(kind: type = np.float32) -> np.ndarray:
    x = np.random.default_rng(5).standard_normal(SHAPE) * 40
    x.flat[:6] = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e30 if kind is np.float32 else 6e4]
    return x.astype(kind)


@pytest.mark.parametrize(("axis", "block"), AXES)
def test_floats_are_quantized_by_blocks(partitions: list[CpuPartition], axis: int, block: int) -> None:
    nodes = [N("QuantizeLinear", ["x", "s", "z"], ["y"], axis=axis, block_size=block)]
    constants = parameters("INT8", axis, block)
    found, expected = run_both(partitions, nodes, constants, numbers(), TensorProto.FLOAT, TensorProto.INT8)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", [*WHOLE, *FLOAT8])
def test_every_type_is_quantized_by_blocks_behind_what_it_is_fused_with(
    partitions: list[CpuPartition], name: str
) -> None:
    kind = getattr(TensorProto, name)
    nodes = [
        N("Neg", ["x"], ["n"]), N("QuantizeLinear", ["n", "s", "z"], ["y"], axis=1, block_size=4, saturate=0)
    ]  # fmt: skip
    found, expected = run_both(partitions, nodes, parameters(name, 1, 4), numbers(), TensorProto.FLOAT, kind)
    # As numbers: the sign of NaN is nobody's.
    np.testing.assert_array_equal(found.astype(np.float32), expected.astype(np.float32))
    np.testing.assert_array_equal(*(np.signbit(each.astype(np.float32))[1:] for each in (found, expected)))
    [program] = [program for each in partitions for program in each.native_programs]
    assert len(program.steps) == 2, "one step for the full blocks, one for the last"


@pytest.mark.parametrize("has_zero_point", [False, True])
@pytest.mark.parametrize("name", [*WHOLE, *FLOAT8, "INT32"])
def test_every_type_is_made_real_by_blocks(partitions: list[CpuPartition], name: str, has_zero_point: bool) -> None:
    kind = getattr(TensorProto, name)
    codes = np.random.default_rng(9).integers(0, 256, SHAPE).astype(np.uint8)
    if "INT4" in name or "INT2" in name:
        codes &= 15 if "INT4" in name else 3
    x = codes.view(dtype_of(name)) if dtype_of(name).itemsize == 1 else codes.astype(dtype_of(name)) - 100
    constants = parameters(name, 2, 4)
    names = ["x", "s", "z"] if has_zero_point and name != "INT32" else ["x", "s"]
    if len(names) == 2:
        del constants["z"]
    nodes = [N("DequantizeLinear", names, ["d"], axis=2, block_size=4), N("Abs", ["d"], ["y"])]
    found, expected = run_both(partitions, nodes, constants, x, kind, TensorProto.FLOAT)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("axis", "block"), AXES)
def test_blocks_go_there_and_back_as_onnx_has_them(partitions: list[CpuPartition], axis: int, block: int) -> None:
    nodes = [
        N("QuantizeLinear", ["x", "s", "z"], ["q"], axis=axis, block_size=block),
        N("DequantizeLinear", ["q", "s", "z"], ["y"], axis=axis, block_size=block),
    ]
    constants = parameters("UINT8", axis, block)
    x = np.random.default_rng(6).standard_normal(SHAPE).astype(np.float32)
    found, expected = run_both(partitions, nodes, constants, x, TensorProto.FLOAT, TensorProto.FLOAT)
    np.testing.assert_array_equal(found, expected)
    if SHAPE[axis] % block:
        return  # ONNX's evaluator has full blocks only
    info = helper.make_tensor_value_info
    feeds = {"x": x, "s": np.asarray(constants["s"]), "z": zero_points("UINT8", blocked(axis, block))}
    inputs = [info(name, helper.np_dtype_to_tensor_dtype(each.dtype), each.shape) for name, each in feeds.items()]
    graph = helper.make_graph(nodes, "blocks", inputs, [info("y", TensorProto.FLOAT, SHAPE)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=12)
    [by_onnx] = ReferenceEvaluator(model).run(None, feeds)
    np.testing.assert_array_equal(found, by_onnx)


def test_half_precision_is_quantized_and_made_real_by_blocks(partitions: list[CpuPartition]) -> None:
    nodes = [
        N("QuantizeLinear", ["x", "s", "z"], ["q"], axis=1, block_size=3, precision=TensorProto.FLOAT),
        N("DequantizeLinear", ["q", "s", "z"], ["y"], axis=1, block_size=3),
    ]
    constants = parameters("INT8", 1, 3, np.float16)
    x = numbers(np.float16)
    found, expected = run_both(partitions, nodes, constants, x, TensorProto.FLOAT16, TensorProto.FLOAT16)
    np.testing.assert_array_equal(found, expected)


@pytest.fixture
def of_any_size() -> bytes:
    """A model whose blocks lie along an axis that each run decides, with scales that are inputs."""
    info = helper.make_tensor_value_info
    nodes = [
        N("QuantizeLinear", ["x", "s", "z"], ["q"], axis=1, block_size=4, output_dtype=TensorProto.UINT8),
        N("DequantizeLinear", ["q", "s", "z"], ["y"], axis=1, block_size=4),
    ]
    inputs = [
        info("x", TensorProto.FLOAT, ["rows", "size"]), info("s", TensorProto.FLOAT, ["rows", "blocks"]),
        info("z", TensorProto.UINT8, ["rows", "blocks"]),
    ]  # fmt: skip
    graph = helper.make_graph(nodes, "any", inputs, [info("y", TensorProto.FLOAT, None)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11).SerializeToString()


@pytest.mark.parametrize("size", [4, 12, 64, 13, 3])
def test_sizes_that_only_a_run_tells_are_blocked_too(
    partitions: list[CpuPartition], of_any_size: bytes, size: int
) -> None:
    rng = np.random.default_rng(size)
    blocks = -(-size // 4)
    feeds = {
        "x": rng.standard_normal((5, size)).astype(np.float32),
        "s": rng.uniform(0.01, 0.1, (5, blocks)).astype(np.float32),
        "z": rng.integers(0, 9, (5, blocks)).astype(np.uint8),
    }
    compiled = ort.InferenceSession(of_any_size, providers=["CPUExecutionProvider"])
    assert not {node.op_type: reason for each in partitions for node, reason in each.refusals.items()}
    assert sum(len(each.native_programs) for each in partitions) == 1, "not one program"
    reference = ort.InferenceSession(of_any_size, providers=["ReferenceExecutionProvider"])
    np.testing.assert_array_equal(compiled.run(None, feeds)[0], reference.run(None, feeds)[0])


def test_scales_that_are_not_one_for_each_block_are_an_error(of_any_size: bytes) -> None:
    session = ort.InferenceSession(of_any_size, providers=["CPUExecutionProvider"])
    x, scales = np.ones((5, 8), np.float32), np.ones((5, 3), np.float32)
    with pytest.raises(ort.OrtError, match="scale or zero point of shape"):
        session.run(None, {"x": x, "s": scales, "z": np.zeros((5, 3), np.uint8)})
