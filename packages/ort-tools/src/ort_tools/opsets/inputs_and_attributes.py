"""Attributes that became inputs: axes, splits, limits, pads, ratios. Down again they must be constants.

Squeeze<axes = [1]>(x)   <->   Squeeze(x, axes)           opset 13
"""

from __future__ import annotations

import numpy as np
from onnx import NodeProto, TensorProto

from ort_tools.opsets.node_view import NodeView

_DROPOUT_RATIO = 0.5


def raise_axes(view: NodeView) -> list[NodeProto]:
    """Squeeze, Unsqueeze, Reduce…: ``axes`` becomes the second input."""
    return _integers_as_input(view, "axes")


def _integers_as_input(view: NodeView, name: str) -> list[NodeProto]:
    integers = view.integers(name)
    view.drop(name)
    if integers is not None:
        view.set_inputs([view.input(0), view.put_integers(integers, name)])
    return [view.node]


def lower_axes(view: NodeView) -> list[NodeProto]:
    """The same, back; with ``noop_with_empty_axes`` a reduction without axes does nothing to shapes."""
    axes = view.need_integers(1, "axes") if view.input(1) else None
    is_noop = bool(view.integer("noop_with_empty_axes", 0))
    view.drop("noop_with_empty_axes")
    view.set_inputs([view.input(0)])
    if not axes and is_noop:
        return _reduced_over_nothing(view)
    if axes or view.node.op_type == "Unsqueeze":
        view.put("axes", axes or [])
    return [view.node]


def _reduced_over_nothing(view: NodeView) -> list[NodeProto]:
    """Return what a reduction makes of single elements."""
    x, y = view.input(0), view.node.output[0]
    alone = {
        "ReduceL1": "Abs", "ReduceL2": "Abs", "ReduceLogSum": "Log", "ReduceSumSquare": "Mul",
    }.get(view.node.op_type, "Identity")  # fmt: skip
    return [view.make(alone, [x, x] if alone == "Mul" else [x], [y])]


def raise_split(view: NodeView) -> list[NodeProto]:
    """Split: ``split`` becomes the second input."""
    return _integers_as_input(view, "split")


def lower_split(view: NodeView) -> list[NodeProto]:
    """The same, back."""
    if view.input(1):
        view.put("split", view.need_integers(1, "split"))
    view.set_inputs([view.input(0)])
    return [view.node]


def raise_split_count(view: NodeView) -> list[NodeProto]:
    """Split of equal parts must say how many."""
    if not view.input(1):
        view.put("num_outputs", len(view.node.output))
    return [view.node]


def lower_split_count(view: NodeView) -> list[NodeProto]:
    """``num_outputs`` lets the last part be smaller: where that is so, or cannot be known, sizes are written out."""
    count = view.integer("num_outputs", 0)
    view.drop("num_outputs")
    if count:
        sizes = view.sizes(view.input(0))
        size = None if sizes is None else sizes[view.need_place(view.integer("axis", 0), len(sizes))]
        if size is None:
            raise view.refuse("attribute 'num_outputs' lets the last part be smaller, and the size is not fixed")
        part = -(-size // count)
        if size % count:
            split = [max(0, min(part, size - part * place)) for place in range(count)]
            view.set_inputs([view.input(0), view.put_integers(split, "split")])
    return [view.node]


def raise_slice(view: NodeView) -> list[NodeProto]:
    """Slice: ``starts``, ``ends`` and ``axes`` become inputs."""
    names = []
    for key in ("starts", "ends", "axes"):
        values = view.integers(key)
        names.append("" if values is None else view.put_integers(values, key))
    view.drop("starts", "ends", "axes")
    view.set_inputs([view.input(0), *names])
    return [view.node]


def lower_slice(view: NodeView) -> list[NodeProto]:
    """The same, back; older ones have no steps."""
    starts, ends = view.need_integers(1, "starts"), view.need_integers(2, "ends")
    axes = view.need_integers(3, "axes") if view.input(3) else list(range(len(starts)))
    steps = view.need_integers(4, "steps") if view.input(4) else []
    if any(step != 1 for step in steps):
        raise view.refuse(f"input 'steps' ({steps}) has no other form")
    if any(axis < 0 for axis in axes):
        rank = view.need_rank(view.input(0), "axes count from the end")
        axes = [view.need_place(axis, rank) for axis in axes]
    view.set_inputs([view.input(0)])
    for key, values in (("starts", starts), ("ends", ends), ("axes", axes)):
        view.put(key, values)
    return [view.node]


def raise_k(view: NodeView) -> list[NodeProto]:
    """TopK: ``k`` becomes the second input."""
    k = view.integer("k", 0)
    view.drop("k")
    view.set_inputs([view.input(0), view.put_integers([k], "k")])
    return [view.node]


def lower_k(view: NodeView) -> list[NodeProto]:
    """The same, back."""
    (k,) = view.need_integers(1, "K")
    view.set_inputs([view.input(0)])
    view.put("k", k)
    return [view.node]


def lower_largest(view: NodeView) -> list[NodeProto]:
    """TopK of the smallest is TopK of what is turned about; results were always sorted."""
    is_largest = view.integer("largest", 1)
    view.drop("largest", "sorted")
    if is_largest:
        return [view.node]
    values = view.node.output[0]
    turned = view.add("Neg", [view.input(0)])
    view.set_inputs([turned, *view.node.input[1:]])
    if not values:
        return [view.node]
    view.node.output[0] = view.fresh(f"{values}_turned")
    return [view.node, view.make("Neg", [view.node.output[0]], [values])]


def raise_clip(view: NodeView) -> list[NodeProto]:
    """Clip: ``min`` and ``max`` become inputs."""
    limits = []
    for key in ("min", "max"):
        found = view.find(key)
        limits.append("" if found is None else view.put_scalar(found.f, view.input(0), key))
    view.drop("min", "max")
    view.set_inputs([view.input(0), *limits])
    return [view.node]


def lower_clip(view: NodeView) -> list[NodeProto]:
    """The same, back; limits that are no constants are taken by Max and Min."""
    limits = [view.constant(1), view.constant(2)]
    if any(name and limit is None for name, limit in zip((view.input(1), view.input(2)), limits, strict=True)):
        lower, upper, y = view.input(1), view.input(2), view.node.output[0]
        raised = view.input(0)
        if lower:
            raised = view.add("Max", [raised, lower], "" if upper else y)
        return [view.make("Min", [raised, upper], [y])] if upper else []
    view.set_inputs([view.input(0)])
    for key, limit in zip(("min", "max"), limits, strict=True):
        if limit is not None:
            view.put(key, float(limit.reshape(())))
    return [view.node]


def raise_pads(view: NodeView) -> list[NodeProto]:
    """Pad: ``pads`` and ``value`` become inputs."""
    pads, value = view.integers("pads") or [], view.number("value", 0.0)
    view.drop("pads", "value")
    filled = view.put_scalar(value, view.input(0), "value") if value else ""
    view.set_inputs([view.input(0), view.put_integers(pads, "pads"), filled])
    return [view.node]


def lower_pads(view: NodeView) -> list[NodeProto]:
    """The same, back."""
    pads = view.need_integers(1, "pads")
    value = view.need_constant(2, "constant_value") if view.input(2) else None
    view.set_inputs([view.input(0)])
    view.put("pads", pads)
    if value is not None:
        view.put("value", float(value.reshape(())))
    return [view.node]


def lower_pad_axes(view: NodeView) -> list[NodeProto]:
    """Pad of some axes pads all, the others by nothing."""
    if view.input(3):
        rank = view.need_rank(view.input(0), "pads are of some axes")
        axes = [view.need_place(axis, rank) for axis in view.need_integers(3, "axes")]
        pads = view.need_integers(1, "pads")
        every = [0] * (2 * rank)
        for place, axis in enumerate(axes):
            every[axis], every[axis + rank] = pads[place], pads[place + len(axes)]
        view.set_inputs([view.input(0), view.put_integers(every, "pads"), view.input(2)])
    return [view.node]


def raise_dropout(view: NodeView) -> list[NodeProto]:
    """Dropout: ``ratio`` becomes an input. Without ``training_mode`` nothing is dropped, as before.

    The mask says then that all is kept, where engines gave one of zeros before.
    """
    ratio = view.find("ratio")
    view.drop("ratio")
    if ratio is not None:
        view.set_inputs([view.input(0), view.put_constant(np.asarray(ratio.f, np.float32), "ratio")])
    if view.has_output(1):
        _put_mask(view, "And")
    return [view.node]


def lower_dropout(view: NodeView) -> list[NodeProto]:
    """The same, back; older ones drop nothing where a model is not trained."""
    if view.input(2) and view.need_constant(2, "training_mode").any():
        raise view.refuse("input 'training_mode' is true, and older ones never drop anything")
    ratio = view.constant(1)
    view.set_inputs([view.input(0)])
    view.drop("seed")
    view.put("ratio", _DROPOUT_RATIO if ratio is None else float(ratio.reshape(())))
    if view.has_output(1):  # nothing is dropped, which older ones say as they like
        _put_mask(view, "Or")
    return [view.node]


def _put_mask(view: NodeView, joined: str) -> None:
    """Make a mask of one value in place of the operator's: And of each element and its inverse is false, Or is true."""
    truth = view.add("Cast", [view.input(0)], to=TensorProto.BOOL)
    view.add(joined, [truth, view.add("Not", [truth])], view.node.output[1])
    view.node.output.pop()


def raise_dropout_mask(view: NodeView) -> list[NodeProto]:
    """Dropout: the mask, of the input's type, becomes bool."""
    return _cast_mask(view, view.element_type(view.input(0))) if view.has_output(1) else [view.node]


def lower_dropout_mask(view: NodeView) -> list[NodeProto]:
    """The same, back."""
    return _cast_mask(view, TensorProto.BOOL) if view.has_output(1) else [view.node]


def _cast_mask(view: NodeView, to: int) -> list[NodeProto]:
    mask = view.node.output[1]
    view.node.output[1] = view.fresh(mask)
    return [view.node, view.make("Cast", [view.node.output[1]], [mask], to=to)]


def raise_dft_axis(view: NodeView) -> list[NodeProto]:
    """DFT: ``axis`` becomes the third input, with another default."""
    axis = view.integer("axis", 1)
    view.drop("axis")
    view.set_inputs([view.input(0), view.input(1), view.put_constant(np.asarray(axis, np.int64), "axis")])
    return [view.node]


def lower_dft_axis(view: NodeView) -> list[NodeProto]:
    """The same, back; older ones count axes from the front."""
    axis = view.need_integers(2, "axis")[0] if view.input(2) else -2
    if axis < 0:
        axis += view.need_rank(view.input(0), "the axis counts from the end")
    view.set_inputs([view.input(0), view.input(1)])
    view.put("axis", axis)
    return [view.node]


_LATE_REDUCTIONS = (
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
    "ReduceSumSquare",
)  # fmt: skip
RAISE = {
    **{(name, 13): raise_axes for name in ("Squeeze", "Unsqueeze", "ReduceSum")},
    **{(name, 18): raise_axes for name in _LATE_REDUCTIONS},
    ("Split", 13): raise_split,
    ("Split", 18): raise_split_count,
    ("Slice", 10): raise_slice,
    ("TopK", 10): raise_k,
    ("Clip", 11): raise_clip,
    ("Pad", 11): raise_pads,
    ("Dropout", 12): raise_dropout,
    ("Dropout", 10): raise_dropout_mask,
    ("DFT", 20): raise_dft_axis,
}
LOWER = {
    **{(name, 13): lower_axes for name in ("Squeeze", "Unsqueeze", "ReduceSum")},
    **{(name, 18): lower_axes for name in _LATE_REDUCTIONS},
    ("Split", 13): lower_split,
    ("Split", 18): lower_split_count,
    ("Slice", 10): lower_slice,
    ("TopK", 10): lower_k,
    ("TopK", 11): lower_largest,
    ("Clip", 11): lower_clip,
    ("Pad", 11): lower_pads,
    ("Pad", 18): lower_pad_axes,
    ("Dropout", 12): lower_dropout,
    ("Dropout", 10): lower_dropout_mask,
    ("DFT", 20): lower_dft_axis,
}
