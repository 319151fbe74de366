"""Feature preparation of ai.onnx.ml over numbers: expressions per column, picked and joined columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ort_core.cpu.codegen.indexing.gather import gather_kernel
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.pending import FusionState, PendingElementwise
from ort_core.cpu.lowering.steps import KernelText, NotLowered, Pointer, pointer
from ort_core.cpu.lowering.value_types import tensor_type
from ort_core.cpu.lowering.views import View, count_of
from ort_core.plugin.ir import DataType, KnownDim, Node, maximum
from ort_core.plugin.loops import Scalar, binary, cast, element, lift, select, unary

F32, I64 = DataType.FLOAT, DataType.INT64
MAX_KEYS = 32  # of a LabelEncoder that becomes a chain of comparisons; a search through a table pays beyond that
MAX_SPAN = 1 << 16  # of integer keys that are places in a table
_INT64_SPAN = 2.0**63


def scaler(lowering: Lowering, node: Node) -> None:
    """Scaler: ``(X - offset) * scale`` by column."""
    state, x, shape = _operand(lowering, node)
    x = cast(x, F32)
    offset, scale = (_per_column(lowering, state, node.floats_attribute(n), shape, n) for n in ("offset", "scale"))
    x = x if offset is None else x - offset
    _set(lowering, node, x if scale is None else x * scale, state)


def binarizer(lowering: Lowering, node: Node) -> None:
    """Binarizer: 1 above the threshold, else 0."""
    state, x, _ = _operand(lowering, node)
    if x.dtype is not F32:
        raise NotLowered("only float32 is compared with the threshold natively")
    is_above = binary("gt", x, node.float_attribute("threshold", 0.0))
    _set(lowering, node, select(is_above, 1.0, 0.0), state)


def imputer(lowering: Lowering, node: Node) -> None:
    """Imputer: what equals the replaced value (NaN equals NaN) becomes its column's value."""
    state, x, shape = _operand(lowering, node)
    replaced: float | int
    if x.dtype is F32:
        values, replaced = (
            node.floats_attribute("imputed_value_floats"),
            node.float_attribute("replaced_value_float", 0.0),
        )
    elif x.dtype is I64:
        values = node.ints_attribute("imputed_value_int64s") or ()
        replaced = node.int_attribute("replaced_value_int64", 0)
    else:
        raise NotLowered(f"imputing {x.dtype.text} is not generated")
    if not values:
        raise NotLowered("there is no value to impute")
    if len(values) != shape[-1]:
        values = values[:1]
    imputed = _per_column(lowering, state, values, shape, "imputed values", x.dtype)
    assert imputed is not None
    is_missing = unary("is_nan", x) if replaced != replaced else binary("eq", x, replaced)
    _set(lowering, node, select(is_missing, imputed, x), state)


def one_hot_encoder(lowering: Lowering, node: Node) -> None:
    """OneHotEncoder of numbers: 1 in the column of the category that X is."""
    categories = node.ints_attribute("cats_int64s") or ()
    if not categories or len(set(categories)) != len(categories):
        raise NotLowered("there are no categories, or one stands twice")
    view = lowering.contiguous(node.input(0))
    _, shape = tensor_type(node.output)
    if not node.int_attribute("zeros", 1):
        _known_category(lowering, node, view, categories)
        return
    state = FusionState()
    x = state.add(view.reshaped((*view.shape, 1)))
    table = state.add(lowering.constant_view(np.array(categories, np.int64), I64))
    _set(lowering, node, select(binary("eq", _whole(x), table), 1.0, 0.0), state, shape)


def _known_category(lowering: Lowering, node: Node, view: View, categories: Sequence[int]) -> None:
    """Set the output to rows of an identity matrix; an unknown category is an index out of its bounds."""
    known = len(categories)
    if known > MAX_KEYS:
        raise NotLowered(f"an unknown one of {known} categories is an error")
    index = lift(known, I64)
    for number, category in reversed(list(enumerate(categories))):
        index = select(binary("eq", _whole(element(0, view.dtype)), category), lift(number, I64), index)
    places = lowering.computed(index, [view])
    _picked_rows(lowering, node, places, np.eye(known, dtype=np.float32), (*view.shape, known))


def _picked_rows(lowering: Lowering, node: Node, places: View, table: np.ndarray, shape: tuple[KnownDim, ...]) -> None:
    """Set the output to rows of a table; a place out of its bounds is an error of the data."""
    target = lowering.result_view(node.output, shape)
    rows = lowering.constant_view(table, DataType.from_numpy(table.dtype))
    name, function = gather_kernel(64)
    nbytes = table[:1].nbytes
    arguments = (
        pointer(target), pointer(rows), pointer(places), Pointer(lowering.error_buffer()), 1, count_of(places.shape),
        len(table), nbytes,
    )  # fmt: skip
    reads = (rows.buffer, places.buffer)
    lowering.emit(KernelText(name, function), arguments, reads, (target.buffer,), count_of(shape), (node,))
    lowering.set(node.output, target)


def _whole(x: Scalar) -> Scalar:
    """Return a number as int64; what no int64 holds becomes the least, as numpy converts it."""
    if x.dtype is not F32:
        return cast(x, I64)
    is_inside = binary("lt", unary("abs", x), _INT64_SPAN)
    return select(is_inside, cast(x, I64), lift(-(2**63), I64))


def label_encoder(lowering: Lowering, node: Node) -> None:
    """LabelEncoder from numbers to numbers: the value of the first key that X equals, of few keys or integers."""
    state, x, _ = _operand(lowering, node)
    keys, values = (_numbers(node, name) for name in ("keys", "values"))
    dtype, _ = tensor_type(node.output)
    if x.dtype not in (F32, I64) or dtype not in (F32, I64):
        raise NotLowered("only float32 and int64 are encoded natively")
    if len(keys) != len(values) or not keys:
        raise NotLowered(f"it has {len(keys)} keys for {len(values)} values")
    if len(keys) > MAX_KEYS:
        _encode_by_table(lowering, node, keys, values, dtype)
        return
    found = lift(_default(node, dtype), dtype)
    for key, value in zip(reversed(keys), reversed(values), strict=True):
        equals = unary("is_nan", x) if key != key else binary("eq", x, key)
        found = select(equals, lift(value, dtype), found)
    _set(lowering, node, found, state)


def _encode_by_table(
    lowering: Lowering, node: Node, keys: Sequence[float], values: Sequence[float], dtype: DataType
) -> None:
    """Set the output to what stands in a table from the least to the largest key, and one more place for all others."""
    view = lowering.contiguous(node.input(0))
    least, span = min(keys), max(keys) - min(keys) + 1
    if view.dtype is not I64 or span > MAX_SPAN or not view.shape:
        raise NotLowered(f"its {len(keys)} keys are no integers that lie close together")
    table = np.full(int(span) + 1, _default(node, dtype), dtype.numpy)
    for key, value in zip(reversed(keys), reversed(values), strict=True):
        table[int(key - least)] = value
    x = element(0, I64)
    is_out = binary("or", binary("lt", x, least), binary("gt", x, max(keys)))
    places = lowering.computed(select(is_out, lift(int(span), I64), x - least), [view])
    _picked_rows(lowering, node, places, table, view.shape)


def _numbers(node: Node, name: str) -> list[float] | list[int]:
    tensor = node.attribute(f"{name}_tensor")
    if tensor is not None or node.attribute(f"{name}_strings") is not None:
        raise NotLowered("only lists of numbers are encoded natively")
    floats, integers = node.attribute(f"{name}_floats"), node.ints_attribute(f"{name}_int64s")
    found = integers if integers is not None else floats
    if not isinstance(found, tuple):
        raise NotLowered(f"it has no {name}")
    return [np.float32(v).item() for v in found] if integers is None else list(found)


def _default(node: Node, dtype: DataType) -> float | int:
    if node.attribute("default_tensor") is not None:
        raise NotLowered("the default is a tensor")
    return node.float_attribute("default_float", -0.0) if dtype is F32 else node.int_attribute("default_int64", -1)


def array_feature_extractor(lowering: Lowering, node: Node) -> None:
    """ArrayFeatureExtractor: a gather along the last axis, whose positions do not count from the end."""
    table = lowering.contiguous(node.input(0))
    if not table.shape:
        raise NotLowered("a number has no columns")
    length, outer = table.shape[-1], count_of(table.shape[:-1])
    indices = _positions(lowering, node, length)
    (count,) = indices.shape
    target = lowering.result_view(node.output, (*(table.shape[:-1] or (1,)), count))
    name, function = gather_kernel(64)
    arguments = (
        pointer(target), pointer(table), pointer(indices), Pointer(lowering.error_buffer()), outer, count, length,
        table.buffer.itemsize,
    )  # fmt: skip
    reads = (table.buffer, indices.buffer)
    lowering.emit(KernelText(name, function), arguments, reads, (target.buffer,), outer * count, (node,))
    lowering.set(node.output, target)


def _positions(lowering: Lowering, node: Node, length: KnownDim) -> View:
    """Return positions as a vector of int64 in which none that is out of range is negative."""
    constant = lowering.constant_of(node.input(1))
    if constant is not None:
        index = np.ascontiguousarray(constant.reshape(-1).astype(np.int64))
        if not index.size or index.min() < 0 or not isinstance(length, int) or index.max() >= length:
            raise NotLowered("whether the positions lie in range is only known at run time")
        return lowering.constant_view(index, I64)
    given = lowering.contiguous(node.input(1))
    count = count_of(given.shape)
    lowering.require_equal(maximum(count, 1), count)
    if given.dtype is not I64 or not isinstance(length, int):
        raise NotLowered("the positions are not int64, or how many columns there are is only known at run time")
    position = element(0, I64)  # a gather would take a negative one for one counted from the end
    return lowering.computed(select(binary("lt", position, 0), length, position), [given.reshaped((count,))])


def feature_vectorizer(lowering: Lowering, node: Node) -> None:
    """FeatureVectorizer: inputs as float32 side by side, none of them cut or filled up."""
    _, shape = tensor_type(node.output)
    widths = node.ints_attribute("inputdimensions")
    target = lowering.result_view(node.output)
    start = 0
    for number, value in enumerate(node.present_inputs()):
        view = lowering.contiguous(value)
        if len(view.shape) != 2 or not isinstance(view.shape[1], int):
            raise NotLowered("an input is not a matrix of known width")
        width = view.shape[1]
        if widths is not None and (number >= len(widths) or widths[number] != width):
            raise NotLowered("an input is cut or filled up")
        lowering.require_equal(view.shape[0], shape[0])
        place = View(target.buffer, (shape[0], width), target.strides, target.offset + start)
        lowering.stores.store(cast(element(0, view.dtype), F32), (view,), place, (node,))
        start += width
    lowering.require_equal(start, shape[1])
    lowering.set(node.output, target)


# shared ---------------------------------------------------------------------------------------------------------------


def _operand(lowering: Lowering, node: Node) -> tuple[FusionState, Scalar, tuple[KnownDim, ...]]:
    value = node.input(0)
    if value is None:
        raise NotLowered("the input is missing")
    _, shape = tensor_type(value)
    state = FusionState()
    return state, lowering.operands.operand(value, state, shape), shape


def _per_column(
    lowering: Lowering,
    state: FusionState,
    values: Sequence[float],
    shape: tuple[KnownDim, ...],
    name: str,
    dtype: DataType = F32,
) -> Scalar | None:
    """Return values as an operand: one for all columns, one per column, or ``None`` where there are none."""
    if not values:
        return None
    if len(values) == 1:
        return lift(np.dtype(dtype.numpy).type(values[0]).item(), dtype)
    if not shape:
        raise NotLowered(f"{name} of a scalar is not generated")
    lowering.require_equal(shape[-1], len(values))
    return state.add(lowering.constant_view(np.array(values, dtype.numpy), dtype))


def _set(
    lowering: Lowering, node: Node, expression: Scalar, state: FusionState, shape: tuple[KnownDim, ...] | None = None
) -> None:
    dtype, declared = tensor_type(node.output)
    if expression.dtype is not dtype:
        raise NotLowered(f"the expression gives {expression.dtype.text}, the model declares {dtype.text}")
    pending = PendingElementwise(expression, tuple(state.inputs), declared if shape is None else shape, (node,))
    lowering.set(node.output, pending)
