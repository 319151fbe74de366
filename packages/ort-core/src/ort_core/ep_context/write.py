"""write_contexts(): a prepared model with each partition that its provider can store as one EPContext node.

What a provider does not store stays as ordinary nodes, and the report says why.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ort_core import __version__
from ort_core.ep_context.container import ContextContent, context_digest, encode_context
from ort_core.ep_context.nodes import (
    COMPATIBILITY_PREFIX,
    DOMAIN,
    ContextFacts,
    can_carry,
    compatibility_text,
    context_node,
    fits_context_node,
)
from ort_core.ir.constants import Constant
from ort_core.ir.graph import Graph
from ort_core.ir.model import Model
from ort_core.ir.nodes import Node
from ort_core.ir.rejection import Rejection
from ort_core.ir.structure import MAX_CONTENT_NBYTES, graphs_and_bodies
from ort_core.ir.subgraph import Border, border_of
from ort_core.ir.traversal import topological_order
from ort_core.ir.values import Value
from ort_core.partitioning.partition import Partition, PartitionedGraph
from ort_core.providers.compiled import CompiledPartition

OwnGraph = Callable[[Partition], Graph]
KeepContent = Callable[[str, bytes], bytes | str]
"""Takes a partition's name and content; returns the content, to embed it, or the name of the file that it went to."""


@dataclass(frozen=True, slots=True)
class CompiledModel:
    """A model with EPContext nodes. ``stored`` names the partitions; ``refused`` gives reasons by partition."""

    model: Model
    stored: tuple[str, ...]
    refused: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ContextStyle:
    """How nodes are written: where contents go, what names begin with, which file the model came from."""

    keep: KeepContent = field(default=lambda name, content: content)
    name_prefix: str = ""
    model_file: str = ""


def write_contexts(
    model: Model,
    partitioned: PartitionedGraph,
    compiled: Sequence[CompiledPartition | None],
    own_graph: OwnGraph,
    style: ContextStyle,
) -> CompiledModel:
    """Return a copy of a planned model in which compiled partitions stand for their nodes.

    Args:
        model: the frozen model that was planned.
        partitioned: its steps.
        compiled: for each step what its provider compiled, ``None`` for control flow.
        own_graph: returns the graph that the provider of a partition compiled.
        style: how nodes are written.
    """
    copy = model.clone()
    twins = dict(zip(model.graph.nodes, copy.graph.nodes, strict=True))
    stored: list[str] = []
    refused: dict[str, str] = {}
    for step, result in zip(partitioned.steps, compiled, strict=True):
        if not isinstance(step, Partition) or result is None:
            refused[step.name] = "the runtime runs this control flow itself"
            continue
        content = _content(step, result, model, own_graph)
        if isinstance(content, Rejection):
            refused[step.name] = content.reason
            continue
        _replace(copy, [twins[node] for node in step.nodes], step, content, style)
        stored.append(step.name)
    if stored:
        copy.opset_imports.setdefault(DOMAIN, 1)
        copy.graph.reorder(topological_order(copy.graph))
        _drop_unused_constants(copy.graph)
    return CompiledModel(copy, tuple(stored), refused)


@dataclass(frozen=True, slots=True)
class _Content:
    encoded: bytes
    constants: tuple[Constant, ...]


def _content(part: Partition, compiled: CompiledPartition, model: Model, own_graph: OwnGraph) -> _Content | Rejection:
    if part.restored is not None:
        return Rejection("it came out of a compiled model already; compile the original")
    for value in (*part.border.inputs, *part.border.outputs):
        if not can_carry(value.type):
            return Rejection(f"{value.name!r} of type {value.type} cannot go through an EPContext node")
    blob = compiled.serialize()
    if isinstance(blob, Rejection):
        return blob
    graph, constants = (b"", ()) if part.provider.loads_without_graph else _graph(own_graph(part), model)
    count = len(part.border.inputs)
    if not count and not constants:
        return Rejection("it reads no value of the model, and an EPContext node needs an input")
    content = ContextContent(part.provider.name, part.provider.cache_key(), __version__, count, graph, blob)
    return _Content(encode_context(content), constants)


def _graph(graph: Graph, model: Model) -> tuple[bytes, tuple[Constant, ...]]:
    from ort_core.onnx_io.artefact import encode_optimized  # imports onnx

    constants = {
        id(value.constant): value.constant
        for inner in graphs_and_bodies(graph)
        for value in inner.initializers
        if value.constant is not None and value.constant.nbytes > MAX_CONTENT_NBYTES
        and fits_context_node(value.constant.dtype)
    }  # fmt: skip
    kept = tuple(constants.values())
    own = Model(graph, dict(model.opset_imports), dict(model.functions), model.ir_version)
    return b"".join(encode_optimized(own, kept)), kept


def _replace(model: Model, nodes: Sequence[Node], part: Partition, content: _Content, style: ContextStyle) -> None:
    graph = model.graph
    border: Border = border_of(nodes)
    facts = ContextFacts(
        part.provider.name, part.provider.cache_key(), part.name, context_digest(content.encoded), style.model_file
    )
    inputs = [*border.inputs, *(_initializer(graph, constant, part.name) for constant in content.constants)]
    anchor = nodes[0]
    outputs = list(border.outputs)
    for value in outputs:
        assert value.producer is not None
        value.producer.detach_output(value.output_index)
    name = graph.fresh_name(f"{style.name_prefix}{part.name}")
    node = context_node(facts, style.keep(part.name, content.encoded), inputs, outputs, name)
    graph.insert_before(anchor, node)
    for member in reversed(nodes):
        graph.remove(member)
    model.metadata[f"{COMPATIBILITY_PREFIX}{facts.provider}"] = compatibility_text(facts.key)


def _initializer(graph: Graph, constant: Constant, hint: str) -> Value:
    for value in graph.initializers:
        if value.constant is constant and not value.is_graph_input:
            return value
    return graph.new_constant(constant, f"{hint}/constant")


def _drop_unused_constants(graph: Graph) -> None:
    for value in graph.initializers:
        if not value.use_count and not value.is_graph_input and not value.is_graph_output:
            graph.remove_initializer(value)
