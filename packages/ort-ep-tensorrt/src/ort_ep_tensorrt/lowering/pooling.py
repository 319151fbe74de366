"""Pooling: windows that TensorRT's lacks (dilated, large, of another norm), one axis after the other.

y = AveragePool<kernel_shape=[7, 7]>(x[n,c,7,7])                     ->   y = GlobalAveragePool(x)
y = MaxPool<kernel_shape=[2, 2], dilations=[2, 2]>(x[n,c,4,4])       ->   a = Max(Gather<axis=2>(x, ..), ..)
                                                                          y = Max(Gather<axis=3>(a, ..), ..)

The largest of a window is the largest of its rows' largest, and its mean the mean of its rows' means, borders included.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ort_core.plugin import Rejection
from ort_core.plugin.claims import dtype_of
from ort_core.plugin.ir import DataType, Node, Value
from ort_ep_tensorrt.lowering.editing import Editor, Results, fixed_shape
from ort_ep_tensorrt.lowering.weighted_gathers import MAX_ELEMENTS, largest, summed, weighted_gathers_of

Fold = Callable[[Value, int, np.ndarray], Value | Rejection]
"""Folds along an axis what each column of a matrix ``[places, results]`` is not zero at."""
_WITH_DILATIONS = 22  # the opset of AveragePool as it is asked, whatever the model's


def average_pool(editor: Editor) -> Results | Rejection:
    """AveragePool over all there is is GlobalAveragePool, whose window may have any size; others are sums."""
    x, matrices = editor.input(0), _matrices(editor)
    if not isinstance(matrices, Rejection) and all(_is_mean(each) for each in matrices):
        return {0: editor.add("GlobalAveragePool", [x], like=editor.node.output)}
    return _folded(editor, x, lambda found, axis, matrix: _sum(editor, found, axis, matrix))


def lp_pool(editor: Editor) -> Results | Rejection:
    """LpPool of any norm p -> (sum of |x|^p)^(1/p)."""
    x, p = editor.input(0), editor.node.attribute("p")
    norm = float(p) if isinstance(p, (int, float)) else 2.0
    powers = editor.add("Pow", [editor.add("Abs", [x], like=x), editor.number(norm, x)], like=x)
    sums = _folded(editor, powers, lambda found, axis, matrix: _sum(editor, found, axis, (matrix != 0) * 1.0))
    if isinstance(sums, Rejection):
        return sums
    return {0: editor.add("Pow", [sums[0], editor.number(1 / norm, x)], like=editor.node.output)}


def max_pool(editor: Editor) -> Results | Rejection:
    """MaxPool without its second result."""
    if len(editor.node.outputs) > 1 and editor.node.outputs[1] is not None:
        return Rejection("where MaxPool found its results is not written in parts", editor.node)
    return _folded(editor, editor.input(0), lambda found, axis, matrix: _largest(editor, found, axis, matrix))


def max_unpool(editor: Editor) -> Results | Rejection:
    """MaxUnpool(x, i) -> ScatterElements(zeros, i, x), all of them flat."""
    node, x = editor.node, editor.input(0)
    shape = fixed_shape(node.output)
    if node.input(2) is not None:
        return Rejection("MaxUnpool into another shape than its windows make is not written in parts", node)
    if shape is None or dtype_of(x) is not DataType.FLOAT:
        return Rejection(f"MaxUnpool of {x.type} is written in parts for float32 of known sizes alone", node)
    flat = editor.constant(np.array([-1], np.int64))
    zeros = editor.constant(np.zeros(math.prod(shape), np.float32))
    places, values = (editor.add("Reshape", [each, flat]) for each in (editor.input(1), x))
    placed = editor.add("ScatterElements", [zeros, places, values], {"axis": 0})
    return {0: editor.add("Reshape", [placed, editor.constant(np.array(shape, np.int64))], like=node.output)}


def _folded(editor: Editor, x: Value, fold: Fold) -> Results | Rejection:
    """Fold windows along one spatial axis after the other."""
    matrices = _matrices(editor)
    if isinstance(matrices, Rejection):
        return matrices
    found = x
    for axis, matrix in enumerate(matrices, 2):
        folded = fold(found, axis, matrix)
        if isinstance(folded, Rejection):
            return Rejection(folded.reason, editor.node)
        found = folded
    return {0: found}


def _matrices(editor: Editor) -> list[np.ndarray] | Rejection:
    """Return for each spatial axis the weights of a mean, ``[places, results]``: zero where a window does not read."""
    x = editor.input(0)
    sizes = [size for size in (x.shape or ())[2:] if isinstance(size, int)]
    if not sizes or len(sizes) + 2 != x.rank:
        return Rejection(f"the sizes of {x.name!r} are open", editor.node)
    if max(sizes) ** 2 > MAX_ELEMENTS:
        return Rejection(
            f"{max(sizes)} elements along an axis of {x.name!r} are too many to be written out", editor.node
        )
    found: list[np.ndarray] = []
    for axis, size in enumerate(sizes):
        matrix = editor.computed("AveragePool", [np.eye(size)[:, None]], _along(editor.node, axis), _WITH_DILATIONS)
        if isinstance(matrix, Rejection):
            return matrix
        if not np.isfinite(matrix).all():
            return Rejection(f"a window of {editor.node.op_type} reads padding alone", editor.node)
        found.append(matrix[:, 0])
    return found


def _is_mean(matrix: np.ndarray) -> bool:
    """Return whether there is one window over all places."""
    return matrix.shape[1] == 1 and bool(np.all(matrix == 1 / len(matrix)))


def _along(node: Node, axis: int) -> dict[str, object]:
    """Return the attributes of windows along one spatial axis alone."""
    found: dict[str, object] = {name: node.attribute(name) for name in ("auto_pad", "ceil_mode", "count_include_pad")}
    for name in ("kernel_shape", "strides", "dilations"):
        values = node.ints_attribute(name)
        found[name] = (values[axis],) if values else None
    pads = node.ints_attribute("pads")
    found["pads"] = (pads[axis], pads[axis + len(pads) // 2]) if pads else None
    return found


def _sum(editor: Editor, x: Value, axis: int, matrix: np.ndarray) -> Value | Rejection:
    gathers = weighted_gathers_of(matrix)
    return gathers if isinstance(gathers, Rejection) else summed(editor, x, axis, gathers)


def _largest(editor: Editor, x: Value, axis: int, matrix: np.ndarray) -> Value | Rejection:
    gathers = weighted_gathers_of(matrix)
    return gathers if isinstance(gathers, Rejection) else largest(editor, x, axis, gathers)
