"""Capability: which nodes OpenVINO gets. The table refuses first; then OpenVINO is asked about each whole group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from ort_core.plugin import Capability, GraphView, Rejection
from ort_core.plugin.claims import claims_of, form_groups
from ort_core.plugin.ir import Node, border_of
from ort_ep_openvino import _sdk
from ort_ep_openvino.lowering.ports import Ports
from ort_ep_openvino.lowering.program import Program, program_of
from ort_ep_openvino.lowering.sized_view import example_views, named_sizes, standing_view
from ort_ep_openvino.lowering.table import is_trusted_in_one, refusal
from ort_ep_openvino.options import OpenVinoOptions
from ort_ep_openvino.support_cache import Refused, SupportAnswer, SupportCacheState

_NOTHING_TO_COMPUTE = frozenset({"Constant", "Identity"})


def find_capability(view: GraphView, options: OpenVinoOptions, answers: SupportCacheState) -> Capability:
    """Claim convex groups that the table trusts and the device runs; refuse every other node with its reason."""
    absent = _sdk.find_absence(options.device)
    if absent is not None:
        return [Rejection(absent, node) for node in view.nodes]
    reasons, conditional = _untrusted(view)
    question = _Question(view, options.device, answers, conditional)
    return claims_of(form_groups(view, reasons, lambda group: _refused(question, group)), reasons)


def _untrusted(view: GraphView) -> tuple[dict[Node, str], dict[Node, str]]:
    """Return the nodes that the table refuses, and those that it trusts with some sizes, each with the objection.

    Values that the first of them make come from outside of every claim.
    """
    offered = set(view.nodes)
    outside = {value for node in view.graph if node not in offered for value in node.present_outputs()}
    standing = standing_view(view, outside)
    examples = example_views(view, outside, named_sizes(view.graph.inputs))
    reasons: dict[Node, str] = {}
    conditional: dict[Node, str] = {}
    for node in view.nodes:
        reason = refusal(standing, node)
        if reason is None:
            continue
        if is_trusted_in_one(examples, node):
            conditional[node] = reason
            continue
        reasons[node] = reason
        outside.update(node.present_outputs())
    return reasons, conditional


@dataclass(frozen=True, slots=True)
class _Question:
    """What OpenVINO is asked about: groups of a view's nodes, for a device.

    Attributes:
        view: the graph, and what is known of it.
        device: as OpenVINO names it.
        answers: what was said before.
        conditional: nodes that each run asks the table about with its own sizes, and what speaks against them else.
    """

    view: GraphView
    device: str
    answers: SupportCacheState
    conditional: Mapping[Node, str]

    def ask(self, group: tuple[Node, ...]) -> SupportAnswer:
        """Return how the ports of a group's model stand to it, or why OpenVINO does not take it."""
        program = program_of(self.view, group)
        known = self.answers.find(program, len(group))
        if known is None:
            known = _asked(program, self.device)
            self.answers.keep(program, len(group), known)
        return known


def _refused(question: _Question, group: tuple[Node, ...]) -> dict[Node, str]:
    """Return the nodes of a group that OpenVINO does not take, with its words; empty when it takes the group."""
    if all(node.op_type in _NOTHING_TO_COMPUTE for node in group):
        return dict.fromkeys(group, "there is nothing to compute: constants, and values that are handed on")
    unseen = _beyond_its_border(question, group)
    if unseen:
        return unseen
    lowered = question.ask(group)
    if isinstance(lowered, Ports):
        handed_on = "it hands its inputs on unchanged: there is nothing to compute"
        return {} if lowered.outputs else dict.fromkeys(group, handed_on)
    return _culprits(question, group, lowered) or dict.fromkeys(group, lowered.reason)


def _beyond_its_border(question: _Question, group: tuple[Node, ...]) -> dict[Node, str]:
    """Return the nodes of a group whose condition hangs on sizes that the inputs of the group do not show."""
    asked = [node for node in group if node in question.conditional]
    if not asked:
        return {}
    inputs = border_of(group).inputs
    examples = example_views(question.view, set(inputs), named_sizes(inputs))
    return {node: question.conditional[node] for node in asked if not is_trusted_in_one(examples, node)}


def _culprits(question: _Question, group: tuple[Node, ...], refused: Refused) -> dict[Node, str]:
    """Return the nodes for which a group is refused: those that OpenVINO names, else by halves.

    Empty when it names none, and takes every half alone.
    """
    if len(group) == 1:
        return {group[0]: refused.reason}
    named = _named(group, refused.names)
    if named:
        alone = ((node, question.ask((node,))) for node in named)
        return {node: (found if isinstance(found, Refused) else refused).reason for node, found in alone}
    middle = len(group) // 2
    found: dict[Node, str] = {}
    for half in (group[:middle], group[middle:]):  # convex too: a group is in topological order
        if isinstance(lowered := question.ask(half), Refused):
            found |= _culprits(question, half, lowered) or dict.fromkeys(half, lowered.reason)
    return found


def _named(group: tuple[Node, ...], names: frozenset[str]) -> tuple[Node, ...]:
    """Return the nodes that are named, or make a value that is; a name that several nodes have names none."""
    if not names:
        return ()
    shared = Counter(node.name for node in group)
    made = {node: {value.name for value in node.present_outputs()} for node in group}
    return tuple(n for n in group if made[n] & names or (n.name in names and shared[n.name] == 1))


def _asked(program: Program, device: str) -> SupportAnswer:
    """Ask OpenVINO."""
    weights = program.shuffled_weights()  # held while the model lives
    try:
        model = _sdk.read_model(program.content, weights)
        ports = _sdk.separate_passed(model, program.inputs)
        missing = _sdk.unsupported(model, device) if ports.outputs else None
    except _sdk.SdkError as error:
        return Refused(f"OpenVINO's ONNX frontend: {error}", error.names)
    if missing is None:
        return ports
    return Refused(f"OpenVINO's device {device} does not run {', '.join(missing.kinds)}", missing.names)
