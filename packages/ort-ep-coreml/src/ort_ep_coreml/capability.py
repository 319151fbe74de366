"""Capability: which nodes Core ML gets. Rules alone decide, so that the answer is the same on every system."""

from __future__ import annotations

from collections.abc import Set

from ort_core.plugin import Capability, CompileRequest, GraphView, Rejection
from ort_core.plugin.claims import claims_of, form_groups, is_static, open_size
from ort_core.plugin.ir import Node, SymbolicDim, Value
from ort_ep_coreml.lowering.lowered import lower
from ort_ep_coreml.lowering.lowering_context import LoweringContext
from ort_ep_coreml.lowering.static_values import StaticValues, attached, find_static_values
from ort_ep_coreml.lowering.table import refusal
from ort_ep_coreml.mil import MilProgram
from ort_ep_coreml.options import CoreMlOptions
from ort_ep_coreml.state_pairs import parse_states
from ort_ep_coreml.states import states_of

_NOTHING_TO_COMPUTE = frozenset({"Identity", "Dropout"})


def find_capability(view: GraphView, options: CoreMlOptions) -> Capability:
    """Claim convex groups of nodes whose rules hold; refuse every other node with its reason."""
    if not options.EnableOnSubgraphs and view.graph is not view.model.graph:
        reason = "option EnableOnSubgraphs is off, and this is the body of a control flow operator"
        return [Rejection(reason, node) for node in view.nodes]
    alone: set[Node] = set()
    while True:
        known = find_static_values(view, alone)
        reasons = _refused(view, options, known, alone)
        ordered = [node for node in view.graph.nodes if node not in known.free]
        groups = form_groups(view, reasons, lambda group: _lone_constants(view, group), nodes=ordered)
        groups, found = attached(view.graph.nodes, groups, known)
        if not found:
            break
        alone |= found

    def idle(group: tuple[Node, ...]) -> dict[Node, str]:
        if any(node.op_type not in _NOTHING_TO_COMPUTE and node not in known for node in group):
            return {}
        return dict.fromkeys(group, "there is nothing to compute: values that are handed on")

    return claims_of(groups, reasons, idle)


def _refused(view: GraphView, options: CoreMlOptions, known: StaticValues, alone: Set[Node]) -> dict[Node, str]:
    """Return the nodes that are not claimed, with their reasons, in order: what they make comes from outside.

    Those that are ``alone`` have results that are known, and no group to go along with.
    """
    offered = set(view.nodes)
    outside = _given(view)
    outside.update(value for node in view.graph if node not in offered for value in node.present_outputs())
    reasons: dict[Node, str] = {}
    beforehand: set[Value] = set()
    sizes = options.sizes()
    for node in view.nodes:
        if node in known:
            continue
        context = LoweringContext(view, outside, options.DeploymentTarget, options.Precision, sizes, known.values)
        reason = _dynamic(node) if options.RequireStaticInputShapes else None
        if node in alone or _is_known_beforehand(context, node, beforehand):
            beforehand.update(node.present_outputs())
            reason = "there is nothing to compute at run time: sizes and constants alone give the result"
        reason = reason or refusal(context, node) or _unwritable_border(context, node)
        if reason is not None:
            reasons[node] = reason
            outside.update(node.present_outputs())
    return reasons


def _lone_constants(view: GraphView, group: tuple[Node, ...]) -> dict[Node, str]:
    """Return nodes that compute of constants alone and are read outside of their group: programs give no constants."""
    own = set(group)
    found = [node for node in reversed(group) if all(view.constant(v) is not None for v in node.present_inputs())]
    reason = "it is computed of constants alone, and what reads it runs elsewhere"
    return {node: reason for node in found if _is_read_elsewhere(node, own)}


def _is_read_elsewhere(node: Node, group: Set[Node]) -> bool:
    values = tuple(node.present_outputs())
    is_given = node.graph is not None and any(value in node.graph.outputs for value in values)
    return is_given or any(reader not in group for value in values for reader in value.consumers())


def _is_known_beforehand(context: LoweringContext, node: Node, beforehand: set[Value]) -> bool:
    """Return whether no value of a run changes the result: a program must not give constants."""
    inputs = tuple(node.present_inputs())
    if node.op_type in ("Shape", "Size"):
        return all(is_static(value) for value in inputs)
    is_fixed = all(value in beforehand or context.constant(value) is not None for value in inputs)
    return is_fixed and any(value in beforehand for value in inputs)


def _given(view: GraphView) -> set[Value]:
    """Return what comes into the graph: its inputs, and values of graphs around it."""
    return {value for node in view.graph for value in node.present_inputs() if value.producer is None}


def _dynamic(node: Node) -> str | None:
    found = open_size(node)
    return None if found is None else f"option RequireStaticInputShapes: the sizes of {found!r} are not fixed"


def _unwritable_border(context: LoweringContext, node: Node) -> str | None:
    """Refuse inputs from outside with a size that has no name: two of them may be one, and nothing says so."""
    for value in node.present_inputs():
        if value not in context.outside or context.constant(value) is not None:
            continue
        if any(not isinstance(size, (int, SymbolicDim)) for size in value.shape or ()):
            return f"a size of {value.name!r} is not known at all"
    return None


def program_of(request: CompileRequest, options: CoreMlOptions) -> MilProgram:
    """Return the program of a partition that is to be compiled.

    Raises:
        ValueError: the option ``States`` names what cannot be one.
    """
    view, graph = request.view(), request.graph
    sizes = options.sizes()
    known = find_static_values(view).values
    context = LoweringContext(view, frozenset(graph.inputs), options.DeploymentTarget, options.Precision, sizes, known)
    states = states_of(context, parse_states(options.States), graph.inputs, graph.outputs) if options.States else {}
    return lower(context, tuple(graph), graph.inputs, graph.outputs, states)
