"""What models that see have in common: a layer of what sees, vectors of images among tokens, the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np
from onnx import ValueInfoProto

from ort_genai.builder.architecture import Architecture
from ort_genai.builder.layer_blocks import INT64, LayerBlocks
from ort_genai.builder.layer_weights import LayerWeights
from ort_genai.builder.sources import WeightSource
from ort_genai.errors import InvalidModelFolder


class SeeingArchitecture(Protocol):
    """A decoder, and what sees for it."""

    @property
    def type(self) -> str:
        """Its name in ``genai_config.json``."""

    @property
    def text(self) -> Architecture:
        """Its decoder."""

    @property
    def image_token(self) -> int:
        """The token that stands for a vector of an image."""

    @property
    def hidden_size(self) -> int:
        """Elements of a vector while the image is seen."""

    @property
    def inner_size(self) -> int:
        """Elements between the products of a layer."""

    @property
    def heads(self) -> int:
        """Of its attention."""

    @property
    def layers(self) -> int:
        """Layers that see."""

    @property
    def activation(self) -> str:
        """Of its layers."""

    @property
    def num_layers(self) -> int:
        """Layers of both graphs."""

    @property
    def tokens_per_image(self) -> int:
        """Tokens that stand for what is seen at once."""


def vision_layer(blocks: LayerBlocks, made: SeeingArchitecture, value: str, start: str, name: str) -> str:
    """Add a layer of CLIP or SigLIP.

    Args:
        blocks: writes it.
        made: the architecture.
        value: what the layer reads.
        start: of the names of its weights.
        name: of its nodes.
    """
    shape = (made.hidden_size, made.hidden_size)
    normed = blocks.norm(value, f"{start}.layer_norm1", f"{name}/norm_1")
    parts = [blocks.product(normed, f"{start}.self_attn.{part}_proj", f"{name}/{part}_proj", shape) for part in "qkv"]
    seen = blocks.attention(parts, made.heads, name)
    added = blocks.product(seen, f"{start}.self_attn.out_proj", f"{name}/o_proj", shape)
    value = blocks.node("Add", [value, added], f"{name}/Add_1")
    normed = blocks.norm(value, f"{start}.layer_norm2", f"{name}/norm_2")
    weights, sizes = (f"{start}.mlp.fc1", f"{start}.mlp.fc2"), (made.hidden_size, made.inner_size)
    inner = blocks.inner(normed, f"{name}/mlp", weights, sizes, made.activation)
    return blocks.node("Add", [value, inner], f"{name}/Add_2")


def token_of(config: Mapping[str, object], name: str, default: int | None = None) -> int:
    """Return a token that a configuration names.

    Raises:
        InvalidModelFolder: it is none that a vocabulary can have.
    """
    found = config.get(name, default)
    if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found < 1 << 31:
        raise InvalidModelFolder(f"config.json has {name} = {found!r}, expected a token")
    return found


def write_embedding(
    blocks: LayerBlocks, made: SeeingArchitecture, source: WeightSource
) -> tuple[list[ValueInfoProto], list[ValueInfoProto]]:
    """Add the table of tokens, with vectors of images in the place of their tokens."""
    table = LayerWeights(source, made.text).table()
    tensor = blocks.graph.tensor("model.embed_tokens.weight", table.astype(blocks.form.dtype))
    rows = blocks.node("Gather", [tensor, "input_ids"], "/embed_tokens/Gather")
    token = blocks.constant("image_token", np.array(made.image_token, np.int64))
    stands = blocks.node("Equal", ["input_ids", token], "/images/Equal")
    places = blocks.node("NonZero", [stands], "/images/NonZero")
    turned = blocks.node("Transpose", [places], "/images/Transpose", perm=[1, 0])
    blocks.graph.node("ScatterND", [rows, turned, "image_features"], "inputs_embeds", "/images/ScatterND")
    hidden = made.text.hidden_size
    tokens: list[str | int] = ["batch_size", "sequence_length"]
    return (
        [blocks.info("input_ids", tokens, INT64), blocks.info("image_features", ["num_image_tokens", hidden])],
        [blocks.info("inputs_embeds", [*tokens, hidden])],
    )


def with_images(config: dict[str, object], made: SeeingArchitecture) -> dict[str, object]:
    """Return ``genai_config.json`` of a decoder with what sees for it."""
    model = config["model"]
    if not isinstance(model, dict):
        raise InvalidModelFolder("the configuration of the decoder has no section model")
    inputs = {name: value for name, value in model["decoder"]["inputs"].items() if name != "input_ids"}
    model["decoder"]["inputs"] = {"inputs_embeds": "inputs_embeds", **inputs}
    model.update(
        type=made.type, image_token_id=made.image_token,
        vision={
            "filename": "vision.onnx", "tokens_per_image": made.tokens_per_image,
            "inputs": {"pixel_values": "pixel_values"}, "outputs": {"image_features": "image_features"},
        },
        embedding={
            "filename": "embedding.onnx",
            "inputs": {"input_ids": "input_ids", "image_features": "image_features"},
            "outputs": {"inputs_embeds": "inputs_embeds"},
        },
    )  # fmt: skip
    return config
