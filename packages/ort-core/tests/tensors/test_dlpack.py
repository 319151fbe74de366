"""DLPack: no copies, for the types of numpy and for those that it lacks, and memory that lives while used."""

import gc
import os
import subprocess
import sys

import ml_dtypes
import numpy as np
import onnxruntime
import pytest

from ort_core.errors import InvalidType, InvalidValue
from ort_core.tensors import dlpack
from ort_core.tensors.dlpack_capsules import EXPORTED
from ort_core.tensors.ort_value import OrtValue

TYPES = ["bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"]


@pytest.mark.parametrize("name", TYPES)
def test_types_that_numpy_lacks_go_out_and_come_in_without_a_copy(name):
    array = np.array([[1, 2], [4, 8]], getattr(ml_dtypes, name))
    value = OrtValue.of(array)
    found = OrtValue.from_dlpack(value)
    assert found.numpy().dtype == array.dtype
    assert found.data_ptr() == array.ctypes.data
    np.testing.assert_array_equal(found.numpy(), array)


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "complex64"])
def test_types_of_numpy_go_out_and_come_in_without_a_copy(dtype):
    array = np.ones((2, 3), dtype)
    assert np.shares_memory(np.from_dlpack(OrtValue.of(array)), array)
    assert np.shares_memory(OrtValue.from_dlpack(array).numpy(), array)
    assert np.shares_memory(dlpack.from_dlpack(array.__dlpack__()), array), "a bare capsule"


def test_memory_is_kept_while_anyone_uses_it_and_released_afterwards():
    before = len(EXPORTED)
    found = OrtValue.from_dlpack(OrtValue.of(np.arange(1000).astype(ml_dtypes.bfloat16)))
    gc.collect()
    array = found.numpy()[10:20]
    del found
    gc.collect()
    assert len(EXPORTED) == before + 1
    assert array.tolist() == list(range(10, 20))
    del array
    gc.collect()
    assert len(EXPORTED) == before
    capsule = OrtValue.of(np.zeros(3, ml_dtypes.bfloat16)).__dlpack__()
    del capsule  # nobody consumed it
    gc.collect()
    assert len(EXPORTED) == before


def test_onnxruntime_consumes_what_is_exported():
    array = np.arange(4, dtype=np.float32)
    value = onnxruntime.OrtValue.from_dlpack(OrtValue.of(array))
    assert value.data_ptr() == array.ctypes.data
    back = OrtValue.from_dlpack(value)
    assert back.data_ptr() == array.ctypes.data


@pytest.mark.parametrize("array", [np.array(["a"], object), np.array([1], ml_dtypes.int4)], ids=["strings", "int4"])
def test_what_dlpack_cannot_say_is_refused(array):
    with pytest.raises(BufferError):
        OrtValue.of(array).__dlpack__()


def test_data_on_another_device_and_foreign_objects_are_refused():
    class Elsewhere:
        def __dlpack__(self, **arguments):
            raise AssertionError("not to be asked")

        def __dlpack_device__(self):
            return (2, 0)

    with pytest.raises(InvalidValue, match="device type 2"):
        OrtValue.from_dlpack(Elsewhere())
    with pytest.raises(InvalidType, match="expected an object with __dlpack__"):
        OrtValue.from_dlpack(3)


@pytest.mark.parametrize("said", ["cpu", 7, (), None, ("cpu", 0)])
def test_an_object_that_does_not_say_where_it_is_is_refused(said):
    class Lying:
        def __dlpack__(self, **arguments):
            raise AssertionError("not to be asked")

        def __dlpack_device__(self):
            return said

    with pytest.raises(InvalidValue, match="Lying gave no pair of numbers"):
        OrtValue.from_dlpack(Lying())


_LATE_CONSUMER = """
import ctypes, gc
import ml_dtypes, numpy as np
from ort_core.tensors import dlpack, dlpack_capsules

python = ctypes.pythonapi
pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", python))
rename = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_SetName", python))
kept = python.Py_IncRef
kept.argtypes = [ctypes.py_object]

class Consumer:
    def __init__(self, capsule):
        self.address = pointer(capsule, b"dltensor")
        used = b"used_dltensor"
        kept(used)
        rename(capsule, used)
        managed = dlpack_capsules.DLManagedTensor.from_address(self.address)
        self.deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(managed.deleter)

consumer = Consumer(dlpack.to_dlpack(np.ones(4, ml_dtypes.bfloat16)))
unconsumed = dlpack.to_dlpack(np.ones(4, ml_dtypes.bfloat16))
for module in (dlpack, dlpack_capsules):
    vars(module).clear()  # as the interpreter does at its end with modules that are still held
gc.collect()
consumer.deleter(consumer.address)
del unconsumed
print("fine")
"""


def test_a_consumer_may_give_a_tensor_back_at_the_interpreters_end():
    environment = {**os.environ, "PYTHONMALLOC": "malloc", "MALLOC_PERTURB_": "255"}  # freed memory is overwritten
    done = subprocess.run([sys.executable, "-c", _LATE_CONSUMER], capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "fine", "")


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "float16"])
def test_memory_of_others_that_comes_in_by_a_capsule_can_be_written(dtype):
    class Exporter:
        def __dlpack__(self, **arguments):
            return array.__dlpack__()

        def __dlpack_device__(self):
            return (1, 0)

    array = np.zeros((2, 3), dtype)
    value = OrtValue.from_dlpack(Exporter())
    value.update_inplace(np.ones((2, 3), dtype))
    assert array.all()
    value.numpy()[0] = 0
    assert not array[0].any()
    assert OrtValue.from_dlpack(OrtValue.of(np.zeros((0, 3), dtype))).shape() == [0, 3]


def test_read_only_memory_of_others_is_refused_or_stays_so():
    class Exporter:
        def __dlpack__(self, **arguments):
            return array.__dlpack__(**arguments)

        def __dlpack_device__(self):
            return (1, 0)

    array = np.zeros(3, np.float32)
    array.flags.writeable = False
    assert not OrtValue.from_dlpack(array).numpy().flags.writeable
    with pytest.raises(BufferError, match="readonly"):
        OrtValue.from_dlpack(Exporter())
