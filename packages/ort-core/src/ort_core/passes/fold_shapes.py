"""Shapes that are known before the run become constants.

    s = Shape(x)  with x: float[2, 3]                   ->  s = {2, 3}                         (ShapeFolding)
    d = Gather(Shape(x), 1)  with x: float[N, 3]        ->  d = 3                              (ShapeFolding)
    y = Reshape(x, Concat(Gather(Shape(x), 0), 12, 64)) ->  y = Reshape(x, {0 or -1, 12, 64})  (ReshapeFusion)

Relies on what shape inference knows of the contents of small integer values, so any chain of arithmetic over sizes
is covered, not only the listed ones.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ort_core.ir.constants import Constant
from ort_core.ir.dims import SymbolicDim, product
from ort_core.ir.graph import Graph
from ort_core.ir.nodes import Node
from ort_core.ir.rejection import Rejection
from ort_core.ir.types import DataType, TensorType
from ort_core.ir.values import Value
from ort_core.passes.base import Pass, PassContext, PassRecordState, SymbolicValue
from ort_core.rewrite.matcher import constant_of
from ort_core.rewrite.patch import GraphPatch

_SHAPE_DTYPES = (DataType.INT64, DataType.INT32)


class ShapeFolding(Pass):
    """Replace Shape, Size and what is computed from them by constants where every element is known."""

    name = "ShapeFolding"

    def apply(self, context: PassContext, record: PassRecordState) -> None:
        """Look at every value with known contents."""
        known = context.values or {}
        for graph in context.graphs():
            for node in graph.nodes:
                array = _known_output(node, known)
                if array is None:
                    continue
                patch = GraphPatch(context.model, node)
                patch.replace(node.output, patch.constant(array, node.output.name))
                patch.remove(node)
                objection = patch.apply()
                if objection is None:
                    record.changed("known shapes")
                else:
                    record.refused("known shapes", objection, node)


def _known_output(node: Node, contents: Mapping[Value, SymbolicValue]) -> np.ndarray | None:
    outputs = node.outputs
    if len(outputs) != 1 or outputs[0] is None or node.subgraphs():
        return None
    output = outputs[0]
    if node.op_type in ("Shape", "Size") and node.domain == "":
        direct = _shape_of(node)
        if direct is not None:
            return direct
    known = contents.get(output)
    if known is None or not isinstance(output.type, TensorType) or output.type.dtype not in _SHAPE_DTYPES:
        return None
    if not all(isinstance(element, int) for element in known.reshape(-1)):
        return None
    return known.astype(output.type.dtype.numpy)


def _shape_of(node: Node) -> np.ndarray | None:
    source = node.input(0)
    shape = None if source is None else source.shape
    if shape is None:
        return None
    if node.op_type == "Size":
        size = product(shape)
        return np.array(size, np.int64) if isinstance(size, int) else None
    end = node.attribute("end")
    part = shape[node.int_attribute("start", 0) : end if isinstance(end, int) else None]
    return np.array(part, np.int64) if all(isinstance(d, int) for d in part) else None


class ReshapeFusion(Pass):
    """Give a Reshape a constant shape where at most one element is not a number or a copy of x's own size."""

    name = "ReshapeFusion"

    def apply(self, context: PassContext, record: PassRecordState) -> None:
        """Look at every Reshape with a computed shape."""
        for graph in context.graphs_with(("Reshape",)):
            for node in context.nodes_of(graph, ("Reshape",)):
                if node.domain == "" and constant_of(node.input(1)) is None:
                    shape = _constant_shape(node, context)
                    if isinstance(shape, Rejection):
                        record.refused("computed shape", shape, node)
                    else:
                        _set_shape(graph, node, shape)
                        record.changed("computed shape")


def _constant_shape(node: Node, context: PassContext) -> np.ndarray | Rejection:
    source, wanted = node.input(0), node.input(1)
    known = None if wanted is None else (context.values or {}).get(wanted)
    if known is None or known.ndim != 1 or source is None:
        return Rejection("nothing is known of the shape", node)
    elements = list(known)
    if node.int_attribute("allowzero", 0) and any(isinstance(e, int) and e == 0 for e in elements):
        return Rejection("a zero means an empty dimension here, not a copied size", node)
    own = source.shape or ()
    sizes = [
        0 if isinstance(e, SymbolicDim) and axis < len(own) and own[axis] == e else e for axis, e in enumerate(elements)
    ]
    open_axes = [axis for axis, size in enumerate(sizes) if not isinstance(size, int)]
    if len(open_axes) + sizes.count(-1) > 1:
        return Rejection("more than one size is known only in the run", node)
    if open_axes and 0 in sizes:
        # Copied sizes may be 0 in a run, and then no operator can tell what -1 stands for.
        return Rejection("an open size beside sizes that may be 0 is ambiguous", node)
    return np.array([size if isinstance(size, int) else -1 for size in sizes], np.int64)


def _set_shape(graph: Graph, node: Node, shape: np.ndarray) -> None:
    value: Value = graph.new_constant(Constant.of(shape), "shape")
    node.set_input(1, value)
    node.attributes.pop("allowzero", None)  # the zeros of the new shape are copied sizes
