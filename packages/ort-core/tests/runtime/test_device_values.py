"""Values on a device: read and filled where they lie by partitions that run there, copied where others need them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

import ort_core as ort
from ort_core.errors import InvalidArgument
from ort_core.plugin import (
    Claim,
    CompiledPartition,
    CompileRequest,
    OutputPlan,
    PartitionPlan,
    Rejection,
    hookimpl,
)
from ort_core.plugin.devices import Device, DeviceArray
from ort_core.plugin.ir import DataType
from ort_core.tensors.device import CpuApi, CpuBuffer
from ort_core.testing.environments import installed
from ort_core.testing.fake_providers import EchoProvider, plugin_of
from ort_core.testing.models import model_of

NPU = Device("npu", 0)
X = np.arange(6, dtype=np.float32).reshape(2, 3)
DOUBLED = "g (float[N,3] x) => (float[N,3] y) { y = Add(x, x) }"


class NpuBuffer(CpuBuffer):
    device = NPU


class NpuApi(CpuApi):
    """A device whose memory is the host's; it counts the copies to and from the host."""

    device = NPU
    copies = 0

    def allocate(self, nbytes):
        return NpuBuffer(np.zeros(nbytes, np.uint8))

    def copy_from_host(self, source, target, stream=None):
        type(self).copies += 1
        super().copy_from_host(source, target, stream)

    def copy_to_host(self, source, target, stream=None):
        type(self).copies += 1
        super().copy_to_host(source, target, stream)


class DoublingPartition(CompiledPartition):
    """Adds its only input to itself, on the host or on the device."""

    device = NPU
    seen: tuple[type, type] = (object, object)

    def plan(self, shapes: Sequence, known_values: Mapping) -> PartitionPlan:
        return PartitionPlan((OutputPlan(DataType.FLOAT, shapes[0]),))

    def run(self, plan, inputs, outputs, run_state) -> None:
        type(self).seen = (type(inputs[0]), type(outputs[0]))
        source = inputs[0].buffer.array.view(np.float32) if isinstance(inputs[0], DeviceArray) else inputs[0]
        if outputs[0] is None:
            outputs[0] = run_state.allocate(plan.outputs[0].shape, np.dtype(np.float32))
        if isinstance(outputs[0], DeviceArray):
            outputs[0].buffer.array.view(np.float32)[:] = 2 * source.reshape(-1)
        else:
            outputs[0].reshape(-1)[:] = 2 * source.reshape(-1)


class DoublingProvider(EchoProvider):
    name = "DoublingExecutionProvider"
    operators = frozenset({"Add"})

    def compile(self, request: CompileRequest) -> CompiledPartition:
        return DoublingPartition()


@pytest.fixture
def session():
    """A function from a graph to a session whose additions run on the device; copies are counted from 0."""
    source = plugin_of(DoublingProvider, name="doubling")
    module = source.load

    @hookimpl
    def ort_devices():
        return {"npu": lambda index: NpuApi()}

    module.ort_devices = ort_devices
    settings = ort.SessionOptions()
    settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    with installed(source):
        NpuApi.copies = 0
        yield lambda body: ort.InferenceSession(
            model_of(body), settings, providers=[DoublingProvider.name, "CPUExecutionProvider"]
        )


def _on_device(array: np.ndarray) -> ort.OrtValue:
    value = ort.OrtValue.ortvalue_from_numpy(array, "npu", 0)
    NpuApi.copies = 0
    return value


def test_a_bound_input_and_output_on_the_device_never_visit_the_host(session):
    made = session(DOUBLED)
    value, target = _on_device(X), ort.OrtValue.ortvalue_from_shape_and_type([2, 3], np.float32, "npu", 0)
    bound = made.io_binding()
    bound.bind_ortvalue_input("x", value)
    bound.bind_ortvalue_output("y", target)
    made.run_with_iobinding(bound)
    assert NpuApi.copies == 0
    assert DoublingPartition.seen == (DeviceArray, DeviceArray)
    assert bound.get_outputs()[0] is target
    np.testing.assert_array_equal(target.numpy(), 2 * X)


def test_an_output_that_is_asked_for_on_the_device_is_made_there(session):
    made = session(DOUBLED)
    value = _on_device(X)
    bound = made.io_binding()
    bound.bind_input("x", "npu", 0, np.float32, [2, 3], value.data_ptr())
    bound.bind_ortvalue_input("x", value)
    bound.bind_output("y", "npu", 0)
    made.run_with_iobinding(bound)
    found = bound.get_outputs()[0]
    assert (NpuApi.copies, found.device_name()) == (0, "npu")
    np.testing.assert_array_equal(found.numpy(), 2 * X)


def test_memory_of_the_device_is_bound_by_its_address(session):
    made = session(DOUBLED)
    target = ort.OrtValue.ortvalue_from_shape_and_type([2, 3], np.float32, "npu", 0)
    bound = made.io_binding()
    bound.bind_output("y", "npu", 0, np.float32, [2, 3], target.data_ptr())
    place = bound.device_targets()["y"]
    assert (place.buffer.address, place.nbytes, place.buffer.device) == (target.data_ptr(), 24, NPU)


def test_a_feed_on_the_device_runs_without_a_binding(session):
    found = session(DOUBLED).run(None, {"x": _on_device(X)})[0]
    np.testing.assert_array_equal(found, 2 * X)
    assert NpuApi.copies == 0


@pytest.mark.parametrize(
    "body",
    [
        "g (float[N,3] x) => (float[N,3] y, float[N,3] z) { y = Add(x, x) z = Neg(x) }",
        "g (float[N,3] x) => (float[N,3] y, float[N,3] z) { y = Add(x, x) z = Identity(x) }",
    ],
)
def test_a_feed_that_the_host_reads_too_is_copied_once(session, body):
    value = _on_device(X)
    doubled, other = session(body).run(None, {"x": value})
    np.testing.assert_array_equal(doubled, 2 * X)
    np.testing.assert_array_equal(np.abs(other), X)
    assert NpuApi.copies == 1


def test_an_output_of_the_host_is_copied_into_bound_memory_of_the_device(session):
    made = session("g (float[N,3] x) => (float[N,3] y) { a = Add(x, x) y = Neg(a) }")
    target = ort.OrtValue.ortvalue_from_shape_and_type([2, 3], np.float32, "npu", 0)
    bound = made.io_binding()
    bound.bind_cpu_input("x", X)
    bound.bind_ortvalue_output("y", target)
    made.run_with_iobinding(bound)
    np.testing.assert_array_equal(target.numpy(), -2 * X)


TWICE = "g (float[N,3] x) => (float[N,3] y) { a = Add(x, x) y = Add(a, a) }"
AROUND_THE_HOST = "g (float[N,3] x) => (float[N,3] y) { a = Add(x, x) b = Neg(a) c = Add(b, b) y = Add(c, c) }"


class OneByOne(DoublingProvider):
    """Claims each addition by itself, so that values pass between partitions."""

    name = "OneByOneExecutionProvider"

    def get_capability(self, view):
        return [Claim((node,)) if node.op_type == "Add" else Rejection("no", node) for node in view.nodes]


def _values_between(body: str, *, is_offered: bool = True) -> tuple[np.ndarray, list[tuple[type, type]]]:
    """The result of a graph, and what each partition was given and filled."""
    source = plugin_of(OneByOne, name="one_by_one")
    if is_offered:
        module = source.load

        @hookimpl
        def ort_devices():
            return {"npu": lambda index: NpuApi()}

        module.ort_devices = ort_devices
    settings = ort.SessionOptions()
    settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    seen: list[tuple[type, type]] = []
    with installed(source):
        made = ort.InferenceSession(model_of(body), settings, providers=[OneByOne.name, "CPUExecutionProvider"])
        NpuApi.copies = 0
        run = DoublingPartition.run

        def noted(self, *arguments) -> None:
            run(self, *arguments)
            seen.append(DoublingPartition.seen)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(DoublingPartition, "run", noted)
            found = made.run(None, {"x": X})[0]
    return found, seen


def test_what_one_partition_computes_for_another_of_its_device_stays_there():
    found, seen = _values_between(TWICE)
    np.testing.assert_array_equal(found, 4 * X)
    assert seen == [(np.ndarray, DeviceArray), (DeviceArray, type(None))]
    assert NpuApi.copies == 0


def test_what_the_host_computes_or_reads_between_them_does_not():
    found, seen = _values_between(AROUND_THE_HOST)
    np.testing.assert_array_equal(found, -8 * X)
    assert seen == [(np.ndarray, type(None)), (np.ndarray, DeviceArray), (DeviceArray, type(None))]


def test_a_value_that_is_an_output_too_comes_on_the_host():
    body = "g (float[N,3] x) => (float[N,3] a, float[N,3] y) { a = Add(x, x) y = Add(a, a) }"
    found, seen = _values_between(body)
    np.testing.assert_array_equal(found, 2 * X)
    assert seen[0] == (np.ndarray, type(None))


def test_without_a_plugin_that_offers_the_device_values_go_through_the_host(caplog):
    caplog.set_level("INFO")
    found, seen = _values_between(TWICE, is_offered=False)
    np.testing.assert_array_equal(found, 4 * X)
    assert seen == [(np.ndarray, type(None))] * 2
    assert "values between partitions on npu:0 go through the host" in caplog.text


def test_memory_of_another_shape_or_type_is_refused_and_left_alone(session):
    made = session(DOUBLED)
    bound = made.io_binding()
    bound.bind_ortvalue_input("x", _on_device(X))
    bound.bind_ortvalue_output("y", ort.OrtValue.ortvalue_from_shape_and_type([3, 2], np.float32, "npu", 0))
    with pytest.raises(InvalidArgument, match=r"has shape \[3, 2\] but the computed output shape .* \[2, 3\]"):
        made.run_with_iobinding(bound)
    with pytest.raises(InvalidArgument, match=r"Actual: \(tensor\(double\)\)"):
        made.run(None, {"x": _on_device(X.astype(np.float64))})
    with pytest.raises(InvalidArgument, match="Invalid rank for input: x"):
        made.run(None, {"x": _on_device(X.reshape(-1))})
