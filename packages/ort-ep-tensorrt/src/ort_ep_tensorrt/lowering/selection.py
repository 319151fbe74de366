"""Selection and running products: what TensorRT has by other names.

y = Compress<axis=1>(x, c)   ->   y = Gather<axis=1>(x, Reshape(NonZero(c), [-1]))
y = CumProd(x, 0)            ->   p1 = Mul(x0, x1)   p2 = Mul(p1, x2)   y = Concat<axis=0>(x0, p1, p2)
"""

from __future__ import annotations

import numpy as np

from ort_core.plugin import Rejection
from ort_core.plugin.ir import Value
from ort_ep_tensorrt.lowering.editing import Editor, Results

MAX_FACTORS = 64  # of one running product; each is a Mul of its own


def compress(editor: Editor) -> Results | Rejection:
    """Compress -> Gather of the places that are true."""
    x, flat = editor.input(0), editor.constant(np.array([-1], np.int64))
    condition = editor.input(1)
    if condition.shape is None or len(condition.shape) != 1:
        condition = editor.add("Reshape", [condition, flat])
    places = editor.add("Reshape", [editor.add("NonZero", [condition]), flat])
    axis = editor.node.attribute("axis")
    source = editor.add("Reshape", [x, flat]) if axis is None else x
    return {0: editor.add("Gather", [source, places], {"axis": 0 if axis is None else axis}, like=editor.node.output)}


def cum_prod(editor: Editor) -> Results | Rejection:
    """CumProd -> one product after the other, in the order of the specification."""
    node, x, axes = editor.node, editor.input(0), editor.fixed(1)
    if axes is None or x.shape is None:
        return Rejection("the axis of CumProd is not known when TensorRT builds", node)
    axis = int(axes.reshape(-1)[0]) % len(x.shape)
    count = x.shape[axis]
    if not isinstance(count, int) or not 0 < count <= MAX_FACTORS:
        return Rejection(f"a running product of {count} factors; 1 to {MAX_FACTORS} are written out", node)
    is_reversed = bool(node.int_attribute("reverse", 0))
    places = reversed(range(count)) if is_reversed else range(count)
    numbers = (editor.constant(np.array([place], np.int64)) for place in places)
    parts = [editor.add("Gather", [x, number], {"axis": axis}) for number in numbers]
    if node.int_attribute("exclusive", 0):
        parts = [_ones(editor, parts[0], x), *parts[:-1]]
    products = parts[:1]
    for part in parts[1:]:
        products.append(editor.add("Mul", [products[-1], part]))
    ordered = products[::-1] if is_reversed else products
    return {0: editor.add("Concat", ordered, {"axis": axis}, like=node.output)}


def _ones(editor: Editor, part: Value, x: Value) -> Value:
    """Return ones in the shape of a part, whatever it holds."""
    is_same = editor.add("Equal", [part, part])
    always = editor.add("Or", [is_same, editor.add("Not", [is_same])])
    return editor.add("Where", [always, editor.number(1, x), part])
