"""Loop kernels: what an operator computes of one element or one row, told once, for every compiler and for numpy.

    def softcap(x: Scalar, *, cap: float = 30.0) -> Scalar:
        return tanh(x / cap) * cap

The function is called with expressions, not numbers: it writes a formula in ``ort_core.plugin.loops``. The CPU
provider fuses the formula into its neighbors and compiles it, printers make CUDA C++ of it, and without a compiler it
is evaluated over numpy. Inputs broadcast. A row formula may reduce the last axis (``row_sum`` and its kin) and give
several outputs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from ort_core.custom_ops.shape_rule import ShapeFunction, TensorShape, broadcast_shapes
from ort_core.custom_ops.taken_attributes import taken_attributes
from ort_core.custom_ops.traceback_text import user_traceback
from ort_core.errors import Fail, InvalidArgument
from ort_core.interruptions import raise_interruption
from ort_core.ir.constants import Constant
from ort_core.ir.rejection import Rejection
from ort_core.ir.types import DataType
from ort_core.kernels.kernel import KernelFunction
from ort_core.loops.meanings import SUPPORTED, Attributes, ElementMeaning
from ort_core.loops.numpy_evaluation import evaluate, evaluate_rows
from ort_core.loops.polynomials import UnsupportedTypeError
from ort_core.loops.rows import RowMeaning, is_of_row, reads_rows
from ort_core.loops.scalar import Scalar, element, lift
from ort_core.ops.schema import OpSchema, ParameterOption

LoopFunction = Callable[..., Any]  # Any: takes a Scalar for each input and attributes, returns a Scalar or a number
ConvertAttributes = Callable[[Mapping[str, object]], dict[str, object]]
_T = TypeVar("_T")
Inputs = Sequence[Scalar | None]  # None: an optional input is absent


def check_schema(schema: OpSchema) -> None:
    """Refuse operators that no elementwise formula can describe.

    Raises:
        InvalidArgument: there are several outputs.
    """
    if len(schema.outputs) != 1 or schema.outputs[0].option is ParameterOption.VARIADIC:
        raise InvalidArgument(
            f"{schema.domain}::{schema.op_type} has a loop kernel and {len(schema.outputs)} outputs; a loop kernel "
            "computes one element of one output. Formulas of several outputs are attached by op.rows."
        )


def check_row_schema(schema: OpSchema) -> None:
    """Refuse operators that no row formula can describe.

    Raises:
        InvalidArgument: there is any number of outputs.
    """
    if any(each.option is ParameterOption.VARIADIC for each in schema.outputs):
        raise InvalidArgument(
            f"{schema.domain}::{schema.op_type} has row formulas and any number of outputs; each output has a formula"
        )


def element_meaning(function: LoopFunction, name: str, convert: ConvertAttributes) -> ElementMeaning:
    """Return the meaning of the operator called ``name`` from the user's function."""

    def meaning(inputs: Inputs, attributes: Attributes) -> Scalar | Rejection:
        result = _called(function, name, convert, inputs, attributes)
        if isinstance(result, Rejection):
            return result
        root = _expression(result, name, inputs)
        if reads_rows(root):
            raise Fail(
                f"the loop kernel of {name} uses row_sum or another value of the row, which is not of one element: "
                "decorate it with row_op (or op.rows) in place of elementwise_op (or op.loops)"
            )
        return root

    return meaning


def row_meaning(function: LoopFunction, name: str, convert: ConvertAttributes, num_outputs: int) -> RowMeaning:
    """Return the meaning of the operator called ``name`` from the user's function of rows."""

    def formula(inputs: Inputs, attributes: Attributes) -> tuple[Scalar, ...] | Rejection:
        result = _called(function, name, convert, inputs, attributes)
        if isinstance(result, Rejection):
            return result
        results = tuple(result) if isinstance(result, (tuple, list)) else (result,)
        if len(results) != num_outputs:
            raise Fail(f"the loop kernel of {name} returned {len(results)} formulas, it has {num_outputs} outputs")
        return tuple(_expression(each, name, inputs) for each in results)

    return RowMeaning(formula)


def row_shapes(meaning: RowMeaning) -> ShapeFunction:
    """Return the shape function of row formulas: inputs broadcast; a value of the row has a last axis of size 1."""

    def shape(*inputs: TensorShape | None, **attributes: object) -> object:
        dtypes = [None if each is None else each.dtype for each in inputs]
        roots = meaning.formula(_elements(dtypes), attributes)  # type: ignore[arg-type]  # ours takes absent inputs
        full = broadcast_shapes(*inputs)
        if not full:
            raise InvalidArgument("a row formula needs an input with at least one axis: its rows are the last one's")
        if isinstance(roots, Rejection):
            return None
        shapes = tuple((*full[:-1], 1) if is_of_row(root) else full for root in roots)
        return shapes if len(shapes) > 1 else shapes[0]

    return shape


def numpy_kernel(function: LoopFunction, name: str) -> KernelFunction:
    """Return a kernel that evaluates the formula over numpy arrays: slow, and right everywhere."""
    meaning = element_meaning(function, name, dict)

    def run(*arrays: np.ndarray | None, **attributes: object) -> np.ndarray:
        root = _not_refused(meaning(_elements_of(arrays), attributes), name)  # type: ignore[arg-type]  # as above
        return evaluate(root, [array for array in arrays if array is not None])

    return run


def numpy_row_kernel(function: LoopFunction, name: str, num_outputs: int) -> KernelFunction:
    """Return a kernel that evaluates row formulas over numpy arrays."""
    meaning = row_meaning(function, name, dict, num_outputs)

    def run(*arrays: np.ndarray | None, **attributes: object) -> np.ndarray | tuple[np.ndarray, ...]:
        roots = _not_refused(meaning.formula(_elements_of(arrays), attributes), name)  # type: ignore[arg-type]  # as above
        results = evaluate_rows(roots, [array for array in arrays if array is not None])
        return results if num_outputs > 1 else results[0]

    return run


def _called(
    function: LoopFunction, name: str, convert: ConvertAttributes, inputs: Inputs, attributes: Attributes
) -> Any:  # Any: what the user's function returns
    for scalar in inputs:
        if scalar is not None and scalar.dtype not in SUPPORTED:
            return Rejection(f"{scalar.dtype.text} is not generated")
    given = {k: v.array() if isinstance(v, Constant) else v for k, v in attributes.items() if k != "ctx"}
    absent = [None] * (_num_positional(function) - len(inputs))
    try:
        return function(*inputs, *absent, **taken_attributes(function, convert(given)))
    except UnsupportedTypeError as error:
        return Rejection(str(error))
    except Exception as error:  # the border to the user's function
        raise_interruption(error)
        raise Fail(f"the loop kernel of {name} failed: {user_traceback(error, function)}") from error


def _num_positional(function: LoopFunction) -> int:
    parameters = inspect.signature(function).parameters.values()
    return sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)


def _expression(result: object, name: str, inputs: Inputs) -> Scalar:
    if isinstance(result, Scalar):
        return result
    first = next((scalar for scalar in inputs if scalar is not None), None)
    if isinstance(result, (int, float, np.generic)) and first is not None:
        return lift(result.item() if isinstance(result, np.generic) else result, first.dtype)
    raise Fail(
        f"the loop kernel of {name} returned a {type(result).__name__}, expected an expression (Scalar). It is "
        "given expressions: functions of numpy and math do not take them, those of ort_core.plugin.loops do."
    )


def _elements_of(arrays: Sequence[np.ndarray | None]) -> list[Scalar | None]:
    return _elements([None if array is None else DataType.from_numpy(array.dtype) for array in arrays])


def _elements(dtypes: Sequence[DataType | None]) -> list[Scalar | None]:
    """Return how inputs of these types are read, numbered without those that are absent."""
    places = iter(range(len(dtypes)))
    return [None if dtype is None else element(next(places), dtype) for dtype in dtypes]


def _not_refused(found: _T | Rejection, name: str) -> _T:
    if isinstance(found, Rejection):
        raise InvalidArgument(f"the loop kernel of {name} refuses: {found.reason}")
    return found
