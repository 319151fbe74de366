"""Operators that move or normalize tensors: ranks of data, and of the inputs that say what to do with it."""

from __future__ import annotations

from ort_core.ir.dims import ceil_div
from ort_core.kernels.preconditions.conditions import Conditions, Precondition


def ranked(name: str, least: int) -> Precondition:
    """Require the first input to have a rank or more."""

    def check(c: Conditions) -> None:
        c.at_least(0, name, least)

    return check


def vector(index: int, name: str) -> Precondition:
    """Require an input to have one dimension."""

    def check(c: Conditions) -> None:
        c.rank(index, name, 1)

    return check


def singles(**names: int) -> Precondition:
    """Require inputs, by name and place, to hold one number each."""

    def check(c: Conditions) -> None:
        for name, index in names.items():
            c.single(index, name)

    return check


def rotated_batches(c: Conditions) -> None:
    """FusedMatMul and its like: an axis of batches moves behind the others where both operands have one."""
    a, b = c.shape(0), c.shape(1)
    moves = any(c.node.int_attribute(name, 0) for name in ("transBatchA", "transBatchB"))
    if moves and a is not None and b is not None:
        c.require(
            len(a) == len(b) >= 3,
            f"Two inputs should have same rank and rank >= 3 if transBatchA or transBatchB is true; found ranks "
            f"{len(a)} and {len(b)}",
        )


def reduced_axes(c: Conditions) -> None:
    """The axes, where they are an input, have one dimension."""
    axes = c.shape(1)
    c.require(axes is None or len(axes) == 1, "An axes tensor must be a vector tensor.")


def of_one_shape(c: Conditions) -> None:
    """Max, Mean, Min and Sum before opset 8: all inputs have the shape of the first one."""
    for index in range(1, len(c.node.inputs)):
        c.same_shape(0, index, f"0 and {index}, before opset 8,")


def fitted_operand(c: Conditions) -> None:
    """Add and its like before opset 7: B has the shape of A, or with ``broadcast`` that of a run of A's axes."""
    if not c.node.int_attribute("broadcast", 0):
        c.same_shape(0, 1, "A and B, before opset 7 and without broadcast,")
        return
    a, b = c.shape(0), c.shape(1)
    if a is None or b is None:
        return
    axis = c.node.int_attribute("axis", len(a) - len(b))
    start = axis + len(a) if axis < 0 else axis
    text = f"B of {len(b)} dimensions must lie within A of {len(a)} from axis {axis} on"
    c.require(0 <= start <= len(a) - len(b), text)
    for place, size in enumerate(b, start):
        if size != 1:
            c.equal(size, a[place], f"B must have the sizes of A from axis {axis} on, or 1")


def matrix(c: Conditions) -> None:
    """The input is a matrix."""
    c.rank(0, "input", 2)


def gated(c: Conditions) -> None:
    """A and B of one shape."""
    c.same_shape(0, 1, "A and B")


def batch_normalization(c: Conditions) -> None:
    """X [N, C, ...], scale, B, mean and var [C]; of opsets before 9 [C, ...] where they are not ``spatial``."""
    x = c.shape(0)
    if x is None:
        return
    sizes = (x[1] if len(x) > 1 else 1,) if c.node.int_attribute("spatial", 1) else x[1:]
    for index, name in enumerate(("scale", "B", "mean", "var"), 1):
        c.sized(index, name, *sizes)


def instance_normalization(c: Conditions) -> None:
    """X [N, C, ...], scale and B [C]."""
    x = c.at_least(0, "input", 3)
    if x is not None:
        c.sized(1, "scale", x[1])
        c.sized(2, "B", x[1])


def slice_bounds(c: Conditions) -> None:
    """Slice since opset 10: starts, ends, axes and steps are vectors."""
    for index, name in enumerate(("starts", "ends", "axes", "steps"), start=1):
        c.rank(index, name, 1)


def one_hot(c: Conditions) -> None:
    """OneHot: a depth of one element, and values off and on."""
    c.scalar(1, "depth")
    c.sized(2, "values", 2)


def local_response(c: Conditions) -> None:
    """X [N, C, ...] of three dimensions or more."""
    c.at_least(0, "X", 3)


def top_k(c: Conditions) -> None:
    """X of one dimension or more, K [1]."""
    c.at_least(0, "X", 1)
    c.sized(1, "K", 1)


def pads(c: Conditions) -> None:
    """Pads [2 * axes] or one such row, a constant value of one element, axes [count]."""
    shape = c.rank(1, "pads", 1, 2)
    if shape is not None and len(shape) == 2:
        c.equal(shape[0], 1, "pads must be a vector, or one row")
    c.scalar(2, "constant_value")
    c.rank(3, "axes", 1)


def pads_of_com_microsoft(c: Conditions) -> None:
    """Pads [2 * axes] or one such row; the value has one element, in any shape."""
    shape = c.rank(1, "pads", 1, 2)
    if shape is not None and len(shape) == 2:
        c.equal(shape[0], 1, "pads must be a vector, or one row")
    for size in c.shape(2) or ():
        c.equal(size, 1, "value must have one element")


def split(c: Conditions) -> None:
    """X of one dimension or more; without sizes it must divide evenly, with ``num_outputs`` but for the last part."""
    x = c.at_least(0, "input", 1)
    c.rank(1, "split", 1)
    if x is None or c.has(1) or c.node.ints_attribute("split"):
        return
    axis, parts = c.node.int_attribute("axis", 0), len(c.node.outputs)
    if not -len(x) <= axis < len(x):
        return
    length = x[axis]
    part = ceil_div(length, parts)
    if c.opset >= 18 and c.node.attribute("num_outputs") is not None:
        c.positive(
            length - part * (parts - 1) + 1, f"{parts} parts of {part} elements leave less than none of {length}"
        )
    else:
        c.equal(part * parts, length, f"Input cannot be split evenly on selected axis: {length} into {parts} parts")


def ngrams(c: Conditions) -> None:
    """X [C] or [B, C] with rows."""
    x = c.rank(0, "X", 1, 2)
    if x is not None and len(x) == 2:
        c.positive(x[0], "Input shape must have either [C] or [B,C] dimensions with B > 0")


def suppression(c: Conditions) -> None:
    """Boxes [N, B, 4], scores [N, C, B], thresholds of one element."""
    c.rank(0, "boxes", 3)
    c.rank(1, "scores", 3)
    for index, name in ((2, "max_output_boxes_per_class"), (3, "iou_threshold"), (4, "score_threshold")):
        shape = c.shape(index)
        for size in shape or ():
            c.positive(size, f"input '{name}' must hold a number, got shape {list(map(str, shape or ()))}")


def region_crops(c: Conditions) -> None:
    """X [N, C, H, W] with something to look at, rois [count, 4], batch_indices [count], crop_size [2]."""
    x = c.rank(0, "X", 4)
    rois = c.sized(1, "rois", None, 4)
    if rois is not None:
        c.sized(2, "batch_indices", rois[0])
    wanted = c.rank(3, "crop_size", 1)
    if wanted is not None:
        text = f"[ShapeInferenceError] crop_size input tensor must have exactly 2 elements; got {wanted[0]}"
        c.equal(wanted[0], 2, text)
    if x is not None:
        for size in x[2:]:
            c.positive(size, f"X must have rows and columns to be cut from, got {list(map(str, x))}")


def target_size(c: Conditions) -> None:
    """AffineGrid: theta of three dimensions, size [4] or [5]."""
    c.rank(0, "theta", 3)
    c.rank(1, "size", 1)


def unpooling(c: Conditions) -> None:
    """Values and indices of one shape, output_shape [rank]."""
    c.at_least(0, "X", 3)
    c.same_shape(0, 1, "'X' and 'I'")
    x = c.shape(0)
    if x is not None:
        c.sized(2, "output_shape", len(x))


def mean_variance(c: Conditions) -> None:
    """X has the axes, each of them once."""
    x = c.shape(0)
    axes = c.node.ints_attribute("axes") or (0, 2, 3)
    if x is None or c.opset < 9:
        return
    rank = len(x)
    c.require(
        all(-rank <= axis < rank for axis in axes), f"axes {list(axes)} are not in valid range [{-rank},{rank - 1}]"
    )
    c.require(len({axis % rank for axis in axes}) == len(axes), f"axes {list(axes)} name one twice")


def grouped(c: Conditions) -> None:
    """X [N, C, ...]."""
    c.at_least(0, "X", 2)


def upsampling(c: Conditions) -> None:
    """Scales are a vector."""
    c.rank(1, "scales", 1)
