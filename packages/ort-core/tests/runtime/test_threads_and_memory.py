"""One session in many threads gives the serial results; a dropped session gives its memory back."""

from __future__ import annotations

import gc
import sysconfig
import tracemalloc
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import ort_core as ort

NUM_THREADS, RUNS = 8, 40
WEIGHT_NBYTES = 4 << 20


def build_model():
    """Return a model with a large weight, a Loop, an If and a stateless tail, of any batch size."""
    weight = np.random.default_rng(0).standard_normal((1024, WEIGHT_NBYTES // 4096)).astype(np.float32)
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["again"]), helper.make_node("Add", ["carried", "x"], ["sum"])],
        "body",
        [
            helper.make_tensor_value_info("step", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("carried", TensorProto.FLOAT, None),
        ],
        [onnx.ValueInfoProto(name="again"), onnx.ValueInfoProto(name="sum")],
    )
    nodes = [
        helper.make_node("Loop", ["count", "", "x"], ["repeated"], body=body),
        helper.make_node("MatMul", ["repeated", "weight"], ["product"]),
        helper.make_node("Softmax", ["product"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "threads",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 1024])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weight, "weight"), numpy_helper.from_array(np.array(3), "count")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return model.SerializeToString()


@pytest.fixture(scope="module")
def model():
    return build_model()


def test_eight_threads_on_one_session_give_the_serial_results(model):
    session = ort.InferenceSession(model)
    random = np.random.default_rng(1)
    feeds = [random.standard_normal((1 + i % 5, 1024)).astype(np.float32) for i in range(RUNS)]
    serial = [session.run(None, {"x": x})[0] for x in feeds]
    with ThreadPoolExecutor(NUM_THREADS) as pool:
        parallel = list(pool.map(lambda x: session.run(None, {"x": x})[0], feeds * 2))
    for found, expected in zip(parallel, serial * 2, strict=True):
        np.testing.assert_array_equal(found, expected)


def test_a_session_made_in_each_thread_gives_the_serial_results(model):
    x = np.linspace(-1, 1, 1024, dtype=np.float32)[None]
    expected = ort.InferenceSession(model).run(None, {"x": x})[0]
    with ThreadPoolExecutor(NUM_THREADS) as pool:
        made = pool.map(lambda _: ort.InferenceSession(model).run(None, {"x": x})[0], range(NUM_THREADS))
        for found in made:
            np.testing.assert_array_equal(found, expected)


def test_a_dropped_session_is_freed_without_the_collector(model):
    session = ort.InferenceSession(model)
    session.run(None, {"x": np.ones((1, 1024), np.float32)})
    reference = weakref.ref(session)
    gc.disable()
    try:
        del session
        assert reference() is None, "the session is part of a reference cycle"
    finally:
        gc.enable()


def test_fifty_sessions_one_after_another_keep_no_memory(model):
    x = np.ones((2, 1024), np.float32)

    def cycle():
        ort.InferenceSession(model).run(None, {"x": x})

    for _ in range(3):
        cycle()
    gc.collect()
    tracemalloc.start()
    try:
        cycle()
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(50):
            cycle()
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    most = WEIGHT_NBYTES // (2 if sysconfig.get_config_var("Py_GIL_DISABLED") else 4)  # freed late without the lock
    assert after - before < most, f"50 sessions left {after - before} bytes; each weight is {WEIGHT_NBYTES}"
