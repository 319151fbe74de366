"""Partitions on the real DirectML: shapes, weights, buffers, threads, and a device that is lost."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from rig_provider import RigDmlProvider

from ort_core import stages
from ort_core.kernels.reference.images.grid_sample import grid_sample
from ort_core.options import SessionOptions
from ort_core.plugin import EPFail, OrtError
from ort_core.testing.fake_providers import environment_of, plugin_of
from ort_core.testing.models import model_of
from ort_ep_directml import partition as partition_module

NAME = RigDmlProvider.name
TEXT = "g (float[N,3] x, float[3] b) => (float[N,3] y) { a = Relu(x) y = Add(a, b) }"
GENERATOR = np.random.default_rng(3)


@pytest.fixture
def prepare(rig):
    """Return a function from ONNX text to a prepared model, all of it on the rig."""

    def build(text: str, **options: str):
        settings = SessionOptions()
        settings.strict_placement = True
        return stages.prepare(model_of(text), settings, environment_of(plugin_of(RigDmlProvider)), [(NAME, options)])

    return build


def expected(x: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0) + b


def feeds(rows: int) -> dict[str, np.ndarray]:
    return {"x": GENERATOR.standard_normal((rows, 3), np.float32), "b": GENERATOR.standard_normal(3, np.float32)}


def test_a_signature_is_compiled_once_and_its_commands_recorded_once(prepare, rig):
    prepared = prepare(TEXT)
    given = feeds(4)
    first = prepared.plan.run(given)[0]
    before = (rig.counts.pipelines, rig.counts.executions)
    again = prepared.plan.run({"x": given["x"] * 2, "b": given["b"]})[0]
    assert rig.counts.pipelines == before[0]
    assert rig.counts.executions == before[1] + 1
    np.testing.assert_array_equal(first, expected(given["x"], given["b"]))
    np.testing.assert_array_equal(again, expected(given["x"] * 2, given["b"]))


def test_every_signature_has_its_own_graph_and_the_oldest_makes_room(prepare, monkeypatch):
    monkeypatch.setattr(partition_module, "MAXIMUM_GRAPHS", 2)
    prepared = prepare(TEXT)
    for rows in (1, 2, 5, 1, 2, 5):
        given = feeds(rows)
        np.testing.assert_array_equal(prepared.plan.run(given)[0], expected(given["x"], given["b"]))
    compiled = prepared.plan.steps[0].step.compiled
    assert len(compiled._graphs) == 2


def test_inputs_that_are_no_rows_and_buffers_of_the_caller_are_taken(prepare):
    prepared = prepare(TEXT)
    whole = GENERATOR.standard_normal((3, 8), np.float32)
    x, b = whole.T[::2], np.zeros(3, np.float32)
    assert not x.flags.c_contiguous
    np.testing.assert_array_equal(prepared.plan.run({"x": x, "b": b})[0], expected(x, b))


def test_threads_run_at_once(prepare):
    prepared = prepare(TEXT)
    given = [feeds(6) for _ in range(12)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda each: prepared.plan.run(each)[0], given))
    for each, result in zip(given, found):
        np.testing.assert_array_equal(result, expected(each["x"], each["b"]))


def test_empty_inputs_are_computed_by_numpy_and_the_log_says_so(prepare, caplog):
    prepared = prepare(TEXT)
    with caplog.at_level(logging.WARNING):
        found = prepared.plan.run({"x": np.zeros((0, 3), np.float32), "b": np.zeros(3, np.float32)})[0]
    assert found.shape == (0, 3)
    assert "DirectML has no empty tensors" in caplog.text


def test_a_lost_device_is_made_anew_once_and_the_run_repeated(prepare, rig, caplog):
    prepared = prepare(TEXT)
    given = feeds(4)
    prepared.plan.run(given)
    lost = rig.device
    rig.remove_device()
    with caplog.at_level(logging.WARNING):
        found = prepared.plan.run(given)[0]
    np.testing.assert_array_equal(found, expected(given["x"], given["b"]))
    assert rig.device is not lost
    assert "was lost" in caplog.text
    assert "DXGI_ERROR_DEVICE_REMOVED" in caplog.text
    assert len(caplog.records) == 1


def test_threads_that_lose_the_device_together_get_one_new_device(prepare, rig, caplog):
    prepared = prepare(TEXT)
    prepared.plan.run(feeds(6))
    rig.remove_device()
    given = [feeds(6) for _ in range(8)]
    with caplog.at_level(logging.WARNING), ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda each: prepared.plan.run(each)[0], given))
    for each, result in zip(given, found):
        np.testing.assert_array_equal(result, expected(each["x"], each["b"]))
    assert len(caplog.records) == 1


def test_sessions_on_one_adapter_recover_together(prepare, rig, caplog):
    first, second = prepare(TEXT), prepare(TEXT, enable_cpu_sync_spinning="1")
    given = feeds(4)
    for each in (first, second):
        each.plan.run(given)
    rig.remove_device()
    with caplog.at_level(logging.WARNING):
        for each in (first, second):
            np.testing.assert_array_equal(each.plan.run(given)[0], expected(given["x"], given["b"]))
    assert len(caplog.records) == 1


def test_nothing_of_a_lost_device_is_held_when_the_next_one_is_made(prepare, rig):
    prepared = prepare(TEXT)
    given = feeds(4)
    prepared.plan.run(given)
    lost = rig.device
    rig.remove_device()
    prepared.plan.run(given)
    assert rig.ledger.objects.get(lost.address) is not lost


def test_a_device_that_is_lost_again_is_an_error(prepare, rig, monkeypatch):
    prepared = prepare(TEXT)
    given = feeds(4)
    prepared.plan.run(given)
    compiled = prepared.plan.steps[0].step.compiled

    def lose(self, inputs, outputs, *, spins):
        rig.remove_device()
        self.device.check()

    monkeypatch.setattr(partition_module.CompiledGraph, "run", lose)
    with pytest.raises(EPFail, match=r"could not be run.*DXGI_ERROR_DEVICE_REMOVED"):
        prepared.plan.run(given)
    monkeypatch.undo()
    np.testing.assert_array_equal(prepared.plan.run(given)[0], expected(given["x"], given["b"]))
    assert compiled is prepared.plan.steps[0].step.compiled


def test_a_spinning_wait_gives_the_same(prepare):
    prepared = prepare(TEXT, enable_cpu_sync_spinning="1")
    given = feeds(2)
    np.testing.assert_array_equal(prepared.plan.run(given)[0], expected(given["x"], given["b"]))


def test_indices_from_outside_are_looked_at_before_each_run(prepare, caplog):
    prepared = prepare("g (float[N,3] x, int64[K] i) => (float[K,3] y) { a = Relu(x)  y = Gather(a, i) }")
    x = GENERATOR.standard_normal((4, 3), np.float32)
    for indices in ([0, 3], [-4, -1], [2, 2]):
        found = prepared.plan.run({"x": x, "i": np.array(indices)})[0]
        np.testing.assert_array_equal(found, np.maximum(x, 0)[indices])
    for indices in ([0, 4], [-5, 0]):
        with pytest.raises(OrtError, match="must be within"):
            prepared.plan.run({"x": x, "i": np.array(indices)})
    assert caplog.text.count("outside of axes of [4]") == 1, "it is said once"


def test_indices_that_follow_from_shapes_are_looked_at_when_a_plan_is_made(prepare, caplog):
    text = """g (float[N,3] x, float[4,3] p) => (float[N,3] y) <int64 o = {0}, int64 t = {1}> {
        s = Shape<start=0, end=1>(x)  l = Squeeze(s)  r = Range(o, l, t)  e = Gather(p, r)  y = Add(x, e) }"""
    prepared = prepare(text)
    x, p = GENERATOR.standard_normal((5, 3), np.float32), GENERATOR.standard_normal((4, 3), np.float32)
    for rows in (2, 4):
        found = prepared.plan.run({"x": x[:rows], "p": p})[0]
        np.testing.assert_array_equal(found, x[:rows] + p[:rows])
    assert not caplog.records
    with pytest.raises(OrtError, match="must be within"):
        prepared.plan.run({"x": x, "p": p})
    assert "outside of axes of [4]" in caplog.text


def test_indices_of_several_axes_have_a_limit_each(prepare):
    prepared = prepare("g (float[2,5] x, int64[K,2] i) => (float[K] y) { a = Relu(x)  y = GatherND(a, i) }")
    x = GENERATOR.standard_normal((2, 5), np.float32)
    found = prepared.plan.run({"x": x, "i": np.array([[1, 4], [-2, -5]])})[0]
    np.testing.assert_array_equal(found, np.maximum(x, 0)[[1, 0], [4, 0]])
    with pytest.raises(OrtError, match="must be within"):
        prepared.plan.run({"x": x, "i": np.array([[4, 1], [0, 0]])})


def test_labels_beyond_the_classes_are_no_silent_zero(prepare, caplog):
    text = (
        "g (float[N,3] x, int64[N] t) => (float y) { a = Relu(x)  y = SoftmaxCrossEntropyLoss<ignore_index=-1>(a, t) }"
    )
    prepared = prepare(text)
    x = GENERATOR.standard_normal((4, 3), np.float32)
    scores = np.maximum(x, 0).astype(np.float64)
    losses = np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(4), [0, 2, 1, 2]]
    found = prepared.plan.run({"x": x, "t": np.array([0, 2, -1, 2])})[0]
    np.testing.assert_allclose(found, losses[[0, 1, 3]].mean(), rtol=1e-6)
    for labels in ([0, 3, 0, 0], [-4, 0, 0, 0]):
        with pytest.raises(OrtError, match="outside"):
            prepared.plan.run({"x": x, "t": np.array(labels)})
    assert caplog.text.count("outside of axes of [3]") == 1, "it is said once"


def test_what_follows_from_shapes_is_anew_for_each_signature(prepare, caplog):
    text = """g (float[N,3] x, float[P] q) => (float[N,3] y) <int64 t = {1}, int64[1] a = {1}> {
        s = Shape<start=0, end=1>(x)  l = Squeeze(s)  b = Size(q)  e = Add(b, l)
        r = Range(b, e, t)  f = Cast<to=1>(r)  u = Unsqueeze(f, a)  y = Add(x, u) }"""
    prepared = prepare(text)
    for rows, past in ((2, 5), (4, 1), (2, 7)):
        x = GENERATOR.standard_normal((rows, 3), np.float32)
        found = prepared.plan.run({"x": x, "q": np.zeros(past, np.float32)})[0]
        np.testing.assert_array_equal(found, x + np.arange(past, past + rows, dtype=np.float32)[:, None])
    assert not caplog.records


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_points_far_out_and_points_that_are_no_numbers_are_sampled_as_the_numpy_kernel_does(prepare, mode, padding):
    text = f'g (float[1,2,3,4] x, float[1,5,1,2] p) => (float[1,2,5,1] y) {{ y = GridSample<mode="{mode}", '
    prepared = prepare(text + f'padding_mode="{padding}">(x, p) }}')
    x = GENERATOR.standard_normal((1, 2, 3, 4), np.float32)
    points = np.array([[np.nan, 0.1], [-7.3, 4.6], [1e30, -np.inf], [1.4, -1.2], [0.3, 0.9]], np.float32)
    points = points.reshape(1, 5, 1, 2)
    found = prepared.plan.run({"x": x, "p": points})[0]
    np.testing.assert_allclose(found, grid_sample(x, points, mode=mode, padding_mode=padding), rtol=1e-5, atol=1e-5)
