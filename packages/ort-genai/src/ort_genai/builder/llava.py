"""LLaVA: a graph that sees (CLIP and two products), one that puts its vectors among tokens, a decoder of vectors."""

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

NAME = "LlavaForConditionalGeneration"
_TEXTS = {"llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM", "qwen2": "Qwen2ForCausalLM"}
_STARTS = ("vision_tower.vision_model.", "model.vision_tower.vision_model.", "model.vision_tower.", "vision_tower.")
_PROJECTORS = ("multi_modal_projector.", "model.multi_modal_projector.")
_LLAMA = {  # what a text_config leaves out
    "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 32, "max_position_embeddings": 2048, "rms_norm_eps": 1e-6, "hidden_act": "silu",
    "vocab_size": 32000, "tie_word_embeddings": False, "rope_theta": 10000.0,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class LlavaArchitecture:
    """A LLaVA.

    Attributes:
        text: its decoder.
        image_token: that stands for a vector of an image.
        image_size: pixels of a side.
        patch_size: pixels of a side of what one vector stands for.
        hidden_size: elements of a vector while the image is seen.
        inner_size: elements between the products of a layer.
        heads: of its attention.
        layers: that are run.
        epsilon: of norms.
        activation: of its layers.
        projector_activation: between the products that lead to the decoder.
        keeps_first: whether the vector of the whole image is kept.
    """

    text: Architecture
    image_token: int
    image_size: int
    patch_size: int
    hidden_size: int
    inner_size: int
    heads: int
    layers: int
    epsilon: float
    activation: str
    projector_activation: str
    keeps_first: bool
    type: str = "llava"

    @property
    def num_layers(self) -> int:
        """Of both graphs."""
        return self.layers + self.text.num_layers

    @property
    def patches(self) -> int:
        """Vectors of an image, the whole one's left out."""
        return (self.image_size // self.patch_size) ** 2

    @property
    def tokens_per_image(self) -> int:
        """Tokens that stand for an image."""
        return self.patches + self.keeps_first


def llava_of(config: Mapping[str, object]) -> LlavaArchitecture:
    """Return what ``config.json`` states.

    Raises:
        InvalidModelFolder: a part is of another kind than those that are built.
    """
    text, vision = config.get("text_config"), config.get("vision_config")
    if not isinstance(text, dict) or not isinstance(vision, dict):
        raise InvalidModelFolder("config.json of a LLaVA has no text_config, or no vision_config")
    kind, seen = text.get("model_type", "llama"), vision.get("model_type")
    if not isinstance(kind, str) or kind not in _TEXTS or seen != "clip_vision_model":
        raise InvalidModelFolder(
            f"a LLaVA of {kind!r} and {seen!r} cannot be built; known: {', '.join(_TEXTS)}, and clip_vision_model"
        )
    whole = count(vision, "num_hidden_layers")
    layer, strategy = config.get("vision_feature_layer", -2), config.get("vision_feature_select_strategy", "default")
    if not isinstance(layer, int) or not -whole <= layer <= whole or strategy not in ("default", "full"):
        raise InvalidModelFolder(
            f"a LLaVA with vision_feature_layer = {layer!r} and vision_feature_select_strategy = {strategy!r} cannot "
            f"be built; expected one layer from {-whole} to {whole}, and default or full"
        )
    name = "image_token_index" if "image_token_index" in config else "image_token_id"
    token = token_of(config, name, 32000)
    return LlavaArchitecture(
        architecture_of({**_LLAMA, **text, "architectures": [_TEXTS[kind]]}), token, count(vision, "image_size"),
        count(vision, "patch_size"), count(vision, "hidden_size"), count(vision, "intermediate_size"),
        count(vision, "num_attention_heads"), layer if layer >= 0 else whole + 1 + layer,
        number(vision, "layer_norm_eps", 1e-5), activation_of(vision.get("hidden_act", "quick_gelu")),
        activation_of(config.get("projector_hidden_act", "gelu")), strategy == "full",
    )  # fmt: skip


def write_llava(
    folder: Path, source: WeightSource, made: LlavaArchitecture, form: WeightFormat, progress: Callable[[int], None]
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
        vision = _Vision(LayerBlocks(graph, source, form, made.epsilon), made, progress)
        graph.save(*vision.write(), {"model_type": made.type})
    with GraphWriter(folder / "embedding.onnx") as graph:
        blocks = LayerBlocks(graph, source, form, made.epsilon)
        graph.save(*write_embedding(blocks, made, source), {"model_type": made.type})


class _Vision:
    def __init__(self, blocks: LayerBlocks, made: LlavaArchitecture, progress: Callable[[int], None]) -> None:
        self._blocks, self._made, self._progress = blocks, made, progress
        probe = "embeddings.patch_embedding.weight"
        self._start = next((each for each in _STARTS if blocks.source.has(each + probe)), _STARTS[0])
        probe = "linear_1.weight"
        self._projector = next((each for each in _PROJECTORS if blocks.source.has(each + probe)), _PROJECTORS[0])

    def write(self) -> tuple[list[ValueInfoProto], list[ValueInfoProto]]:
        """Add everything from pixels to vectors, and return the inputs and outputs."""
        blocks, made = self._blocks, self._made
        value = blocks.norm(self._patches(), f"{self._start}pre_layrnorm", "/vision/pre_norm")
        for place in range(made.layers):
            start = f"{self._start}encoder.layers.{place}"
            value = vision_layer(blocks, made, value, start, f"/vision/layers.{place}")
            self._progress(place + 1)
        if not made.keeps_first:
            bounds = [blocks.integers([each]) for each in (1, made.patches + 1, 1)]
            value = blocks.node("Slice", [value, *bounds], "/vision/Slice")
        weights = tuple(f"{self._projector}linear_{place}" for place in (1, 2))
        inside = made.text.hidden_size
        first = blocks.product(value, weights[0], "/projector/linear_1", (inside, made.hidden_size))
        second = blocks.activated(first, made.projector_activation, "/projector/act_fn")
        last = blocks.product(second, weights[1], "/projector/linear_2", (inside, inside))
        blocks.graph.node("Identity", [last], "image_features", "/projector/image_features")
        size = made.image_size
        return (
            [blocks.info("pixel_values", ["num_images", 3, size, size])],
            [blocks.info("image_features", ["num_images", made.tokens_per_image, inside])],
        )

    def _patches(self) -> str:
        """Add a vector of each patch, behind one of the whole image."""
        blocks, made = self._blocks, self._made
        side, hidden = made.patch_size, made.hidden_size
        seen = blocks.convolution(
            "pixel_values", f"{self._start}embeddings.patch_embedding", "/vision/patches", (hidden, 3, side, side),
            kernel_shape=[side, side], strides=[side, side],
        )  # fmt: skip
        flat = blocks.node("Reshape", [seen, blocks.integers([0, hidden, made.patches])], "/vision/Reshape")
        rows = blocks.node("Transpose", [flat], "/vision/Transpose", perm=[0, 2, 1])
        whole = blocks.read(f"{self._start}embeddings.class_embedding", (hidden,)).reshape(1, 1, hidden)
        first = blocks.graph.tensor(f"{self._start}embeddings.class_embedding", whole.astype(blocks.form.dtype))
        images = blocks.node("Shape", ["pixel_values"], "/vision/Shape", start=0, end=1)
        shape = blocks.node("Concat", [images, blocks.integers([1, hidden])], "/vision/shape/Concat", axis=0)
        firsts = blocks.node("Expand", [first, shape], "/vision/Expand")
        joined = blocks.node("Concat", [firsts, rows], "/vision/Concat", axis=1)
        places = blocks.weight(f"{self._start}embeddings.position_embedding.weight", (made.patches + 1, hidden))
        return blocks.node("Add", [joined, places], "/vision/positions/Add")
