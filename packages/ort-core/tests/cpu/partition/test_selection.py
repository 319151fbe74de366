"""TopK of a k that only a run knows: the elements, in the order, of the reference kernel, whatever k is."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper
from test_groups import agrees, model_of

import ort_core as ort
from ort_core.cpu.partition.segments import LazyKernels
from ort_core.cpu.partition.selection import Selection

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
TYPES = {FLOAT: np.float32, TensorProto.DOUBLE: np.float64, INT64: np.int64, TensorProto.INT32: np.int32}


def top_k(dtype: int, axis: int, largest: int, *, outputs: tuple[str, ...] = ("y", "i")) -> ModelProto:
    node = helper.make_node("TopK", ["x", "k"], list(outputs), axis=axis, largest=largest)
    types = {"y": dtype, "i": INT64}
    return model_of(
        [node], {"x": (dtype, ["A", "B", "C"]), "k": (INT64, [1])}, {name: types[name] for name in outputs if name}
    )


def numbers(dtype: int, *shape: int) -> np.ndarray:
    found = np.random.default_rng(sum(shape)).integers(-9, 9, shape).astype(TYPES[dtype])  # some are equal
    if found.dtype.kind == "f":
        found.reshape(-1)[::13], found.reshape(-1)[5::29], found.reshape(-1)[3::31] = np.nan, np.inf, -0.0
    return found


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_the_first_k_are_the_reference_s(dtype: int, axis: int) -> None:
    feeds = [
        {"x": numbers(dtype, *shape), "k": np.array([k])}
        for shape in ((3, 5, 7), (4, 33, 19), (1, 1, 200))
        for k in (0, 1, 2, shape[axis])
    ]
    for largest in (0, 1):
        agrees(top_k(dtype, axis, largest), *feeds, {"x": numbers(dtype, 0, 4, 4), "k": np.array([0])})


@pytest.mark.parametrize("read", ["y", "i"])
def test_a_result_that_nobody_reads_is_left_out(read: str) -> None:
    model = top_k(FLOAT, 1, 1)
    kept = [output for output in model.graph.output if output.name == read]
    del model.graph.output[:]
    model.graph.output.extend(kept)
    agrees(model, {"x": numbers(FLOAT, 3, 5, 7), "k": np.array([2])})


@pytest.mark.parametrize("dtype", TYPES)
def test_a_large_k_is_native_too(monkeypatch: pytest.MonkeyPatch, dtype: int) -> None:
    native: list[bool] = []
    run = Selection.run

    def noted(self: Selection, *arguments: object) -> object:
        native.append((found := run(self, *arguments)) is not None)  # type: ignore[arg-type]  # handed on
        return found

    monkeypatch.setattr(Selection, "run", noted)
    feeds = [{"x": numbers(dtype, 2, 3, 400), "k": np.array([k])} for k in (1, 128, 129, 300, 399, 400)]
    for largest in (0, 1):
        agrees(top_k(dtype, -1, largest), *feeds)
    assert native
    assert all(native)


@pytest.mark.parametrize("k", [-1, 8])
def test_a_k_that_does_not_fit_fails_as_in_the_reference(k: int) -> None:
    (result,) = agrees(top_k(FLOAT, -1, 1), {"x": numbers(FLOAT, 2, 3, 7), "k": np.array([k])})
    assert isinstance(result, str)


def test_one_output_may_be_left_out() -> None:
    for outputs in (("", "i"), ("y",)):
        agrees(top_k(FLOAT, 1, 1, outputs=outputs), {"x": numbers(FLOAT, 2, 9, 7), "k": np.array([3])})


def test_a_k_that_is_a_size_cuts_no_program_and_may_be_any_one(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [
        helper.make_node("Exp", ["x"], ["e"]),
        helper.make_node("Shape", ["z"], ["k"], start=1),
        helper.make_node("TopK", ["e", "k"], ["v", "i"]),
        helper.make_node("Neg", ["v"], ["y"]),
    ]
    model = model_of(nodes, {"x": (FLOAT, ["A", "B"]), "z": (FLOAT, ["A", "K"])}, {"y": FLOAT, "i": INT64})
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    assert len(session._loaded.prepared.plan.steps[0].step.compiled.native_programs) == 1
    assert all(step.call is None for step in session._loaded.prepared.plan.steps[0].step.compiled._steps)
    monkeypatch.setattr(LazyKernels, "run", lambda *_: pytest.fail("a size made the program give way to kernels"))
    theirs = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for k in (0, 1, 3, 128, 129, 200):
        feeds = {"x": np.random.default_rng(k).standard_normal((3, 200)).astype(np.float32)}
        feeds["z"] = np.zeros((3, k), np.float32)
        for found, wanted in zip(session.run(None, feeds), theirs.run(None, feeds), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-6)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("k", [129, 300, 1000])
def test_a_large_constant_k_is_compiled(monkeypatch: pytest.MonkeyPatch, dtype: int, k: int) -> None:
    monkeypatch.setattr(LazyKernels, "run", lambda *_: pytest.fail("it runs by kernels"))
    for axis, shape in ((1, (3, 1000)), (0, (1000, 2))):
        for largest in (0, 1):
            node = helper.make_node("TopK", ["x", "k"], ["y", "i"], axis=axis, largest=largest)
            model = model_of([node], {"x": (dtype, ["A", "B"])}, {"y": dtype, "i": INT64}, {"k": np.array([k])})
            session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
            x = numbers(dtype, *shape)
            rank = np.arange(1000).reshape([-1 if a == axis else 1 for a in range(2)])
            key = np.where(np.isnan(x), np.inf, x).astype(np.float64) if x.dtype.kind == "f" else x.astype(np.float64)
            is_nan = np.isnan(x) if x.dtype.kind == "f" else np.zeros(x.shape, bool)
            sign = -1 if largest else 1
            order = np.lexsort(np.broadcast_arrays(rank, sign * key, sign * is_nan.astype(int)), axis=axis)
            wanted = np.take(order, np.arange(k), axis)
            values, indices = session.run(None, {"x": x})
            np.testing.assert_array_equal(indices, wanted)
            np.testing.assert_array_equal(values, np.take_along_axis(x, wanted, axis))
