"""Direct runs: one native call does what the ordinary run does, and everything else still goes that way.

A signature is run directly from its third run on; ``session._loaded.direct`` tells which way a run goes.
"""

from __future__ import annotations

import gc
import os
import pickle
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor

import ml_dtypes
import numpy as np
import pytest
from onnx import parser

import ort_core as ort
from ort_core.errors import (
    AllocationLimitExceeded,
    InvalidArgument,
    InvalidType,
    InvalidValue,
    MissingInput,
    OrtError,
    RunTerminated,
)
from ort_core.tensors.ort_value import OrtValue

SMALL = """
    <ir_version: 8, opset_import: ["": 13]>
    small (float[N, 4] x, float[N, 4] z) => (float[N, 4] total, float[N, 4] product) {
        total = Add(x, z)
        product = Mul(x, z)
    }"""
GATHER = """
    <ir_version: 8, opset_import: ["": 13]>
    rows (float[N, 4] x, int64[M] index) => (float[M, 4] y) {
        twice = Add(x, x)
        picked = Gather <axis = 0> (twice, index)
        y = Tanh(picked)
    }"""
DEFAULTED = """
    <ir_version: 8, opset_import: ["": 13]>
    scale (float[N] x, float[1] factor = {2}) => (float[N] y) {
        scaled = Mul(x, factor)
        y = Exp(scaled)
    }"""
LARGE = """
    <ir_version: 8, opset_import: ["": 13]>
    large (float[N, K] x, float[K, M] w) => (float[N, M] y) {
        product = MatMul(x, w)
        y = Tanh(product)
    }"""
X = np.arange(8, dtype=np.float32).reshape(2, 4)
Z = X[::-1].copy()
FEEDS = {"x": X, "z": Z}


def session_of(text: str, *args: object) -> ort.InferenceSession:
    return ort.InferenceSession(parser.parse_model(text).SerializeToString(), *args)


def taught(text: str = SMALL, feeds: dict | None = None) -> ort.InferenceSession:
    """Return a session that knows the signature of these feeds."""
    session = session_of(text)
    feeds = FEEDS if feeds is None else feeds
    assert session._loaded.direct.refusal is None, "this interpreter has no direct calls: the tests would show nothing"
    assert not is_direct(session, feeds)
    for _ in range(2):
        session.run(None, feeds)
    assert is_direct(session, feeds)
    return session


def is_direct(session: ort.InferenceSession, feeds: object) -> bool:
    return session._loaded.direct.call(feeds, None) is not None


@pytest.fixture
def session() -> ort.InferenceSession:
    return taught()


@pytest.mark.parametrize("rows", [2, 0, 1, 7, 300])
def test_direct_results_are_those_of_the_ordinary_run(rows):
    random = np.random.default_rng(0)
    session = session_of(SMALL)
    for _ in range(4):
        x, z = random.standard_normal((2, rows, 4)).astype(np.float32)
        total, product = session.run(None, {"z": z, "x": x})
        np.testing.assert_array_equal(total, x + z)
        np.testing.assert_array_equal(product, x * z)
    assert is_direct(session, {"x": x, "z": z})


def test_names_of_all_outputs_in_order_are_run_directly_and_others_are_not_mixed_up(session):
    for names, expected in ((["total", "product"], [X + Z, X * Z]), (["product", "total"], [X * Z, X + Z])):
        for found, wanted in zip(session.run(names, FEEDS), expected, strict=True):
            np.testing.assert_array_equal(found, wanted)
    (product,) = session.run(("product",), FEEDS)
    np.testing.assert_array_equal(product, X * Z)


def test_each_run_gives_new_writable_memory_that_it_alone_owns(session):
    first, second = session.run(None, FEEDS), session.run(None, FEEDS)
    arrays = [*first, *second, X, Z]
    for i, one in enumerate(arrays):
        assert not any(np.shares_memory(one, other) for other in arrays[i + 1 :])
    assert all(array.flags.writeable and array.flags.owndata for array in first)


def test_references_are_given_back(session):
    x = X.copy()
    feeds = {"x": x, "z": Z}
    session.run(None, feeds)
    gc.collect()
    gc.disable()  # what others left behind refers to None and to numpy's types, too
    try:
        before = [sys.getrefcount(each) for each in (x, Z, None, x.dtype, feeds)]
        for _ in range(500):
            results = session.run(None, feeds)
            session._loaded.direct.call({"x": x, "z": None}, None)
            session._loaded.direct.call({"x": x}, None)
            session._loaded.direct.call(feeds, (None, x[:1]))
        after = [sys.getrefcount(each) for each in (x, Z, None, x.dtype, feeds)]
    finally:
        gc.enable()
    watched = [weakref.ref(array) for array in results]
    del results
    assert all(reference() is None for reference in watched), "only the list held the outputs"
    assert all(abs(a - b) < 100 for a, b in zip(after, before, strict=True)), (before, after)


BAD = {
    "no mapping": [X, Z],
    "missing": {"x": X},
    "unknown": {"x": X, "y": Z},
    "one too many": {"x": X, "z": Z, "y": Z},
    "none": {"x": X, "z": None},
    "double": {"x": X, "z": Z.astype(np.float64)},
    "bfloat16": {"x": X, "z": Z.astype(ml_dtypes.bfloat16)},
    "same width": {"x": X, "z": Z.view(np.int32)},
    "objects": {"x": X, "z": Z.astype(object)},
    "text": {"x": X, "z": "abc"},
    "records": {"x": X, "z": np.zeros((2, 4), [("a", np.float32)])},
    "rank": {"x": X, "z": Z[None]},
    "size": {"x": X, "z": Z[:, :3].copy()},
    "scalar": {"x": X, "z": np.float32(1)},
    "no rank": {"x": X, "z": np.array(1, np.float32)},
    "key is not a name": {1: X, "z": Z},
}


@pytest.mark.parametrize("feeds", BAD.values(), ids=BAD.keys())
def test_bad_feeds_get_the_errors_of_a_session_that_knows_nothing(session, feeds):
    with pytest.raises(OrtError) as expected:
        session_of(SMALL).run(None, feeds)
    assert isinstance(expected.value, (InvalidArgument, InvalidType, InvalidValue, MissingInput))
    with pytest.raises(type(expected.value)) as found:
        session.run(None, feeds)
    assert str(found.value) == str(expected.value)


ODD = {
    "columns first": np.asfortranarray(Z),
    "every second": np.repeat(Z, 2, axis=0)[::2],
    "swapped": Z.astype(">f4"),
    "subclass": Z.view(np.matrix),
    "masked": np.ma.masked_array(Z),
    "list": Z.tolist(),
    "OrtValue": OrtValue.ortvalue_from_numpy(Z),
    "broadcast": np.broadcast_to(Z[:1], Z.shape),
    "unaligned": np.frombuffer(b"\0" + Z.tobytes(), np.uint8)[1:].view(np.float32).reshape(Z.shape),
    "read-only": np.frombuffer(Z.tobytes(), np.float32).reshape(Z.shape),
}


@pytest.mark.parametrize("value", ODD.values(), ids=ODD.keys())
def test_feeds_of_other_forms_give_the_same_results(session, value):
    plain = value.numpy() if isinstance(value, OrtValue) else np.asarray(value, np.float32)
    for _ in range(3):
        total, _ = session.run(None, {"x": X, "z": value})
        assert type(total) is np.ndarray
        np.testing.assert_array_equal(total, X + plain)


class Impostor:
    """A key that hashes as an input's name and cannot be compared."""

    def __hash__(self) -> int:
        return hash("z")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("compared")


def test_arrays_from_another_process_run_directly_whose_element_types_are_objects_of_their_own():
    session = taught()
    feeds = pickle.loads(pickle.dumps(FEEDS))
    assert feeds["x"].dtype is not X.dtype, "numpy shares the object: the test shows nothing"
    assert is_direct(session, feeds)
    for found, expected in zip(session.run(None, feeds), (X + Z, X * Z), strict=True):
        np.testing.assert_array_equal(found, expected)
    swapped = {**FEEDS, "x": X.astype(X.dtype.newbyteorder())}
    assert not is_direct(session, swapped)


def test_a_key_that_raises_when_compared_leaves_no_error_behind(session):
    assert session._loaded.direct.call({"x": X, Impostor(): Z}, None) is None
    np.testing.assert_array_equal(session.run(None, FEEDS)[0], X + Z)


@pytest.mark.parametrize("given", [(), (None,), 1, "ab", [None, None], (X, 1), (None, Z[:1]), (np.zeros((2, 4)), None)])
def test_a_direct_call_refuses_places_for_outputs_that_do_not_fit(session, given):
    assert session._loaded.direct.call(FEEDS, given) is None


def test_new_shapes_become_known_while_old_ones_are_forgotten():
    session = session_of(SMALL)
    for rows in [*range(1, 9), *range(1, 9)]:
        x = np.full((rows, 4), rows, np.float32)
        for _ in range(3):
            np.testing.assert_array_equal(session.run(None, {"x": x, "z": x})[1], x * x)
        assert is_direct(session, {"x": x, "z": x})


def test_an_index_out_of_bounds_gives_the_kernels_error_and_the_next_run_is_right():
    index = np.array([1, 0, -1], np.int64)
    session = taught(GATHER, {"x": X, "index": index})
    for _ in range(3):
        with pytest.raises(OrtError, match="Gather"):
            session.run(None, {"x": X, "index": np.array([1, 5, 0], np.int64)})
        (y,) = session.run(None, {"x": X, "index": index})
        np.testing.assert_allclose(y, np.tanh(2 * X[index]), rtol=1e-6)


def test_an_initializer_with_a_default_is_taken_from_the_model_or_from_the_feeds():
    x = np.array([0.5, -1, 2], np.float32)
    session = taught(DEFAULTED, {"x": x})
    np.testing.assert_allclose(session.run(None, {"x": x})[0], np.exp(2 * x), rtol=1e-6)
    factor = np.array([3], np.float32)
    np.testing.assert_allclose(session.run(None, {"x": x, "factor": factor})[0], np.exp(3 * x), rtol=1e-6)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], np.exp(2 * x), rtol=1e-6)


def test_run_options_take_the_ordinary_way(session):
    options = ort.RunOptions()
    options.terminate = True
    with pytest.raises(RunTerminated):
        session.run(None, FEEDS, options)
    options = ort.RunOptions()
    options.max_allocation_bytes = 1
    with pytest.raises(AllocationLimitExceeded):
        session.run(None, FEEDS, options)


def test_a_closed_session_refuses_and_a_pickled_one_runs(session):
    copy = pickle.loads(pickle.dumps(session))
    session.close()
    with pytest.raises(InvalidValue, match="closed"):
        session.run(None, FEEDS)
    for _ in range(4):
        np.testing.assert_array_equal(copy.run(None, FEEDS)[0], X + Z)
    assert is_direct(copy, FEEDS)


def test_a_session_placed_anew_learns_anew(session):
    session.set_providers(["ReferenceExecutionProvider"])
    assert session._loaded.direct.refusal is not None
    for _ in range(3):
        np.testing.assert_array_equal(session.run(None, FEEDS)[0], X + Z)


def test_a_profiled_session_runs_nothing_directly(tmp_path):
    options = ort.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, str(tmp_path / "trace")
    session = session_of(SMALL, options)
    for _ in range(4):
        session.run(None, FEEDS)
    assert not is_direct(session, FEEDS)
    with open(session.end_profiling(), encoding="utf-8") as file:
        assert file.read().count('"model_run"') == 4


@pytest.mark.parametrize("rows", [3, 200])
def test_sixty_four_threads_get_the_results_of_their_own_feeds(rows):
    """Three rows are run with the interpreter lock held, 200 by the pool without it."""
    random = np.random.default_rng(2)
    w = random.standard_normal((192, 96)).astype(np.float32)
    inputs = [random.standard_normal((rows + i % 2, 192)).astype(np.float32) for i in range(64)]
    session = session_of(LARGE)
    alone = session_of(LARGE)
    expected = [alone.run(None, {"x": x, "w": w})[0] for x in inputs]

    def work(number: int) -> list[np.ndarray]:
        return [session.run(None, {"x": inputs[number], "w": w})[0] for _ in range(12)]

    with ThreadPoolExecutor(64) as threads:
        for number, found in enumerate(threads.map(work, range(64))):
            for each in found:
                np.testing.assert_array_equal(each, expected[number])
    assert is_direct(session, {"x": inputs[0], "w": w})


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # forking beside threads is what is tested
def test_a_forked_child_runs_directly():
    random = np.random.default_rng(3)
    feeds = {"x": random.standard_normal((200, 192)).astype(np.float32), "w": np.eye(192, dtype=np.float32)}
    session = taught(LARGE, feeds)
    child = os.fork()
    if child == 0:
        found = session._loaded.direct.call(feeds, None)
        os._exit(0 if found is not None and np.allclose(found[0], np.tanh(feeds["x"]), atol=1e-6) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_bound_memory_is_written_directly():
    session, target = taught(), np.zeros((2, 4), np.float32)
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    source = Z.copy()
    binding.bind_input("z", "cpu", 0, np.float32, source.shape, source.ctypes.data)
    binding.bind_output("total", "cpu", 0, np.float32, target.shape, target.ctypes.data)
    binding.bind_output("product")
    for step in range(4):
        source[...] = step
        session.run_with_iobinding(binding)
        np.testing.assert_array_equal(target, X + step)
        np.testing.assert_array_equal(binding.get_outputs()[1].numpy(), X * step)
    assert binding.get_outputs()[0].data_ptr() == target.ctypes.data
    binding.clear_binding_outputs()
    binding.bind_output("product")
    session.run_with_iobinding(binding)
    assert [value.numpy().tolist() for value in binding.get_outputs()] == [(X * 3).tolist()]


def test_an_output_bound_to_the_memory_of_an_input_is_written_behind_the_run():
    session = taught(LARGE, {"x": np.ones((4, 4), np.float32), "w": np.ones((4, 4), np.float32)})
    state = OrtValue.ortvalue_from_numpy(np.eye(4, dtype=np.float32)[::-1].copy())
    weight = np.random.default_rng(4).standard_normal((4, 4)).astype(np.float32)
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", state)
    binding.bind_cpu_input("w", weight)
    binding.bind_ortvalue_output("y", state)
    expected = state.numpy().astype(np.float64)
    for _ in range(5):
        session.run_with_iobinding(binding)
        expected = np.tanh(expected @ weight)
        np.testing.assert_allclose(state.numpy(), expected, atol=1e-5)


def test_an_output_bound_to_read_only_memory_is_refused_as_before(session):
    target = np.zeros((2, 4), np.float32)
    target.flags.writeable = False
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_cpu_input("z", Z)
    binding.bind_ortvalue_output("total", OrtValue.ortvalue_from_numpy(target))
    binding.bind_output("product")
    with pytest.raises(InvalidValue, match="read-only"):
        session.run_with_iobinding(binding)
    assert not target.any()


def test_ort_values_are_run_directly_and_returned_as_ort_values():
    session = session_of(SMALL)
    feeds = {"x": OrtValue.ortvalue_from_numpy(X), "z": OrtValue.ortvalue_from_numpy(Z)}
    for names in (None, None, None, ["total", "product"], ["product"]):
        found = session.run_with_ort_values(names, feeds)
        expected = [X * Z] if names == ["product"] else [X + Z, X * Z]
        for value, wanted in zip(found, expected, strict=True):
            assert value.data_type() == "tensor(float)"
            np.testing.assert_array_equal(value.numpy(), wanted)
    assert is_direct(session, FEEDS)
    with pytest.raises(InvalidType, match="expected a list of names"):
        session.run_with_ort_values("total", feeds)
    with pytest.raises(InvalidArgument, match="tensor\\(int64\\)"):
        session.run_with_ort_values(None, {"x": OrtValue.ortvalue_from_numpy(X.astype(np.int64)), "z": feeds["z"]})


MIXED = """
    <ir_version: 8, opset_import: ["": 13]>
    mixed (float[N, 4] x, float[N, 4] z) => (int64[2, M] where, float[N, 4] y) {
        total = Add(x, z)
        slope = Tanh(total)
        where = NonZero(slope)
        y = Mul(slope, x)
    }"""


@pytest.mark.parametrize("turns", [1, 5])
def test_native_steps_among_kernels_give_the_same_results_however_often_they_run(turns):
    session = session_of(MIXED)
    for rows in (2, 1, 2, 0, 3, 2):
        x = np.random.default_rng(rows).standard_normal((rows, 4)).astype(np.float32)
        for _ in range(turns):
            where, y = session.run(None, {"x": x, "z": x})
            np.testing.assert_allclose(y, np.tanh(2 * x) * x, rtol=1e-5, atol=1e-7)
            np.testing.assert_array_equal(where, np.nonzero(x))
    options = ort.RunOptions()
    options.max_allocation_bytes = 1
    with pytest.raises(AllocationLimitExceeded):
        session.run(None, {"x": x, "z": x}, options)
    assert session._loaded.direct.refusal is not None
