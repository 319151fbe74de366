"""The table: the rule of every operator that is lowered. What is not in it is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ort_core.plugin.claims import PLACED_BODIES, STANDARD_DOMAINS
from ort_core.plugin.ir import Node, Value
from ort_ep_directml.index_limits import check_numbers
from ort_ep_directml.lowering.activations import ACTIVATIONS
from ort_ep_directml.lowering.attention import ATTENTION
from ort_ep_directml.lowering.elementwise import ELEMENTWISE
from ort_ep_directml.lowering.emission import EmissionState, exceeds_index_range
from ort_ep_directml.lowering.generation import GENERATION
from ort_ep_directml.lowering.grouped_attention import GROUPED_ATTENTION
from ort_ep_directml.lowering.indexing import INDEXING
from ort_ep_directml.lowering.losses import LOSSES
from ort_ep_directml.lowering.lowering_context import LoweringContext, element_type
from ort_ep_directml.lowering.movement import MOVEMENT
from ort_ep_directml.lowering.normalization import NORMALIZATION
from ort_ep_directml.lowering.operand import packed
from ort_ep_directml.lowering.plan import PlanNode, Sizes, Source
from ort_ep_directml.lowering.products import PRODUCTS
from ort_ep_directml.lowering.quantization import QUANTIZATION
from ort_ep_directml.lowering.recurrent import RECURRENT
from ort_ep_directml.lowering.reductions import REDUCTIONS
from ort_ep_directml.lowering.refused import Refused
from ort_ep_directml.lowering.regions import REGIONS
from ort_ep_directml.lowering.resampling import RESAMPLING
from ort_ep_directml.lowering.rule import Rule
from ort_ep_directml.lowering.sampling import SAMPLING
from ort_ep_directml.lowering.shape_numbers import is_number_of_shapes, learn_behind, learn_numbers
from ort_ep_directml.lowering.sizes import sampled_sizes
from ort_ep_directml.lowering.windows import WINDOWS
from ort_ep_directml.schema.operators import level_text
from ort_ep_directml.schema.tensor_types import TABLE_LEVEL

RULES: Mapping[str, Rule] = {
    **ELEMENTWISE,
    **ACTIVATIONS,
    **PRODUCTS,
    **WINDOWS,
    **REDUCTIONS,
    **NORMALIZATION,
    **MOVEMENT,
    **INDEXING,
    **GENERATION,
    **QUANTIZATION,
    **RECURRENT,
    **RESAMPLING,
    **REGIONS,
    **ATTENTION,
    **LOSSES,
    **SAMPLING,
}
"""Rules by operator of ``ai.onnx``."""

CONTRIBUTED_RULES: Mapping[str, Rule] = {**GROUPED_ATTENTION}
"""Rules by operator of ``com.microsoft``; the others are claimed in their parts."""

_WHY_NOT = {
    **PLACED_BODIES,
    "NonZero": "the shape of its result depends on values; DirectML's graphs have fixed shapes",
    "Unique": "the shape of its result depends on values; DirectML's graphs have fixed shapes",
    "Compress": "the shape of its result depends on values; DirectML's graphs have fixed shapes",
    "NonMaxSuppression": "the shape of its result depends on values; DirectML's graphs have fixed shapes",
}
_CONTRIBUTED = "com.microsoft"
_OF_CONSTANTS = frozenset({"Constant", "DequantizeLinear", "Range"})
"""What goes along with the nodes that read it: ort-core leaves these as they are, so that weights stay small."""


def rule_of(node: Node) -> Rule | None:
    """Return the rule of a node's operator, ``None`` where there is none."""
    rules = RULES if node.domain in STANDARD_DOMAINS else CONTRIBUTED_RULES if node.domain == _CONTRIBUTED else {}
    return rules.get(node.op_type)


def refusal(context: LoweringContext, node: Node) -> str | None:
    """Return why a node is not lowered, or ``None``.

    It is lowered on its own for the answer, with a sample for sizes that are open.
    """
    view = context.view
    if context.level < TABLE_LEVEL and context.device_refusal is None:
        here, known = level_text(context.level), level_text(TABLE_LEVEL)
        return f"what DirectML takes at feature level {here}, before {known}, only a device tells, and there is none"
    if node.domain not in STANDARD_DOMAINS and rule_of(node) is None:
        return f"{node.domain} is not a domain that this provider lowers"
    if rule_of(node) is None and not is_number_of_shapes(node):
        return _WHY_NOT.get(node.op_type, f"{node.op_type} is not among the operators that are lowered to DirectML")
    if node.op_type not in _OF_CONSTANTS and all(view.constant(value) is not None for value in node.present_inputs()):
        return "there is nothing to compute at run time: every input is constant"
    try:
        _try(context, node)
    except Refused as refused:
        return refused.reason
    return None


def _try(context: LoweringContext, node: Node) -> None:
    """Lower a node alone, its inputs packed.

    Raises:
        Refused: it cannot be lowered.
    """
    shapes = {value: sampled(value) for value in (*node.present_inputs(), *node.present_outputs())}
    learn_behind(context, node, sampled_sizes)
    is_sample = any(value.shape != sizes for value, sizes in shapes.items())
    to = EmissionState(context, shapes, is_sample=is_sample, is_trial=True)
    for place, value in enumerate(node.present_inputs()):
        dtype = element_type(value)
        if context.constant(value) is None and dtype is not None:
            to.bind(value, packed(Source("input", place), dtype, shapes[value]))
    lower_node(to, node)
    ask_device(context, to.nodes)


def ask_device(context: LoweringContext, nodes: Sequence[PlanNode]) -> None:
    """Ask the device about operators, where it must be asked; those of sample sizes that none could hold are taken.

    Raises:
        Refused: it does not take one.
    """
    if context.level >= TABLE_LEVEL or context.device_refusal is None:
        return
    for node in nodes:
        reason = None if exceeds_index_range(node) else context.device_refusal(node)
        if reason is not None:
            raise Refused(reason)


def sampled(value: Value) -> Sizes:
    """Return the sizes of a value, with a sample for those that are open.

    Raises:
        Refused: a size has no name.
    """
    sizes = sampled_sizes(value)
    if sizes is None:
        raise Refused(f"the sizes of {value.name!r} have no names, and DirectML compiles for fixed sizes")
    return sizes


def lower_node(to: EmissionState, node: Node) -> None:
    """Append a node's operators, and say what its outputs are. Where they are numbers of shapes, nothing is appended.

    Raises:
        Refused: it cannot be lowered, or would not give what shape inference says.
    """
    for value in node.present_outputs():
        if 0 in to.sizes(value):
            raise Refused(f"{value.name!r} holds no element; DirectML has no empty tensors")
    if learn_numbers(to.context, node, to.sizes):
        _check_sizes(to, node)
        return
    rule = rule_of(node)
    if rule is None:
        raise Refused(f"{node.op_type} is not among the operators that are lowered to DirectML")
    if not to.is_trial:
        check_numbers(to.context, node, to.sizes)
    operands = rule.apply(to, node)
    given = [(value, operand) for value, operand in zip(node.outputs, operands, strict=False) if value is not None]
    for value, operand in given:
        if not _agrees(to, value, operand.sizes) or operand.dtype is not element_type(value):
            made = f"{operand.dtype.text}{list(operand.sizes)}"
            expected = f"{value.type} {list(to.sizes(value))}"
            raise Refused(f"{value.name!r} would become {made}, and shape inference says {expected}")
        to.bind(value, operand)


def _agrees(to: EmissionState, value: Value, sizes: Sizes) -> bool:
    """Return whether sizes are what shape inference says; those of a sample where it says numbers."""
    if sizes == to.sizes(value):
        return True
    is_known = [not isinstance(size, int) or size == made for size, made in zip(value.shape or (), sizes, strict=False)]
    return to.is_sample and len(is_known) == len(sizes) and all(is_known)


def _check_sizes(to: EmissionState, node: Node) -> None:
    """Compare numbers with what shape inference says of them.

    Raises:
        Refused: they are of other sizes.
    """
    for value in node.present_outputs():
        found = to.context.numbers[value].shape
        if found != to.sizes(value):
            raise Refused(
                f"{value.name!r} would become {list(found)}, and shape inference says {list(to.sizes(value))}"
            )
