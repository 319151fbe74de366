"""Loop kernels: what an operator computes of one element, told once, for every compiler and for numpy.

    def softcap(x: Scalar, *, cap: float = 30.0) -> Scalar:
        return tanh(x / cap) * cap

The function is called with expressions, not numbers: it writes a formula in ``ort_core.plugin.loops``. The CPU
provider fuses the formula into its neighbours and compiles it, printers make CUDA C++ of it, and without a compiler it
is evaluated over numpy. Inputs broadcast.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ort_core.custom_ops.taken_attributes import taken_attributes
from ort_core.custom_ops.traceback_text import user_traceback
from ort_core.errors import Fail, InvalidArgument
from ort_core.ir.constants import Constant
from ort_core.ir.rejection import Rejection
from ort_core.ir.types import DataType
from ort_core.kernels.kernel import KernelFunction
from ort_core.loops.meanings import SUPPORTED, Attributes, ElementMeaning
from ort_core.loops.numpy_evaluation import evaluate
from ort_core.loops.scalar import Scalar, element, lift
from ort_core.ops.schema import OpSchema, ParameterOption

LoopFunction = Callable[..., Any]  # Any: takes a Scalar for each input and attributes, returns a Scalar or a number
ConvertAttributes = Callable[[Mapping[str, object]], dict[str, object]]


def check_schema(schema: OpSchema) -> None:
    """Refuse operators that no elementwise formula can describe.

    Raises:
        InvalidArgument: there are several outputs.
    """
    if len(schema.outputs) != 1 or schema.outputs[0].option is ParameterOption.VARIADIC:
        raise InvalidArgument(
            f"{schema.domain}::{schema.op_type} has a loop kernel and {len(schema.outputs)} outputs; a loop kernel "
            "computes one element of one output"
        )


def element_meaning(function: LoopFunction, name: str, convert: ConvertAttributes) -> ElementMeaning:
    """Return the meaning of the operator called ``name`` from the user's function."""

    def meaning(inputs: Sequence[Scalar], attributes: Attributes) -> Scalar | Rejection:
        for scalar in inputs:
            if scalar.dtype not in SUPPORTED:
                return Rejection(f"{scalar.dtype.text} is not generated")
        given = {k: v.array() if isinstance(v, Constant) else v for k, v in attributes.items() if k != "ctx"}
        try:
            result = function(*inputs, **taken_attributes(function, convert(given)))
        except Exception as error:  # the border to the user's function
            raise Fail(f"the loop kernel of {name} failed: {user_traceback(error, function)}") from error
        if isinstance(result, (Scalar, Rejection)):
            return result
        if isinstance(result, (int, float, np.generic)) and inputs:
            return lift(result.item() if isinstance(result, np.generic) else result, inputs[0].dtype)
        raise Fail(
            f"the loop kernel of {name} returned a {type(result).__name__}, expected an expression (Scalar). It is "
            "given expressions: functions of numpy and math do not take them, those of ort_core.plugin.loops do."
        )

    return meaning


def numpy_kernel(function: LoopFunction, name: str) -> KernelFunction:
    """Return a kernel that evaluates the formula over numpy arrays: slow, and right everywhere."""
    meaning = element_meaning(function, name, dict)

    def run(*arrays: np.ndarray, **attributes: object) -> np.ndarray:
        present = [array for array in arrays if array is not None]
        scalars = [element(index, DataType.from_numpy(array.dtype)) for index, array in enumerate(present)]
        root = meaning(scalars, attributes)
        if isinstance(root, Rejection):
            raise InvalidArgument(f"the loop kernel of {name} refuses: {root.reason}")
        return evaluate(root, present)

    return run
