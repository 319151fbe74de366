"""Decompose: a node becomes the nodes of its operator's function body, as the specification defines it.

    y = Gelu(x)   ->   c = Constant<0.5>  h = Mul(c, x)  ...  y = Identity(last)

For providers whose SDK knows an operator's parts and not the operator itself; done on a copy of the graph.
"""

from __future__ import annotations

from dataclasses import replace

from ort_core.ir.graph import Graph
from ort_core.ir.model import Function, Model
from ort_core.ir.nodes import Node
from ort_core.ir.rejection import Rejection
from ort_core.ir.subgraph import inline
from ort_core.ir.traversal import walk
from ort_core.ir.values import Value
from ort_core.kernels.evaluation_context import EvaluationContext
from ort_core.kernels.evaluator import instantiate
from ort_core.ops.known_contents import inference_rules
from ort_core.ops.schema import OpSchema
from ort_core.ops.shape_inference import infer_types

_PADS_MASKS = 24  # the opset from which on Attention's body makes a mask as long as the keys
_CHANGED_MEANING = frozenset({"GroupNormalization"})  # its scale had an element per group until opset 21


def decompose(graph: Graph, node: Node, context: EvaluationContext) -> tuple[Node, ...] | Rejection:
    """Replace a node of an editable graph by its function body, and return the new nodes in order.

    Values of the body have types as far as the node's inputs have; the node's outputs keep names and types. Nothing is
    changed where the answer is a Rejection.

    Args:
        graph: the graph around the node.
        node: what is replaced.
        context: schemas and imports of the model.
    """
    opset = context.opset_of(node)
    schema = context.schemas.find(node.domain, node.op_type, opset)
    if isinstance(schema, Rejection):
        return schema
    if schema.build_body is None:
        return Rejection(f"{node.qualified_name} has no function body", node)
    unequal = _unequal_to_body(node, opset)
    if unequal is not None:
        return Rejection(f"the body of {node.qualified_name} {unequal}", node)
    types = [None if value is None else value.type for value in node.inputs]
    function = schema.build_body(node, types, opset, context.opset_imports)
    if isinstance(function, Rejection):
        return function
    body = instantiate(_with_defaults(function, schema), node)
    changed = _changed_operator(body, function, context)
    if changed is not None:
        return Rejection(f"the body of {node.qualified_name} means another version of {changed.qualified_name}", node)
    _infer(body, node, function, context)
    return _inlined(graph, node, body)


def _unequal_to_body(node: Node, opset: int) -> str | None:
    """Return where a body computes something else than its operator's kernels and text."""
    if node.domain or node.op_type != "Attention":
        return None
    if opset < _PADS_MASKS and not _mask_has_all_keys(node):
        return "repeats a mask that is shorter than the keys, and nothing says that this one is not"
    return None


def _mask_has_all_keys(node: Node) -> bool:
    mask, keys, past = (None if value is None else value.shape for value in map(node.input, (3, 1, 4)))
    if node.input(3) is None:
        return True
    if not mask or not keys or (node.input(4) is not None and not past):
        return False
    rows = (keys[-2], past[-2] if past else 0)
    total = sum(size for size in rows if isinstance(size, int))
    return mask[-1] == total if all(isinstance(size, int) for size in rows) else not past and mask[-1] == rows[0]


def _with_defaults(function: Function, schema: OpSchema) -> Function:
    """Return a body whose references to attributes that the node leaves out stand for the operator's defaults."""
    declared = {name: attribute.default for name, attribute in schema.attributes.items()}
    defaults = {name: default for name, default in declared.items() if default is not None}
    return replace(function, attribute_defaults={**defaults, **function.attribute_defaults})


def _infer(body: Graph, node: Node, function: Function, context: EvaluationContext) -> None:
    for formal, value in zip(body.inputs, node.inputs, strict=False):
        formal.type = None if value is None else value.type
    imports = {**context.opset_imports, **function.opset_imports}
    infer_types(Model(body, imports), context.schemas, inference_rules())
    for result, value in zip(body.outputs, node.outputs, strict=False):
        if value is not None and result.type is None:
            result.type = value.type


def _inlined(graph: Graph, node: Node, body: Graph) -> tuple[Node, ...]:
    before, after = node._previous, node._next
    bindings: dict[Value, Value] = {}
    for index, formal in enumerate(body.inputs):
        bindings[formal] = node.input(index)  # type: ignore[assignment]  # None: absent, and so for the body's readers
    results = inline(graph, node, body, bindings)
    for index, result in enumerate(results[: len(node.outputs)]):
        if node.outputs[index] is not None:
            graph.insert_before(node, Node("Identity", [result])).adopt_outputs([node.detach_output(index)])
    graph.remove(node)
    made: list[Node] = []
    following = before._next if before is not None else graph._first
    while following is not None and following is not after:
        made.append(following)
        following = following._next
    return tuple(made)


def _changed_operator(body: Graph, function: Function, context: EvaluationContext) -> Node | None:
    """Return a node of a body that the model's own opset reads as something else."""
    for node in walk(body):
        meant = node.opset if node.opset is not None else function.opset_imports.get(node.domain)
        own = context.opset_imports.get(node.domain)
        if meant is None or own is None or meant == own:
            continue
        schemas = [context.schemas.find(node.domain, node.op_type, opset) for opset in (meant, own)]
        known = [each for each in schemas if not isinstance(each, Rejection)]
        if len(known) != len(schemas) or not _reads_alike(node, known[0], known[1]):
            return node
    return None


def _reads_alike(node: Node, first: OpSchema, second: OpSchema) -> bool:
    """Return whether two versions of an operator take a node's attributes and inputs for the same.

    Most versions only add element types, or attributes whose default is what was before.
    """
    if first.since_version == second.since_version:
        return True
    if node.op_type in _CHANGED_MEANING or not node.attributes.keys() <= second.attributes.keys():
        return False
    unstated = (first.attributes.keys() & second.attributes.keys()) - node.attributes.keys()
    if any(first.attributes[name].default != second.attributes[name].default for name in unstated):
        return False
    names = [[parameter.name for parameter in schema.inputs] for schema in (first, second)]
    return all(a == b for a, b in zip(*names, strict=False)) and len(names[1]) >= len(names[0])
