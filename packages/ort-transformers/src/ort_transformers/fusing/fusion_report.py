"""FusionReport: how many attentions, norms and rotations were fused, and the first reason for each that was not."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import onnx

from ort_core.model_optimization import OptimizedProto
from ort_core.plugin.passes import NearMiss
from ort_transformers.fusing.norm_pieces import norm_pieces
from ort_transformers.graphs.model_paths import Makers, Readers
from ort_transformers.graphs.model_values import ModelValues

ATTENTIONS = frozenset({"Attention", "MultiHeadAttention", "GroupQueryAttention", "PackedAttention"})
NORMS = frozenset(
    {
        "LayerNormalization", "SkipLayerNormalization", "SimplifiedLayerNormalization", "RMSNormalization",
        "SkipSimplifiedLayerNormalization", "EmbedLayerNormalization", "GroupNorm", "SkipGroupNorm",
        "GroupNormalization",
    }
)  # fmt: skip
_CHANGES = frozenset({"Add", "Sub"})  # of shares in front of values, which no operator for attentions does
_STEPS_TO_VALUES = _CHANGES | {"Slice", "Where", "IsNaN", "Cast", "Dropout", "Reshape", "Transpose", "Mul", "Gather"}
_WIDTH = 60  # nodes between the matrices of an expert and the sum over experts, of the exports looked at, and more
_DEPTH = 6  # nodes between a softmax and the product with values, of the exports that were looked at, and some more


@dataclass(frozen=True, slots=True)
class Unfused:
    """An attention, a norm, a rotation or experts in pieces: the node at its heart, and the first reason."""

    kind: str
    node: str
    reason: str


@dataclass(frozen=True, slots=True)
class FusionReport:
    """What fusions did to a model. ``fused`` counts operators in the result, ``counts`` changes by pass."""

    fused: dict[str, int]
    unfused: tuple[Unfused, ...]
    counts: dict[str, int]
    nodes_before: int
    nodes_after: int

    @property
    def num_attentions(self) -> int:
        """How many attentions are one operator."""
        return sum(count for name, count in self.fused.items() if name in ATTENTIONS)

    @property
    def num_norms(self) -> int:
        """How many norms are one operator."""
        return sum(count for name, count in self.fused.items() if name in NORMS)

    def unfused_of(self, kind: str) -> tuple[Unfused, ...]:
        """Return what stays in pieces of a kind.

        Kinds are ``"attention"``, ``"norm"``, ``"group norm"``, ``"rotation"`` and ``"experts"``; with operators for
        GPUs ``"gated GELU"``, ``"bias"``, ``"skip"``, ``"convolution"`` and ``"projection"`` besides.
        """
        return tuple(each for each in self.unfused if each.kind == kind)

    def __str__(self) -> str:
        fused = ", ".join(f"{name} {count}" for name, count in self.fused.items()) or "nothing"
        lines = [f"fused: {fused}", f"nodes: {self.nodes_before} -> {self.nodes_after}"]
        lines += [f"not fused: {each.kind} at node {each.node!r}: {each.reason}" for each in self.unfused]
        return "\n".join(lines)


def report_of(done: OptimizedProto) -> FusionReport:
    """Return the report of a model that was optimized with explanations."""
    model = ModelValues(done.model)
    statistics = model.get_operator_statistics()
    fused = {name: count for name, count in statistics.items() if name in ATTENTIONS | NORMS | _OTHERS}
    unfused = (
        *_attentions(model, done.misses), *_norms(model, done.misses), *_rotations(model, done.misses),
        *_experts(model, done.misses), *_for_gpus(model, done.misses),
    )  # fmt: skip
    return FusionReport(fused, unfused, dict(done.counts), done.nodes_before, done.nodes_after)


UNKNOWN = "no fusion knows this form"
_OTHERS = frozenset(
    {
        "MoE", "Gelu", "FastGelu", "BiasGelu", "QuickGelu", "RotaryEmbedding", "BiasSplitGelu", "BiasAdd", "NhwcConv",
    }
)  # fmt: skip
_GPU_KINDS = {  # of passes for GPUs: what stays in pieces where one of them nearly fired
    "BiasSplitGeluFusion": "gated GELU", "BiasAddFusion": "bias", "SkipGroupNormFusion": "skip",
    "NhwcConvFusion": "convolution", "PackedQKVFusion": "projection", "PackedKVFusion": "projection",
}  # fmt: skip


def _attentions(model: ModelValues, misses: Sequence[NearMiss]) -> Iterable[Unfused]:
    """Find softmaxes whose shares weigh values: those of attentions in pieces."""
    readers, makers = model.input_name_to_nodes(), model.output_name_to_node()
    weights = {each.name: tuple(each.dims) for each in model.model.graph.initializer}
    for node in model.get_nodes_by_op_type("Softmax"):
        if not _comes_from_product(node, makers, weights):
            yield from _mixed_heads(node, makers, readers, weights)
            continue
        product = _product_behind(node, readers)
        if product is not None:
            reason = _reason(misses, (node.name, product.name), ("Attention",)) or _why_unknown(node, product, readers)
            yield Unfused("attention", node.name, reason)
        else:
            yield from _mixed_heads(node, makers, readers, weights)


def _why_unknown(softmax: onnx.NodeProto, product: onnx.NodeProto, readers: Readers) -> str:
    """Return what is not as fusions know it between a softmax and the product with values."""
    if product.op_type != "MatMul":
        return f"its product with values is {product.op_type} {product.name!r}: fusions know MatMul"
    change = _change_before(softmax, product, readers)
    if change is not None:
        return (
            f"{change.op_type} {change.name!r} changes the shares in front of values: no operator for attentions does"
        )
    first = readers[softmax.output[0]]
    between = next((each for each in first if each is not product), None)
    if between is None:
        return UNKNOWN
    return f"{between.op_type} {between.name!r} reads the softmax, beside its product with values or in front of it"


def _change_before(softmax: onnx.NodeProto, product: onnx.NodeProto, readers: Readers) -> onnx.NodeProto | None:
    """Return the sum or difference, on the way from a softmax to the product with values, that shares are part of."""
    waiting: list[tuple[onnx.NodeProto, onnx.NodeProto | None, int]] = [(softmax, None, 0)]
    while waiting:
        current, change, depth = waiting.pop(0)
        for child in (each for name in current.output for each in readers.get(name, [])):
            if child is product:
                return change
            if child.op_type in _STEPS_TO_VALUES and depth < _DEPTH:
                found = child if change is None and child.op_type in _CHANGES else change
                waiting.append((child, found, depth + 1))
    return None


def _mixed_heads(
    node: onnx.NodeProto, makers: Makers, readers: Readers, weights: Mapping[str, tuple[int, ...]]
) -> Iterable[Unfused]:
    """Find a softmax of scores that weights mixed across heads, with a product behind it or behind another mixture."""
    current = makers.get(node.input[0])
    for _ in range(_DEPTH):
        if current is None:
            return
        if _mixes_heads(current, weights):
            break
        current = makers.get(current.input[0]) if current.op_type in _STEPS_TO_VALUES else None
    if current is None or not _comes_from_product(current, makers, weights):
        return
    if _product_behind(node, readers) is not None or _mixer_behind(node, readers, weights):
        reason = (
            f"{current.op_type} {current.name!r} mixes the scores of heads in front of the softmax: no operator for "
            "attentions does"
        )
        yield Unfused("attention", node.name, reason)


def _mixes_heads(node: onnx.NodeProto, weights: Mapping[str, tuple[int, ...]]) -> bool:
    """Return whether a node multiplies one axis by a square matrix of weights, maybe as a convolution of 1 by 1."""
    shape = next((weights[name] for name in node.input if name in weights), ())
    if node.op_type not in ("MatMul", "Einsum", "Conv") or len(shape) < 2 or shape[0] != shape[1]:
        return False
    return node.op_type != "Conv" or set(shape[2:]) == {1}


def _mixer_behind(node: onnx.NodeProto, readers: Readers, weights: Mapping[str, tuple[int, ...]]) -> bool:
    waiting, depth = [node], 0
    while waiting and depth < _DEPTH:
        children = [each for one in waiting for name in one.output for each in readers.get(name, [])]
        if any(_mixes_heads(each, weights) for each in children):
            return True
        waiting, depth = [each for each in children if each.op_type in _STEPS_TO_VALUES], depth + 1
    return False


def _comes_from_product(node: onnx.NodeProto, makers: Makers, weights: Collection[str]) -> bool:
    """Return whether scores are a product of two computed values: one with weights is a projection."""
    waiting = [(name, 0) for name in node.input[:1]]
    while waiting:
        name, depth = waiting.pop()
        maker = makers.get(name)
        if maker is None or depth > _DEPTH:
            continue
        if maker.op_type in ("MatMul", "Einsum", "FusedMatMul"):
            if not any(each in weights for each in maker.input):
                return True
            continue
        waiting += [(each, depth + 1) for each in maker.input]
    return False


def _product_behind(node: onnx.NodeProto, readers: Readers) -> onnx.NodeProto | None:
    waiting = [(node, 0)]
    while waiting:
        current, depth = waiting.pop(0)
        for child in (each for name in current.output for each in readers.get(name, [])):
            if child.op_type in ("MatMul", "Einsum", "FusedMatMul"):
                return child
            if child.op_type in _STEPS_TO_VALUES and depth < _DEPTH:
                waiting.append((child, depth + 1))
    return None


def _norms(model: ModelValues, misses: Sequence[NearMiss]) -> Iterable[Unfused]:
    """Return the norms in pieces, with why the passes left them, or else what is special about them."""
    for kind, node, others, reason in norm_pieces(model):
        yield Unfused(kind, node, _reason(misses, (node, *others), ("Norm",)) or reason or UNKNOWN)


def _rotations(model: ModelValues, misses: Sequence[NearMiss]) -> Iterable[Unfused]:
    """Find sums of two products, one with halves joined of which one is negated: rotations in pieces."""
    makers = model.output_name_to_node()
    for node in model.get_nodes_by_op_type("Add"):
        products = [makers[name] for name in node.input if name in makers and makers[name].op_type == "Mul"]
        turned = (makers.get(name) for each in products for name in each.input)
        if len(products) == 2 and any(each is not None and _is_quarter_turn(each, makers) for each in turned):
            yield Unfused("rotation", node.name, _reason(misses, (node.name,), ("RotaryEmbedding",)) or UNKNOWN)


def _experts(model: ModelValues, misses: Sequence[NearMiss]) -> Iterable[Unfused]:
    """Find sums behind products with gathered matrices: those of experts in pieces."""
    readers = model.input_name_to_nodes()
    tables = {each.name for each in model.model.graph.initializer if len(each.dims) == 3}
    sums: dict[str, None] = {}
    for node in model.nodes():
        is_gathered = node.op_type in ("Gather", "GatherND") and node.input[0] in tables
        if is_gathered and any(each.op_type == "MatMul" for each in readers.get(node.output[0], [])):
            sums |= dict.fromkeys(_sum_behind(node, readers))
    yield from (Unfused("experts", name, _reason(misses, (name,), ("Expert",)) or UNKNOWN) for name in sums)


def _sum_behind(node: onnx.NodeProto, readers: Readers) -> Iterable[str]:
    """Return the name of the nearest sum behind a node, if there is one."""
    waiting, seen = [node], {node.name}
    while waiting and len(seen) < _WIDTH:
        current = waiting.pop(0)
        if current.op_type == "ReduceSum":
            yield current.name
            return
        children = [each for name in current.output for each in readers.get(name, []) if each.name not in seen]
        seen.update(each.name for each in children)
        waiting += children


def _for_gpus(model: ModelValues, misses: Sequence[NearMiss]) -> Iterable[Unfused]:
    """Return what a fusion for GPUs fits but for one condition."""
    there = {repr(node.name): node.name for node in model.nodes() if node.name}
    told: set[tuple[str, str]] = set()
    for miss in misses:
        node = next((name for shown, name in there.items() if shown in miss.node), None) if miss.fits else None
        kind = _GPU_KINDS.get(miss.pass_name)
        if node is not None and kind is not None and (kind, node) not in told:
            told.add((kind, node))
            yield Unfused(kind, node, miss.reason)


def _is_quarter_turn(node: onnx.NodeProto, makers: Makers) -> bool:
    """Return whether a node joins a negated value with another, as the turn of pairs by 90 degrees does."""
    for _ in range(2):  # neighbors are merged by a Reshape, and got an axis before they were joined
        if node.op_type == "Reshape" and node.input[0] in makers:
            node = makers[node.input[0]]
    if node.op_type != "Concat" or len(node.input) != 2 or node.input[0] not in makers:
        return False
    first = makers[node.input[0]]
    first = makers.get(first.input[0], first) if first.op_type == "Unsqueeze" else first
    return first.op_type == "Neg"


def _reason(misses: Sequence[NearMiss], nodes: Sequence[str], passes: Sequence[str]) -> str:
    """Return why the passes left it at one of its nodes, empty where none of them nearly fired there."""
    of_kind = [each for each in misses if any(word in each.pass_name for word in passes)]
    here = [each for each in of_kind if any(repr(name) in each.node for name in nodes if name)]
    whole = [each for each in here if each.fits]
    return next((each.reason for each in (*whole, *here)), "")
