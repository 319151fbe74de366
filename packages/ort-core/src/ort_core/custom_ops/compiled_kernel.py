"""Kernels that a compiler made beforehand: functions of a C library (ctypes) and of numba, as numpy kernels.

A ctypes function is called with the address of each input, the address of each output, and then the numbers that
``arguments`` gives: by default how many elements the first output has. Its outputs are allocated before the call, so
the operator needs a shape function, or a loop kernel (the shapes of which are those of broadcasting).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ort_core.custom_ops.shape_rule import ShapeFunction, concrete_shapes, output_shapes
from ort_core.errors import InvalidArgument
from ort_core.ir.types import TensorType
from ort_core.kernels.device_kernel import LaunchRequest
from ort_core.kernels.kernel import KernelContext, KernelFunction
from ort_core.ops.schema import OpSchema
from ort_core.ops.type_text import parse_type

CFunction = Callable[..., Any]  # Any: a ctypes function pointer
CArguments = Callable[[LaunchRequest], Sequence[Any]]  # Any: ctypes values, or what ctypes takes for them


def ctypes_kernel(
    function: CFunction,
    schema: OpSchema,
    find_shape: Callable[[], ShapeFunction],
    defaults: Mapping[str, object],
    arguments: CArguments | None,
) -> KernelFunction:
    """Return a kernel that calls a C function on the data of dense arrays. ctypes lets other threads run meanwhile.

    ``find_shape`` is asked at each call: a shape function may be attached behind the C function.
    """
    make_arguments = arguments or _element_count

    def run(*inputs: np.ndarray | None, ctx: KernelContext, **attributes: object) -> tuple[np.ndarray, ...]:
        dense = [None if array is None else np.asarray(array, order="C") for array in inputs]
        attributes = {**defaults, **attributes}
        shapes = output_shapes(find_shape(), schema, concrete_shapes(dense), attributes, len(ctx.output_present))
        outputs = [_allocated(schema, index, found, dense) for index, found in enumerate(shapes)]
        request = LaunchRequest(
            tuple(None if array is None else array.shape for array in dense),
            tuple(array.shape for array in outputs),
            attributes,
        )
        pointers = [ctypes.c_void_p(None if a is None else a.ctypes.data) for a in (*dense, *outputs)]
        function(*_c_words(function, [*pointers, *make_arguments(request)], f"{schema.domain}::{schema.op_type}"))
        return tuple(outputs)

    return _named_after(function, run)


def positional_kernel(function: Callable[..., Any], attributes: Mapping[str, object]) -> KernelFunction:
    """Return a kernel that calls a function of numba: inputs, then all attributes in order, all by position.

    numba's compiled functions take no keyword-only arguments. ``attributes`` are the names with their defaults.
    """

    def run(*inputs: np.ndarray | None, **given: object) -> Any:  # Any: what the function returns
        return function(*inputs, *(given.get(name, default) for name, default in attributes.items()))

    return _named_after(function, run)


def _named_after(function: Callable[..., Any], run: KernelFunction) -> KernelFunction:
    """Return ``run``, which messages call by the name and place of the user's function."""
    run.__wrapped__ = function  # type: ignore[attr-defined]  # what inspect.unwrap follows
    run.__qualname__ = getattr(function, "__qualname__", getattr(function, "__name__", run.__qualname__))
    return run


def _c_words(function: CFunction, words: Sequence[Any], operator: str) -> Sequence[Any]:  # Any: as CArguments
    """Return what a C function is called with: numbers in their full width, and as many as it says that it takes.

    ctypes itself passes a Python int as 32 bits where nothing is declared, and lets arguments be too many.
    """
    if not hasattr(function, "argtypes"):
        return words  # a function of Python around one of C
    declared = function.argtypes
    if declared is None:
        return [_wide(word) for word in words]
    if len(declared) != len(words):
        raise InvalidArgument(
            f"the C function of {operator} has {len(declared)} argtypes and is given {len(words)} arguments: a pointer "
            "for each input and output, and what its arguments function gives (by default the count of elements)"
        )
    return words


def _wide(word: Any) -> Any:  # Any: as above
    if isinstance(word, np.generic):
        return np.ctypeslib.as_ctypes(np.asarray(word))
    if isinstance(word, (int, float)):
        return ctypes.c_double(word) if isinstance(word, float) else ctypes.c_int64(word)
    return word


def _element_count(request: LaunchRequest) -> tuple[ctypes.c_int64]:
    return (ctypes.c_int64(int(np.prod(request.outputs[0], dtype=np.int64))),)


def _allocated(schema: OpSchema, index: int, found: object, inputs: Sequence[np.ndarray | None]) -> np.ndarray:
    shape = found.shape if isinstance(found, TensorType) else found
    if not isinstance(shape, tuple) or not all(isinstance(dim, int) for dim in shape):
        raise InvalidArgument(
            f"the shape of output {index} must be known before a C function fills it, the shape function of "
            f"{schema.domain}::{schema.op_type} gives {shape}"
        )
    return np.empty(shape, _dtype(schema, index, found, inputs))


def _dtype(schema: OpSchema, index: int, found: object, inputs: Sequence[np.ndarray | None]) -> np.dtype:
    if isinstance(found, TensorType):
        return found.dtype.numpy
    text = schema.outputs[min(index, len(schema.outputs) - 1)].type_text
    fixed = parse_type(text)
    if isinstance(fixed, TensorType):
        return fixed.dtype.numpy
    for parameter, array in zip(schema.inputs, inputs, strict=False):
        if parameter.type_text == text and array is not None:
            return array.dtype
    raise InvalidArgument(
        f"the element type of output {index} of {schema.domain}::{schema.op_type} is not known before the run: "
        "annotate the result with a type, or with the TypeVar of an input"
    )
