"""OrtValue: shared memory, types and sizes as by onnxruntime, and the types that onnxruntime cannot show."""

import ctypes
import pickle

import ml_dtypes
import numpy as np
import onnxruntime
import pytest

from ort_core.errors import AllocationLimitExceeded, InvalidArgument, InvalidType, InvalidValue
from ort_core.ir.types import DataType, MapType, OptionalType, SequenceType, TensorType
from ort_core.tensors.device import OrtDevice
from ort_core.tensors.ort_value import OrtValue, copy_tensors
from ort_core.tensors.ort_value_vector import OrtValueVector
from ort_core.tensors.sparse_tensor import SparseTensor

DTYPES = [
    "float32",
    "float64",
    "float16",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "bool",
]
QUESTIONS = [
    "data_type", "element_type", "shape", "tensor_size_in_bytes", "device_name", "has_value", "is_tensor",
    "is_sparse_tensor", "is_tensor_sequence", "__dlpack_device__",
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(2, 3), (), (0, 2)])
def test_every_question_is_answered_as_by_onnxruntime(dtype, shape):
    array = np.ones(shape, dtype)
    ours, theirs = OrtValue.ortvalue_from_numpy(array), onnxruntime.OrtValue.ortvalue_from_numpy(array)
    for question in QUESTIONS:
        assert getattr(ours, question)() == getattr(theirs, question)(), question
    np.testing.assert_array_equal(ours.numpy(), array)


@pytest.mark.parametrize("number", [n for n in range(1, 27) if n not in (8, 14, 15)])
def test_a_tensor_of_every_element_type_has_the_type_and_size_of_onnxruntime(number):
    ours = OrtValue.ortvalue_from_shape_and_type([3, 3], number)
    theirs = onnxruntime.OrtValue.ortvalue_from_shape_and_type([3, 3], number)
    assert ours.data_type() == theirs.data_type()
    assert ours.element_type() == theirs.element_type() == number
    assert ours.tensor_size_in_bytes() == theirs.tensor_size_in_bytes()


def test_memory_is_shared_with_the_array_in_both_directions():
    array = np.zeros(3, np.float32)
    value = OrtValue.ortvalue_from_numpy(array)
    assert value.data_ptr() == array.ctypes.data
    value.numpy()[1] = 5
    assert array.tolist() == [0, 5, 0]
    assert np.asarray(value) is not None
    assert np.shares_memory(np.asarray(value), array)


def test_an_array_that_is_not_contiguous_is_copied_and_strings_become_objects():
    array = np.arange(12, dtype=np.float32).reshape(3, 4).T
    np.testing.assert_array_equal(OrtValue.ortvalue_from_numpy(array).numpy(), array)
    text = OrtValue.ortvalue_from_numpy(np.array(["a", "b"]))
    assert text.numpy().tolist() == ["a", "b"]
    assert text.data_type() == "tensor(string)"
    with pytest.raises(InvalidValue, match="strings"):
        text.data_ptr()


@pytest.mark.parametrize(("dtype", "number"), [("bfloat16", 16), ("float8_e4m3fn", 17), ("float8_e8m0fnu", 24)])
def test_raw_storage_is_viewed_as_a_type_that_numpy_lacks(dtype, number):
    array = np.array([1, 2, 4], getattr(ml_dtypes, dtype))
    raw = array.view(np.uint16 if array.itemsize == 2 else np.uint8)
    value = OrtValue.ortvalue_from_numpy_with_onnx_type(raw, number)
    assert value.numpy().dtype == array.dtype
    assert value.data_ptr() == raw.ctypes.data
    np.testing.assert_array_equal(value.numpy(), array)


@pytest.mark.parametrize(
    ("dtype", "packed", "expected"),
    [
        ("int4", [0x21, 0xF3], [1, 2, 3, -1]),
        ("uint4", [0x21, 0xF3], [1, 2, 3, 15]),
        ("int2", [0b11100100], [0, 1, -2, -1]),
    ],
)
def test_packed_storage_is_read_and_the_address_gives_packed_bytes(dtype, packed, expected):
    number = int(DataType.from_numpy(np.dtype(getattr(ml_dtypes, dtype))))
    storage = np.zeros(4, np.uint8)
    storage[: len(packed)] = packed
    value = OrtValue.ortvalue_from_numpy_with_onnx_type(storage, number)
    assert value.numpy().tolist() == expected
    assert value.tensor_size_in_bytes() == len(packed)
    assert list(ctypes.string_at(value.data_ptr(), len(packed))) == packed
    address = value.data_ptr()
    value.numpy()[0] = 0
    assert value.data_ptr() == address, "an address given out stays good"
    assert ctypes.string_at(address, 1)[0] != packed[0] or expected[0] == 0


def test_storage_of_another_item_size_is_refused_as_by_onnxruntime():
    with pytest.raises(RuntimeError, match="Items size in the incoming array: 1 specified by onnxtype: 2"):
        OrtValue.ortvalue_from_numpy_with_onnx_type(np.zeros(3, np.uint8), 16)


def test_update_in_place_copies_into_the_same_memory():
    target = np.zeros((2, 3), np.float32)
    value = OrtValue.ortvalue_from_numpy(target)
    value.update_inplace(np.ones((2, 3), np.float32))
    assert target.sum() == 6
    value.update_inplace(OrtValue.ortvalue_from_numpy(np.full((3, 2), 2, np.float32)))
    assert target.sum() == 12
    with pytest.raises(RuntimeError, match="The input size of numpy arrays does not match the size of the OrtValue"):
        value.update_inplace(np.zeros((3, 3), np.float32))
    with pytest.raises(InvalidValue, match="elements of float64, the OrtValue has float32"):
        value.update_inplace(np.zeros((2, 3)))
    with pytest.raises(TypeError, match=r"data must be a numpy.ndarray or an OrtValue"):
        value.update_inplace([[1.0]])


def test_a_read_only_array_is_not_updated():
    value = OrtValue.ortvalue_from_numpy(np.frombuffer(b"1234", np.uint8))
    with pytest.raises(InvalidValue, match="read-only"):
        value.update_inplace(np.zeros(4, np.uint8))


def test_tensors_are_copied_in_lists():
    sources = [OrtValue.ortvalue_from_numpy(np.full(3, k, np.float32)) for k in range(2)]
    targets = [OrtValue.ortvalue_from_shape_and_type([3], np.float32) for _ in range(2)]
    copy_tensors(sources, targets)
    assert [t.numpy()[0] for t in targets] == [0, 1]
    with pytest.raises(InvalidValue, match="2 sources and 1 destinations"):
        copy_tensors(sources, targets[:1])


def test_other_values_than_tensors_say_what_they_are():
    array = np.ones(2, np.float32)
    sequence = OrtValue.of([array])
    assert (sequence.data_type(), sequence.is_tensor_sequence(), sequence.is_tensor()) == (
        "seq(tensor(float))",
        True,
        False,
    )
    empty = OrtValue.of([], SequenceType(TensorType(DataType.INT64)))
    assert empty.data_type() == "seq(tensor(int64))"
    assert OrtValue.of({1: 2.0}).data_type() == "map(int64,tensor(float))"
    absent = OrtValue.of(None, OptionalType(TensorType(DataType.FLOAT)))
    assert not absent.has_value()
    assert absent.data_type() == "optional(tensor(float))"
    for value in (sequence, absent):
        with pytest.raises(InvalidValue, match="Only OrtValues that are Tensors"):
            value.numpy()


def test_a_sparse_tensor_goes_in_and_comes_out():
    cpu = OrtDevice.make("cpu", 0)
    sparse = SparseTensor.sparse_coo_from_numpy(np.array([3, 3]), np.array([1, 2], np.float32), np.array([0, 4]), cpu)
    value = OrtValue.ort_value_from_sparse_tensor(sparse)
    assert (value.data_type(), value.shape(), value.is_sparse_tensor()) == ("sparse_tensor(float)", [3, 3], True)
    assert value.as_sparse_tensor().values().tolist() == [1, 2]
    with pytest.raises(InvalidValue, match="expected a sparse tensor"):
        OrtValue.of(np.zeros(2)).as_sparse_tensor()


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: OrtValue.ortvalue_from_numpy([1, 2]), InvalidValue, "expected a numpy array, found list"),
        (lambda: OrtValue.ortvalue_from_numpy(np.zeros(2), "xpu"), InvalidArgument, "Unsupported device type: xpu"),
        (lambda: OrtValue.ortvalue_from_numpy(np.zeros(2), "cuda"), RuntimeError, "Can't allocate memory on cuda:0"),
        (lambda: OrtValue.ortvalue_from_numpy(np.zeros(2), 3), InvalidType, "a device type is a name"),
        (lambda: OrtValue.ortvalue_from_shape_and_type([-1], 1), InvalidValue, "negative size"),
        (lambda: OrtValue.ortvalue_from_shape_and_type([2], 99), InvalidValue, "99 is not an element type"),
        (lambda: OrtValue.ortvalue_from_numpy_with_onnx_type(np.zeros(2), 0), InvalidValue, "0 is not an element type"),
        (lambda: OrtValue.ortvalue_from_shape_and_type([1 << 50], 1), AllocationLimitExceeded, "no memory"),
        (lambda: OrtValue.ortvalue_from_numpy(np.zeros(2, "datetime64[s]")), InvalidValue, "cannot be a tensor"),
    ],
)
def test_what_cannot_be_made_is_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_methods_are_those_of_onnxruntime():
    assert not {n for n in dir(onnxruntime.OrtValue) if n[0] != "_"} - set(dir(OrtValue))


def test_a_vector_has_the_methods_of_onnxruntime():
    from onnxruntime.capi.onnxruntime_pybind11_state import OrtValueVector as Theirs

    assert not {n for n in dir(Theirs) if n[0] != "_"} - set(dir(OrtValueVector))
    vector = OrtValueVector()
    vector.push_back(OrtValue.of(np.array([True])))
    vector.push_back(np.array([1, 0], np.uint8), True)
    vector.push_back(OrtValue.of(np.ones(3, np.int64)))
    assert vector.bool_tensor_indices() == [0, 1]
    assert vector.element_type_at(2) == 7
    assert [v.shape() for v in vector] == [[1], [2], [3]]
    assert len(vector.to_dlpacks()) == 3
    with pytest.raises(IndexError, match="index 9"):
        vector[9]


def test_an_ort_value_pickles():
    value = OrtValue.of(np.arange(3, dtype=np.float32))
    assert pickle.loads(pickle.dumps(value)).numpy().tolist() == [0, 1, 2]


def test_a_sequence_of_maps_is_no_sequence_of_tensors_though_it_is_empty():
    maps = SequenceType(MapType(DataType.INT64, TensorType(DataType.FLOAT, ())))
    assert not OrtValue.of([], maps).is_tensor_sequence()
    assert not OrtValue.of([{1: 2.0}], maps).is_tensor_sequence()
    assert OrtValue.of([], SequenceType(TensorType(DataType.FLOAT, None))).is_tensor_sequence()


def test_tensors_of_strings_have_a_size_as_programs_add_them_up():
    for count in (0, 3):
        value = OrtValue.ortvalue_from_numpy(np.array(["a"] * count, object))
        assert value.tensor_size_in_bytes() == count * np.dtype(object).itemsize
