"""InlineFunctions: a call of a model-local function becomes the nodes of its body.

    y = local.Double(x)   with Double(a) => (b) { b = Add(a, a) }     ->  y = Add(x, x)

Nodes of a function that imports another opset than the model keep their own (``Node.opset``), where the operator
changed between the two. Calls within bodies are inlined as well; afterwards no function is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ort_core.errors import InvalidGraph
from ort_core.ir.graph import Graph
from ort_core.ir.model import Function
from ort_core.ir.nodes import Node
from ort_core.ir.rejection import Rejection
from ort_core.ir.subgraph import inline
from ort_core.ir.traversal import graphs_of, walk
from ort_core.ir.values import Value
from ort_core.kernels.evaluator import instantiate
from ort_core.passes.base import Pass, PassContext, PassRecordState
from ort_core.passes.normalize import normalize
from ort_core.rewrite.patch import GraphPatch

# A few functions that call each other twice, 20 deep, make more nodes than any memory holds. Real ones (a layer, and in
# it the operators of a framework) make at most some 20 nodes of each that the file has.
MAX_NODES = 20_000
MAX_NODES_PER_NODE = 50


class InlineFunctions(Pass):
    """Inline all calls, outer ones first."""

    name = "InlineFunctions"
    runs_once = True
    needs_inference = True

    def apply(self, context: PassContext, record: PassRecordState) -> None:
        """Inline until no call is left; functions that nobody called go, too."""
        functions = context.model.functions
        if not functions:
            return
        calls = _calls(context, context.graphs())
        written = sum(len(graph) for graph in (*context.graphs(), *_bodies(functions.values())))
        limit, num_nodes = MAX_NODES + MAX_NODES_PER_NODE * written, 0
        while calls:
            for graph, node, function in calls:
                num_nodes += len(function.graph)
                if num_nodes > limit:
                    raise InvalidGraph(
                        f"inlining the model's functions gives more than {limit} nodes, where the file has {written}"
                    )
                _inline_call(context, graph, node, function)
                record.changed(f"{function.domain}::{function.name}")
            calls = _calls(context, context.graphs())
        record.changed("functions dropped", len(functions))
        functions.clear()
        normalize(context.model)


def _bodies(functions: Iterable[Function]) -> Iterator[Graph]:
    for function in functions:
        yield from graphs_of(function.graph)


def _calls(context: PassContext, graphs: Iterable[Graph]) -> list[tuple[Graph, Node, Function]]:
    functions = context.model.functions
    found = []
    for graph in graphs:
        for node in graph:
            function = functions.get((node.domain, node.op_type, node.overload))
            if function is not None:
                found.append((graph, node, function))
    return found


def _inline_call(context: PassContext, graph: Graph, node: Node, function: Function) -> None:
    body = instantiate(function, node)
    _keep_opsets(context, body, function)
    prefix = node.name or function.name
    for inner in walk(body):
        inner.name = f"{prefix}/{inner.name or inner.op_type}"
    bindings: dict[Value, Value] = {}
    for index, formal in enumerate(body.inputs):
        bindings[formal] = node.input(index)  # type: ignore[assignment]  # None: absent, and so for the body's readers
    results = inline(graph, node, body, bindings)
    patch = GraphPatch(context.model, node)
    for output, result in zip(node.outputs, results):
        if output is not None and result is not None:
            if result.type is None:
                result.type = output.type
            output.type = result.type  # what a caller declared of a call must not refuse what the body computes
            patch.replace(output, patch.op("Identity", [result], type=result.type))
    patch.remove(node)
    patch.apply()


def _keep_opsets(context: PassContext, body: Graph, function: Function) -> None:
    imports = context.model.opset_imports
    for node in walk(body):
        version = function.opset_imports.get(node.domain)
        if version is None or node.opset is not None:
            continue
        own = imports.setdefault(node.domain, version)
        if own != version and not _is_same_operator(context, node, own, version):
            node.opset = version


def _is_same_operator(context: PassContext, node: Node, first: int, second: int) -> bool:
    if (node.domain, node.op_type, node.overload) in context.model.functions:
        return True
    schemas = [context.schemas.find(node.domain, node.op_type, opset) for opset in (first, second)]
    known = [schema for schema in schemas if not isinstance(schema, Rejection)]
    return len(known) == len(schemas) and known[0].since_version == known[1].since_version
