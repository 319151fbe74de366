"""Operators whose meaning, or whose choices, changed: softmaxes, resizes, recurrent layers, norms, deprecated ones."""

from __future__ import annotations

import numpy as np
from onnx import NodeProto, TensorProto, helper

from ort_tools.opsets.node_view import NodeView, constant_tensor

_SAMPLING = {"bilinear": "linear", "bicubic": "cubic"}


def raise_softmax(view: NodeView) -> list[NodeProto]:
    """Softmaxes were over everything from ``axis`` on, taken as one; now they are over one axis."""
    axis = view.integer("axis", 1)
    rank = view.rank(view.input(0))
    if axis == -1 or (rank is not None and axis % max(rank, 1) == rank - 1):
        view.put("axis", -1)
        return [view.node]
    x, y = view.input(0), view.node.output[0]
    shape = view.add("Shape", [x])
    view.set_inputs([view.add("Flatten", [x], axis=axis)])
    view.put("axis", -1)
    view.node.output[0] = view.fresh(f"{y}_flat")
    return [view.node, view.make("Reshape", [view.node.output[0], shape], [y])]


def lower_softmax(view: NodeView) -> list[NodeProto]:
    """The same, back: the axis is moved to the end."""
    axis = view.integer("axis", -1)
    if axis == -1:
        view.put("axis", -1)
        return [view.node]
    rank = view.need_rank(view.input(0), f"the softmax is over axis {axis}")
    axis = view.need_place(axis, rank)
    if axis == rank - 1:
        view.put("axis", axis)
        return [view.node]
    order = [each for each in range(rank) if each != axis] + [axis]
    y = view.node.output[0]
    view.set_inputs([view.add("Transpose", [view.input(0)], perm=order)])
    view.put("axis", rank - 1)
    view.node.output[0] = view.fresh(f"{y}_moved")
    back = [order.index(each) for each in range(rank)]
    return [view.node, view.make("Transpose", [view.node.output[0]], [y], perm=back)]


def raise_upsample_scales(view: NodeView) -> list[NodeProto]:
    """Upsample: ``scales`` becomes an input."""
    found = view.find("scales")
    scales = [] if found is None else list(found.floats)
    view.drop("scales")
    view.set_inputs([view.input(0), view.put_constant(np.asarray(scales, np.float32), "scales")])
    return [view.node]


def lower_upsample_scales(view: NodeView) -> list[NodeProto]:
    """The same, back."""
    scales = [float(each) for each in view.need_constant(1, "scales")]
    view.set_inputs([view.input(0)])
    view.put("scales", scales)
    return [view.node]


def raise_upsample(view: NodeView) -> list[NodeProto]:
    """Upsample is Resize from opset 10 on."""
    view.node.op_type = "Resize"
    return [view.node]


def lower_resize_10(view: NodeView) -> list[NodeProto]:
    """Resize is Upsample, where nothing shrinks."""
    scales = view.need_constant(1, "scales")
    if (scales < 1).any():
        raise view.refuse(f"input 'scales' ({scales.tolist()}) shrinks, and Upsample does not")
    view.node.op_type = "Upsample"
    return [view.node]


def raise_resize_11(view: NodeView) -> list[NodeProto]:
    """Resize was asymmetric, and took the sample before."""
    view.put("coordinate_transformation_mode", "asymmetric")
    if view.text("mode", "nearest") == "nearest":
        view.put("nearest_mode", "floor")
    roi = view.put_constant(np.zeros(0, np.float32), "roi")
    view.set_inputs([view.input(0), roi, view.input(1)])
    return [view.node]


def lower_resize_11(view: NodeView) -> list[NodeProto]:
    """The same, back: only that way of sampling has a form."""
    mode = view.text("mode", "nearest")
    if mode not in ("nearest", "linear"):
        raise view.refuse(f"attribute 'mode' has no value {mode!r}")
    scales = _resize_scales(view)
    is_whole = all(float(each).is_integer() for each in scales)
    sampling = view.text("coordinate_transformation_mode", "half_pixel")
    if sampling != "asymmetric" and not (
        mode == "nearest" and is_whole and sampling in ("half_pixel", "pytorch_half_pixel")
    ):
        raise view.refuse(f"attribute 'coordinate_transformation_mode' has no value {sampling!r}, only asymmetric")
    nearest = view.text("nearest_mode", "round_prefer_floor")
    if mode == "nearest" and sampling == "asymmetric" and nearest != "floor" and set(scales) != {1.0}:
        raise view.refuse(f"attribute 'nearest_mode' has no value {nearest!r}, only floor")
    if mode == "nearest" and sampling != "asymmetric" and not nearest.startswith("round"):
        raise view.refuse(f"attribute 'nearest_mode' has no value {nearest!r}, only floor")
    view.drop(
        "coordinate_transformation_mode", "nearest_mode", "cubic_coeff_a", "exclude_outside", "extrapolation_value"
    )
    view.set_inputs([view.input(0), view.put_constant(np.asarray(scales, np.float32), "scales")])
    return [view.node]


def _resize_scales(view: NodeView) -> list[float]:
    scales = view.constant(2)
    if scales is not None and scales.size:
        return [float(each) for each in scales]
    if view.input(3):
        sizes = view.need_integers(3, "sizes")
        given = view.need_sizes(view.input(0), "sizes become scales")
        return [float(np.float32(new) / np.float32(old)) for new, old in zip(sizes, given, strict=True)]
    raise view.refuse("input 'scales' is not a constant")


def lower_resize_13(view: NodeView) -> list[NodeProto]:
    """Inputs that may be left out since opset 13 are empty before."""
    names = [view.input(place) for place in range(4)]
    for place, hint in ((1, "roi"), (2, "scales")):
        names[place] = names[place] or view.put_constant(np.zeros(0, np.float32), hint)
    view.set_inputs(names)
    return [view.node]


def lower_resize_18(view: NodeView) -> list[NodeProto]:
    """Resize of some axes resizes all; a policy other than ``stretch`` needs fixed sizes."""
    if view.integer("antialias", 0):
        raise view.refuse("attribute 'antialias' has no other form")
    policy, axes = view.text("keep_aspect_ratio_policy", "stretch"), view.integers("axes")
    names = [view.input(place) for place in range(4)]
    if axes is not None or (policy != "stretch" and names[3]):
        given = view.sizes(names[0])
        if given is None:
            raise view.refuse("attribute 'axes' has no other form where the rank is not known")
        rank = len(given)
        chosen = [view.need_place(axis, rank) for axis in (range(rank) if axes is None else axes)]
        if names[1] and (roi := view.need_constant(1, "roi")).size:
            every = np.concatenate([np.zeros(rank), np.ones(rank)]).astype(roi.dtype)
            every[chosen], every[[each + rank for each in chosen]] = roi[: len(chosen)], roi[len(chosen) :]
            names[1] = view.put_constant(every, "roi")
        if names[2] and (scales := view.need_constant(2, "scales")).size:
            wide = np.ones(rank, scales.dtype)
            wide[chosen] = scales
            names[2] = view.put_constant(wide, "scales")
        if names[3]:
            names[3] = view.put_integers(_resize_sizes(view, chosen, policy), "sizes")
    view.drop("antialias", "axes", "keep_aspect_ratio_policy")
    view.set_inputs(names)
    return [view.node]


def _resize_sizes(view: NodeView, chosen: list[int], policy: str) -> list[int]:
    sizes = view.need_sizes(view.input(0), "sizes of some axes become sizes of all")
    wanted = view.need_integers(3, "sizes")
    if policy != "stretch":
        ratios = [new / sizes[axis] for new, axis in zip(wanted, chosen, strict=True)]
        scale = min(ratios) if policy == "not_larger" else max(ratios)
        wanted = [int(np.floor(scale * sizes[axis] + 0.5)) for axis in chosen]
    for new, axis in zip(wanted, chosen, strict=True):
        sizes[axis] = new
    return sizes


def raise_resize_19(view: NodeView) -> list[NodeProto]:
    """Aligned corners went by the whole size of the result; now they go by the fractional one that scales ask for."""
    if _has_exact_corners(view):
        return [view.node]
    if view.integers("axes") is not None:
        raise view.refuse("aligned corners of scaled axes have no newer form where sizes are not whole")
    x = view.input(0)
    shape = view.add("Cast", [view.add("Shape", [x])], to=TensorProto.FLOAT)
    whole = view.add("Floor", [view.add("Mul", [shape, view.input(2)])])
    view.set_inputs([x, view.input(1), "", view.add("Cast", [whole], to=TensorProto.INT64)])
    return [view.node]


def lower_resize_19(view: NodeView) -> list[NodeProto]:
    """The same, back: only where both are one."""
    if not _has_exact_corners(view):
        raise view.refuse("aligned corners with scales that make no whole sizes have no older form")
    return [view.node]


def _has_exact_corners(view: NodeView) -> bool:
    if view.text("coordinate_transformation_mode", "half_pixel") != "align_corners" or not view.input(2):
        return True
    scales, sizes = view.constant(2), view.sizes(view.input(0))
    if scales is None:
        return False
    if all(float(each).is_integer() for each in scales):
        return True
    axes = view.integers("axes")
    if sizes is None:
        return False
    chosen = [sizes[axis] for axis in (range(len(sizes)) if axes is None else axes)]
    return all(
        size is not None and float(scale * np.float32(size)).is_integer()
        for size, scale in zip(chosen, scales, strict=True)
    )


def raise_roi_align(view: NodeView) -> list[NodeProto]:
    """RoiAlign did not shift by half a pixel."""
    view.put("coordinate_transformation_mode", "output_half_pixel")
    return [view.node]


def lower_roi_align(view: NodeView) -> list[NodeProto]:
    """The same, back."""
    mode = view.text("coordinate_transformation_mode", "half_pixel")
    if mode != "output_half_pixel":
        raise view.refuse(f"attribute 'coordinate_transformation_mode' has no value {mode!r}")
    view.drop("coordinate_transformation_mode")
    return [view.node]


def raise_grid_sample(view: NodeView) -> list[NodeProto]:
    """GridSample: modes have other names."""
    mode = view.text("mode", "bilinear")
    view.put("mode", _SAMPLING.get(mode, mode))
    return [view.node]


def lower_grid_sample(view: NodeView) -> list[NodeProto]:
    """The same, back; older ones sample pictures alone."""
    if view.need_rank(view.input(0), "older ones take pictures of rank 4") != 4:
        raise view.refuse(f"input {view.input(0)!r} has another rank than 4")
    mode = view.text("mode", "linear")
    view.put("mode", {new: old for old, new in _SAMPLING.items()}.get(mode, mode))
    return [view.node]


def lower_layout(view: NodeView) -> list[NodeProto]:
    """RNN, GRU and LSTM with the batch first are those with the sequence first, between transpositions."""
    is_batch_first = view.integer("layout", 0)
    view.drop("layout")
    if not is_batch_first:
        return [view.node]
    names = list(view.node.input)
    for place in (0, 5, 6):
        if place < len(names) and names[place]:
            names[place] = view.add("Transpose", [names[place]], perm=[1, 0, 2])
    view.set_inputs(names)
    behind = []
    for place, order in ((0, [2, 0, 1, 3]), (1, [1, 0, 2]), (2, [1, 0, 2])):
        if view.has_output(place):
            result = view.node.output[place]
            view.node.output[place] = view.fresh(f"{result}_sequence_first")
            behind.append(view.make("Transpose", [view.node.output[place]], [result], perm=order))
    return [view.node, *behind]


def raise_batch_normalization_9(view: NodeView) -> list[NodeProto]:
    """BatchNormalization: statistics of each place are gone."""
    if not view.integer("spatial", 1):
        raise view.refuse("attribute 'spatial' (0) has no newer form")
    view.drop("spatial")
    return [view.node]


def raise_batch_normalization_14(view: NodeView) -> list[NodeProto]:
    """More than one output meant training; now an attribute does, with other outputs."""
    if any(view.has_output(place) for place in range(1, 5)):
        raise view.refuse("its outputs of statistics, which mean training, have no newer form")
    return [view.node]


def lower_batch_normalization_14(view: NodeView) -> list[NodeProto]:
    """The same, back."""
    if view.integer("training_mode", 0):
        raise view.refuse("attribute 'training_mode' (1) has no older form")
    view.drop("training_mode")
    return [view.node]


def raise_group_normalization(view: NodeView) -> list[NodeProto]:
    """GroupNormalization: scales and biases of groups become those of channels."""
    groups = view.integer("num_groups", 0)
    sizes = view.sizes(view.input(0))
    channels = None if sizes is None else sizes[1]
    if channels is None:
        raise view.refuse("scales of groups become scales of channels, and the number of channels is not fixed")
    names = [view.input(0)]
    for place in (1, 2):
        column = view.add("Reshape", [view.input(place), view.put_integers([groups, 1], "column")])
        wide = view.add("Expand", [column, view.put_integers([groups, channels // groups], "wide")])
        names.append(view.add("Reshape", [wide, view.put_integers([channels], "channels")]))
    view.set_inputs(names)
    view.put("stash_type", view.element_type(view.input(0)))
    return [view.node]


def lower_group_normalization(view: NodeView) -> list[NodeProto]:
    """Scales of channels are not scales of groups: the function body says it."""
    raise view.refuse("scales and biases of channels have no older form")


def raise_scatter(view: NodeView) -> list[NodeProto]:
    """Scatter is ScatterElements from opset 11 on."""
    view.node.op_type = "ScatterElements"
    return [view.node]


def lower_scatter_elements(view: NodeView) -> list[NodeProto]:
    """The same, back."""
    view.node.op_type = "Scatter"
    return [view.node]


def lower_crd(view: NodeView) -> list[NodeProto]:
    """DepthToSpace and SpaceToDepth of columns first are a Reshape, a Transpose and a Reshape."""
    mode, block = view.text("mode", "DCR"), view.integer("blocksize", 1)
    view.drop("mode")
    if mode == "DCR":
        return [view.node]
    x, y = view.input(0), view.node.output[0]
    n, c, h, w = view.need_sizes(x, f"attribute 'mode' ({mode}) becomes reshapes")
    if view.node.op_type == "DepthToSpace":
        c //= block * block
        inner, order, outer = [n, c, block, block, h, w], [0, 1, 4, 2, 5, 3], [n, c, h * block, w * block]
    else:
        h, w = h // block, w // block
        inner, order, outer = [n, c, h, block, w, block], [0, 1, 3, 5, 2, 4], [n, c * block * block, h, w]
    parts = view.add("Reshape", [x, view.put_integers(inner, "parts")])
    moved = view.add("Transpose", [parts], perm=order)
    return [view.make("Reshape", [moved, view.put_integers(outer, "whole")], [y])]


def lower_modulo(view: NodeView) -> list[NodeProto]:
    """Mod of floats is C's alone before opset 28."""
    floats = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16)
    if not view.integer("fmod", 0) and view.element_type(view.input(0)) in floats:
        raise view.refuse("attribute 'fmod' (0) has no older form for floats")
    return [view.node]


def lower_missing_bias(view: NodeView) -> list[NodeProto]:
    """Gemm without C has one of zeros."""
    if not view.input(2):
        view.set_inputs([view.input(0), view.input(1), view.put_scalar(0, view.input(0), "zero", [1])])
    return [view.node]


def lower_constant(view: NodeView) -> list[NodeProto]:
    """Constant: every way to say it becomes a tensor."""
    if view.find("value") is None:
        tensor = constant_tensor(view.node)
        if tensor is None:
            raise view.refuse("its value is a function's attribute")
        copy = TensorProto()
        copy.CopyFrom(tensor)
        del view.node.attribute[:]
        view.node.attribute.append(helper.make_attribute("value", copy))
    return [view.node]


RAISE = {
    **{(name, 13): raise_softmax for name in ("Softmax", "LogSoftmax", "Hardmax")},
    ("Upsample", 9): raise_upsample_scales,
    ("Upsample", 10): raise_upsample,
    ("Resize", 11): raise_resize_11,
    ("Resize", 19): raise_resize_19,
    ("RoiAlign", 16): raise_roi_align,
    ("GridSample", 20): raise_grid_sample,
    ("BatchNormalization", 9): raise_batch_normalization_9,
    ("BatchNormalization", 14): raise_batch_normalization_14,
    ("GroupNormalization", 21): raise_group_normalization,
    ("Scatter", 11): raise_scatter,
}
LOWER = {
    **{(name, 13): lower_softmax for name in ("Softmax", "LogSoftmax", "Hardmax")},
    ("Upsample", 9): lower_upsample_scales,
    ("Resize", 10): lower_resize_10,
    ("Resize", 11): lower_resize_11,
    ("Resize", 13): lower_resize_13,
    ("Resize", 18): lower_resize_18,
    ("Resize", 19): lower_resize_19,
    ("RoiAlign", 16): lower_roi_align,
    ("GridSample", 20): lower_grid_sample,
    **{(name, 14): lower_layout for name in ("RNN", "GRU", "LSTM")},
    ("BatchNormalization", 14): lower_batch_normalization_14,
    ("GroupNormalization", 21): lower_group_normalization,
    ("ScatterElements", 11): lower_scatter_elements,
    ("DepthToSpace", 11): lower_crd,
    ("SpaceToDepth", 28): lower_crd,
    ("Mod", 28): lower_modulo,
    ("Gemm", 11): lower_missing_bias,
    ("Constant", 12): lower_constant,
    ("Constant", 11): lower_constant,
}
