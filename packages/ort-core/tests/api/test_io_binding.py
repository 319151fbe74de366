"""IOBinding: arrays, addresses and OrtValues bound once, in onnxruntime's words when something does not fit."""

import ctypes

import ml_dtypes
import numpy as np
import pytest

from ort_core.errors import InvalidArgument, InvalidValue, MissingInput
from ort_core.tensors.ort_value import OrtValue

X = np.arange(8, dtype=np.float32).reshape(2, 4)


@pytest.fixture
def session(session_of):
    return session_of("two_inputs")


@pytest.fixture
def bound(session):
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_cpu_input("z", X)
    return binding


def test_outputs_come_in_the_order_of_binding(session, bound):
    bound.bind_output("product")
    bound.bind_output("total")
    session.run_with_iobinding(bound)
    product, total = bound.copy_outputs_to_cpu()
    np.testing.assert_array_equal(product, X * X)
    np.testing.assert_array_equal(total, X + X)
    assert [value.shape() for value in bound.get_outputs()] == [[2, 4], [2, 4]]
    assert len(bound.get_outputs_as_ortvaluevector()) == 2


def test_taken_outputs_are_kept_by_nobody_but_those_in_memory_of_the_caller(session, bound):
    place = OrtValue.ortvalue_from_numpy(np.zeros((2, 4), np.float32))
    bound.bind_output("product")
    bound.bind_ortvalue_output("total", place)
    for _ in range(4):  # by ordinary runs, then by native calls
        session.run_with_iobinding(bound)
        product, total = bound.take_outputs()
        np.testing.assert_array_equal(product.numpy(), X * X)
        assert total is place
        assert bound.get_outputs() == [place]


def test_plugins_are_not_searched_for_the_cpu(session, bound, monkeypatch):
    asked = []
    monkeypatch.setattr("ort_core.session_api.io_binding.directory_in_use", lambda: asked.append(1))
    bound.bind_output("product")
    bound.bind_output("total", "cpu", 0)
    assert asked == []


def test_memory_at_an_address_is_read_and_written_at_each_run(session):
    source, target = X.copy(), np.zeros_like(X)
    binding = session.io_binding()
    binding.bind_input("x", "cpu", 0, np.float32, source.shape, source.ctypes.data)
    binding.bind_ortvalue_input("z", OrtValue.ortvalue_from_numpy(X))
    binding.bind_output("total", "cpu", 0, np.float32, target.shape, target.ctypes.data)
    for step in range(3):
        source[...] = step
        session.run_with_iobinding(binding)
        np.testing.assert_array_equal(target, X + step)
    assert binding.get_outputs()[0].data_ptr() == target.ctypes.data


def test_a_bound_ort_value_receives_the_output(session, bound):
    target = OrtValue.ortvalue_from_shape_and_type([2, 4], np.float32)
    address = target.data_ptr()
    bound.bind_ortvalue_output("total", target)
    assert [each.data_ptr() for each in bound.get_outputs()] == [address]  # before the run, as in onnxruntime
    session.run_with_iobinding(bound)
    np.testing.assert_array_equal(target.numpy(), X + X)
    assert bound.get_outputs()[0].data_ptr() == address


def test_packed_types_are_read_and_written_packed(session_of):
    session = session_of("int4")
    source, target = np.array([0x21, 0xF3], np.uint8), np.zeros(2, np.uint8)
    binding = session.io_binding()
    binding.bind_input("x", "cpu", 0, 22, [4], source.ctypes.data)
    binding.bind_output("y", "cpu", 0, 22, [4], target.ctypes.data)
    session.run_with_iobinding(binding)
    assert target.tolist() == source.tolist()
    assert binding.get_outputs()[0].numpy().tolist() == [1, 2, 3, -1]


def test_the_address_of_an_output_gives_its_bytes(session_of):
    (found,) = session_of("bfloat16").run_with_ort_values(
        None, {"x": OrtValue.ortvalue_from_numpy_with_onnx_type(np.array([0x3F80, 0x4000], np.uint16), 16)}
    )
    assert found.data_type() == "tensor(bfloat16)"
    assert ctypes.string_at(found.data_ptr(), 4) == np.array([1, 2], ml_dtypes.bfloat16).tobytes()


def test_unknown_names_are_refused(bound):
    with pytest.raises(RuntimeError, match="Failed to find NodeArg with name: nope in the def list"):
        bound.bind_cpu_input("nope", X)
    with pytest.raises(InvalidValue, match=r"Failed to find NodeArg with name: totl.*Did you mean 'total'"):
        bound.bind_output("totl")


def test_a_run_without_outputs_or_inputs_is_refused(session, bound):
    with pytest.raises(RuntimeError, match="At least one output should be requested"):
        session.run_with_iobinding(bound)
    bound.bind_output("total")
    bound.clear_binding_inputs()
    with pytest.raises(MissingInput, match=r"\['x', 'z'\]"):
        session.run_with_iobinding(bound)


def test_memory_that_does_not_fit_the_output_is_refused(session, bound):
    bound.bind_output("total", "cpu", 0, np.float32, [3, 4], np.zeros((3, 4), np.float32).ctypes.data)
    with pytest.raises(
        InvalidArgument, match=r"has shape \[3, 4\] but the computed output shape for this run is \[2, 4\]"
    ):
        session.run_with_iobinding(bound)
    bound.clear_binding_outputs()
    bound.bind_ortvalue_output("total", OrtValue.ortvalue_from_shape_and_type([2, 4], np.float64))
    with pytest.raises(InvalidArgument, match=r"Actual: \(tensor\(double\)\) , expected: \(tensor\(float\)\).*'total'"):
        session.run_with_iobinding(bound)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("total", "cuda", 0), "Can't allocate memory on cuda:0"),
        (("total", "xpu", 0), "Unsupported device type: xpu"),
        (("total", "cpu", 0, None, None, 1234), "are to be provided"),
        (("total", "cpu", 0, np.float32, [1], 0), "the address of a buffer of 4 bytes is 0"),
        (("total", "cpu", 0, 8, [1], 1234), "strings cannot be bound by address"),
    ],
)
def test_a_place_that_cannot_be_bound_is_refused(bound, arguments, message):
    with pytest.raises(InvalidArgument, match=message):
        bound.bind_output(*arguments)


@pytest.mark.parametrize(
    ("shape", "address", "message"),
    [
        ([-2, 4], None, "negative size"),
        ([1 << 40, 1 << 40], None, "can be at the address"),  # 64 bits count 0 elements of it
        ([1 << 62, 4], None, "can be at the address"),
        ([2, 4], -5, "can be at the address"),
        ([2, 4], (1 << 64) - 8, "can be at the address"),
        ([2, 4], 0, "is 0"),
    ],
)
def test_memory_that_cannot_be_is_refused(bound, shape, address, message):
    place = np.zeros(8, np.float32)
    with pytest.raises(InvalidValue, match=message):
        bound.bind_output("total", "cpu", 0, np.float32, shape, place.ctypes.data if address is None else address)


def test_bindings_of_another_session_are_refused_as_onnxruntime_refuses_them(session, bound, session_of):
    other = session_of("two_inputs")
    bound.bind_output("total")
    for _ in range(2):  # the second time a direct call is known
        with pytest.raises(ValueError, match="IOBinding must be used with the session that created it"):
            other.run_with_iobinding(bound)
        session.run_with_iobinding(bound)
    np.testing.assert_array_equal(bound.copy_outputs_to_cpu()[0], X + X)
