"""``@elementwise_op`` and ``@row_op``: operators from formulas alone; numpy and the compilers all take them from there.

@elementwise_op("com.acme", "Softcap")
def softcap(x: Scalar, *, cap: float = 30.0) -> Scalar:
    return tanh(x / cap) * cap


@row_op("com.acme", "ScaledSoftmax")
def scaled_softmax(x: Scalar, *, scale: float = 1.0) -> Scalar:
    e = exp((x - row_max(x)) * scale)
    return e / row_sum(e)
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ort_core.custom_ops.custom_op import CustomOp
from ort_core.custom_ops.loop_kernel import LoopFunction, numpy_kernel, numpy_row_kernel
from ort_core.custom_ops.traceback_text import place_of
from ort_core.errors import InvalidArgument
from ort_core.ir.types import DataType
from ort_core.kernels.kernel import KernelFunction
from ort_core.loops.meanings import SUPPORTED


def elementwise_op(
    domain: str, op_type: str, since_version: int = 1, *, dtypes: Sequence[type[np.generic]] = (np.float32,)
) -> Callable[[LoopFunction], CustomOp]:
    """Return a decorator that makes an operator of a formula.

    Args:
        domain: the operator's domain.
        op_type: its name in models.
        since_version: the version of the domain from which it holds.
        dtypes: the element types that the formula is right for; inputs and output have the same one. The functions
            (``exp``, ``tanh`` ...) take float32, arithmetic all integers and float64 as well.

    Raises:
        InvalidArgument: there are no formulas for one of ``dtypes``.
    """

    def decorate(function: LoopFunction) -> CustomOp:
        evaluated = numpy_kernel(function, f"{domain}::{op_type}")
        op = CustomOp(_numpy_form(function, dtypes, evaluated, 1), domain, op_type, since_version)
        op.written_as = function
        op.loops(function)
        return op

    return decorate


def row_op(
    domain: str, op_type: str, since_version: int = 1, *, dtypes: Sequence[type[np.generic]] = (np.float32,)
) -> Callable[[LoopFunction], CustomOp]:
    """Return a decorator that makes an operator of formulas over the rows of the last axis.

    A formula may use ``row_sum``, ``row_max``, ``row_min``, ``row_mean`` and ``row_length``. One that reads no element
    outside of them is one value a row: the last axis of that output has size 1. A function annotated
    ``-> tuple[Scalar, Scalar]`` returns the formulas of two outputs.

    Args:
        domain: the operator's domain.
        op_type: its name in models.
        since_version: the version of the domain from which it holds.
        dtypes: the element types that the formulas are right for, of inputs and outputs. The CPU provider compiles
            float32.

    Raises:
        InvalidArgument: there are no formulas for one of ``dtypes``.
    """

    def decorate(function: LoopFunction) -> CustomOp:
        returned = inspect.get_annotations(function, eval_str=True).get("return")
        count = len(typing.get_args(returned)) if typing.get_origin(returned) is tuple else 1
        evaluated = numpy_row_kernel(function, f"{domain}::{op_type}", count)
        op = CustomOp(_numpy_form(function, dtypes, evaluated, count), domain, op_type, since_version)
        op.written_as = function
        op.rows(function)
        return op

    return decorate


def _numpy_form(
    function: LoopFunction, dtypes: Sequence[type[np.generic]], evaluated: KernelFunction, num_outputs: int
) -> KernelFunction:
    """Return the formula as a numpy kernel whose annotations say arrays where those of the formula say Scalar."""
    _check_dtypes(function, dtypes)
    array: Any = NDArray[dtypes[0]]  # type: ignore[valid-type]  # Any: an annotation made at run time
    if len(dtypes) > 1:
        array = NDArray[TypeVar("T", *dtypes)]  # type: ignore[misc]  # as above

    @functools.wraps(function)
    def kernel(*inputs: Any, **attributes: Any) -> Any:  # Any: as the formula has it
        return evaluated(*inputs, **attributes)

    signature = inspect.signature(function)
    annotations = dict(inspect.get_annotations(function, eval_str=True))
    for parameter in signature.parameters.values():
        if parameter.kind is not parameter.KEYWORD_ONLY:
            takes_none = type(None) in typing.get_args(annotations.get(parameter.name))
            annotations[parameter.name] = array | None if takes_none or parameter.default is None else array
    annotations["return"] = array if num_outputs == 1 else tuple[(array,) * num_outputs]  # type: ignore[misc]  # as above
    kernel.__annotations__ = annotations
    kernel.__signature__ = signature  # type: ignore[attr-defined]  # what inspect.signature looks for
    del kernel.__wrapped__  # the annotations of the kernel are meant, not those of the formula
    return kernel


def _check_dtypes(function: LoopFunction, dtypes: Sequence[type[np.generic]]) -> None:
    formulas = sorted(dtype.text for dtype in SUPPORTED)
    for each in dtypes:
        if DataType.from_numpy(np.dtype(each)) not in SUPPORTED:
            raise InvalidArgument(
                f"{place_of(function)}: no formula computes {np.dtype(each)}; those for which there are formulas: "
                f"{', '.join(formulas)}. Write a numpy kernel with custom_op, and attach the formula by op.loops or "
                "op.rows: what it does not compute, the kernel does."
            )
