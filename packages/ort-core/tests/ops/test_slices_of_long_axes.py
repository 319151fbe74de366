"""Slices of axes that have more than 2**31 elements: bounds beyond it cut, and only what no axis reaches is its end."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import ort_core as ort
from ort_core.ir.dims import KnownDim, SymbolicDim, evaluate
from ort_core.ops.shape_arithmetic import slice_dim

SIZES = (0, 1, 7, 2**31 - 1, 2**31, 2**31 + 9, 2_200_000_000, 2**33)
BOUNDS = (0, 5, 2**31, 2**31 + 2, 2_200_000_000 - 1000, 2**33 - 1, -1, -6, -(2**31) - 7, -(2**33) + 1)
ENDS = (*BOUNDS, 2**63 - 1, -(2**63))
N, M = SymbolicDim.named("n"), SymbolicDim.named("m")


def kept(size: int, start: int, end: int, step: int) -> int:
    """Count what Slice keeps, by the words of its specification."""
    least, most = (0, size) if step > 0 else (-1, size - 1)
    first = min(max(start + (size if start < 0 else 0), 0), most)
    last = min(max(end + (size if end < 0 else 0), least), most)
    return max(-((first - last) // step), 0)


@pytest.mark.parametrize("step", [1, 3, -1, -4])
def test_sizes_of_slices_of_an_open_axis_hold_for_long_ones(step: int) -> None:
    known = 0
    for start, end in itertools.product(ENDS, ENDS):
        found = slice_dim(SymbolicDim.named("n"), start, end, step)
        for size in SIZES if found is not None else ():
            assert evaluate(found, {"n": size}) == kept(size, start, end, step), (start, end, size)
            known += 1
    assert known > len(SIZES)


@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("size", [N, M, N + M, 9])
def test_sizes_of_slices_hold_where_only_a_run_knows_whether_a_bound_counts_from_the_end(
    size: KnownDim, step: int
) -> None:
    bounds = [5 - N, -N, N - M, N + 3, M, -N - 1, 2, -2]
    for start, end in itertools.product(bounds, bounds):
        found = slice_dim(size, start, end, step)
        for n, m in itertools.product((0, 1, 4, 5, 6, 11), (0, 1, 3, 12)):
            whole, first, last = (evaluate(each, {"n": n, "m": m}) for each in (size, start, end))
            assert evaluate(found, {"n": n, "m": m}) == kept(whole, first, last, step), (start, end, n, m)


@pytest.mark.parametrize("bound", [2**31 - 1, 2**63 - 1])
def test_what_exporters_write_is_the_end_of_an_open_axis(bound: int) -> None:
    size = SymbolicDim.named("n")
    assert slice_dim(size, 0, bound, 1) == size
    assert slice_dim(size, -1, -bound, -1) == slice_dim(size, bound, -bound - 1, -1) == size


@pytest.mark.parametrize("opset", [9, 21])
def test_a_slice_of_long_axes_is_not_taken_for_empty_or_for_nothing_done(opset: int) -> None:
    """Short feeds show it, too: the places that are kept lie behind them."""
    constants = {"starts": [2**31 + 1, 0], "ends": [2**31 + 1001, 2**31 + 5]}
    given = list(constants) if opset > 9 else []
    graph = helper.make_graph(
        [helper.make_node("Slice", ["x", *given], ["y"], **({} if given else constants))],
        "long",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", "m"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.array(constants[name]), name) for name in given],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    rows, columns = session.get_outputs()[0].shape
    assert not isinstance(rows, int)
    assert columns != "m"  # of m, at most 2**31 + 5 are kept
    assert session.run(None, {"x": np.ones((4, 6), np.float32)})[0].shape == (0, 6)
