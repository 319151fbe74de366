"""Runs nodes compiled, as one program, and by the reference kernels; and the numbers to try conversions on."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

import ort_core as ort
from ort_core.cpu.partition.admission import NO_HALVES
from ort_core.cpu.partition.partition import CpuPartition


def every_kind_of_number() -> np.ndarray:
    """Return floats around every border of the formats: all of bfloat16's, their neighbors, halves between, NaN."""
    high = np.arange(1 << 16, dtype=np.uint32) << 16
    bits = np.concatenate([high + low for low in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF)])
    return bits.view(np.float32)


def run_both(
    partitions: list[CpuPartition], nodes: list[NodeProto], constants: dict[str, object], x: np.ndarray, kind: int,
    result: int, opset: int = 28,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Return what the compiled program and the reference kernels make of ``x``: the result ``y``."""
    [found] = run_all(partitions, nodes, constants, x, kind, {"y": result}, opset)
    return found


def run_all(
    partitions: list[CpuPartition], nodes: list[NodeProto], constants: dict[str, object], x: np.ndarray, kind: int,
    results: Mapping[str, int], opset: int = 28,
) -> list[tuple[np.ndarray, np.ndarray]]:  # fmt: skip
    """Return what the compiled program and the reference kernels make of ``x``, for each result."""
    initializers = [
        each if isinstance(each, TensorProto) else numpy_helper.from_array(np.asarray(each), name)
        for name, each in constants.items()
    ]
    info = helper.make_tensor_value_info
    ins, outs = [info("x", kind, ["N", *x.shape[1:]])], [info(name, each, None) for name, each in results.items()]
    graph = helper.make_graph(nodes, "small", ins, outs, initializer=initializers)
    opsets = [helper.make_opsetid("", opset)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=13).SerializeToString()
    reference = ort.InferenceSession(model, providers=["ReferenceExecutionProvider"])
    partitions.clear()
    compiled = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    refusals = {node.op_type: reason for each in partitions for node, reason in each.refusals.items()}
    if set(refusals.values()) == {NO_HALVES}:
        pytest.skip(NO_HALVES)
    assert not refusals, f"not compiled: {refusals}"
    assert sum(len(each.native_programs) for each in partitions) == 1, "not one program"
    both = list(zip(compiled.run(None, {"x": x}), reference.run(None, {"x": x}), strict=True))
    for found, expected in both:
        assert isinstance(found, np.ndarray)
        assert isinstance(expected, np.ndarray)
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    return both
