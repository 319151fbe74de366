"""A mixture of experts as one node: MoE of com.microsoft, with a router before it."""

from __future__ import annotations

import numpy as np

from ort_genai.builder.architecture import Architecture, Experts
from ort_genai.builder.graph_writer import CONTRIB, GraphWriter
from ort_genai.builder.layer_weights import LayerWeights, Linear
from ort_genai.builder.weight_precision import WeightFormat
from ort_genai.errors import InvalidModelFolder


def write_experts(
    graph: GraphWriter, form: WeightFormat, made: Architecture, weights: LayerWeights, value: str, place: int
) -> str:
    """Add the experts of a layer and return their result; their weights are floats at any precision.

    Raises:
        InvalidModelFolder: the activation is another than silu.
    """
    experts = made.experts
    assert experts is not None, "a layer without experts"
    if made.activation != "silu":
        raise InvalidModelFolder(f"experts with the activation {made.activation!r} cannot be built; known: silu")
    start, hidden = f"/model/layers.{place}/moe", made.hidden_size
    router = weights.plain(place, experts.router, (experts.count, hidden))
    tensor = graph.tensor(f"model.layers.{place}.moe.router.weight", router.T.astype(form.dtype))
    scores = graph.node("MatMul", [value, tensor], f"{start}/router/output_0", f"{start}/router/MatMul")
    if experts.are_joined:
        bias = weights.vector(place, f"{experts.router}.bias", experts.count).astype(form.dtype)
        tensor = graph.tensor(f"model.layers.{place}.moe.router.bias", bias)
        scores = graph.node("Add", [scores, tensor], f"{start}/router/Add/output_0", f"{start}/router/Add")
    shape = graph.tensor(f"/model/constants/INT64/[-1, {experts.count}]", np.array([-1, experts.count], np.int64))
    flat = graph.node("Reshape", [scores, shape], f"{start}/router/Reshape/output_0", f"{start}/router/Reshape")
    read = _joined if experts.are_joined else _gathered
    products: list[str | None] = []
    for number, (weight, added) in enumerate(read(weights, experts, place, hidden), 1):
        stored = graph.tensor(f"model.layers.{place}.moe.fc{number}.weight", weight.astype(form.dtype))
        products += [stored, None]
        if added is not None:
            products[-1] = graph.tensor(f"model.layers.{place}.moe.fc{number}.bias", added.astype(form.dtype))
    while products[-1] is None:
        products.pop()
    gating = experts.gating
    limit = {"swiglu_limit": gating.limit} if gating.limit else {}
    return graph.node(
        "MoE", [value, flat, *products], f"{start}/output_0", f"{start}/MoE", CONTRIB, k=experts.chosen,
        activation_type="swiglu", swiglu_fusion=1, activation_alpha=gating.alpha, activation_beta=gating.beta,
        normalize_routing_weights=int(experts.is_normalized), **limit,
    )  # fmt: skip


def _joined(weights: LayerWeights, experts: Experts, place: int, hidden: int) -> list[Linear]:
    """Return both products of all experts as a checkpoint has them that joins them, gates and products in turns."""
    count, size = experts.count, experts.size
    return [
        weights.joined(place, experts.parts[0], (count, 2 * size, hidden)),
        weights.joined(place, experts.parts[2], (count, hidden, size)),
    ]


def _gathered(weights: LayerWeights, experts: Experts, place: int, hidden: int) -> list[Linear]:
    """Return both products of all experts, read one after another."""
    size, first, last = experts.size, [], []
    for number in range(experts.count):
        start = experts.pattern.format(number)
        gate, up = (weights.plain(place, f"{start}.{part}", (size, hidden)) for part in experts.parts[:2])
        first.append(np.stack([gate, up], axis=1).reshape(2 * size, hidden))  # a gate, then its product, row by row
        last.append(weights.plain(place, f"{start}.{experts.parts[2]}", (hidden, size)))
    return [(np.stack(first), None), (np.stack(last), None)]
