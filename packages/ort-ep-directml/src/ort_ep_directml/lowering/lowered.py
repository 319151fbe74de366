"""Lowered: the plan of a claim for one signature of shapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ort_core.plugin import CompileRequest
from ort_core.plugin.ir import Node, TensorType, Value
from ort_ep_directml.lowering.emission import EmissionState
from ort_ep_directml.lowering.lowering_context import LoweringContext, element_type
from ort_ep_directml.lowering.operand import Operand, packed
from ort_ep_directml.lowering.plan import GraphPlan, PlanInput, PlanOutput, Sizes, Source
from ort_ep_directml.lowering.refused import Refused
from ort_ep_directml.lowering.sizes import SizeState
from ort_ep_directml.lowering.table import lower_node


def lower(request: CompileRequest, shapes: Sequence[tuple[int, ...]], level: int) -> GraphPlan:
    """Return the plan of a partition.

    Args:
        request: the partition; ``refusal`` refused none of its nodes at this level.
        shapes: one for each input of its graph.
        level: the feature level of the device.

    Raises:
        Refused: with these shapes a node cannot be lowered; the reason names the node.
    """
    graph = request.graph
    return lower_nodes(LoweringContext(request.view(), level), tuple(graph), graph.inputs, shapes, graph.outputs)


def lower_nodes(
    context: LoweringContext,
    nodes: Sequence[Node],
    inputs: Sequence[Value],
    shapes: Sequence[tuple[int, ...]],
    outputs: Sequence[Value],
) -> GraphPlan:
    """Return the plan of some nodes.

    Args:
        context: the graph that they are of.
        nodes: in topological order.
        inputs: what they read from outside, constants left out.
        shapes: of the inputs.
        outputs: what they give.

    Raises:
        Refused: a node cannot be lowered.
    """
    sizes = known_sizes(nodes, inputs, shapes)
    to = EmissionState(context, sizes)
    for place, value in enumerate(inputs):
        dtype = element_type(value)
        if dtype is not None:  # others are read by no node that is lowered
            to.bind(value, packed(Source("input", place), dtype, sizes[value]))
    for node in nodes:
        try:
            lower_node(to, node)
        except Refused as refused:
            raise Refused(f"{node.describe()}: {refused.reason}") from refused
    given = _outputs(to, outputs)
    return _pruned(to, inputs, given)


def known_sizes(
    nodes: Sequence[Node], inputs: Sequence[Value], shapes: Sequence[tuple[int, ...]]
) -> dict[Value, Sizes]:
    """Return the sizes of all values that follow from those of the inputs."""
    state = SizeState()
    found: dict[Value, Sizes] = {}
    for value, sizes in zip(inputs, shapes, strict=True):
        found[value] = tuple(sizes)
        state.learn(value.shape or (None,) * len(sizes), sizes)
    for node in nodes:
        for value in node.present_inputs():
            if value not in found and (fixed := state.shape(value.shape)) is not None:
                found[value] = fixed  # a constant
        for value in node.present_outputs():
            known = state.shape(value.shape)
            if known is not None:
                found[value] = known
                state.learn(value.shape or (), known)
    return found


def _outputs(to: EmissionState, outputs: Sequence[Value]) -> list[PlanOutput]:
    """Return the outputs, each a packed buffer that one node writes for it alone."""
    found: list[PlanOutput] = []
    taken: set[Source] = set()
    for place, value in enumerate(outputs):
        operand = to.operand(value)
        if not operand.is_packed or operand.source.kind != "node" or operand.source in taken:
            operand = to.emit("ELEMENT_WISE_IDENTITY", (operand.dtype, operand.sizes), Input=operand)
        taken.add(operand.source)
        assert isinstance(value.type, TensorType), "rules refuse everything else"
        found.append(_output(place, value, value.type, operand))
    return found


def _output(place: int, value: Value, kind: TensorType, operand: Operand) -> PlanOutput:
    return PlanOutput(place, value.name, kind.dtype.numpy, operand.sizes, operand.tensor(), operand.source)


def _pruned(to: EmissionState, inputs: Sequence[Value], outputs: Sequence[PlanOutput]) -> GraphPlan:
    """Return the plan with only what its outputs depend on, numbered anew."""
    wanted = {port.source for port in outputs}
    for place, node in reversed(list(enumerate(to.nodes))):
        if any(source.kind == "node" and source.index == place for source in wanted):
            wanted.update(source for source in node.sources if source is not None)
    numbers = {
        kind: {old: new for new, old in enumerate(sorted({s.index for s in wanted if s.kind == kind}))}
        for kind in ("input", "constant", "node")
    }

    def moved(source: Source) -> Source:
        return replace(source, index=numbers[source.kind][source.index])

    kept = [to.nodes[place] for place in numbers["node"]]
    nodes = [replace(n, sources=tuple(None if s is None else moved(s) for s in n.sources)) for n in kept]
    ports = [PlanInput(place, inputs[place].name, to.operand(inputs[place]).tensor()) for place in numbers["input"]]
    constants = [to.constants[place] for place in numbers["constant"]]
    ends = [replace(port, source=moved(port.source)) for port in outputs]
    return GraphPlan(tuple(ports), tuple(constants), tuple(nodes), tuple(ends), to.context.level)
