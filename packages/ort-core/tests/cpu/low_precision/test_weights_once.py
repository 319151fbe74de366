"""A first load holds the weights of quantized products once: packed, beside the file that they came from."""

from __future__ import annotations

import gc
import tracemalloc

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import ort_core
from ort_core.cpu.codegen.machine_code.llvm_targets import host_target
from ort_core.cpu.codegen.quantized.integer_dot import has_byte_products
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.rules.quantized.integer_anchors import IntegerWeights, integer_weights
from ort_core.plugin.memory import LargePages

WIDTH, LAYERS = 512, 6
NBYTES = LAYERS * WIDTH * WIDTH


def model(folder, dtype: type, layers: int) -> str:
    """Write a model of dynamically quantized products, its weights in a file of their own."""
    random, nodes, weights, before = np.random.default_rng(0), [], [], "x"
    zero = numpy_helper.from_array(np.zeros((), dtype), "zero")
    for i in range(layers):
        values = random.integers(0, 100, (WIDTH, WIDTH)).astype(dtype)
        weights.append(numpy_helper.from_array(values, f"w{i}"))
        nodes += [
            helper.make_node("DynamicQuantizeLinear", [before], [f"q{i}", f"s{i}", f"z{i}"]),
            helper.make_node("MatMulInteger", [f"q{i}", f"w{i}", f"z{i}", "zero"], [f"m{i}"]),
            helper.make_node("Cast", [f"m{i}"], [f"c{i}"], to=TensorProto.FLOAT),
            helper.make_node("Mul", [f"c{i}", f"s{i}"], [f"v{i}"]),
        ]
        before = f"v{i}"
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, WIDTH]) for name in ("x", before)]
    graph = helper.make_graph(nodes, "products", ends[:1], ends[1:], [zero, *weights])
    path = folder / f"{layers}.onnx"
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.save_model(made, path, save_as_external_data=True, location=f"{layers}.weights", size_threshold=1024)
    return str(path)


def load(path: str) -> ort_core.InferenceSession:
    options = ort_core.SessionOptions()
    options.intra_op_num_threads = 1
    return ort_core.InferenceSession(path, options, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_a_load_holds_integer_weights_once(dtype, tmp_path, monkeypatch):
    monkeypatch.setenv("ORT_CACHE_DIR", str(tmp_path / "cache"))
    small, large = model(tmp_path, dtype, 1), model(tmp_path, dtype, LAYERS)
    placed, copied = [], LargePages.copied
    monkeypatch.setattr(LargePages, "copied", lambda self, array: placed.append(array.nbytes) or copied(self, array))
    kept = [load(small)]  # what is imported and compiled once
    placed.clear()
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        kept.append(load(large))
        held = tracemalloc.get_traced_memory()[0] + sum(placed)  # in large pages, of which Python is not told
        left = [each for each in gc.get_objects() if isinstance(each, (IntegerWeights, Lowering))]
    finally:
        tracemalloc.stop()
        gc.enable()
    most = 1.6 if has_byte_products(host_target()) else 2.6  # elsewhere lists of pairs, which hold some bytes twice
    assert sum(placed) >= NBYTES, "packed weights lie in large pages from the first session on"
    assert held < most * NBYTES, f"{held} bytes for {NBYTES} of weights"
    assert not any(each._values for each in left if isinstance(each, Lowering)), "a lowering keeps what it worked out"
    assert not any(isinstance(each, IntegerWeights) for each in left), "weights are held beside the packed ones"


def test_signed_weights_without_zero_points_are_not_copied():
    given = np.arange(-8, 8, dtype=np.int8).reshape(4, 4)
    assert np.shares_memory(integer_weights(given.T, np.zeros(1, np.int8)).bytes, given)
    moved = integer_weights(given, np.int8([0, 1, 0, 0]))
    assert moved.zero_points is None
    assert moved.bytes.tolist() == (given - np.array([[0], [1], [0], [0]])).tolist()
