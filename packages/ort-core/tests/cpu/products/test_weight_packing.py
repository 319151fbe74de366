"""Packed weights are complete when the packing has finished, are packed once, and give every session the same bits."""

from __future__ import annotations

import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import ort_core as ort
from ort_core.cpu.codegen.products.packing import aligned_empty, pack_panels, panels_shape
from ort_core.cpu.lowering.products.weight_packing import WeightPacking
from ort_core.environment import default_environment
from ort_core.session_api import file_identity
from ort_core.tensors.mapped_files import map_file
from ort_core.tensors.weight_store import WeightStore
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


def mapped(folder: Path, array: np.ndarray) -> np.ndarray:
    path = folder / "weights"
    if not path.exists():
        path.write_bytes(array.tobytes())
    return np.frombuffer(map_file(path), array.dtype).reshape(array.shape)


@pytest.mark.parametrize("num_threads", [0, 2])
def test_two_packings_of_one_file_share_the_packed_weight_until_both_are_gone(tmp_path: Path, num_threads: int) -> None:
    store = WeightStore()
    matrix = numbers(0, 300, 257)
    with WeightPacking(num_threads, store) as first:
        one = packed(first, mapped(tmp_path, matrix))
    with WeightPacking(num_threads, store) as second:
        assert packed(second, mapped(tmp_path, matrix)) is one
    np.testing.assert_array_equal(one, pack_panels(matrix, 32))
    assert store.nbytes == one.nbytes
    del first
    gc.collect()
    assert len(store) == 1
    del second
    gc.collect()
    assert len(store) == 0


def test_weights_for_another_processor_and_weights_in_memory_are_not_shared(tmp_path: Path) -> None:
    store = WeightStore()
    matrix = mapped(tmp_path, numbers(0, 64, 64))
    with WeightPacking(0, store, "one") as first, WeightPacking(0, store, "other") as second:
        assert packed(first, matrix) is not packed(second, matrix)
        assert len(store) == 2
        own = numbers(0, 64, 64)
        assert packed(first, own) is not packed(second, own)
        assert len(store) == 2, "its address may be that of another array later"


def test_a_packing_waits_for_the_weight_that_another_one_is_packing(tmp_path: Path) -> None:
    store, matrix = WeightStore(), mapped(tmp_path, numbers(0, 600, 600))
    may_go_on, has_started = threading.Event(), threading.Event()

    def fill(out: np.ndarray) -> None:
        has_started.set()
        assert may_go_on.wait(200)
        pack_panels(matrix, 32, out)

    def pack(fill_with: object) -> np.ndarray:
        with WeightPacking(1, store) as packing:
            shape = panels_shape(matrix.shape, 32)
            found = packing.packed(matrix, "panels", lambda: aligned_empty(shape), fill_with)
        return found.copy()

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(pack, fill)
        assert has_started.wait(200)
        second = pool.submit(pack, lambda out: pytest.fail("packed twice"))
        may_go_on.set()
        for each in (first, second):
            np.testing.assert_array_equal(each.result(200), pack_panels(matrix, 32))


def test_a_weight_whose_packing_failed_is_packed_again_by_the_next(tmp_path: Path) -> None:
    def fail(out: np.ndarray) -> None:
        raise MemoryError("no room")

    store, matrix = WeightStore(), mapped(tmp_path, numbers(0, 512, 512))
    failed = WeightPacking(2, store)
    with pytest.raises(MemoryError, match="no room"), failed:
        failed.packed(matrix, "panels 32", lambda: aligned_empty(panels_shape(matrix.shape, 32)), fail)
    with WeightPacking(2, store) as packing:
        found = packed(packing, matrix)
    np.testing.assert_array_equal(found, pack_panels(matrix, 32))


def test_two_sessions_of_one_model_file_hold_its_packed_weights_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_identity, "MIN_AGE_S", 3600.0)  # a session out of the cache holds no packed weights
    weights = numbers(3, 512, 384)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Relu", ["a"], ["y"])], "shared",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 512])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        initializer=[numpy_helper.from_array(weights, "w")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    path = str(tmp_path / "model.onnx")
    onnx.save(model, path, save_as_external_data=True, location="model.weights")
    gc.collect()
    store = default_environment().weights
    before = set(store.keys())
    first = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    made = set(store.keys()) - before
    assert made, "the weight was packed"
    second = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert set(store.keys()) - before == made
    x = numbers(4, 5, 512)
    np.testing.assert_array_equal(first.run(None, {"x": x})[0], second.run(None, {"x": x})[0])
    del first
    gc.collect()
    comparison = compare(second.run(None, {"x": x})[0], np.maximum(x @ weights, 0), "approximate")
    assert comparison.passes, comparison
    assert made <= set(store.keys())
    del second
    gc.collect()
    assert not made & set(store.keys())
