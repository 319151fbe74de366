"""OrtValue: one value as the API hands it around, over the run-time value itself and without copying it.

A tensor is a numpy array (ml_dtypes for the types that numpy lacks, ``object`` arrays of ``str`` for strings), a
sequence a list, a map a dict, an absent optional ``None``, a sparse tensor a SparseArray. Types of less than a byte
take one byte per element here; ``data_ptr`` gives the address of a packed copy of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ort_core.arguments import an_object, sizes, takes, whole
from ort_core.errors import AllocationLimitExceeded, InvalidType, InvalidValue
from ort_core.ir.types import DataType, MapType, OptionalType, SequenceType, SparseTensorType, TensorType, ValueType
from ort_core.tensors.device import CPU, Device, find_device
from ort_core.tensors.device_array import DeviceArray, new_device_array
from ort_core.tensors.packing import pack_bits, unpack_bits
from ort_core.tensors.sparse import SparseArray

if TYPE_CHECKING:
    from ort_core.tensors.device import OrtDevice
    from ort_core.tensors.memory_facts import OrtMemoryInfo
    from ort_core.tensors.sparse_tensor import SparseTensor

ElementType = int | np.dtype | type | str


RuntimeValue = np.ndarray | SparseArray | list | dict | None


class OrtValue:
    """A tensor, sparse tensor, sequence, map or absent optional, with onnxruntime's methods.

    Args:
        ortvalue: the run-time value, or another OrtValue to share.
        numpy_obj: kept for onnxruntime's signature; the array that ``ortvalue`` was made from.
        session: kept for onnxruntime's signature.
    """

    __slots__ = ("__weakref__", "_packed", "_sparse", "_type", "_value")
    _sparse: SparseTensor  # as it was given; most values have none

    def __init__(
        self,
        ortvalue: RuntimeValue | DeviceArray | OrtValue,
        numpy_obj: np.ndarray | None = None,
        session: object = None,
    ) -> None:
        declared = ortvalue._type if isinstance(ortvalue, OrtValue) else None
        self._value: RuntimeValue | DeviceArray = ortvalue._value if isinstance(ortvalue, OrtValue) else ortvalue
        self._type: ValueType | None = declared
        self._packed: np.ndarray | None = None

    @classmethod
    def of(cls, value: RuntimeValue | DeviceArray, declared: ValueType | None = None) -> OrtValue:
        """Wrap a run-time value; ``declared`` says the type of what does not show it (empty sequences, ``None``)."""
        wrapped = cls(_tensor(value) if isinstance(value, np.ndarray) else value)
        wrapped._type = declared
        return wrapped

    @classmethod
    def ortvalue_from_numpy(
        cls, numpy_obj: np.ndarray, /, device_type: str | OrtDevice = "cpu", device_id: int = 0, vendor_id: int = -1
    ) -> OrtValue:
        """Return a tensor over an array: shared on the CPU (copied when it is not contiguous), copied elsewhere."""
        if not isinstance(numpy_obj, (np.ndarray, np.generic)):
            raise InvalidValue(f"expected a numpy array, found {type(numpy_obj).__name__}; wrap it in numpy.asarray")
        whole(vendor_id, "vendor_id")
        array = _tensor(np.asarray(numpy_obj))
        device = find_device(device_type, device_id)
        if device.is_cpu:
            return cls(array)
        target = new_device_array(device, array.dtype, array.shape)
        target.fill(array)
        return cls(target)

    @classmethod
    @takes(onnx_element_type=whole)
    def ortvalue_from_numpy_with_onnx_type(cls, data: np.ndarray, /, onnx_element_type: int) -> OrtValue:
        """Return a tensor of an ONNX element type over an array's bytes.

        The array's shape is the tensor's; its item size must be the type's (uint16 for bfloat16). Types of less than a
        byte are read packed from the array's first bytes (and copied), unless the array has that very type.
        """
        data_type = element_type_of(onnx_element_type)
        if not isinstance(data, np.ndarray):
            raise InvalidType(f"expected a numpy array, found {type(data).__name__}; wrap it in numpy.asarray")
        array = _tensor(np.asarray(data))
        if array.dtype == data_type.numpy:
            return cls(array)
        if data_type is DataType.STRING or array.dtype == object or array.itemsize != max(1, data_type.bits // 8):
            raise InvalidValue(
                f"Items size in the incoming array: {array.itemsize} specified by onnxtype: "
                f"{max(1, data_type.bits // 8)} "
                f"({array.dtype} array, tensor({data_type.text}) asked for)"
            )
        if data_type.bits >= 8:
            return cls(array.view(data_type.numpy))
        count = -(-array.size * data_type.bits // 8)
        packed = array.reshape(-1).view(np.uint8)[:count]
        return cls(unpack_bits(packed, data_type, array.size).reshape(array.shape))

    @classmethod
    def ortvalue_from_shape_and_type(
        cls,
        shape: Sequence[int],
        element_type: ElementType,
        device_type: str | OrtDevice = "cpu",
        device_id: int = 0,
        vendor_id: int = -1,
        memory_info: OrtMemoryInfo | None = None,
    ) -> OrtValue:
        """Return a tensor of zeros (empty strings). ``element_type``: a numpy type or an ONNX number."""
        whole(vendor_id, "vendor_id")
        data_type = element_type_of(element_type)
        dimensions = sizes(shape, "the shape")
        if any(size < 0 for size in dimensions):
            raise InvalidValue(f"the shape {list(dimensions)} has a negative size; every size must be known")
        device = memory_info.device if memory_info is not None else find_device(device_type, device_id)
        if not device.is_cpu:
            return cls(new_device_array(device, data_type.numpy, dimensions))
        try:
            array = (
                np.full(dimensions, "", object)
                if data_type is DataType.STRING
                else np.zeros(dimensions, data_type.numpy)
            )
        except (MemoryError, ValueError) as error:
            raise AllocationLimitExceeded(
                f"no memory for tensor({data_type.text}) of shape {list(dimensions)}: {error}"
            ) from error
        return cls(array)

    @classmethod
    def ort_value_from_sparse_tensor(cls, sparse_tensor: SparseTensor) -> OrtValue:
        """Return a value over a SparseTensor."""
        made = cls(sparse_tensor.to_sparse_array())
        made._sparse = sparse_tensor
        return made

    @classmethod
    def from_dlpack(cls, data: Any, /) -> OrtValue:  # Any: whatever has __dlpack__
        """Return a tensor over the memory of an object with ``__dlpack__``, where it lies.

        Raises:
            InvalidValue: no plugin offers the device, its elements do not lie side by side there, or ONNX lacks their
                type.
        """
        from ort_core.tensors.device_exchange import device_array_of, is_on_device  # here and below: hardly
        from ort_core.tensors.dlpack import from_dlpack  # any process exchanges tensors

        if not hasattr(data, "__dlpack__") and type(data).__name__ != "PyCapsule":
            raise InvalidType(f"expected an object with __dlpack__, found {data!r} ({type(data).__name__})")
        return cls(device_array_of(data) if is_on_device(data) else _tensor(from_dlpack(data)))

    @property
    def value(self) -> RuntimeValue | DeviceArray:
        """The run-time value itself, not copied."""
        return self._value

    @property
    def type(self) -> ValueType | None:
        """The type, as far as the value or its declaration shows it; shapes are those of the value."""
        return self._type if self._value is None else type_of(self._value, self._type)

    def as_sparse_tensor(self) -> SparseTensor:
        """Return the SparseTensor in this value, in the form that it was given in; of results in coordinates."""
        from ort_core.tensors.sparse_tensor import SparseTensor

        if not isinstance(self._value, SparseArray):
            raise InvalidValue(f"this value is {self._described()}, expected a sparse tensor")
        given: SparseTensor | None = getattr(self, "_sparse", None)
        return SparseTensor.of(self._value) if given is None else given

    def data_ptr(self) -> int:
        """Return the address of the first element (of a packed copy for types of less than a byte)."""
        if isinstance(self._value, DeviceArray):
            return self._value.buffer.address
        array = self._host_tensor("has an address")
        if array.dtype == object:
            raise InvalidValue("a tensor of strings has no address of its data; use numpy()")
        data_type = DataType.from_numpy(array.dtype)
        if data_type.bits >= 8:
            return array.ctypes.data
        packed = pack_bits(array.reshape(-1).view(np.uint8), data_type.bits)
        if self._packed is None or self._packed.shape != packed.shape:
            self._packed = packed
        else:
            self._packed[:] = packed  # the address given out before stays good
        return self._packed.ctypes.data

    def device_name(self) -> str:
        """Return the kind of the device where the data is."""
        return self.device.kind

    @property
    def device(self) -> Device:
        """Where the data is."""
        return self._value.buffer.device if isinstance(self._value, DeviceArray) else CPU

    def shape(self) -> list[int]:
        """Return the shape of a tensor, the dense shape of a sparse one, the length of a sequence."""
        if isinstance(self._value, (np.ndarray, SparseArray, DeviceArray)):
            return [int(size) for size in self._value.shape]
        if isinstance(self._value, list):
            return [len(self._value)]
        raise InvalidValue(f"this value is {self._described()} and has no shape")

    def data_type(self) -> str:
        """Return the type in onnxruntime's words, such as ``tensor(int64)`` or ``seq(tensor(float))``."""
        found = self.type
        if found is None:
            raise InvalidValue(f"this value is {self._described()}; its type is not declared")
        return str(found)

    def element_type(self) -> int:
        """Return ONNX's number of the element type of a tensor."""
        found = self.type
        if isinstance(found, (TensorType, SparseTensorType)):
            return int(found.dtype)
        raise InvalidValue(f"this value is {self._described()}, expected a tensor")

    def tensor_size_in_bytes(self) -> int:
        """Return how many bytes a tensor takes: packed, of types of less than a byte; of strings, without the texts."""
        if isinstance(self._value, DeviceArray):
            return self._value.nbytes
        array = self._host_tensor("has a size in bytes")
        if array.dtype == object:
            return array.nbytes
        return -(-array.size * DataType.from_numpy(array.dtype).bits // 8)

    def has_value(self) -> bool:
        """Return whether this is anything but an absent optional."""
        return self._value is not None

    def is_tensor(self) -> bool:
        """Return whether this is a dense tensor."""
        return isinstance(self._value, (np.ndarray, DeviceArray))

    def is_sparse_tensor(self) -> bool:
        """Return whether this is a sparse tensor."""
        return isinstance(self._value, SparseArray)

    def is_tensor_sequence(self) -> bool:
        """Return whether this is a sequence of tensors."""
        if not isinstance(self._value, list):
            return False
        if isinstance(self._type, SequenceType):
            return isinstance(self._type.element, TensorType)
        return not any(isinstance(item, dict) for item in self._value)

    def numpy(self) -> np.ndarray:
        """Return the tensor as an array: shared on the CPU, copied from elsewhere."""
        if isinstance(self._value, DeviceArray):
            return self._value.to_host()
        return self._host_tensor("is convertible to a numpy array")

    def update_inplace(self, data: np.ndarray | OrtValue) -> None:
        """Copy data of the same element type and number of elements into this tensor's memory."""
        if not isinstance(data, (np.ndarray, OrtValue)):
            raise InvalidType(f"data must be a numpy.ndarray or an OrtValue, found {type(data).__name__}")
        source = data.numpy() if isinstance(data, OrtValue) else data
        target = self._value if isinstance(self._value, DeviceArray) else self._host_tensor("can be updated")
        if math.prod(source.shape) != math.prod(target.shape):
            raise InvalidValue(
                "The input size of numpy arrays does not match the size of the OrtValue. "
                f"Found shape {list(source.shape)}, expected {list(target.shape)}"
            )
        source = _tensor(source)
        if source.dtype != target.dtype:
            raise InvalidValue(f"the data has elements of {source.dtype}, the OrtValue has {target.dtype}")
        if isinstance(target, DeviceArray):
            target.fill(source)
        elif not target.flags.writeable:
            raise InvalidValue("this OrtValue is over a read-only array and cannot be updated; make it from a copy")
        else:
            target.reshape(-1)[:] = source.reshape(-1)

    def __dlpack__(self, **arguments: object) -> object:
        """Return a DLPack capsule over the tensor's memory, on the host or where it lies."""
        from ort_core.tensors.device_exchange import capsule_of
        from ort_core.tensors.dlpack import to_dlpack

        if isinstance(self._value, DeviceArray):
            return capsule_of(self._value, **arguments)  # type: ignore[arg-type]  # those of the protocol
        return to_dlpack(self._host_tensor("can be exported"), **arguments)

    def to_dlpack(self) -> object:
        """Return what ``__dlpack__()`` does."""
        return self.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return DLPack's numbers of the device."""
        if self.device.is_cpu:
            return (1, 0)
        from ort_core.tensors.device_exchange import device_numbers

        return device_numbers(self.device)

    @property
    def __cuda_array_interface__(self) -> Mapping[str, object]:
        """CUDA's array interface, of tensors on CUDA devices; others have none."""
        if not isinstance(self._value, DeviceArray):
            raise AttributeError("__cuda_array_interface__ is that of numbers on CUDA devices")
        from ort_core.tensors.device_exchange import cuda_interface

        return cuda_interface(self._value)

    def __array__(self, dtype: np.dtype | None = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.numpy(), dtype=dtype, copy=copy)

    def __repr__(self) -> str:
        return f"OrtValue({self._described()})"

    @property
    def _ortvalue(self) -> OrtValue:  # programs written for onnxruntime reach for the value inside
        return self

    def _get_c_value(self) -> OrtValue:
        return self

    def _described(self) -> str:
        if self._value is None:
            return "an absent optional"
        found = self.type
        shape = f"{self.shape()}" if isinstance(self._value, (np.ndarray, SparseArray, DeviceArray)) else ""
        return f"{found if found is not None else type(self._value).__name__}{shape}"

    def _host_tensor(self, what: str) -> np.ndarray:
        if not isinstance(self._value, np.ndarray):
            raise InvalidValue(
                f"Only OrtValues that are Tensors: this value is {self._described()}; only a tensor {what}"
            )
        return self._value


def type_of(value: RuntimeValue | DeviceArray, declared: ValueType | None = None) -> ValueType | None:
    """Return the type that a run-time value shows; where it shows none (an empty list), the declared one."""
    if isinstance(declared, OptionalType):
        return OptionalType(type_of(value, declared.element) or declared.element)
    if isinstance(value, (np.ndarray, DeviceArray)):
        data_type = DataType.STRING if value.dtype == object else DataType.from_numpy(value.dtype)
        return TensorType(data_type, tuple(value.shape))
    if isinstance(value, SparseArray):
        return SparseTensorType(DataType.from_numpy(value.dtype), value.shape)
    if isinstance(value, list) and value:
        element = type_of(value[0])
        return None if element is None else SequenceType(_shapeless(element))
    if isinstance(value, Mapping) and value:
        key, item = next(iter(value.items()))
        key_type = DataType.STRING if isinstance(key, str) else DataType.INT64
        return MapType(key_type, TensorType(_scalar_type(item)))
    return declared


def _shapeless(value_type: ValueType) -> ValueType:
    return TensorType(value_type.dtype) if isinstance(value_type, TensorType) else value_type


def _scalar_type(item: object) -> DataType:
    if isinstance(item, (np.ndarray, np.generic)):
        return DataType.STRING if item.dtype == object else DataType.from_numpy(item.dtype)
    return {str: DataType.STRING, int: DataType.INT64}.get(type(item), DataType.FLOAT)


def _tensor(array: np.ndarray) -> np.ndarray:
    """Return an array that can stand for a tensor: native byte order, contiguous, strings as objects."""
    if array.dtype.kind in "UST":
        return string_array(array)
    if array.dtype != object:
        try:
            DataType.from_numpy(array.dtype)
        except ValueError as error:
            raise InvalidValue(f"an array of {array.dtype} cannot be a tensor: {error}") from error
        if not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)


def string_array(array: np.ndarray) -> np.ndarray:
    """Return an object array of ``str`` from strings of any kind.

    In an array of bytes, bytes are UTF-8, and what is not stays as surrogates; in an array of objects, they are
    objects like others, of which ``str`` is taken (``b'ab'`` becomes ``"b'ab'"``, as in onnxruntime).
    """
    out = np.empty(array.shape, object)
    to_text = str if array.dtype == object else text_of
    out.reshape(-1)[:] = [item if type(item) is str else to_text(item) for item in array.reshape(-1).tolist()]
    return out


def text_of(item: object) -> str:
    """Return the text of bytes in UTF-8, and ``str`` of anything else."""
    return item.decode("utf-8", "surrogateescape") if isinstance(item, bytes) else str(item)


def element_type_of(element_type: ElementType) -> DataType:
    """Return the element type that a numpy type or an ONNX number names (``InvalidValue`` when none does)."""
    try:
        if isinstance(element_type, int):
            found = DataType(element_type)
        else:
            found = DataType.STRING if element_type is str else DataType.from_numpy(np.dtype(element_type))
        if found is DataType.UNDEFINED:
            raise ValueError("the number of no type")
    except (ValueError, TypeError) as error:
        raise InvalidValue(
            f"{element_type!r} is not an element type: expected a numpy type or an ONNX number"
        ) from error
    return found


def copy_tensors(src: Sequence[OrtValue], dst: Sequence[OrtValue], stream: object = None) -> None:
    """Copy each tensor of ``src`` into the tensor of ``dst`` at the same position, across devices where needed."""
    wanted = an_object(OrtValue)
    if len(src) != len(dst):
        raise InvalidValue(f"copy_tensors: {len(src)} sources and {len(dst)} destinations, expected as many")
    for source, target in zip(src, dst, strict=True):
        wanted(target, "a destination").update_inplace(wanted(source, "a source"))
