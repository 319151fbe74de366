"""``@elementwise_op``: an operator from its formula alone; numpy and the compilers all take their kernels from it.

@elementwise_op("com.acme", "Softcap")
def softcap(x: Scalar, *, cap: float = 30.0) -> Scalar:
return tanh(x / cap) * cap
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ort_core.custom_ops.custom_op import CustomOp
from ort_core.custom_ops.loop_kernel import LoopFunction, numpy_kernel
from ort_core.kernels.kernel import KernelFunction


def elementwise_op(
    domain: str, op_type: str, since_version: int = 1, *, dtypes: Sequence[type[np.generic]] = (np.float32,)
) -> Callable[[LoopFunction], CustomOp]:
    """Return a decorator that makes an operator of a formula.

    Args:
        domain: the operator's domain.
        op_type: its name in models.
        since_version: the version of the domain from which it holds.
        dtypes: the element types that the formula is right for; inputs and output have the same one. Compilers take
            float32, int32, int64 and bool.
    """

    def decorate(function: LoopFunction) -> CustomOp:
        op = CustomOp(_numpy_form(function, dtypes, f"{domain}::{op_type}"), domain, op_type, since_version)
        op.loops(function)
        return op

    return decorate


def _numpy_form(function: LoopFunction, dtypes: Sequence[type[np.generic]], name: str) -> KernelFunction:
    """Return the formula as a numpy kernel whose annotations say arrays where those of the formula say Scalar."""
    array: Any = NDArray[dtypes[0]]  # type: ignore[valid-type]  # Any: an annotation made at run time
    if len(dtypes) > 1:
        array = NDArray[TypeVar("T", *dtypes)]  # type: ignore[misc]  # as above
    evaluated = numpy_kernel(function, name)

    @functools.wraps(function)
    def kernel(*inputs: Any, **attributes: Any) -> Any:  # Any: as the formula has it
        return evaluated(*inputs, **attributes)

    signature = inspect.signature(function)
    annotations = dict(inspect.get_annotations(function, eval_str=True))
    for parameter in signature.parameters.values():
        if parameter.kind is not parameter.KEYWORD_ONLY:
            is_optional = parameter.default is None
            annotations[parameter.name] = array | None if is_optional else array
    annotations["return"] = array
    kernel.__annotations__ = annotations
    kernel.__signature__ = signature  # type: ignore[attr-defined]  # what inspect.signature looks for
    del kernel.__wrapped__  # the annotations of the kernel are meant, not those of the formula
    return kernel
