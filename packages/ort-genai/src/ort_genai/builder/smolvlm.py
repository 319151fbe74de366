"""SmolVLM and Idefics 3: SigLIP sees tiles, a product of neighbors' vectors leads to a decoder of LLaMA's kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from onnx import ValueInfoProto

from ort_genai.builder.architecture import Architecture
from ort_genai.builder.families import architecture_of, count, number
from ort_genai.builder.graph_writer import GraphWriter
from ort_genai.builder.layer_blocks import LayerBlocks, activation_of
from ort_genai.builder.sources import WeightSource
from ort_genai.builder.vision_parts import token_of, vision_layer, write_embedding
from ort_genai.builder.weight_precision import WeightFormat
from ort_genai.errors import InvalidModelFolder

NAMES = ("SmolVLMForConditionalGeneration", "Idefics3ForConditionalGeneration")
_TEXTS = {"llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM", "qwen2": "Qwen2ForCausalLM"}
_SEEN, _CONNECTOR = "model.vision_model.", "model.connector.modality_projection.proj"


@dataclass(frozen=True, slots=True)
class SmolVlmArchitecture:
    """A SmolVLM.

    Attributes:
        text: its decoder.
        image_token: that stands for a vector of an image.
        image_size: pixels of a tile's side.
        patch_size: pixels of a side of what one vector stands for while the tile is seen.
        scale: vectors of a side that become one.
        hidden_size: elements of a vector while the tile is seen.
        inner_size: elements between the products of a layer.
        heads: of its attention.
        layers: that see.
        epsilon: of norms.
        activation: of its layers.
    """

    text: Architecture
    image_token: int
    image_size: int
    patch_size: int
    scale: int
    hidden_size: int
    inner_size: int
    heads: int
    layers: int
    epsilon: float
    activation: str
    type: str = "smolvlm"

    @property
    def num_layers(self) -> int:
        """Of both graphs."""
        return self.layers + self.text.num_layers

    @property
    def side(self) -> int:
        """Patches of a tile's side."""
        return self.image_size // self.patch_size

    @property
    def tokens_per_image(self) -> int:
        """Tokens that stand for a tile."""
        return (self.side // self.scale) ** 2


def smolvlm_of(config: Mapping[str, object]) -> SmolVlmArchitecture:
    """Return what ``config.json`` states.

    Raises:
        InvalidModelFolder: a part is of another kind than those that are built.
    """
    text, vision = config.get("text_config"), config.get("vision_config")
    if not isinstance(text, dict) or not isinstance(vision, dict):
        raise InvalidModelFolder("config.json of a SmolVLM has no text_config, or no vision_config")
    kind, token = text.get("model_type", "llama"), token_of(config, "image_token_id")
    if not isinstance(kind, str) or kind not in _TEXTS:
        raise InvalidModelFolder(f"a SmolVLM with a decoder of {kind!r} cannot be built; known: {', '.join(_TEXTS)}")
    made = SmolVlmArchitecture(
        architecture_of({"rms_norm_eps": 1e-5, **text, "architectures": [_TEXTS[kind]]}), token,
        count(vision, "image_size"), count(vision, "patch_size"), count(config, "scale_factor", 2),
        count(vision, "hidden_size"), count(vision, "intermediate_size"), count(vision, "num_attention_heads"),
        count(vision, "num_hidden_layers", 12), number(vision, "layer_norm_eps", 1e-6),
        activation_of(vision.get("hidden_act", "gelu_pytorch_tanh")),
    )  # fmt: skip
    if made.side < 1 or made.side % made.scale:
        raise InvalidModelFolder(
            f"tiles of {made.image_size} pixels have {made.side} patches of {made.patch_size} in a row, of which "
            f"scale_factor = {made.scale} cannot be joined"
        )
    return made


def write_smolvlm(
    folder: Path, source: WeightSource, made: SmolVlmArchitecture, form: WeightFormat, progress: Callable[[int], None]
) -> None:
    """Write the graph that sees, and the one that puts vectors among tokens.

    Args:
        folder: to write into.
        source: of weights.
        made: the architecture.
        form: of weights of layers.
        progress: is called with the layers that are done.
    """
    with GraphWriter(folder / "vision.onnx") as graph:
        blocks = LayerBlocks(graph, source, form, made.epsilon)
        graph.save(*_write_vision(blocks, made, progress), {"model_type": made.type})
    with GraphWriter(folder / "embedding.onnx") as graph:
        blocks = LayerBlocks(graph, source, form, made.epsilon)
        graph.save(*write_embedding(blocks, made, source), {"model_type": made.type})


def _write_vision(
    blocks: LayerBlocks, made: SmolVlmArchitecture, progress: Callable[[int], None]
) -> tuple[list[ValueInfoProto], list[ValueInfoProto]]:
    """Add everything from pixels to vectors, and return the inputs and outputs."""
    value = _patches(blocks, made)
    for place in range(made.layers):
        value = vision_layer(blocks, made, value, f"{_SEEN}encoder.layers.{place}", f"/vision/layers.{place}")
        progress(place + 1)
    joined = _joined(blocks, blocks.norm(value, f"{_SEEN}post_layernorm", "/vision/post_norm"), made)
    shape = (made.text.hidden_size, made.hidden_size * made.scale**2)
    last = blocks.product(joined, _CONNECTOR, "/connector/proj", shape)
    blocks.graph.node("Identity", [last], "image_features", "/connector/image_features")
    size = made.image_size
    return (
        [blocks.info("pixel_values", ["num_images", 3, size, size])],
        [blocks.info("image_features", ["num_images", made.tokens_per_image, made.text.hidden_size])],
    )


def _patches(blocks: LayerBlocks, made: SmolVlmArchitecture) -> str:
    """Add a vector of each patch, with that of its position."""
    side, hidden, whole = made.patch_size, made.hidden_size, made.side**2
    seen = blocks.convolution(
        "pixel_values", f"{_SEEN}embeddings.patch_embedding", "/vision/patches", (hidden, 3, side, side),
        kernel_shape=[side, side], strides=[side, side],
    )  # fmt: skip
    flat = blocks.node("Reshape", [seen, blocks.integers([0, hidden, whole])], "/vision/Reshape")
    rows = blocks.node("Transpose", [flat], "/vision/Transpose", perm=[0, 2, 1])
    places = blocks.weight(f"{_SEEN}embeddings.position_embedding.weight", (whole, hidden))
    return blocks.node("Add", [rows, places], "/vision/Add")


def _joined(blocks: LayerBlocks, value: str, made: SmolVlmArchitecture) -> str:
    """Add the joining of squares of neighbors: (tiles, patches, hidden) to fewer and longer vectors."""
    side, scale, hidden = made.side, made.scale, made.hidden_size
    fewer = side // scale
    for place, shape in enumerate(([0, side, fewer, hidden * scale], [0, fewer, fewer, hidden * scale**2])):
        split = blocks.node("Reshape", [value, blocks.integers(shape)], f"/connector/Reshape_{place}")
        value = blocks.node("Transpose", [split], f"/connector/Transpose_{place}", perm=[0, 2, 1, 3])
    return blocks.node("Reshape", [value, blocks.integers([0, fewer**2, hidden * scale**2])], "/connector/Reshape_2")
