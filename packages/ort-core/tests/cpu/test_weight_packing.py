"""Packed weights are complete when the packing has finished, are packed once, and give every session the same bits."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import ort_core as ort
from ort_core.cpu.codegen.packing import aligned_empty, pack_panels, panels_shape
from ort_core.cpu.lowering.weight_packing import WeightPacking
from ort_core.tolerances import compare


def numbers(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def packed(packing: WeightPacking, matrix: np.ndarray, panel: int = 32) -> np.ndarray:
    return packing.packed(
        matrix, f"panels {panel}", lambda: aligned_empty(panels_shape(matrix.shape, panel)),
        lambda out: pack_panels(matrix, panel, out),
    )  # fmt: skip


@pytest.mark.parametrize("num_threads", [0, 1, 3])
def test_every_weight_is_packed_when_the_block_is_left(num_threads: int) -> None:
    matrices = [numbers(i, 300 + i, 257) for i in range(12)]
    with WeightPacking(num_threads) as packing:
        found = [packed(packing, each) for each in matrices]
    for matrix, panels in zip(matrices, found, strict=True):
        np.testing.assert_array_equal(panels, pack_panels(matrix, 32))


def test_same_memory_in_the_same_layout_is_packed_once() -> None:
    matrix = numbers(0, 64, 64)
    with WeightPacking() as packing:
        first = packed(packing, matrix)
        assert packed(packing, matrix.view()) is first
        assert packed(packing, matrix, 16) is not first, "another layout"
        assert packed(packing, matrix.T) is not first, "the same memory, read the other way"
        assert packed(packing, matrix[:32]) is not first, "a part"


def test_failure_to_pack_is_an_error_of_the_compilation() -> None:
    def fill(out: np.ndarray) -> None:
        raise MemoryError("no room")

    packing = WeightPacking(2)
    with pytest.raises(MemoryError, match="no room"), packing:
        packing.packed(numbers(0, 512, 512), "any", lambda: np.empty((512, 512), np.float32), fill)


@pytest.mark.parametrize("shape", [(400, 300), (17, 5)])
@pytest.mark.parametrize("is_transposed", [False, True])
def test_products_of_packed_weights_are_right_with_any_number_of_threads(
    shape: tuple[int, int], is_transposed: bool
) -> None:
    depth, columns = shape
    weights = numbers(1, columns, depth) if is_transposed else numbers(1, depth, columns)
    nodes = [
        helper.make_node("Gemm", ["x", "w"], ["a"], transB=int(is_transposed)),
        helper.make_node("Relu", ["a"], ["y"]),
    ]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "products", [info("x", TensorProto.FLOAT, ["N", depth])], [info("y", TensorProto.FLOAT, None)],
        initializer=[numpy_helper.from_array(weights, "w")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10).SerializeToString()
    x = numbers(2, 9, depth)
    found = []
    for threads in (1, 2, 3):
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        found += ort.InferenceSession(model, options, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    wide = weights.astype(np.float64)
    expected = np.maximum(x.astype(np.float64) @ (wide.T if is_transposed else wide), 0)
    comparison = compare(found[0], expected.astype(np.float32), "approximate")
    assert comparison.passes, comparison
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])
