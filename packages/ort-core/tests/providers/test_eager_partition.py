"""How results reach the caller: buffers are filled, empty places get arrays, old plugins still run."""

from __future__ import annotations

import doctest

import numpy as np
import onnx
import pytest

import ort_core as ort
from ort_core.plugin import (
    CompiledPartition,
    EagerPartition,
    EPFail,
    OutputPlan,
    PartitionPlan,
    filled,
    hand_out,
    output_buffer,
)
from ort_core.providers import eager_partition
from ort_core.testing.environments import installed
from ort_core.testing.fake_providers import EchoProvider, environment_of, plugin_of

RELU = "g (float[N] x) => (float[N] y, float[N] z) { y = Relu(x) z = Neg(x) }"
X = np.array([-1, 0, 2], np.float32)


class AllocatingRun:
    """The part of a run's state that hands out arrays."""

    def __init__(self) -> None:
        self.asked: list[tuple[tuple[int, ...], np.dtype]] = []

    def allocate(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        self.asked.append((shape, np.dtype(dtype)))
        return np.empty(shape, dtype)


class ReluAndNeg(EagerPartition):
    """What a plugin of today writes."""

    def __init__(self, request) -> None:
        super().__init__(len(request.graph.outputs))

    def compute(self, inputs, run_state):
        return np.maximum(inputs[0], 0), -inputs[0]


class ReluAndNegByHand(CompiledPartition):
    """The same without the base class."""

    def __init__(self, request) -> None:
        self.count = len(request.graph.outputs)

    def plan(self, shapes, known_values):
        return PartitionPlan(tuple(OutputPlan() for _ in range(self.count)))

    def run(self, plan, inputs, outputs, run_state):
        for index, result in enumerate((np.maximum(inputs[0], 0), -inputs[0])):
            if isinstance(outputs[index], np.ndarray):
                np.copyto(outputs[index], result)
            else:
                outputs[index] = result


def model() -> bytes:
    graph = onnx.parser.parse_graph(RELU)
    made = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)
    return made.SerializeToString()


def provider_of(partition):
    return type("Eager", (EchoProvider,), {"name": "EagerExecutionProvider", "compile": lambda _, r: partition(r)})


@pytest.mark.parametrize("partition", [ReluAndNeg, ReluAndNegByHand])
def test_session_returns_and_binds_outputs_of_partitions_of_both_kinds(partition):
    with installed(plugin_of(provider_of(partition))):
        session = ort.InferenceSession(model(), providers=["EagerExecutionProvider", "CPUExecutionProvider"])
        assert {node.provider for node in session.explain().nodes} == {"EagerExecutionProvider"}
        y, z = session.run(None, {"x": X})
        np.testing.assert_array_equal(y, [0, 0, 2])
        np.testing.assert_array_equal(z, [1, 0, -2])
        mine = ort.OrtValue.ortvalue_from_numpy(np.full(3, 7, np.float32))
        binding = session.io_binding()
        binding.bind_cpu_input("x", X)
        binding.bind_output("y")
        binding.bind_ortvalue_output("z", mine)
        session.run_with_iobinding(binding)
        np.testing.assert_array_equal(binding.copy_outputs_to_cpu(), [[0, 0, 2], [1, 0, -2]])
        np.testing.assert_array_equal(mine.numpy(), [1, 0, -2], "the buffer that was bound is filled")


class OnlyRelu(ReluAndNeg):
    def compute(self, inputs, run_state):
        return [np.maximum(inputs[0], 0)]


def test_a_partition_that_forgets_an_output_fails_and_returns_nothing():
    with installed(plugin_of(provider_of(OnlyRelu), api=(2, 0))):
        session = ort.InferenceSession(model(), providers=["EagerExecutionProvider"])
        with pytest.raises(EPFail, match="a partition of 2 outputs computed 1 results"):
            session.run(None, {"x": X})


def test_plugin_for_a_newer_api_is_refused_by_name_of_both_versions():
    environment = environment_of(plugin_of(provider_of(ReluAndNeg), api=(2, 1)))
    assert "was written for plugin API 2.1, this ort-core has 2.0" in str(environment.plugins.unusable["fake"])


def test_buffer_is_filled_and_an_empty_place_gets_the_array_itself():
    buffer, result = np.zeros(2, np.float32), np.array([3, 4], np.int64)
    outputs = [buffer, None]
    hand_out([np.array([1, 2], np.float32), result], outputs)
    assert outputs[0] is buffer
    assert buffer.tolist() == [1, 2]
    assert outputs[1] is result


def test_buffer_of_another_shape_is_replaced_and_not_broadcast_to():
    buffer, result = np.zeros(2, np.float32), np.ones(1, np.float32)
    outputs = [buffer]
    hand_out([result], outputs)
    assert outputs[0] is result
    assert buffer.tolist() == [0, 0]


def test_sequence_is_handed_out_as_it_is():
    outputs = [None]
    hand_out([[X, X]], outputs)
    assert outputs[0][0] is X


@pytest.mark.parametrize("place", [lambda x, b: hand_out([x], [b]), lambda x, b: filled(x, b, AllocatingRun())])
def test_result_of_another_dtype_than_its_buffer_is_an_error(place):
    with pytest.raises(TypeError, match=r"float64.*float32"):
        place(np.zeros(2), np.zeros(2, np.float32))


def test_result_in_memory_of_an_sdk_is_copied_with_and_without_a_buffer():
    of_the_sdk, buffer, run = X.copy(), np.zeros(3, np.float32), AllocatingRun()
    into, anew = filled(of_the_sdk, buffer, run), filled(of_the_sdk, None, run)
    of_the_sdk[:] = 9
    assert into is buffer
    assert into.tolist() == anew.tolist() == X.tolist()
    assert run.asked == [((3,), np.float32)], "only the result without a buffer is allocated"


def test_output_buffer_is_the_one_that_was_given_where_it_fits():
    given, run = np.zeros((2, 3), np.float32), AllocatingRun()
    assert output_buffer(given, (2, 3), given.dtype, run) is given
    assert output_buffer(given, (3, 2), given.dtype, run).shape == (3, 2)
    assert output_buffer(None, (), given.dtype, run).shape == ()
    assert run.asked == [((3, 2), np.float32), ((), np.float32)]


def _read_only() -> np.ndarray:
    array = np.zeros(3, np.float32)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    "buffer", [np.zeros(6, np.float32)[::2], np.zeros(13, np.uint8)[1:].view(np.float32), _read_only()]
)
def test_an_sdk_is_not_bound_to_a_buffer_that_it_cannot_write_as_one_piece(buffer):
    run = AllocatingRun()
    bound = output_buffer(buffer, (3,), buffer.dtype, run)
    assert bound is not buffer
    assert bound.flags.carray
    assert run.asked == [((3,), np.float32)]


@pytest.mark.parametrize("dtype", [np.float64, np.int32, ">f4"])
def test_an_sdk_is_not_bound_to_a_buffer_of_another_dtype(dtype):
    with pytest.raises(TypeError, match="cannot be written to a buffer of"):
        output_buffer(np.zeros(3, dtype), (3,), np.dtype(np.float32), AllocatingRun())


def test_example_in_its_docstring_holds():
    found = doctest.testmod(eager_partition)
    assert (found.attempted > 0, found.failed) == (True, 0)
