"""IOBinding: inputs and outputs bound once and used by many runs, in memory that the caller chooses.

An input bound by address is read there at each run; an output bound by address or OrtValue is written there. A bound
input that is an OrtValue is not copied. Devices are waited for in ``synchronize_outputs``.
"""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np

from ort_core.arguments import sizes, whole
from ort_core.errors import InvalidArgument, InvalidType, InvalidValue, WrongObject, did_you_mean
from ort_core.frozen import frozen
from ort_core.ir.types import DataType
from ort_core.tensors.device import Device, OrtDevice, directory_in_use, find_device
from ort_core.tensors.device_array import BorrowedBuffer, DeviceArray
from ort_core.tensors.ort_value import ElementType, OrtValue, element_type_of
from ort_core.tensors.ort_value_vector import OrtValueVector
from ort_core.tensors.packing import pack_bits, unpack_bits

if TYPE_CHECKING:
    from ort_core.runtime.device_values import DeviceTarget
    from ort_core.session_api.direct_runs import DirectRunsState
    from ort_core.session_api.node_arg import NodeArg
    from ort_core.tensors.ort_value import RuntimeValue


class BindableSession(Protocol):
    """What a binding needs of its session."""

    def get_inputs(self) -> Sequence[NodeArg]:
        """Return the inputs."""

    def get_outputs(self) -> Sequence[NodeArg]:
        """Return the outputs."""

    def get_overridable_initializers(self) -> Sequence[NodeArg]:
        """Return the inputs with a default."""


class _Memory:
    """Memory of the caller, by address: a tensor that is read or written there."""

    def __init__(self, address: int, dtype: DataType, shape: tuple[int, ...]) -> None:
        if dtype is DataType.STRING:
            raise InvalidValue("a tensor of strings cannot be bound by address; bind an OrtValue")
        if any(each < 0 for each in shape):
            raise InvalidValue(f"the shape {list(shape)} of a buffer has a negative size; every size must be known")
        self._dtype, self._shape = dtype, shape
        nbytes = -(-math.prod(shape) * dtype.bits // 8)
        if not 0 <= address <= sys.maxsize - nbytes:
            raise InvalidValue(f"no buffer of {nbytes} bytes can be at the address {address}")
        if nbytes and not address:
            raise InvalidValue(f"the address of a buffer of {nbytes} bytes is 0")
        memory = memoryview((ctypes.c_uint8 * nbytes).from_address(address)) if nbytes else memoryview(bytearray())
        self._bytes = np.frombuffer(memory, np.uint8)

    @property
    def is_in_place(self) -> bool:
        """Whether the tensor can be read and written where it lies, without packing."""
        return self._dtype.bits >= 8

    def read(self) -> np.ndarray:
        """Return the tensor: a view of the memory, except for types of less than a byte."""
        if self._dtype.bits < 8:
            return unpack_bits(self._bytes, self._dtype, int(np.prod(self._shape))).reshape(self._shape)
        return self._bytes.view(self._dtype.numpy).reshape(self._shape)

    def write(self, name: str, result: RuntimeValue) -> OrtValue:
        """Copy a result into the memory."""
        target = self.read()
        _check_fits(name, result, target)
        source = np.ascontiguousarray(result)
        if self._dtype.bits < 8:
            self._bytes[:] = pack_bits(source.reshape(-1).view(np.uint8), self._dtype.bits)
        else:
            self._bytes[:] = source.reshape(-1).view(np.uint8)
        return OrtValue.of(self.read())


@frozen
class _DirectBinding:
    """Bindings as a direct call takes them: arrays that stay the same from run to run."""

    feeds: dict[str, np.ndarray]
    outputs: tuple[np.ndarray | None, ...] | None  # in the model's order; None: all new
    places: tuple[OrtValue | None, ...]  # in the order of binding, what holds each output; None: a new value
    order: tuple[int, ...]  # in the order of binding, which output of the model it is


class IOBinding:
    """Bindings of one session's inputs and outputs, for runs of that session alone."""

    def __init__(self, session: BindableSession) -> None:
        self.session = session
        arguments = [*session.get_inputs(), *session.get_overridable_initializers()]
        self._inputs = {argument.name: argument for argument in arguments}
        self._outputs = {argument.name: argument for argument in session.get_outputs()}
        self._fed: dict[str, OrtValue | _Memory] = {}
        self._wanted: dict[str, OrtValue | _Memory | Device | None] = {}
        self._results: dict[str, OrtValue] = {}
        self._direct: _DirectBinding | None = None
        self._is_direct_known = False

    def bind_cpu_input(self, name: str, arr_on_cpu: np.ndarray) -> None:
        """Bind an input to an array, which is not copied when it is contiguous."""
        try:
            array = np.asarray(arr_on_cpu)
        except (ValueError, TypeError, RuntimeError) as error:  # a list that is not a tensor, another library's refusal
            raise InvalidValue(f"what is to be bound to the input {name!r} is not an array: {error}") from error
        if array.dtype == object and not isinstance(arr_on_cpu, np.ndarray):
            raise InvalidValue(f"what is to be bound to the input {name!r} is not an array: {arr_on_cpu!r}")
        self.bind_ortvalue_input(name, OrtValue.ortvalue_from_numpy(array))

    def bind_input(
        self,
        name: str,
        device_type: str | OrtDevice,
        device_id: int,
        element_type: ElementType,
        shape: Sequence[int],
        buffer_ptr: int,
    ) -> None:
        """Bind an input to memory at an address."""
        self._check_input(name)
        self._is_direct_known = False
        device = _device(device_type, device_id)
        self._fed[name] = _memory(device, buffer_ptr, element_type_of(element_type), shape)

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Bind an input to an OrtValue."""
        self._check_input(name)
        if not isinstance(ortvalue, OrtValue):
            raise WrongObject(f"input {name!r} was bound to a {type(ortvalue).__name__}, expected an OrtValue")
        self._is_direct_known = False
        self._fed[name] = ortvalue

    def synchronize_inputs(self) -> None:
        """Wait until bound inputs are there (they always are: copies to devices are part of the run)."""

    def bind_output(
        self,
        name: str,
        device_type: str | OrtDevice = "cpu",
        device_id: int = 0,
        element_type: ElementType | None = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Ask for an output: on a device, or, with an address, in memory of the caller."""
        self._check_output(name)
        self._is_direct_known = False
        device = _device(device_type, device_id)
        if buffer_ptr is None:
            self._wanted[name] = None if device.is_cpu else device
            return
        if element_type is None or shape is None:
            raise InvalidValue("`element_type` and `shape` are to be provided if pre-allocated memory is provided")
        self._wanted[name] = _memory(device, buffer_ptr, element_type_of(element_type), shape)

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Ask for an output in the memory of an OrtValue."""
        self._check_output(name)
        if not isinstance(ortvalue, OrtValue):
            raise WrongObject(f"output {name!r} was bound to a {type(ortvalue).__name__}, expected an OrtValue")
        self._is_direct_known = False
        self._wanted[name] = self._results[name] = ortvalue

    def synchronize_outputs(self) -> None:
        """Wait until outputs are there (results on the host are there when the run returns)."""

    def get_outputs(self) -> list[OrtValue]:
        """Return the outputs of the last run and OrtValues that were bound since, in the order of binding."""
        return [self._results[name] for name in self._wanted if name in self._results]

    def take_outputs(self) -> list[OrtValue]:
        """Return what ``get_outputs`` does, and keep only what is bound: the rest goes when the caller drops it."""
        found = self.get_outputs()
        self._results = {name: place for name, place in self._wanted.items() if isinstance(place, OrtValue)}
        return found

    def get_outputs_as_ortvaluevector(self) -> OrtValueVector:
        """Return what ``get_outputs`` does as an OrtValueVector."""
        vector = OrtValueVector()
        vector.replace(self.get_outputs())
        return vector

    def copy_outputs_to_cpu(self) -> list[RuntimeValue]:
        """Return copies of what ``get_outputs`` returns."""
        return [o.numpy().copy() if o.is_tensor() else cast("RuntimeValue", o.value) for o in self.get_outputs()]

    def clear_binding_inputs(self) -> None:
        """Forget bound inputs."""
        self._is_direct_known = False
        self._fed.clear()

    def clear_binding_outputs(self) -> None:
        """Forget bound outputs and results."""
        self._is_direct_known = False
        self._wanted.clear()
        self._results.clear()

    def feeds(self) -> dict[str, object]:
        """Return the feeds of the next run."""
        return {name: bound.read() if isinstance(bound, _Memory) else bound for name, bound in self._fed.items()}

    def device_targets(self) -> dict[str, DeviceTarget]:
        """Return the outputs that are wanted on a device: in the memory bound there, or in new memory."""
        found: dict[str, DeviceTarget] = {}
        for name, place in self._wanted.items():
            if isinstance(place, Device):
                found[name] = place
            elif isinstance(place, OrtValue) and isinstance(place.value, DeviceArray):
                found[name] = place.value
        return found

    def in_place(self, feeds: Mapping[str, object]) -> frozenset[int]:
        """Return the addresses of the feeds whose memory is bound as an output, too: caches that grow where they lie.

        Models list pasts and presents in one order. Where the bindings cross, outputs are bound to other caches' memory
        and none counts.
        """
        arrays = {name: _array_of(self._wanted[name]) for name in self._outputs if name in self._wanted}
        wanted = [array.ctypes.data for array in arrays.values() if array is not None and array.size]
        fed = [feeds[name] for name in self._inputs if name in feeds]
        given = [array.ctypes.data for array in fed if isinstance(array, np.ndarray) and array.size]
        both = frozenset(given).intersection(wanted)
        if [each for each in given if each in both] != [each for each in wanted if each in both]:
            return frozenset()
        return both

    def outputs_in_place(self, in_place: frozenset[int]) -> dict[str, int]:
        """Return the addresses, by output, of memory that is an input's, too: what ``in_place`` returned."""
        arrays = {name: _array_of(self._wanted[name]) for name in self._outputs if name in self._wanted}
        found = {name: array.ctypes.data for name, array in arrays.items() if array is not None and array.size}
        return {name: address for name, address in found.items() if address in in_place}

    def output_names(self) -> list[str]:
        """Return the outputs of the next run, in the order of binding.

        Raises:
            InvalidValue: no output is bound.
        """
        if not self._wanted:
            raise InvalidValue("Error in execution: At least one output should be requested. Call bind_output first.")
        return list(self._wanted)

    def run_directly(self, direct: DirectRunsState) -> bool:
        """Run by a direct call if these bindings allow it and the signature is known; False when nothing was done."""
        if not self._is_direct_known:
            self._direct, self._is_direct_known = self._as_direct(direct.output_names), True
        bound = self._direct
        if bound is None:
            return False
        results = direct.call(bound.feeds, bound.outputs)
        if results is None:
            return False
        self._results = {
            name: OrtValue(results[number]) if place is None else place
            for name, number, place in zip(self._wanted, bound.order, bound.places, strict=True)
        }
        return True

    def _as_direct(self, output_names: list[str]) -> _DirectBinding | None:
        if sorted(self._wanted) != sorted(output_names):
            return None
        feeds: dict[str, np.ndarray] = {}
        for name, fed in self._fed.items():
            array = _array_of(fed)
            if array is None:
                return None
            feeds[name] = array
        if any(place is not None and _array_of(place) is None for place in self._wanted.values()):
            return None
        arrays = {name: None if place is None else _array_of(place) for name, place in self._wanted.items()}
        places = tuple(
            OrtValue(array) if isinstance(place, _Memory) and array is not None else cast("OrtValue | None", place)
            for place, array in zip(self._wanted.values(), arrays.values(), strict=True)
        )
        outputs = tuple(arrays[name] for name in output_names)
        order = tuple(output_names.index(name) for name in self._wanted)
        return _DirectBinding(feeds, None if all(array is None for array in outputs) else outputs, places, order)

    def accept(self, results: Sequence[OrtValue]) -> None:
        """Take the results of a run and copy those that have a place of their own."""
        taken = []
        for (name, place), result in zip(self._wanted.items(), results, strict=True):
            if isinstance(place, _Memory):
                taken.append(place.write(name, result.numpy()))
            elif isinstance(place, Device):
                taken.append(_moved(result, place))
            elif place is not None and place.is_tensor():
                if not _is_same(result.value, place.value):  # else the run has filled it where it lies
                    _check_fits(name, result.value, cast("np.ndarray | DeviceArray", place.value))
                    place.update_inplace(result)
                taken.append(place)
            else:
                taken.append(result)
        self._results = dict(zip(self._wanted, taken, strict=True))

    @property
    def _iobinding(self) -> object:  # programs written for onnxruntime reach for the object inside
        return self

    def _check_input(self, name: str) -> None:
        if name not in self._inputs:
            raise _unknown(name, list(self._inputs), "inputs")

    def _check_output(self, name: str) -> None:
        if name not in self._outputs:
            raise _unknown(name, list(self._outputs), "outputs")


def _is_same(result: object, place: object) -> bool:
    """Return whether a result lies in its place already."""
    if result is place or not (isinstance(result, np.ndarray) and isinstance(place, np.ndarray)):
        return result is place
    is_dense = result.flags.c_contiguous and place.flags.c_contiguous
    return is_dense and (result.ctypes.data, result.shape, result.dtype) == (
        place.ctypes.data,
        place.shape,
        place.dtype,
    )


def _moved(result: OrtValue, device: Device) -> OrtValue:
    """Return a result on the device where it is wanted: itself if the run has put it there."""
    if isinstance(result.value, DeviceArray):
        return result
    return OrtValue.ortvalue_from_numpy(result.numpy(), device.kind, device.index)


def _device(device_type: str | OrtDevice, device_id: int) -> Device:
    """Return the device of a binding; one that no plugin offers is an error."""
    device = find_device(device_type, device_id)
    if (
        not device.is_cpu or device.index
    ):  # the CPU is always there: plugins, which take long to find, are not asked for it
        directory_in_use().get(device)
    return device


def _memory(device: Device, buffer_ptr: int, dtype: DataType, dimensions: Sequence[int]) -> OrtValue | _Memory:
    """Return memory of the caller, on the host or on a device."""
    address, shape = whole(buffer_ptr, "the address of a buffer"), sizes(dimensions, "the shape of a buffer")
    if device.is_cpu:
        return _Memory(address, dtype, shape)
    if dtype is DataType.STRING:
        raise InvalidValue("a tensor of strings cannot be bound by address; bind an OrtValue")
    nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.numpy.itemsize
    buffer = BorrowedBuffer(device, address, nbytes)
    return OrtValue(DeviceArray(directory_in_use().get(device), buffer, dtype.numpy, shape))


def _array_of(bound: OrtValue | _Memory | Device | None) -> np.ndarray | None:
    """Return the array that is bound, ``None`` for what has none that stays: packed memory, devices, sequences."""
    if bound is None or isinstance(bound, Device):
        return None
    if isinstance(bound, _Memory):
        return bound.read() if bound.is_in_place else None
    return bound.value if isinstance(bound.value, np.ndarray) else None


def _unknown(name: object, known: list[str], what: str) -> InvalidArgument:
    if not isinstance(name, str):
        return InvalidType(f"{name!r} is not a name; the model's {what}: {', '.join(known)}")
    return InvalidValue(
        f"Failed to find NodeArg with name: {name} in the def list.{did_you_mean(name, known)} "
        f"The model's {what}: {', '.join(known)}"
    )


def _check_fits(name: str, result: RuntimeValue | DeviceArray, target: np.ndarray | DeviceArray) -> None:
    if not isinstance(result, (np.ndarray, DeviceArray)):
        raise InvalidValue(f"output {name!r} is not a tensor and cannot be bound to memory")
    if result.dtype != target.dtype:
        raise InvalidValue(
            f"Unexpected output data type. Actual: (tensor({_text(target)})) , expected: (tensor({_text(result)})): "
            f"the memory bound to output {name!r} has another element type"
        )
    if result.shape != target.shape:
        raise InvalidValue(
            f"The output OrtValue provided for output '{name}' has shape {list(target.shape)} but the computed output "
            f"shape for this run is {list(result.shape)}. Bind memory of that shape, or leave it to the session."
        )


def _text(array: np.ndarray | DeviceArray) -> str:
    return "string" if array.dtype == object else DataType.from_numpy(array.dtype).text


SessionIOBinding = IOBinding  # onnxruntime's name of the object inside
