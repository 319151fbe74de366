"""CommonSubexpressionElimination: what is computed twice from the same values is computed once.

    a = Relu(x);  b = Relu(x);  y = Add(a, b)     ->  a = Relu(x);  y = Add(a, a)

Only deterministic operators without bodies. Small constants are the same when their contents are.
"""

from __future__ import annotations

from ort_core.ir.attributes import Attribute
from ort_core.ir.constants import Constant
from ort_core.ir.nodes import Node
from ort_core.ir.values import Value
from ort_core.passes.base import Pass, PassContext, PassRecordState
from ort_core.rewrite.matcher import constant_of
from ort_core.rewrite.patch import GraphPatch

MAX_COMPARED_NBYTES = 1024  # of a constant's contents; larger ones are the same only when they are one object


class CommonSubexpressionElimination(Pass):
    """Let readers of a repeated node read the first one; in graph order, so that chains merge in one sweep."""

    name = "CommonSubexpressionElimination"

    def apply(self, context: PassContext, record: PassRecordState) -> None:
        """Look at each graph by itself."""
        for graph in context.graphs():
            seen: dict[
                object, Node | dict[object, Node]
            ] = {}  # nodes that read alike: the only one, or all by their keys
            for node in graph.nodes:
                if node.subgraphs() or not node.inputs:
                    continue
                first = _first_equal(seen, node)
                if first is not node and context.is_deterministic(node):
                    _merge(context, node, first, record)


def _first_equal(seen: dict[object, Node | dict[object, Node]], node: Node) -> Node:
    """Return the first node that computes the same, which may be the node itself.

    ``seen`` has the nodes that begin alike: the only one, or all of them by their keys. Only where several nodes of
    one operator read the same value is all else of them looked at: in long chains none do.
    """
    read = node.inputs[0]
    alike = node.op_type, None if read is None or read.constant is not None else id(read)
    known = seen.setdefault(alike, node)
    if known is node:
        return node
    if isinstance(known, Node):
        known = seen[alike] = {_key(known): known}
    return known.setdefault(_key(node), node)


def _merge(context: PassContext, node: Node, first: Node, record: PassRecordState) -> None:
    patch = GraphPatch(context.model, node)
    for old, new in zip(node.outputs, first.outputs):
        if old is not None and new is not None:
            patch.replace(old, new)
    patch.remove(node)
    objection = patch.apply()
    if objection is None:
        record.changed("repeated node")
    else:
        record.refused("repeated node", objection, node)


def _key(node: Node) -> object:
    inputs = tuple([_value_key(value) for value in node.inputs])
    present = tuple([value is not None for value in node.outputs])
    attributes = frozenset([_attribute_key(attribute) for attribute in node.attributes.values()])
    return (node.op_type, node.domain, node.overload, node.opset, inputs, present, attributes)


def _value_key(value: Value | None) -> object:
    constant = constant_of(value)
    return id(value) if constant is None else _constant_key(constant)


def _constant_key(constant: Constant) -> object:
    if constant.nbytes > MAX_COMPARED_NBYTES:
        return id(constant)
    return (constant.dtype, constant.shape, constant.digest())


def _attribute_key(attribute: Attribute) -> object:
    value = attribute.value
    content = _constant_key(value) if isinstance(value, Constant) else value
    return (attribute.name, attribute.kind, attribute.reference, content)
