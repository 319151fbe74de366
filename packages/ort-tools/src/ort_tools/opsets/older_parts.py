"""Newer operators, and newer choices of old ones, in older operators: shapes, masks, casts, scales, broadcasting."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper

from ort_tools.opsets.node_view import NodeView

_RANGES: dict[int, tuple[int, int]] = {TensorProto.UINT8: (0, 255), TensorProto.INT8: (-128, 127)}


def lower_expand(view: NodeView) -> list[NodeProto]:
    """Expand of fixed sizes is Tile."""
    sizes = view.need_sizes(view.input(0), "Expand becomes Tile")
    wanted = view.need_integers(1, "shape")
    rank = max(len(sizes), len(wanted))
    before = [1] * (rank - len(sizes)) + sizes
    behind = [1] * (rank - len(wanted)) + wanted
    repeats = [1 if old != 1 else new for old, new in zip(before, behind, strict=True)]
    x = view.input(0)
    if rank > len(sizes):
        x = view.add("Reshape", [x, view.put_integers(before, "shape")])
    return [view.make("Tile", [x, view.put_integers(repeats, "repeats")], [view.node.output[0]])]


def lower_constant_of_shape(view: NodeView) -> list[NodeProto]:
    """ConstantOfShape of a fixed shape is a constant."""
    shape = view.need_integers(0, "input")
    found = view.find("value")
    value = np.zeros(1, np.float32) if found is None else numpy_helper.to_array(found.t)
    return _fixed(view, np.broadcast_to(value.reshape(()), shape))


def lower_eye_like(view: NodeView) -> list[NodeProto]:
    """EyeLike of a fixed shape is a constant."""
    rows, columns = view.need_sizes(view.input(0), "EyeLike becomes a constant")
    dtype = view.integer("dtype", 0) or view.element_type(view.input(0))
    return _fixed(view, np.eye(rows, columns, view.integer("k", 0), helper.tensor_dtype_to_np_dtype(dtype)))


def lower_range(view: NodeView) -> list[NodeProto]:
    """Range of constants is a constant."""
    start, limit, delta = (view.need_constant(i, name) for i, name in enumerate(("start", "limit", "delta")))
    count = max(0, int(np.ceil((limit.item() - start.item()) / delta.item())))
    return _fixed(view, (start.reshape(()) + np.arange(count) * delta.reshape(())).astype(start.dtype))


def raise_range(view: NodeView) -> list[NodeProto]:
    """Range was computed in the type of its inputs."""
    view.put("stash_type", view.element_type(view.input(0)))
    return [view.node]


def lower_range_stash(view: NodeView) -> list[NodeProto]:
    """The same, back: only half floats know the difference."""
    own = view.element_type(view.input(0))
    is_half = own in (TensorProto.FLOAT16, TensorProto.BFLOAT16)
    if not is_half or view.integer("stash_type", TensorProto.FLOAT) == own:
        view.drop("stash_type")
    return [view.node]


def _fixed(view: NodeView, array: np.ndarray) -> list[NodeProto]:
    value = numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape))
    return [view.make("Constant", [], [view.node.output[0]], value=value)]


def lower_trilu(view: NodeView) -> list[NodeProto]:
    """Trilu of fixed last sizes chooses by a constant mask."""
    sizes = view.sizes(view.input(0)) or []
    rows, columns = (sizes[-2], sizes[-1]) if len(sizes) > 1 else (None, None)
    if rows is None or columns is None:
        raise view.refuse("Trilu becomes a constant mask, and the last two sizes are not fixed")
    k = view.need_integers(1, "k")[0] if view.input(1) else 0
    every = np.ones((rows, columns), np.bool_)
    mask = np.triu(every, k) if view.integer("upper", 1) else np.tril(every, k)
    zero = view.put_scalar(0, view.input(0), "zero")
    return [view.make("Where", [view.put_constant(mask, "mask"), view.input(0), zero], [view.node.output[0]])]


def lower_cast_like(view: NodeView) -> list[NodeProto]:
    """CastLike is Cast to a type that is known."""
    to = view.element_type(view.input(1))
    kept = {each.name: helper.get_attribute_value(each) for each in view.node.attribute}
    return [view.make("Cast", [view.input(0)], [view.node.output[0]], to=to, **kept)]


def lower_shape_slice(view: NodeView) -> list[NodeProto]:
    """Shape of some axes is a Slice of Shape."""
    start, end = view.integer("start", 0), view.find("end")
    view.drop("start", "end")
    if not start and end is None:
        return [view.node]
    y = view.node.output[0]
    view.node.output[0] = view.fresh(f"{y}_whole")
    limits = [view.put_integers([each], "limit") for each in (start, 2**31 - 1 if end is None else end.i)]
    axes = view.put_integers([0], "axes")
    return [view.node, view.make("Slice", [view.node.output[0], *limits, axes], [y])]


def lower_reshape(view: NodeView) -> list[NodeProto]:
    """Reshape: zeros that mean zero have an older form where there are none."""
    if view.integer("allowzero", 0):
        shape = view.constant(1)
        sizes = (view.sizes(view.node.output[0]) or [0]) if shape is None else shape.tolist()
        if any(not size for size in sizes):
            raise view.refuse("attribute 'allowzero' (1) has no older form for a shape that may hold 0")
    view.drop("allowzero")
    return [view.node]


# ---- broadcasting before opset 8


def lower_sum(view: NodeView) -> list[NodeProto]:
    """Sum and Mean that broadcast are Adds, which broadcast since opset 7."""
    if _same_sizes(view):
        return [view.node]
    y, is_mean = view.node.output[0], view.node.op_type == "Mean"
    names = list(view.node.input)
    total = names[0]
    for place, name in enumerate(names[1:], 2):
        total = view.add("Add", [total, name], "" if is_mean or place < len(names) else y)
    if not is_mean:
        return []
    return [view.make("Div", [total, view.put_scalar(len(names), names[0], "count")], [y])]


def lower_extreme(view: NodeView) -> list[NodeProto]:
    """Max and Min that broadcast do it by a product with ones first."""
    if _same_sizes(view):
        return [view.node]
    wanted = view.need_sizes(view.node.output[0], "operands broadcast, which older ones do not")
    names = []
    for name in view.node.input:
        is_whole = view.sizes(name) == wanted
        ones = "" if is_whole else view.put_scalar(1, name, "ones", wanted)
        names.append(name if is_whole else view.add("Mul", [name, ones]))
    view.set_inputs(names)
    return [view.node]


def _same_sizes(view: NodeView) -> bool:
    sizes = [view.sizes(name) for name in view.node.input]
    return len(sizes) == 1 or (None not in sizes and all(s == sizes[0] and None not in (s or [None]) for s in sizes))


# ---- loops over sequences


def lower_scan(view: NodeView) -> list[NodeProto]:
    """Scan of opset 8 runs over a batch: here of one."""
    count = view.integer("num_scan_inputs", 0)
    directions = view.integers("scan_input_directions") or [0] * count
    for key in ("scan_input_axes", "scan_output_axes", "scan_output_directions"):
        if any(view.integers(key) or ()):
            raise view.refuse(f"attribute {key!r} has no older form")
    view.drop("scan_input_directions", "scan_input_axes", "scan_output_axes", "scan_output_directions")
    view.put("directions", directions)
    view.node.input[:] = ["", *(view.add("Unsqueeze", [name], axes=[0]) for name in view.node.input)]
    return [view.node, *_without_batch(view)]


def raise_scan(view: NodeView) -> list[NodeProto]:
    """The same, back, where the batch is known to be one."""
    if view.input(0):
        raise view.refuse("input 'sequence_lens' has no newer form")
    for name in view.node.input[1:]:
        sizes = view.sizes(name)
        if not sizes or sizes[0] != 1:
            raise view.refuse(f"newer ones have no batch, and that of {name!r} is not known to be 1")
    directions = view.integers("directions")
    view.drop("directions")
    if directions is not None:
        view.put("scan_input_directions", directions)
    view.set_inputs([view.add("Squeeze", [name], axes=[0]) for name in view.node.input[1:]])
    behind = []
    for place, result in enumerate(view.node.output):
        if result:
            view.node.output[place] = view.fresh(f"{result}_alone")
            behind.append(view.make("Unsqueeze", [view.node.output[place]], [result], axes=[0]))
    return [view.node, *behind]


def _without_batch(view: NodeView) -> list[NodeProto]:
    behind = []
    for place, result in enumerate(view.node.output):
        if result:
            view.node.output[place] = view.fresh(f"{result}_batch")
            behind.append(view.make("Squeeze", [view.node.output[place]], [result], axes=[0]))
    return behind


# ---- quantization


def lower_quantized_axis(view: NodeView) -> list[NodeProto]:
    """Scales of channels, which came with opset 13, are elementwise operators before."""
    sizes = view.sizes(view.input(1))
    if sizes is None:
        raise view.refuse("attribute 'axis' has no older form, and whether there is one scale is not known")
    axis = view.integer("axis", 1)
    view.drop("axis")
    if not sizes:
        return [view.node]
    if sizes == [1]:
        view.set_inputs([view.input(0), *(_scalar(view, place) for place in (1, 2) if view.input(place))])
        return [view.node]
    rank = view.need_rank(view.input(0), "attribute 'axis' becomes shapes of scales")
    place = view.need_place(axis, rank)
    column = view.put_integers([-1 if each == place else 1 for each in range(rank)], "column")
    build = _quantized if view.node.op_type == "QuantizeLinear" else _dequantized
    return build(view, lambda name: view.add("Reshape", [name, column]))


def _scalar(view: NodeView, place: int) -> str:
    return view.add("Reshape", [view.input(place), view.put_integers([], "scalar")])


def _dequantized(view: NodeView, shaped: Callable[[str], str]) -> list[NodeProto]:
    whole = view.add("Cast", [view.input(0)], to=TensorProto.FLOAT)
    if view.input(2):
        whole = view.add("Sub", [whole, shaped(view.add("Cast", [view.input(2)], to=TensorProto.FLOAT))])
    return [view.make("Mul", [whole, shaped(view.input(1))], [view.node.output[0]])]


def _quantized(view: NodeView, shaped: Callable[[str], str]) -> list[NodeProto]:
    to = view.element_type(view.input(2)) if view.input(2) else int(TensorProto.UINT8)
    low, high = _RANGES[to]
    whole = view.add("Round", [view.add("Div", [view.input(0), shaped(view.input(1))])])
    if view.input(2):
        whole = view.add("Add", [whole, shaped(view.add("Cast", [view.input(2)], to=TensorProto.FLOAT))])
    limits = [view.put_constant(np.asarray(each, np.float32), "limit") for each in (low, high)]
    return [view.make("Cast", [view.add("Clip", [whole, *limits])], [view.node.output[0]], to=to)]


def lower_quantized_type(view: NodeView) -> list[NodeProto]:
    """QuantizeLinear: a type that is named becomes a zero point of that type."""
    to = view.integer("output_dtype", 0)
    view.drop("output_dtype")
    if to and not view.input(2) and to != TensorProto.UINT8:
        sizes = view.need_sizes(view.input(1), "attribute 'output_dtype' becomes a zero point")
        zero = helper.make_tensor("", to, sizes, [0] * int(np.prod(sizes, dtype=np.int64)))
        view.set_inputs([view.input(0), view.input(1), view.put_constant(zero, "zero")])
    return [view.node]


def lower_dequantized_type(view: NodeView) -> list[NodeProto]:
    """DequantizeLinear: the type that is named is that of the scale anyway, or has no older form."""
    return _without_type_of_scale(view, "output_dtype")


def lower_precision(view: NodeView) -> list[NodeProto]:
    """QuantizeLinear: the precision that is named is that of the scale anyway, or has no older form."""
    return _without_type_of_scale(view, "precision")


def _without_type_of_scale(view: NodeView, attribute: str) -> list[NodeProto]:
    named = view.integer(attribute, 0)
    if named and named == view.element_type(view.input(1)):
        view.drop(attribute)
    return [view.node]


# ---- axes that count from the end, since opset 11

_AXIS = (
    "ArgMax", "ArgMin", "Compress", "Concat", "Flatten", "Gather", "Hardmax", "LogSoftmax", "Softmax", "Split",
)  # fmt: skip


def lower_axis(view: NodeView) -> list[NodeProto]:
    """One axis that counts from the end counts from the front."""
    found = view.find("axis")
    if found is not None and found.i < 0:
        view.put("axis", int(found.i) + view.need_rank(view.input(0), "attribute 'axis' counts from the end"))
    return [view.node]


def lower_axes_of(view: NodeView) -> list[NodeProto]:
    """Some axes that count from the end count from the front."""
    axes = view.integers("axes")
    if axes and min(axes) < 0:
        added = len(axes) if view.node.op_type == "Unsqueeze" else 0
        rank = view.need_rank(view.input(0), "attribute 'axes' counts from the end") + added
        view.put("axes", [view.need_place(axis, rank) for axis in axes])
    return [view.node]


_REDUCTIONS = (
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
    "ReduceSum", "ReduceSumSquare",
)  # fmt: skip
RAISE = {("Scan", 9): raise_scan, ("Range", 27): raise_range}
LOWER = {
    **{(name, 11): lower_axis for name in _AXIS},
    **{(name, 11): lower_axes_of for name in (*_REDUCTIONS, "Squeeze", "Unsqueeze")},
    ("Expand", 8): lower_expand,
    **{(name, 8): lower_sum for name in ("Sum", "Mean")},
    **{(name, 8): lower_extreme for name in ("Max", "Min")},
    ("ConstantOfShape", 9): lower_constant_of_shape,
    ("EyeLike", 9): lower_eye_like,
    ("Scan", 9): lower_scan,
    ("Range", 11): lower_range,
    ("Range", 27): lower_range_stash,
    ("Trilu", 14): lower_trilu,
    ("Reshape", 14): lower_reshape,
    ("CastLike", 15): lower_cast_like,
    ("Shape", 15): lower_shape_slice,
    **{(name, 13): lower_quantized_axis for name in ("QuantizeLinear", "DequantizeLinear")},
    ("QuantizeLinear", 21): lower_quantized_type,
    ("QuantizeLinear", 23): lower_precision,
    ("DequantizeLinear", 23): lower_dequantized_type,
}
