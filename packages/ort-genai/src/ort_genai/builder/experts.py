"""A mixture of experts as one node: MoE of com.microsoft, with a router before it."""

from __future__ import annotations

import numpy as np

from ort_genai.builder.architecture import Architecture
from ort_genai.builder.graph_writer import CONTRIB, GraphWriter
from ort_genai.builder.layer_weights import LayerWeights
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
    start, hidden, size = f"/model/layers.{place}/moe", made.hidden_size, experts.size
    router = weights.plain(place, experts.router, (experts.count, hidden))
    tensor = graph.tensor(f"model.layers.{place}.moe.router.weight", router.T.astype(form.dtype))
    scores = graph.node("MatMul", [value, tensor], f"{start}/router/output_0", f"{start}/router/MatMul")
    shape = graph.tensor(f"/model/constants/INT64/[-1, {experts.count}]", np.array([-1, experts.count], np.int64))
    flat = graph.node("Reshape", [scores, shape], f"{start}/router/Reshape/output_0", f"{start}/router/Reshape")
    first, last = [], []
    for number in range(experts.count):
        start_name = experts.pattern.format(number)
        gate, up = (weights.plain(place, f"{start_name}.{part}", (size, hidden)) for part in experts.parts[:2])
        first.append(np.stack([gate, up], axis=1).reshape(2 * size, hidden))  # a gate, then its product, row by row
        last.append(weights.plain(place, f"{start_name}.{experts.parts[2]}", (hidden, size)))
    names = [
        graph.tensor(f"model.layers.{place}.moe.{name}", np.stack(each).astype(form.dtype))
        for name, each in (("fc1.weight", first), ("fc2.weight", last))
    ]
    return graph.node(
        "MoE", [value, flat, names[0], None, names[1]], f"{start}/output_0", f"{start}/MoE", CONTRIB, k=experts.chosen,
        activation_type="swiglu", swiglu_fusion=1, activation_alpha=1.0, activation_beta=0.0,
        normalize_routing_weights=int(experts.is_normalized),
    )  # fmt: skip
