"""What a decoder is made of, as facts: the one description that the graph is written from."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field


class QueryKeyNorm(enum.Enum):
    """Norms of queries and keys before the rotation."""

    NONE = "none"
    HEAD = "of each head"
    WHOLE = "of all heads together"


@dataclass(frozen=True, slots=True)
class Rotation:
    """A rotary position embedding.

    Attributes:
        theta: base of the frequencies.
        width: elements of a head that rotate.
        scaling: ``rope_scaling`` of the configuration; empty: none.
    """

    theta: float
    width: int
    scaling: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LayerNorms:
    """Names of a layer's norms below ``model.layers.N.``; ``None``: there is none at this place."""

    before_attention: str | None = "input_layernorm"
    after_attention: str | None = None
    before_mlp: str | None = "post_attention_layernorm"
    after_mlp: str | None = None


@dataclass(frozen=True, slots=True)
class Gating:
    """``gate * sigmoid(alpha * gate) * (product + beta)``, with gates up to a limit and products within it.

    Attributes:
        alpha: of the sigmoid.
        beta: added to the product.
        limit: of both; 0: none.
    """

    alpha: float = 1.0
    beta: float = 0.0
    limit: float = 0.0


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture of experts in place of the product of a layer.

    Attributes:
        count: of experts.
        chosen: experts of a token.
        size: inner elements of one.
        is_normalized: whether the weights of the chosen ones sum to 1.
        router: name of the router below the layer.
        pattern: name of an expert's products, with ``{}`` for its number.
        parts: names of the gate, the second and the last product.
        gating: how a gate and its product become one.
        are_joined: whether the checkpoint has one tensor for all experts, and biases, as gpt-oss does.
        layers: that have experts; ``None``: all.
        shared_size: inner elements of an expert that each token has, weighed by a gate of its own; 0: none.
    """

    count: int
    chosen: int
    size: int
    is_normalized: bool
    router: str
    pattern: str
    parts: tuple[str, str, str]
    gating: Gating = Gating()
    are_joined: bool = False
    layers: frozenset[int] | None = None
    shared_size: int = 0

    def are_in(self, place: int) -> bool:
        """Return whether a layer has them."""
        return self.layers is None or place in self.layers


@dataclass(frozen=True, slots=True)
class Architecture:
    """A decoder of text.

    Attributes:
        type: as genai_config.json has it.
        hidden_size: elements of a token's vector.
        inner_size: elements between the products of a layer.
        head_size: elements of a head.
        context_length: tokens that positions are defined for.
        norm_epsilon: of all norms.
        norm_offset: added to weights of norms.
        has_mean_norms: whether norms subtract the mean (LayerNorm), not only scale.
        are_norms_plain: whether norms have no weights.
        attention_scale: factor of scores.
        is_scale_by_layer: whether scores are divided by the number of their layer, too, from 1 on.
        attention_softcap: bound of scores; 0: none.
        logits_softcap: bound of logits; 0: none.
        windows: for each layer the tokens that it sees, -1: all.
        rotations: of the layers, most often one.
        layer_rotations: for each layer its place among the rotations, -1: none.
        activation: ``silu``, ``gelu_tanh``, ``gelu``, ``relu`` or ``relu2`` (the square of what is above 0).
        is_gated: whether the product has a gate.
        is_rotation_interleaved: whether neighbors rotate together, not the halves of a head.
        has_sinks: whether each head has a score of its own that takes a share and gives nothing.
        clip: bound of queries, keys and values; 0: none.
        has_positions: whether learned vectors of positions are added.
        is_tied: whether the head is the table of tokens.
    """

    type: str
    vocab_size: int
    hidden_size: int
    inner_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    context_length: int
    norm_epsilon: float
    attention_scale: float
    windows: tuple[int, ...]
    rotations: tuple[Rotation, ...]
    layer_rotations: tuple[int, ...]
    is_tied: bool
    norm_offset: float = 0.0
    has_mean_norms: bool = False
    are_norms_plain: bool = False
    is_scale_by_layer: bool = False
    attention_softcap: float = 0.0
    logits_softcap: float = 0.0
    activation: str = "silu"
    is_gated: bool = True
    is_rotation_interleaved: bool = False
    has_sinks: bool = False
    clip: float = 0.0
    embedding_scale: float = 1.0
    residual_scale: float = 1.0
    logits_scale: float = 1.0
    has_positions: bool = False
    query_key_norm: QueryKeyNorm = QueryKeyNorm.NONE
    norms: LayerNorms = LayerNorms()
    experts: Experts | None = None
