"""Feed-forward parts of denoisers, as the two operators that onnxruntime has on GPUs alone.

    a, b = the halves of Add(x, bias);  y = Mul(a, Gelu(b))    ->  y = BiasSplitGelu(x, bias)
    y = Add(Add(MatMul(h, w), bias), skip)                     ->  y = BiasAdd(MatMul(h, w), bias, skip)

Its kernels are for the widths of Stable Diffusion alone and refuse others when they run, so others stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass

from ort_core.plugin import Rejection
from ort_core.plugin.ir import DataType, Node, TensorType, Value
from ort_core.plugin.passes import Level, RulePass
from ort_core.plugin.rewrite import GraphPatch, Match, Pattern, RewriteRule, constant, one_of, op, var
from ort_transformers.fusing.fixed_constants import constant_array, fixed_constant
from ort_transformers.fusing.skip_group_norms import MICROSOFT, vector_added

SPLIT_WIDTHS = (2560, 5120, 6144, 10240, 12288)  # of both halves together
ADDED_WIDTHS = (320, 640, 1280)
_RANK = 3
_TYPES = frozenset({DataType.FLOAT, DataType.FLOAT16})


@dataclass(frozen=True, slots=True)
class Biased:
    """A value, and the vector that is added to it."""

    x: Value
    bias: Value


class SplitGelus(RewriteRule[Biased]):
    """Fuse a bias, the split, the GELU of the second half and the product."""

    name = "SplitGelus"
    emits = ((MICROSOFT, "BiasSplitGelu"),)

    def build_pattern(self) -> Pattern:
        """Return a product with a GELU, in either operator's form."""
        half = var("gate")
        exact = op("Gelu", half, since=20, attributes={"approximate": lambda found: found in (None, "none", b"none")})
        return op("Mul", var("value"), one_of(op("Gelu", half, domain=MICROSOFT), exact))

    def check(self, match: Match) -> Biased | Rejection:
        """Both must be halves of one sum with a vector, the GELU of the second."""
        first, second = _half(match["value"]), _half(match["gate"])
        if first is None or second is None or first[0] is not second[0] or (first[1], second[1]) != (0, 1):
            return Rejection("it is no product of a first half and the GELU of the second", match.root)
        whole = first[0]
        refusal = _refuse(whole, SPLIT_WIDTHS, "BiasSplitGelu", match.root)
        if refusal is not None:
            return refusal
        assert whole.shape is not None
        found = vector_added(whole, whole.shape[-1])
        if found is None:
            return Rejection(f"{whole.name!r} is no sum with a bias of its width", match.root)
        return Biased(*found)

    def rewrite(self, match: Match, bindings: Biased) -> GraphPatch:
        """Put one BiasSplitGelu there."""
        patch = GraphPatch(match.model, match.root)
        y = patch.op("BiasSplitGelu", [bindings.x, bindings.bias], type=match.output.type, domain=MICROSOFT)
        patch.replace(match.output, y)
        halves = [each.producer for each in (match["value"], match["gate"]) if each.producer is not None]
        whole = _half(match["value"])
        added = [] if whole is None or whole[0].producer is None else [whole[0].producer]
        patch.remove(*match.nodes, *dict.fromkeys(halves), *added)
        return patch


class BiasAdditions(RewriteRule[None]):
    """Fuse the bias of a product and the addition behind it, where no norm took them."""

    name = "BiasAdditions"
    emits = ((MICROSOFT, "BiasAdd"),)

    def build_pattern(self) -> Pattern:
        """Return a product with a bias and something else added."""
        product = var("product", where=lambda value: value.producer is not None and value.producer.op_type == "MatMul")
        biased = op("Add", product, constant("bias", where=lambda found: len(found.shape) == 1))
        return op("Add", biased, var("skip"))

    def check(self, match: Match) -> Rejection | None:
        """All but the bias must have the same three sizes."""
        product, shape = match["product"], match.output.shape
        if shape is None or None in shape or product.shape != shape or match["skip"].shape != shape:
            return Rejection("the product and what is added are not known to have one size", match.root)
        if match["bias"].shape != (shape[-1],):
            return Rejection(f"{match['bias'].name!r} is not as long as the last axis", match.root)
        return _refuse(match.output, ADDED_WIDTHS, "BiasAdd", match.root)

    def rewrite(self, match: Match, bindings: None) -> GraphPatch:
        """Put one BiasAdd there."""
        patch = GraphPatch(match.model, match.root)
        inputs = [match["product"], match["bias"], match["skip"]]
        patch.replace(match.output, patch.op("BiasAdd", inputs, type=match.output.type, domain=MICROSOFT))
        patch.remove(*match.nodes)
        return patch


def _refuse(value: Value, widths: tuple[int, ...], operator: str, node: Node) -> Rejection | None:
    """Return why the kernel of an operator does not take a value."""
    if not isinstance(value.type, TensorType) or value.type.dtype not in _TYPES:
        return Rejection(f"{operator} is for float32 and float16", node)
    if value.rank != _RANK or value.shape is None or value.shape[-1] not in widths:
        sizes = ", ".join(map(str, widths))
        return Rejection(f"onnxruntime's {operator} takes three axes, the last one of {sizes}", node)
    return None


def _half(value: Value) -> tuple[Value, int] | None:
    """Return what a value is a half of by the last axis, and which: of a Split, or a Slice with constant bounds."""
    node = value.producer
    if node is None or node.domain != "" or node.op_type not in ("Split", "Slice"):
        return None
    whole = node.input(0)
    width = None if whole is None or whole.shape is None else whole.shape[-1]
    if whole is None or not isinstance(width, int) or width % 2 or value.shape is None:
        return None
    if value.shape != (*whole.shape[:-1], width // 2):  # type: ignore[index]  # it has a width
        return None
    if node.op_type == "Split":
        place = next(index for index, each in enumerate(node.outputs) if each is value)
        return (whole, place) if len(node.outputs) == 2 else None
    start = _start_of_last_axis(node, width)
    return None if start not in (0, width // 2) else (whole, int(start > 0))


def _start_of_last_axis(node: Node, width: int) -> int | None:
    """Return where a Slice of the last axis alone begins; its result has half the width, so the step is 1 or -1."""
    bounds = [node.input(place) for place in range(1, 5)]
    if node.input(3) is None or any(each is not None and fixed_constant(each) is None for each in bounds):
        return None
    starts, _, axes, steps = (None if each is None else constant_array(each).reshape(-1) for each in bounds)
    if starts is None or axes is None or len(axes) != 1 or axes[0] not in (-1, _RANK - 1):
        return None
    if steps is not None and steps[0] != 1:
        return None
    return int(starts[0] + width if starts[0] < 0 else starts[0])


SPLIT_GELUS = RulePass("BiasSplitGeluFusion", [SplitGelus()], Level.EXTENDED)
BIAS_ADDITIONS = RulePass("BiasAddFusion", [BiasAdditions()], Level.EXTENDED)
