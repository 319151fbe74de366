"""Constants of the same numbers lie on the device once, whatever their shapes, also turned."""

from __future__ import annotations

import numpy as np
import onnx.helper as oh
import onnx.numpy_helper as nh
import pytest
from emulated_gpu import EmulatedGpu
from emulated_provider import EmulatedCudaProvider

import ort_core as ort
from ort_core.testing.cuda_emulation import find_compiler
from ort_core.testing.environments import installed
from ort_core.testing.fake_providers import plugin_of

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler to emulate kernels with")
ROWS, COLUMNS = 700, 400


@pytest.fixture
def sent(monkeypatch):
    """The sizes of what is allocated on the device."""
    sizes: list[int] = []
    gpu = EmulatedGpu()
    allocate = gpu.allocate
    monkeypatch.setattr(gpu, "allocate", lambda nbytes: sizes.append(nbytes) or allocate(nbytes))
    monkeypatch.setattr(EmulatedCudaProvider, "device", gpu, raising=False)
    return sizes


def _results(nodes, constants, feeds, outputs):
    inputs = [oh.make_tensor_value_info(n, oh.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in feeds.items()]
    results = [oh.make_tensor_value_info(name, 1, None) for name in outputs]
    weights = [nh.from_array(array, name) for name, array in constants.items()]
    graph = oh.make_graph(nodes, "g", inputs, results, weights)
    model = oh.make_model(graph, opset_imports=[oh.make_opsetid("", 21)], ir_version=10).SerializeToString()
    settings = ort.SessionOptions()
    settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    with installed(plugin_of(EmulatedCudaProvider, name="emulated_cuda")):
        session = ort.InferenceSession(model, settings, providers=[EmulatedCudaProvider.name])
    return session.run(None, feeds)


def _weights():
    return np.random.default_rng(3).standard_normal((ROWS, COLUMNS), np.float32)


def test_tied_weights_are_sent_once(sent):
    table, x = _weights(), np.ones((2, COLUMNS), np.float32)
    nodes = [oh.make_node("Gather", ["table", "i"], ["a"]), oh.make_node("MatMul", ["x", "head"], ["b"])]
    feeds = {"i": np.array([3, 699]), "x": x}
    a, b = _results(nodes, {"table": table, "head": np.ascontiguousarray(table.T)}, feeds, ["a", "b"])
    np.testing.assert_array_equal(a, table[[3, 699]])
    np.testing.assert_allclose(b, x @ table.T, rtol=1e-5, atol=1e-4)
    assert [size for size in sent if size >= table.nbytes] == [table.nbytes]


def test_a_matrix_that_must_lie_by_rows_is_sent_as_it_is(sent):
    table = _weights()
    nodes = [oh.make_node("Gather", [name, "i"], [out]) for name, out in (("table", "a"), ("turned", "b"))]
    a, b = _results(nodes, {"table": table, "turned": np.ascontiguousarray(table.T)}, {"i": np.array([3])}, ["a", "b"])
    np.testing.assert_array_equal(a[0], table[3])
    np.testing.assert_array_equal(b[0], table[:, 3])
    assert [size for size in sent if size >= table.nbytes] == [table.nbytes] * 2


def test_equal_bytes_of_two_shapes_are_sent_once_and_in_an_order_of_axes_twice(sent):
    table = _weights()
    other = table.reshape(COLUMNS, ROWS)
    nodes = [oh.make_node("Gather", [name, "i"], [out]) for name, out in (("table", "a"), ("other", "b"))]
    a, b = _results(nodes, {"table": table, "other": other}, {"i": np.array([3])}, ["a", "b"])
    np.testing.assert_array_equal(a[0], table[3])
    np.testing.assert_array_equal(b[0], other[3])
    assert [size for size in sent if size >= table.nbytes] == [table.nbytes]


def test_numbers_that_nearly_agree_are_not_shared(sent):
    table, x = _weights(), np.ones((2, COLUMNS), np.float32)
    head = np.ascontiguousarray(table.T)
    head[0, 0] += 1
    nodes = [oh.make_node("Gather", ["table", "i"], ["a"]), oh.make_node("MatMul", ["x", "head"], ["b"])]
    _, b = _results(nodes, {"table": table, "head": head}, {"i": np.array([3]), "x": x}, ["a", "b"])
    np.testing.assert_allclose(b, x @ head, rtol=1e-5, atol=1e-4)
    assert [size for size in sent if size >= table.nbytes] == [table.nbytes] * 2
