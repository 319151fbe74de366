"""Nodes with an opset of their own become calls of functions: a file has one opset for all nodes of a domain.

    y = Softmax(x), opset 12 in a model of opset 17  ->  y = ort_core.functions.Softmax_12_0(x)
    with   ort_core.functions.Softmax_12_0 (a) => (b) { b = Softmax(a) }  that imports opset 12

Such nodes come from functions that were inlined. Loading inlines these ones again. An operator that is the same in both
opsets stays as it is. Where a fusion made one of an opset that is newer than the model's, the file has older operators
instead, where they are known: onnxruntime inlines functions under the opset of the model.
"""

from __future__ import annotations

from ort_core.ir.graph import Graph
from ort_core.ir.model import Function, Model
from ort_core.ir.nodes import Node
from ort_core.ir.subgraph import ValueMap, copy_node
from ort_core.ir.traversal import reads_of, walk
from ort_core.ir.values import Value
from ort_core.onnx_io.older_parts import write_in_older_parts
from ort_core.onnx_io.since_versions import is_same_operator

DOMAIN = "ort_core.functions"
_FUNCTIONS_SINCE_IR = 8


def with_own_opsets(model: Model) -> Model:
    """Return the model, or a copy with functions where a node's opset differs from what the model imports."""
    if not any(_differs(model, node) for node in walk(model.graph)):
        return model
    copy = model.clone()
    _import_more(copy)
    # Inner nodes first, so that the body of a node that is wrapped holds calls already.
    different = [node for node in walk(copy.graph) if _differs(copy, node)]
    left = [node for node in different if not _write_older(copy, node)]
    if not left:
        return copy
    for number, node in enumerate(reversed(left)):
        _wrap(copy, node, number)
    copy.opset_imports[DOMAIN] = 1
    copy.ir_version = max(copy.ir_version, _FUNCTIONS_SINCE_IR)
    return copy


def _differs(model: Model, node: Node) -> bool:
    version = model.opset_imports.get(node.domain)
    if node.opset is None or node.opset == version:
        return False
    return version is None or not is_same_operator(node.domain, node.op_type, node.opset, version)


def _import_more(model: Model) -> None:
    """Import domains that only nodes of their own opset use."""
    for node in walk(model.graph):
        if node.opset is not None and node.domain not in model.opset_imports:
            model.opset_imports[node.domain] = node.opset


def _write_older(model: Model, node: Node) -> bool:
    version = model.opset_imports[node.domain]
    return not _differs(model, node) or (version < (node.opset or 0) and write_in_older_parts(node, version))


def _wrap(model: Model, node: Node, number: int) -> None:
    assert node.opset is not None
    assert node.graph is not None
    name = f"{node.op_type}_{node.opset}_{number}"
    reads = reads_of(node)
    body, values = Graph(name), ValueMap()
    for index, value in enumerate(reads):
        values[value] = Value(f"{name}_in{index}", value.type)
        body.add_input(values[value])
    inner = copy_node(node, values)
    inner.opset = None
    body.append(inner)
    body.set_outputs([values[value] for value in node.present_outputs()])
    imports = {**model.opset_imports, node.domain: node.opset, DOMAIN: 1}
    function = Function(DOMAIN, name, "", body, opset_imports=imports)
    model.functions[function.key] = function
    outputs = [node.detach_output(index) for index, value in enumerate(node.outputs) if value is not None]
    node.graph.insert_before(node, Node(name, reads, outputs, domain=DOMAIN, name=node.name))
    node.graph.remove(node)
