"""Feeds: what a caller hands to ``run`` becomes checked run-time values, or an error that names the input.

Element types are never converted behind the caller's back: an array of float64 for a float input is an error. Lists
take the input's type, whatever numbers they hold, as in onnxruntime; but no integer is made of a fraction, and no bool
of 2.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ort_core.errors import EmptyFeed, InvalidArgument, InvalidMapping, InvalidValue, MissingInput, did_you_mean
from ort_core.ir.dims import Dim, SymbolicDim
from ort_core.ir.types import DataType, MapType, OptionalType, SequenceType, SparseTensorType, TensorType, ValueType
from ort_core.tensors.device_array import DeviceArray, may_lie_elsewhere
from ort_core.tensors.ort_value import OrtValue, RuntimeValue, string_array, text_of, type_of
from ort_core.tensors.sparse import SparseArray
from ort_core.tensors.sparse_tensor import SparseTensor

if TYPE_CHECKING:
    from ort_core.ir.values import Value

log = logging.getLogger(__name__)
_OBJECT = np.dtype(object)
_ADVICE = "Please fix either the inputs/outputs or the model."


def _fits(number: object, dtype: DataType) -> bool:
    """Return whether a Python number is kept as it is in a map of an integer type; other types take every number."""
    if not np.issubdtype(dtype.numpy, np.integer):
        return True
    limits = np.iinfo(dtype.numpy)
    return isinstance(number, (int, np.integer)) and limits.min <= int(number) <= limits.max


class FeedChecker:
    """Checks and converts the feeds of one graph. Built once; safe from many threads.

    Args:
        inputs: the graph's formal inputs; those with a constant may be left out.
        overridable: further inputs, which may all be left out.
    """

    def __init__(self, inputs: Iterable[Value], overridable: Iterable[Value] = ()) -> None:
        self._inputs = {value.name: _Input(value, value.constant is None) for value in inputs}
        self._inputs |= {value.name: _Input(value, False) for value in overridable}
        self._required = [i.name for i in self._inputs.values() if i.is_required]
        self._named = [
            (name, axis, dim)
            for name, i in self._inputs.items()
            for axis, dim in enumerate(i.shown)
            if isinstance(dim, str)
        ]
        self._agreed: dict[str, object] = {}  # the last shapes that agreed: most runs come with them again
        self._disagreed: dict[str, object] = {}  # the last that did not: they have been warned of
        self._shares_names = len({dim for _, _, dim in self._named}) < len(self._named)

    def convert(self, feeds: Mapping[str, object]) -> dict[str, RuntimeValue]:
        """Return run-time values by input name. Arrays are shared where they fit as they are.

        Raises:
            MissingInput: a required input has no feed.
            InvalidArgument: a name is unknown, or a value does not fit its input.
        """
        if not isinstance(feeds, Mapping):
            raise InvalidMapping(
                f"the feeds are a {type(feeds).__name__}, expected a mapping from input names to values"
            )
        missing = [name for name in self._required if name not in feeds]
        if missing:
            raise MissingInput(
                f"Required inputs ({missing}) are missing from input feed ({list(feeds)}). "
                f"The model's inputs: {self.described()}"
            )
        values: dict[str, RuntimeValue] = {}
        for name, value in feeds.items():
            expected = self._inputs.get(name)
            if expected is None:
                raise InvalidArgument(
                    f"Invalid input name: {name}.{did_you_mean(str(name), list(self._inputs))} "
                    f"The model's inputs: {self.described()}"
                )
            if value is None and expected.has_default:
                continue  # as in onnxruntime
            values[name] = expected.convert(value)
        return values

    def sizes_agree(self, values: Mapping[str, object]) -> bool:
        """Return whether dimensions of one name have one size in all checked feeds; warn of others, once in a row."""
        if not self._shares_names:
            return True
        shapes = {name: getattr(value, "shape", None) for name, value in values.items()}
        if shapes == self._agreed:
            return True
        if shapes == self._disagreed:
            return False
        agree = self._dimensions_agree(shapes)
        if agree:
            self._agreed = shapes
        else:
            self._disagreed = shapes
        return agree

    def described(self) -> str:
        """Return the inputs in words, for messages."""
        return (
            ", ".join(f"{i.name}: {i.type}{list(i.shown) if i.has_rank else ''}" for i in self._inputs.values())
            or "none"
        )

    def _dimensions_agree(self, shapes: Mapping[str, Sequence[int] | None]) -> bool:
        sizes: dict[str, tuple[int, str]] = {}
        agree = True
        for name, axis, dim in self._named:
            shape = shapes.get(name)
            if shape is None:
                continue
            size, first = sizes.setdefault(dim, (shape[axis], name))
            if size != shape[axis]:
                agree = False
                log.warning(
                    "dimension %r has size %d in input %r and %d in input %r: the run treats them as different sizes",
                    dim, size, first, shape[axis], name,
                )  # fmt: skip
        return agree


class _Input:
    """What one input expects."""

    def __init__(self, value: Value, is_required: bool) -> None:
        self.name = value.name
        self.type = value.type
        self.is_required = is_required and not isinstance(value.type, OptionalType)
        self.has_default = not is_required
        of = value.type.element if isinstance(value.type, OptionalType) else value.type
        shape = of.shape if isinstance(of, (TensorType, SparseTensorType)) else None
        # A declared scalar takes any shape, as in onnxruntime: exporters write [] where they mean "unknown".
        self.has_rank = bool(shape)
        self.shown: tuple[int | str | None, ...] = tuple(map(shown_dim, shape or ()))
        self._sizes = tuple((axis, size) for axis, size in enumerate(self.shown) if isinstance(size, int))
        self._accepted: tuple[int, ...] | None = None  # the last shape that fitted: most runs come with it again
        known = isinstance(value.type, TensorType) and value.type.dtype is not DataType.UNDEFINED
        # Never None, which numpy takes for float64: an array of doubles would pass for a sequence.
        self._dtype = value.type.dtype.numpy if known else _OBJECT  # type: ignore[union-attr]  # a TensorType, see above

    def convert(self, value: object) -> RuntimeValue:
        """Return the run-time value of a feed."""
        if type(value) is OrtValue and type(value.value) is np.ndarray:
            value = value.value
        if type(value) is np.ndarray and value.dtype == self._dtype and self._dtype != _OBJECT:
            if value.shape != self._accepted:
                self._check_shape(value)
                self._accepted = value.shape
            return _in_order(value)
        try:
            converted = _Conversion(self.name, self.type).convert(value, self.type)
            if self.has_rank and isinstance(converted, (np.ndarray, SparseArray, DeviceArray)):
                self._check_shape(converted)
        except InvalidArgument as error:
            if isinstance(value, (np.ndarray, OrtValue)) or isinstance(error, (RuntimeError, MissingInput)):
                raise
            if isinstance(value, list) and error.args[0].startswith(("Invalid rank", "Got invalid dimensions")):
                raise
            raise InvalidValue(*error.args) from error  # onnxruntime's class for what it takes for no array at all
        return converted

    def _check_shape(self, value: np.ndarray | SparseArray | DeviceArray) -> None:
        shape = value.shape
        if not self.has_rank:
            return
        if len(shape) != len(self.shown):
            raise InvalidArgument(
                f"Invalid rank for input: {self.name} Got: {len(shape)} Expected: {len(self.shown)} {_ADVICE} "
                f"Found shape {list(shape)}, declared {list(self.shown)}."
            )
        wrong = [(axis, size) for axis, size in self._sizes if shape[axis] != size]
        if wrong:
            lines = "".join(f"\n index: {axis} Got: {shape[axis]} Expected: {size}" for axis, size in wrong)
            raise InvalidArgument(
                f"Got invalid dimensions for input: {self.name} for the following indices{lines}\n {_ADVICE} "
                f"Found shape {list(shape)}, declared {list(self.shown)}."
            )


def _in_order(array: np.ndarray) -> np.ndarray:
    """Return an array as it is, or a copy whose elements lie in order: sums of kernels would go by the order of memory.

    So equal feeds give equal bits, however they lie.
    """
    flags = array.flags
    return array if flags.c_contiguous and flags.aligned else np.require(array, requirements=["C", "A"])


def shown_dim(dim: Dim) -> int | str | None:
    """Return a dimension as the API shows it: a size, a name, or ``None``."""
    if isinstance(dim, SymbolicDim):
        return str(dim)
    return dim


class _Conversion:
    """Converts the feed of one input; holds what messages say."""

    def __init__(self, name: str, declared: ValueType | None) -> None:
        self._name, self._declared = name, declared

    def convert(self, value: object, expected: ValueType | None) -> RuntimeValue:
        """Return the run-time value for the expected type (a part of the declared one for nested values)."""
        if isinstance(value, OrtValue):
            value = value.value
        if isinstance(value, DeviceArray):
            return self._on_device(value, expected)
        if isinstance(value, SparseTensor):
            value = value.to_sparse_array()
        if isinstance(expected, OptionalType):
            return None if value is None else self.convert(value, expected.element)
        if value is None:
            raise EmptyFeed(f"Missing Input: {self._name}: the feed is None, expected {self._declared}")
        if isinstance(expected, TensorType):
            foreign = None if isinstance(value, (np.ndarray, np.generic)) else self._of_another_library(value)
            return self._tensor(value, expected.dtype) if foreign is None else self._on_device(foreign, expected)
        if isinstance(expected, SequenceType):
            if isinstance(value, np.ndarray) and value.ndim:
                value = list(value)
            if not isinstance(value, (list, tuple)):
                raise self._unfit(value)
            return [self.convert(item, expected.element) for item in value]
        if isinstance(expected, MapType):
            return self._map(value, expected)
        if isinstance(expected, SparseTensorType):
            return self._sparse(value, expected)
        return value  # type: ignore[return-value]  # an opaque value: only its operators know it

    def _of_another_library(self, value: object) -> DeviceArray | None:
        """Return an array over a tensor that another library has on a device; ``None`` where it is no such tensor."""
        if not may_lie_elsewhere(value):
            return None
        from ort_core.tensors.device_exchange import device_array_of, is_on_device  # as below

        try:
            return device_array_of(value) if is_on_device(value) else None
        except (BufferError, TypeError, RuntimeError, ValueError) as error:  # another library's refusal
            raise InvalidValue(f"the feed of input {self._name!r} cannot be read: {error}") from error

    def _on_device(self, value: DeviceArray, expected: ValueType | None) -> RuntimeValue:
        """Return a tensor where it lies: the plan knows whether its readers take it there."""
        if expected is not self._declared or not isinstance(expected, TensorType):
            return self.convert(value.to_host(), expected)
        if expected.dtype is not DataType.UNDEFINED and value.dtype != expected.dtype.numpy:
            raise self._wrong_type(value, f"tensor({expected.dtype.text})")
        return cast("RuntimeValue", value)  # the plan copies it where a reader takes host memory only

    def _tensor(self, value: object, dtype: DataType) -> np.ndarray:
        if isinstance(value, (SparseArray, Mapping)):
            raise self._unfit(value)
        if dtype is DataType.STRING:
            return self._strings(value)
        if not isinstance(value, (np.ndarray, np.generic)):
            value = self._array(value, dtype)
        array = np.asarray(value)
        if dtype is DataType.UNDEFINED:
            return array
        if array.dtype != dtype.numpy:
            if array.dtype.isnative or array.dtype.newbyteorder("=") != dtype.numpy:
                raise self._wrong_type(array, f"tensor({dtype.text})")
            array = array.astype(dtype.numpy)
        return _in_order(array)

    def _array(self, value: object, dtype: DataType) -> np.ndarray:
        """Return the array of something that is none yet: from DLPack, the array protocol, or Python numbers."""
        if hasattr(value, "__dlpack__"):
            from ort_core.tensors.dlpack import from_dlpack  # hardly any process feeds other libraries' tensors

            try:
                return from_dlpack(value)
            except (BufferError, TypeError, RuntimeError, ValueError) as error:  # another library's refusal
                raise InvalidValue(f"the feed of input {self._name!r} cannot be read: {error}") from error
        if hasattr(value, "__array__"):
            return np.asarray(value)
        is_number = isinstance(value, (bool, int, float, complex, Sequence))
        if isinstance(value, (str, bytes, bytearray)) or not is_number:
            raise self._unfit(value)
        if isinstance(value, memoryview):
            return np.asarray(value)
        found = self._nested(value, dtype)
        if dtype is DataType.UNDEFINED:
            return found
        return self._fitted(value, found, dtype)

    def _nested(self, value: object, dtype: DataType) -> np.ndarray:
        """Return the array of numbers and nested lists of them; ``None`` among floats is not a number."""
        try:
            found = np.asarray(value)
            if found.dtype == object and dtype is not DataType.UNDEFINED:  # decimals, fractions, None, large integers
                found = np.array(value, np.float64)
        except (ValueError, TypeError, OverflowError) as error:
            raise InvalidValue(
                f"Could not create tensor from given input list: the feed of input {self._name!r} is a list that is "
                f"not a tensor: {error}"
            ) from error
        if found.dtype == object:
            raise self._unfit(value)
        return found

    def _fitted(self, value: object, found: np.ndarray, dtype: DataType) -> np.ndarray:
        if found.dtype == dtype.numpy:  # a list of numbers of a type that numpy lacks
            return found
        is_complex = dtype in (DataType.COMPLEX64, DataType.COMPLEX128)
        if found.size and found.dtype.kind not in ("biufc" if is_complex else "biuf"):
            raise self._wrong_type(found, f"tensor({dtype.text})")
        if dtype.is_float or is_complex:
            return found.astype(dtype.numpy)
        if found.dtype.kind == "f" and not (np.isfinite(found) & (found == np.trunc(found))).all():
            raise self._wrong_type(found, f"tensor({dtype.text})")
        limits = (0, 1) if dtype is DataType.BOOL else _integer_limits(dtype)
        if found.size and not (limits[0] <= int(found.min()) and int(found.max()) <= limits[1]):
            raise InvalidArgument(
                f"the feed of input {self._name!r} has numbers outside {limits[0]}..{limits[1]}, "
                f"expected tensor({dtype.text})"
            )
        return found.astype(dtype.numpy)

    def _strings(self, value: object) -> np.ndarray:
        if isinstance(value, (str, bytes)):
            return string_array(np.array(text_of(value), object))
        listed: object = value
        if isinstance(value, (list, tuple)):
            try:
                listed = np.array(value, object)
            except ValueError as error:
                raise InvalidArgument(
                    f"the feed of input {self._name!r} is a list that is not a tensor: {error}"
                ) from error
        try:
            array = np.asarray(listed)
        except (TypeError, RuntimeError) as error:  # another library's refusal
            raise InvalidValue(f"the feed of input {self._name!r} cannot be read: {error}") from error
        if array.dtype == object:
            items = array.reshape(-1).tolist()
            if set(map(type, items)) == {str}:
                return array if array.flags.c_contiguous else np.ascontiguousarray(array)
            if array is not value and any(isinstance(item, (list, tuple, Mapping)) for item in items):
                raise self._unfit(value)  # of nested lists; cells of an array are any objects, written as str() does
            return string_array(array)
        if array.dtype.type is np.void and array.dtype.names is None:  # text of fixed length with its trailing zeros
            texts = [text_of(bytes(item)) for item in array.reshape(-1)]
            return string_array(np.array(texts, object).reshape(array.shape))
        if array.dtype.kind not in "UST":
            raise self._wrong_type(array, "tensor(string)")
        return string_array(array)

    def _map(self, value: object, expected: MapType) -> dict[Any, Any]:  # Any: keys and values as the model says
        if not isinstance(value, Mapping):
            raise self._unfit(value)
        kinds = str if expected.key is DataType.STRING else (int, np.integer)
        wrong = [key for key in value if not isinstance(key, kinds) or not _fits(key, expected.key)]
        if wrong:
            raise InvalidArgument(
                f"the feed of input {self._name!r} has the key {wrong[0]!r}, expected keys of {expected.key.text} "
                f"({self._declared})"
            )
        keys = [key if isinstance(key, str) else int(key) for key in value]
        if isinstance(expected.value, TensorType):
            return {k: self._map_item(item, expected.value.dtype) for k, item in zip(keys, value.values(), strict=True)}
        return {key: self.convert(item, expected.value) for key, item in zip(keys, value.values(), strict=True)}

    def _map_item(self, item: object, dtype: DataType) -> object:
        if dtype is DataType.STRING:
            return item.decode() if isinstance(item, bytes) else str(item)
        if isinstance(item, (bool, int, float)):
            if not _fits(item, dtype):
                raise InvalidArgument(
                    f"the feed of input {self._name!r} has the value {item!r}, expected values of {dtype.text} "
                    f"({self._declared})"
                )
            return item
        array = self._tensor(item, dtype)
        return array[()] if array.ndim == 0 else array

    def _sparse(self, value: object, expected: SparseTensorType) -> SparseArray:
        if not isinstance(value, SparseArray):
            raise self._unfit(value)
        if DataType.from_numpy(value.dtype) is not expected.dtype:
            raise self._wrong_type(value.values, f"sparse_tensor({expected.dtype.text})")
        return value

    def _wrong_type(self, array: np.ndarray | DeviceArray, expected: str) -> InvalidArgument:
        try:
            actual = str(type_of(array))
        except ValueError:
            actual = f"numpy {array.dtype}"
        hint = ""
        if array.dtype.kind in "fiub" and expected.startswith("tensor(") and "string" not in expected:
            hint = " Convert it with astype; element types are never converted silently."
        is_known = array.dtype.isbuiltin == 1 and array.dtype.kind not in "cMm"
        return (InvalidArgument if is_known else InvalidValue)(
            f"Unexpected input data type. Actual: ({actual}) , expected: ({expected}) for input {self._name!r}.{hint}"
        )

    def _unfit(self, value: object) -> InvalidValue:
        kind = {
            MapType: "a mapping", SequenceType: "a list", SparseTensorType: "a SparseTensor",
            OptionalType: "a value or None",
        }.get(type(self._declared), "a numpy array, a nested list of numbers or an OrtValue")  # fmt: skip
        core = f"Unable to handle object of type {type(value)}"
        if isinstance(value, (str, bytes)):
            core = f"Input must be a list of dictionaries or a single numpy array for input {self._name!r}."
        return InvalidValue(f"{core} The feed of input {self._name!r} must be {kind} for {self._declared}.")


def _integer_limits(dtype: DataType) -> tuple[int, int]:
    if dtype.text.startswith("u"):
        return 0, (1 << dtype.bits) - 1
    return -(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1
