"""Shape functions: a user's function from shapes to shapes, used for inference and to check what a kernel returns.

    def concatenated(x: TensorShape, y: TensorShape, *, axis: int = 0) -> Sequence[Dim]:
        return (*x[:axis], x[axis] + y[axis], *x[axis + 1 :])

It takes the operator's inputs, each as a ``TensorShape`` (``None`` where absent), and those attributes that it names.
It returns the shape of the output, or a tuple with one shape for each output; ``None`` for one that is only known after
a run. Sizes are numbers or symbols with arithmetic: one function serves a model's named sizes and a run's numbers.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ort_core.custom_ops.taken_attributes import taken_attributes
from ort_core.custom_ops.traceback_text import user_traceback
from ort_core.errors import InvalidArgument
from ort_core.interruptions import raise_interruption
from ort_core.ir.constants import Constant
from ort_core.ir.dims import Dim, KnownDim, SymbolicDim, broadcast
from ort_core.ir.types import DataType, TensorType
from ort_core.ops.infer_rule import RuleFunction
from ort_core.ops.inference_context import InferenceContext
from ort_core.ops.schema import OpSchema, ParameterOption
from ort_core.ops.symbolic_values import MAX_ELEMENTS, Element

ShapeFunction = Callable[..., Any]  # Any: takes the operator's inputs and attributes, returns a shape or several
ConvertAttributes = Callable[[Mapping[str, object]], dict[str, object]]
_UNKNOWN = "custom_op_unknown"  # prefix of symbols for sizes of which nothing is known; never leaves this file


class TensorShape(tuple[KnownDim, ...]):
    """The sizes of an input: a tuple, with the element type and what is known of the elements.

    ``values`` has the elements of a small integer tensor in row-major order, ``None`` where they are not known.
    """

    dtype: DataType
    values: tuple[Element, ...] | None

    def __new__(
        cls, dims: Iterable[KnownDim], dtype: DataType = DataType.UNDEFINED, values: tuple[Element, ...] | None = None
    ) -> TensorShape:
        """Make the shape of an input."""
        self = super().__new__(cls, tuple(dims))
        self.dtype, self.values = dtype, values
        return self


def broadcast_shapes(*shapes: Sequence[KnownDim] | None) -> tuple[KnownDim, ...]:
    """Return the shape that shapes broadcast to, as numpy's rule has it; ``None`` (an absent input) counts as a scalar.

    Raises:
        ValueError: two numbers differ and neither is 1.
    """
    present = [shape for shape in shapes if shape is not None]
    rank = max((len(shape) for shape in present), default=0)
    result: list[KnownDim] = [1] * rank
    for shape in present:
        for axis, dim in enumerate(shape, rank - len(shape)):
            result[axis] = _broadcast_dim(result[axis], dim)
    return tuple(result)


def _broadcast_dim(left: KnownDim, right: KnownDim) -> KnownDim:
    if left == right or right == 1:
        return left
    if left == 1:
        return right
    if isinstance(left, int) and isinstance(right, int):
        raise ValueError(f"sizes {left} and {right} cannot be broadcast")
    if isinstance(left, int) or isinstance(right, int):
        return left if isinstance(left, int) else right
    return broadcast(left, right)


def shape_rule(
    function: ShapeFunction, schema: OpSchema, convert: ConvertAttributes, qualified_name: str
) -> RuleFunction:
    """Return the inference rule of a shape function.

    Args:
        function: the user's.
        schema: the operator's.
        convert: turns attributes into what the user's functions take.
        qualified_name: the operator's, for messages.
    """

    def infer(ctx: InferenceContext) -> None:
        shapes = []
        for index in range(ctx.input_count):
            shape, dtype = ctx.shape(index), ctx.dtype(index)
            if ctx.has_input(index) and (shape is None or dtype is None):
                return  # of unknown rank, or no tensor: nothing can be said of the outputs
            shapes.append(None if shape is None or dtype is None else _input_shape(ctx, index, shape, dtype))
        given = {name: _runtime(ctx.attribute(name)) for name in schema.attributes}
        attributes = convert({name: value for name, value in given.items() if value is not None})
        try:
            found = output_shapes(function, schema, padded(shapes, schema), attributes, ctx.output_count)
        except Exception as error:  # noqa: BLE001 - the border to the user's function
            raise_interruption(error)
            ctx.refuse(f"the shape function of {qualified_name} failed: {user_traceback(error, function)}")
        for index, each in enumerate(found):
            _tell(ctx, index, each)

    return infer


def output_shapes(
    function: ShapeFunction,
    schema: OpSchema,
    inputs: Sequence[TensorShape | None],
    attributes: Mapping[str, object],
    count: int,
) -> list[tuple[Dim, ...] | TensorType | None]:
    """Call a shape function and return one shape (or type) for each of ``count`` outputs.

    Raises:
        InvalidArgument: what it returns has another form.
    """
    result = function(*inputs, **taken_attributes(function, attributes))
    many = len(schema.outputs) != 1 or schema.outputs[0].option is ParameterOption.VARIADIC
    results = tuple(result) if many and result is not None else (result,) * (count if many else 1)
    if len(results) < count:
        raise InvalidArgument(f"it returned {len(results)} shapes, the node has {count} outputs: {result!r}")
    return [_checked(each) for each in results[:count]]


def concrete_shapes(inputs: Sequence[Any]) -> list[TensorShape | None]:  # Any: run-time values
    """Return the shapes of arrays, with the elements of small integer ones of numpy."""
    return [None if value is None else _concrete(value) for value in inputs]


def padded(shapes: Sequence[TensorShape | None], schema: OpSchema) -> list[TensorShape | None]:
    """Return shapes with ``None`` for omitted trailing inputs, as shape functions and kernels are given them."""
    fixed = sum(parameter.option is not ParameterOption.VARIADIC for parameter in schema.inputs)
    return [*shapes, *[None] * (fixed - len(shapes))]


def _concrete(value: Any) -> TensorShape:  # Any: a run-time value
    if hasattr(type(value), "__cuda_array_interface__"):  # to look at its elements would wait for the device
        return TensorShape(value.shape, DataType.from_numpy(value.dtype))
    array = np.asarray(value)
    small = array.dtype.kind in "iu" and array.size <= MAX_ELEMENTS
    values = tuple(int(item) for item in array.reshape(-1)) if small else None
    return TensorShape(array.shape, DataType.from_numpy(array.dtype), values)


def _input_shape(ctx: InferenceContext, index: int, shape: Sequence[Dim], dtype: DataType) -> TensorShape:
    dims = [SymbolicDim.named(f"{_UNKNOWN}_{index}_{i}") if dim is None else dim for i, dim in enumerate(shape)]
    value = ctx.value(index)
    return TensorShape(dims, dtype, None if value is None else tuple(value.reshape(-1)))


def _checked(found: object) -> tuple[Dim, ...] | TensorType | None:
    if found is None:
        return None
    if isinstance(found, TensorType):
        return TensorType(found.dtype, None if found.shape is None else _dims(found.shape))
    if isinstance(found, (str, bytes)) or not isinstance(found, Iterable):
        raise InvalidArgument(f"a shape is a tuple of sizes or None, found {found!r}")
    return _dims(found)


def _dims(found: Iterable[object]) -> tuple[Dim, ...]:
    return tuple(_dim(dim) for dim in found)


def _dim(dim: object) -> Dim:
    if isinstance(dim, SymbolicDim):
        return None if any(name.startswith(_UNKNOWN) for name in dim.symbols()) else dim
    if dim is None:
        return None
    try:
        size = operator.index(dim)  # type: ignore[arg-type]  # raises TypeError for what is not an integer
    except TypeError:
        raise InvalidArgument(f"a size is an integer, a symbolic size or None, found {dim!r}") from None
    if size < 0:
        raise InvalidArgument(f"a size is at least 0, found {size}")
    return size


def _tell(ctx: InferenceContext, index: int, found: tuple[Dim, ...] | TensorType | None) -> None:
    if isinstance(found, TensorType):
        ctx.set_output(index, found.dtype, found.shape)
    elif found is not None:
        ctx.set_shape(index, found)


def _runtime(value: object) -> object:
    return value.array() if isinstance(value, Constant) else value
