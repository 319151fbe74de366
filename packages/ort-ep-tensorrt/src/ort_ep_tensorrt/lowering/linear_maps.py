"""Linear maps: interpolation, transforms, columns and grids, whose weights sizes alone decide.

y = DFT(x[n,8,1])               ->   y = MatMul(x, constant)         each result reads all of an axis
y = Resize<mode="cubic">(x)     ->   sums of a few places of x, one axis after the other
"""

from __future__ import annotations

import math

import numpy as np

from ort_core.plugin import Rejection
from ort_core.plugin.claims import dtype_of
from ort_core.plugin.ir import Constant, DataType, SymbolicDim, TensorType, Value
from ort_core.plugin.ops import scaled_size
from ort_ep_tensorrt.lowering.editing import Editor, Results, fixed_shape
from ort_ep_tensorrt.lowering.weighted_gathers import MAX_ELEMENTS, summed, weighted_gathers_of

_FLOATS = frozenset({DataType.FLOAT, DataType.FLOAT16, DataType.BFLOAT16})
_OLDEST_RESIZE = 10  # the first of its opsets, which means what Upsample does
_STATES_COORDINATES = 11  # the opset from which on Resize says how places correspond; before, as by "asymmetric"
_AXIS_IS_INPUT = 20  # the opset from which on the axis of DFT is one


def dft(editor: Editor) -> Results | Rejection:
    """DFT -> MatMul with a matrix of cosines and sines, the signal's axis and its parts last."""
    node, x = editor.node, editor.input(0)
    inputs = [editor.fixed(index) for index in range(1, len(node.inputs))]
    if x.shape is None or any(v is not None and a is None for v, a in zip(node.inputs[1:], inputs, strict=True)):
        return Rejection("the axis or the length of DFT is not known when TensorRT builds", node)
    axis = _axis_of_dft(editor, inputs) % len(x.shape)
    length, parts = x.shape[axis], x.shape[-1]
    others = [size if isinstance(size, int) else -1 for place, size in enumerate(x.shape[:-1]) if place != axis]
    if not isinstance(length, int) or not isinstance(parts, int) or others.count(-1) > 1:
        return Rejection(f"the sizes of {x.name!r} are open", node)
    if (length * parts) ** 2 > MAX_ELEMENTS:
        return Rejection(f"a signal of {length} is too long for a DFT by a matrix", node)
    matrix = _matrix_of_dft(editor, length, parts, inputs[0] if inputs else None)
    return matrix if isinstance(matrix, Rejection) else {0: _transformed(editor, axis, others, matrix)}


def _axis_of_dft(editor: Editor, inputs: list[np.ndarray | None]) -> int:
    if editor.opset < _AXIS_IS_INPUT:
        return editor.node.int_attribute("axis", 1)
    stated = inputs[1] if len(inputs) > 1 else None
    return -2 if stated is None else int(stated.reshape(-1)[0])


def _matrix_of_dft(editor: Editor, length: int, parts: int, wanted: np.ndarray | None) -> np.ndarray | Rejection:
    """Return what the transform makes of each part of each place: ``[length * parts, results, parts of them]``."""
    attributes: dict[str, object] = {name: editor.node.attribute(name) for name in ("inverse", "onesided")}
    lines = np.eye(length * parts).reshape(length * parts, length, parts)
    return editor.computed("DFT", [lines, wanted, np.array(1)], attributes, _AXIS_IS_INPUT)


def _transformed(editor: Editor, axis: int, others: list[int], matrix: np.ndarray) -> Value:
    x = editor.input(0)
    dtype, rank = dtype_of(x) or DataType.FLOAT, len(others) + 2
    order = (*(place for place in range(rank - 1) if place != axis), axis, rank - 1)
    last = editor.add("Transpose", [x], {"perm": order})
    lines = editor.add("Reshape", [last, _sizes(editor, -1, matrix.shape[0])])
    factors = editor.constant(Constant.of(matrix.reshape(len(matrix), -1).astype(dtype.numpy), dtype))
    product = editor.add("MatMul", [lines, factors])
    product.type = TensorType(dtype, (None, matrix[0].size))
    parted = editor.add("Reshape", [product, _sizes(editor, *others, *matrix.shape[1:])])
    back = tuple(int(place) for place in np.argsort(order))
    return editor.add("Transpose", [parted], {"perm": back}, like=editor.node.output)


def resize(editor: Editor) -> Results | Rejection:
    """Resize, Upsample -> sums of a few places along each axis that changes; narrow floats are float32 meanwhile."""
    node, x = editor.node, editor.input(0)
    if node.string_attribute("coordinate_transformation_mode", "") == "tf_crop_and_resize":
        return Rejection("Resize of a part of the image is not written in parts", node)
    if node.string_attribute("keep_aspect_ratio_policy", "stretch") != "stretch":
        return Rejection("Resize that keeps the ratio of sizes is not written in parts", node)
    scales, sizes = (editor.fixed(index) for index in ((1, 3) if editor.opset < _STATES_COORDINATES else (2, 3)))
    if x.shape is None or dtype_of(x) not in _FLOATS or (scales is None) is (sizes is None):
        return Rejection(f"the sizes that Resize makes of {x.name!r}, {x.type}, are not known", node)
    found = x if dtype_of(x) is DataType.FLOAT else editor.cast(x, DataType.FLOAT)
    given = scales if sizes is None else sizes
    assert given is not None
    axes = node.ints_attribute("axes") or range(len(x.shape))
    if sizes is None and all(_is_kept(x.shape[axis], scale) for axis, scale in zip(axes, given, strict=True)):
        return {0: editor.add("Identity", [x], like=node.output)}  # as onnxruntime has it, whatever the scales
    for axis, wanted in zip(axes, given, strict=True):
        answer = _resized(editor, found, axis % len(x.shape), wanted, by_size=sizes is not None)
        if isinstance(answer, Rejection):
            return answer
        found = answer
    dtype = dtype_of(x) or DataType.FLOAT
    return {0: found if dtype is DataType.FLOAT else editor.cast(found, dtype)}


def _is_kept(size: int | SymbolicDim | None, scale: np.generic) -> bool:
    """Return whether an axis is known to keep its size."""
    return scale == 1 or (isinstance(size, int) and scaled_size(size, float(scale)) == size)


def _resized(editor: Editor, x: Value, axis: int, wanted: np.generic, *, by_size: bool) -> Value | Rejection:
    """Return ``x`` resized along one axis to a size, or by a scale."""
    assert x.shape is not None, "ranks are known behind the rules"
    size = x.shape[axis]
    if wanted == (size if by_size else 1):
        return x
    if not isinstance(size, int) or size * size > MAX_ELEMENTS:
        return Rejection(f"axis {axis} of {x.name!r}, {size}, is open or too long to be written out", editor.node)
    # An axis in front that doubles: a tensor that keeps its whole shape would be handed on, whatever its scales.
    lines, goal = np.eye(size, dtype=np.float32)[None], [2, size if by_size else 1, wanted]
    inputs: list[np.ndarray | None] = [lines, None, np.array(goal, np.float32)]
    if by_size:
        inputs = [lines, None, None, np.array(goal, np.int64)]
    elif editor.opset < _STATES_COORDINATES:
        inputs = [lines, np.array(goal, np.float32)]
    left_out = ("axes", "keep_aspect_ratio_policy")
    attributes: dict[str, object] = {n: a.value for n, a in editor.node.attributes.items() if n not in left_out}
    matrix = editor.computed("Resize", inputs, attributes, max(editor.opset, _OLDEST_RESIZE))
    gathers = matrix if isinstance(matrix, Rejection) else weighted_gathers_of(matrix[0])
    return (
        Rejection(gathers.reason, editor.node) if isinstance(gathers, Rejection) else summed(editor, x, axis, gathers)
    )


def col2im(editor: Editor) -> Results | Rejection:
    """Col2Im(x[n,c*k,l]) -> sums of places of Reshape(x)[n,c,k*l]."""
    node, x = editor.node, editor.input(0)
    image, block, columns = editor.fixed(1), editor.fixed(2), fixed_shape(x)
    if image is None or block is None or columns is None or dtype_of(x) not in _FLOATS:
        return Rejection(f"the sizes of Col2Im of {x.name!r}, {x.type}, are not known when TensorRT builds", node)
    taken, count = math.prod(block.tolist()), math.prod(block.tolist()) * columns[2]
    if count * math.prod(image.tolist()) > MAX_ELEMENTS:
        return Rejection(f"{count} columns of Col2Im are too many to be written out", node)
    attributes: dict[str, object] = {name: each.value for name, each in node.attributes.items()}
    lines = np.eye(count).reshape(count, taken, columns[2])
    matrix = editor.computed("Col2Im", [lines, image, block], attributes, 18)
    gathers = matrix if isinstance(matrix, Rejection) else weighted_gathers_of(matrix.reshape(count, -1))
    if isinstance(gathers, Rejection):
        return Rejection(gathers.reason, node)
    channels = columns[1] // taken
    flat = editor.add("Reshape", [x, _sizes(editor, columns[0], channels, count)])
    flat.type = TensorType(dtype_of(x) or DataType.FLOAT, (columns[0], channels, count))
    made = summed(editor, flat, 2, gathers)
    return {0: editor.add("Reshape", [made, _sizes(editor, columns[0], channels, *image.tolist())], like=node.output)}


def affine_grid(editor: Editor) -> Results | Rejection:
    """AffineGrid(theta, size) -> MatMul(points, Transpose(theta)), the points being (x, y, 1)."""
    node, theta = editor.node, editor.input(0)
    size, dtype = editor.fixed(1), dtype_of(theta)
    if size is None or dtype not in _FLOATS:
        return Rejection(f"the size of AffineGrid of {theta.type} is not known when TensorRT builds", node)
    spatial, rank = [int(each) for each in size[2:]], len(size) - 2
    attributes: dict[str, object] = {"align_corners": node.attribute("align_corners")}
    same = np.eye(rank, rank + 1)[None]
    mesh = editor.computed("AffineGrid", [same, np.array([1, 1, *spatial])], attributes, 20)
    if isinstance(mesh, Rejection):
        return mesh
    points = np.concatenate([mesh.reshape(-1, rank), np.ones((math.prod(spatial), 1))], axis=1)
    turned = editor.add("Transpose", [theta], {"perm": (0, 2, 1)})
    product = editor.add("MatMul", [editor.constant(Constant.of(points.astype(dtype.numpy), dtype)), turned])
    product.type = TensorType(dtype, (int(size[0]), math.prod(spatial), rank))
    return {0: editor.add("Reshape", [product, _sizes(editor, int(size[0]), *spatial, rank)], like=node.output)}


def _sizes(editor: Editor, *sizes: int) -> Value:
    return editor.constant(np.array(sizes, np.int64))
