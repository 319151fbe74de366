"""The border around a user's kernel: what it is given, what it must return, and how its failures are told.

A wrong number, type or shape of results is an error that names the node. An exception keeps its traceback, from the
user's function on. A kernel that may not be entered twice at once waits for its turn, node by node. Inputs are lent:
other nodes and the caller read the same memory, so that numpy refuses what a kernel writes there.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from ort_core.custom_ops.op_signature import HANDED_IN
from ort_core.custom_ops.shape_rule import ShapeFunction, concrete_shapes, output_shapes, padded
from ort_core.custom_ops.taken_attributes import taken_attributes
from ort_core.custom_ops.traceback_text import place_of, user_traceback
from ort_core.errors import OrtError, RuntimeException
from ort_core.forks import new_lock
from ort_core.frozen import frozen
from ort_core.interruptions import raise_interruption
from ort_core.ir.types import DataType, TensorType
from ort_core.kernels.evaluator import normalize
from ort_core.kernels.kernel import KernelContext, KernelFunction
from ort_core.ops.schema import OpSchema, ParameterOption
from ort_core.ops.type_text import parse_type
from ort_core.tensors.ort_value import string_array

ConvertAttributes = Callable[[Mapping[str, object]], dict[str, object]]
StateFactory = Callable[..., object]
_STATE, _TURN = "custom_op_state", "custom_op_turn"  # keys of KernelContext.state
_making_state = new_lock()  # held while a node's state is made: never in a run that has it


@frozen
class ArrayKind:
    """The arrays that a kernel takes and returns; ``noun`` is what messages call one."""

    noun: str
    is_array: Callable[[object], bool]


HOST_ARRAYS = ArrayKind("a numpy array", lambda value: isinstance(value, np.ndarray))
DEVICE_ARRAYS = ArrayKind("an array of the device", lambda value: hasattr(type(value), "__cuda_array_interface__"))


@frozen
class GuardedKernel:
    """What ``guarded`` needs to know of a user's kernel.

    ``handed_in`` are those of ``ctx`` and ``state`` that ``function`` takes. ``make_state`` makes the state of a node,
    once for each session. A kernel that is not ``is_reentrant`` is entered by one thread at a time at each node.
    ``arrays`` says whether it works on numpy's or on a device's. ``lends_inputs``: whether numpy's are read-only.
    """

    function: KernelFunction
    schema: OpSchema
    convert: ConvertAttributes
    handed_in: frozenset[str] = frozenset()
    shape: ShapeFunction | None = None
    make_state: StateFactory | None = None
    is_reentrant: bool = True
    arrays: ArrayKind = HOST_ARRAYS
    lends_inputs: bool = True

    @property
    def name(self) -> str:
        """The operator's name for messages."""
        return f"{self.schema.domain}::{self.schema.op_type}"


def guarded(kernel: GuardedKernel) -> KernelFunction:
    """Return a kernel of the engine's calling convention that calls the user's inside the border."""
    expected = _expected_sources(kernel.schema)

    def run(*inputs: Any, ctx: KernelContext, **attributes: Any) -> tuple[Any, ...]:  # Any: run-time values
        given = _present(inputs, kernel.schema)
        if kernel.lends_inputs:
            given = lent(given)
        arguments = kernel.convert(attributes)
        handed = _handed_in(kernel, ctx, arguments)
        try:
            with _turn(kernel, ctx):
                result = kernel.function(*given, **arguments, **handed)
        except OrtError:
            raise
        except Exception as error:  # the border to the user's function
            raise_interruption(error)
            raise RuntimeException(_failure(kernel, given, arguments, error)) from error
        return _Results(kernel, ctx, given, arguments).checked(result, expected)

    run.__signature__ = _signature(kernel.schema)  # type: ignore[attr-defined]  # what inspect.signature looks for
    run.__module__ = getattr(kernel.function, "__module__", run.__module__)
    run.__qualname__ = getattr(kernel.function, "__qualname__", run.__qualname__)
    return run


def _signature(schema: OpSchema) -> inspect.Signature:
    kinds = inspect.Parameter
    names = [kinds(name, kinds.KEYWORD_ONLY) for name in (*schema.attributes, "ctx")]
    return inspect.Signature([kinds("inputs", kinds.VAR_POSITIONAL), *names])


def _present(inputs: Sequence[Any], schema: OpSchema) -> tuple[Any, ...]:  # Any: run-time values
    """Return the inputs with ``None`` for optional ones that were omitted at the end."""
    fixed = sum(parameter.option is not ParameterOption.VARIADIC for parameter in schema.inputs)
    return (*inputs, *[None] * (fixed - len(inputs)))


def lent(inputs: Sequence[Any]) -> tuple[Any, ...]:  # Any: run-time values
    """Return inputs whose numpy arrays, those of sequences too, are read-only views."""
    return tuple(_lent_value(value) for value in inputs)


def _lent_value(value: Any) -> Any:  # Any: a run-time value
    if type(value) is list:
        return list(lent(value))
    if type(value) is not np.ndarray or not value.flags.writeable:
        return value
    view = value.view()
    view.flags.writeable = False
    return view


def _handed_in(kernel: GuardedKernel, ctx: KernelContext, attributes: Mapping[str, object]) -> dict[str, object]:
    handed: dict[str, object] = {"ctx": ctx} if HANDED_IN[0] in kernel.handed_in else {}
    if kernel.make_state is not None and HANDED_IN[1] in kernel.handed_in:
        handed[HANDED_IN[1]] = _state(kernel, kernel.make_state, ctx, attributes)
    return handed


def _state(
    kernel: GuardedKernel, make_state: StateFactory, ctx: KernelContext, attributes: Mapping[str, object]
) -> object:
    with _making_state:
        if _STATE not in ctx.state:
            try:
                ctx.state[_STATE] = make_state(**taken_attributes(make_state, attributes))
            except Exception as error:  # the border to the user's function
                raise_interruption(error)
                text = user_traceback(error, make_state)
                raise RuntimeException(f"the state of {kernel.name} could not be made: {text}") from error
        return ctx.state[_STATE]


def _turn(kernel: GuardedKernel, ctx: KernelContext) -> AbstractContextManager[object]:
    if kernel.is_reentrant:
        return nullcontext()
    turn: _TurnState = ctx.state.setdefault(_TURN, _TurnState(kernel.name))
    return turn


class _TurnState:
    """Lets one thread at a time into a kernel, and refuses the one that is inside: it would wait for itself."""

    def __init__(self, name: str) -> None:
        self._name, self._lock, self._inside = name, new_lock(), 0

    def __enter__(self) -> None:
        me = threading.get_ident()
        if self._inside == me:
            raise RuntimeException(
                f"the kernel of {self._name} runs a session whose run comes to the same node again, and it is declared "
                "with is_reentrant=False. Run another session there, or declare it reentrant."
            )
        self._lock.acquire()
        self._inside = me

    def __exit__(self, *error: object) -> None:
        self._inside = 0
        self._lock.release()


def _failure(
    kernel: GuardedKernel, inputs: Sequence[Any], attributes: Mapping[str, object], error: Exception
) -> str:  # Any: run-time values
    given = ", ".join(_summary(value) for value in inputs)
    settings = "".join(f", {name}={value!r}" for name, value in attributes.items())
    return f"the kernel of {kernel.name} failed on ({given}{settings}): {user_traceback(error, kernel.function)}"


_Expected = tuple[DataType | int | None, ...]  # for each output: its element type, or the input that has it


def _expected_sources(schema: OpSchema) -> _Expected:
    sources: list[DataType | int | None] = []
    for output in schema.outputs:
        fixed = parse_type(output.type_text)
        if isinstance(fixed, TensorType):
            sources.append(fixed.dtype)
            continue
        same = [i for i, p in enumerate(schema.inputs) if p.type_text == output.type_text and p.is_homogeneous]
        sources.append(same[0] if same and output.is_homogeneous else None)
    return tuple(sources)


class _Results:
    """Checks the results of one call."""

    def __init__(
        self, kernel: GuardedKernel, ctx: KernelContext, inputs: Sequence[Any], attributes: Mapping[str, object]
    ) -> None:
        self._kernel, self._ctx, self._inputs, self._attributes = kernel, ctx, inputs, attributes

    def checked(self, result: object, expected: _Expected) -> tuple[Any, ...]:  # Any: run-time values
        count = len(self._ctx.output_present)
        results = normalize(result)
        if len(results) < count or (len(results) > count and len(results) > len(self._kernel.schema.outputs)):
            raise self._wrong(f"{len(results)} results where the node has {count} outputs")
        shapes = self._shapes(count)
        return tuple(
            self._one(index, value, expected[min(index, len(expected) - 1)], shapes[index])
            for index, value in enumerate(results[:count])
        )

    def _one(self, index: int, value: Any, source: DataType | int | None, shape: object) -> Any:
        parameter = self._kernel.schema.output_parameter(index)
        assert parameter is not None
        what = f"output {index} ({parameter.name})"
        if value is None:
            if self._ctx.output_present[index] and parameter.option is not ParameterOption.OPTIONAL:
                raise self._wrong(f"None for {what}")
            return None
        declared, arrays = self._ctx.output_types[index], self._kernel.arrays
        if not arrays.is_array(value):
            is_tensor = isinstance(declared, TensorType) or parameter.type_text in self._tensor_variables()
            if is_tensor or parameter.type_text.startswith("tensor("):
                raise self._wrong(f"a {type(value).__name__} for {what}, expected {arrays.noun}")
            return value
        if arrays is HOST_ARRAYS:
            value = self._plain(what, value)
        self._check_dtype(what, value, source, declared)
        self._check_shape(what, value, shape)
        return value

    def _plain(self, what: str, value: np.ndarray) -> np.ndarray:
        """Return an array of numpy's own class, whose products are elementwise, and texts as ``str``."""
        plain = np.asarray(value)
        if plain.dtype.kind in "UT":
            return plain.astype(object)  # strings are arrays of dtype object
        if plain.dtype == object:
            kinds = set(map(type, plain.reshape(-1).tolist())) - {str}
            others = sorted(each.__name__ for each in kinds if not issubclass(each, str))
            if others:
                raise self._wrong(f"{what} with elements of {', '.join(others)}, expected str")
            return string_array(plain) if kinds else plain
        return plain

    def _tensor_variables(self) -> set[str]:
        constraints = self._kernel.schema.type_constraints
        return {name for name, texts in constraints.items() if all(text.startswith("tensor(") for text in texts)}

    def _check_dtype(self, what: str, value: Any, source: DataType | int | None, declared: object) -> None:
        expected: np.dtype | None = None
        if isinstance(source, DataType):
            expected = source.numpy
        elif isinstance(source, int) and source < len(self._inputs) and self._inputs[source] is not None:
            expected = self._inputs[source].dtype
        elif isinstance(declared, TensorType) and declared.dtype is not DataType.UNDEFINED:
            expected = declared.dtype.numpy
        if expected is not None and value.dtype != expected:
            raise self._wrong(f"{what} as {value.dtype}, expected {expected}; convert it with .astype")

    def _check_shape(self, what: str, value: Any, sizes: object) -> None:
        """Compare with what the operator's own shape function says: what a model declares is a claim."""
        if not isinstance(sizes, tuple):
            return
        pairs = zip(value.shape, sizes, strict=False)
        if len(sizes) != value.ndim or any(isinstance(e, int) and e != size for size, e in pairs):
            text = ", ".join("?" if size is None else str(size) for size in sizes)
            raise self._wrong(f"{what} with shape {list(value.shape)}, expected [{text}] by its shape function")

    def _shapes(self, count: int) -> Sequence[object]:
        function, schema = self._kernel.shape, self._kernel.schema
        if function is None:
            return [None] * count
        shapes = concrete_shapes(self._inputs)
        if self._kernel.arrays is DEVICE_ARRAYS and any(each is not None and each.dtype.is_integer for each in shapes):
            return [None] * count  # it may ask for their elements, which to read would wait for the device
        try:
            return output_shapes(function, schema, padded(shapes, schema), self._attributes, count)
        except Exception as error:  # the border to the user's function
            raise_interruption(error)
            text = user_traceback(error, function)
            raise RuntimeException(f"the shape function of {self._kernel.name} failed: {text}") from error

    def _wrong(self, found: str) -> OrtError:
        given = ", ".join(_summary(value) for value in self._inputs)
        place = place_of(self._kernel.function)
        return RuntimeException(f"the kernel of {self._kernel.name} ({place}) returned {found}; inputs: ({given})")


def _summary(value: Any) -> str:  # Any: a run-time value
    is_array = hasattr(value, "dtype") and hasattr(value, "shape")
    return f"{value.dtype}{list(value.shape)}" if is_array else type(value).__name__
