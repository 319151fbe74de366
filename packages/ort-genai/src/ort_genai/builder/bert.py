"""BERT and RoBERTa that score pairs of texts: a graph from tokens to logits, for reranking."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from onnx import ValueInfoProto

from ort_genai.builder.families import count, number
from ort_genai.builder.graph_writer import CONTRIB, GraphWriter
from ort_genai.builder.layer_blocks import INT32, INT64, LayerBlocks, activation_of
from ort_genai.builder.sources import WeightSource
from ort_genai.builder.weight_precision import WeightFormat
from ort_genai.errors import InvalidModelFolder

_STARTS = {
    "BertForSequenceClassification": "bert", "RobertaForSequenceClassification": "roberta",
    "XLMRobertaForSequenceClassification": "roberta",
}  # fmt: skip
NAMES = tuple(_STARTS)


@dataclass(frozen=True, slots=True)
class PairArchitecture:
    """A model of pairs of texts.

    Attributes:
        start: of the names of its tensors.
        vocab_size: tokens.
        hidden_size: elements of a vector.
        inner_size: elements between the products of a layer.
        heads: of its attention.
        layers: of it.
        positions: that it has vectors of.
        kinds: of tokens: of the first text, of the second.
        first_position: of a text's first token; RoBERTa's are behind the padding's.
        labels: logits of a pair.
        epsilon: of norms.
        activation: of its layers.
    """

    start: str
    vocab_size: int
    hidden_size: int
    inner_size: int
    heads: int
    layers: int
    positions: int
    kinds: int
    first_position: int
    labels: int
    epsilon: float
    activation: str
    type: str

    @property
    def num_layers(self) -> int:
        """Layers that are written."""
        return self.layers


def pairs_of(config: Mapping[str, object]) -> PairArchitecture:
    """Return what ``config.json`` states.

    Raises:
        InvalidModelFolder: it states what is not built.
    """
    if config.get("position_embedding_type", "absolute") != "absolute":
        raise InvalidModelFolder(f"position_embedding_type = {config['position_embedding_type']!r}, expected absolute")
    named = config.get("architectures")
    start = _STARTS[str(named[0])] if isinstance(named, list) else "bert"
    padding, labels = config.get("pad_token_id", 0), config.get("id2label")
    first = (padding if isinstance(padding, int) else 1) + 1 if start == "roberta" else 0
    return PairArchitecture(
        start, count(config, "vocab_size"), count(config, "hidden_size"), count(config, "intermediate_size"),
        count(config, "num_attention_heads"), count(config, "num_hidden_layers"),
        count(config, "max_position_embeddings"), count(config, "type_vocab_size"), first,
        len(labels) if isinstance(labels, dict) else 2, number(config, "layer_norm_eps", 1e-12),
        activation_of(config.get("hidden_act", "gelu")), str(config.get("model_type", start)),
    )  # fmt: skip


def write_pairs(
    folder: Path, source: WeightSource, made: PairArchitecture, form: WeightFormat, progress: Callable[[int, int], None]
) -> None:
    """Write the graph, and the configuration beside it."""
    with GraphWriter(folder / "model.onnx") as graph:
        written = _PairGraph(LayerBlocks(graph, source, form, made.epsilon), made, progress)
        graph.save(*written.write(), {"model_type": made.type, "precision": str(form.precision)})
    (folder / "config.json").write_text(json.dumps(dict(source.config), indent=4), encoding="utf-8")


class _PairGraph:
    def __init__(self, blocks: LayerBlocks, made: PairArchitecture, progress: Callable[[int, int], None]) -> None:
        self._blocks, self._made, self._progress = blocks, made, progress
        self._floats = LayerBlocks(blocks.graph, blocks.source, replace(blocks.form, bits=0), made.epsilon)
        self._counted = ""

    def write(self) -> tuple[list[ValueInfoProto], list[ValueInfoProto]]:
        """Add everything from tokens to logits, and return the inputs and outputs."""
        blocks, made = self._blocks, self._made
        self._counted = blocks.node("Cast", ["attention_mask"], "/mask/Cast", to=INT32)
        value = self._embedded()
        for place in range(made.layers):
            value = self._layer(value, place)
            self._progress(place + 1, made.layers)
        first = blocks.node("Gather", [value, blocks.constant("first", np.array(0, np.int64))], "/first", axis=1)
        self._head(first)
        axes: list[str | int] = ["batch_size", "sequence_length"]
        names = ["input_ids", "attention_mask", *(["token_type_ids"] if made.kinds > 1 else [])]
        logits = blocks.info("logits", ["batch_size", made.labels])
        return [blocks.info(name, axes, INT64) for name in names], [logits]

    def _embedded(self) -> str:
        blocks, made = self._blocks, self._made
        start, hidden = f"{made.start}.embeddings", made.hidden_size
        words = blocks.weight(f"{start}.word_embeddings.weight", (made.vocab_size, hidden))
        value = blocks.node("Gather", [words, "input_ids"], "/words/Gather")
        places = blocks.weight(f"{start}.position_embeddings.weight", (made.positions, hidden))
        value = blocks.node("Add", [value, blocks.node("Gather", [places, self._places()], "/places/Gather")], "/Add_1")
        kinds = blocks.read(f"{start}.token_type_embeddings.weight", (made.kinds, hidden)).astype(blocks.form.dtype)
        if made.kinds > 1:
            table = blocks.graph.tensor(f"{start}.token_type_embeddings.weight", kinds)
            kind = blocks.node("Gather", [table, "token_type_ids"], "/kinds/Gather")
        else:
            kind = blocks.graph.tensor(f"{start}.token_type_embeddings.weight", kinds[0])
        value = blocks.node("Add", [value, kind], "/Add_2")
        return blocks.norm(value, f"{start}.LayerNorm", "/embeddings/norm")

    def _places(self) -> str:
        """Add the positions of tokens: RoBERTa counts those that count, and gives padding its own."""
        blocks, made = self._blocks, self._made
        axis = blocks.constant("axis", np.array(1, np.int64))
        counted = blocks.node("CumSum", ["attention_mask", axis], "/places/CumSum")
        if not made.first_position:
            return blocks.node("Sub", [counted, "attention_mask"], "/places/Sub")
        kept = blocks.node("Mul", [counted, "attention_mask"], "/places/Mul")
        start = blocks.constant("start", np.array(made.first_position - 1, np.int64))
        return blocks.node("Add", [kept, start], "/places/Add")

    def _layer(self, value: str, place: int) -> str:
        blocks, made = self._blocks, self._made
        start, name = f"{made.start}.encoder.layer.{place}", f"/layers.{place}"
        square = (made.hidden_size, made.hidden_size)
        parts: list[str | None] = [
            blocks.product(value, f"{start}.attention.self.{part}", f"{name}/{part}", square)
            for part in ("query", "key", "value")
        ]
        seen = blocks.node(
            "MultiHeadAttention", [*parts, None, self._counted], f"{name}/MultiHeadAttention", CONTRIB,
            num_heads=made.heads,
        )  # fmt: skip
        added = blocks.product(seen, f"{start}.attention.output.dense", f"{name}/out", square)
        value = blocks.node("Add", [value, added], f"{name}/Add_1")
        value = blocks.norm(value, f"{start}.attention.output.LayerNorm", f"{name}/norm_1")
        weights, sizes = (f"{start}.intermediate.dense", f"{start}.output.dense"), (made.hidden_size, made.inner_size)
        inner = blocks.inner(value, f"{name}/mlp", weights, sizes, made.activation)
        value = blocks.node("Add", [value, inner], f"{name}/Add_2")
        return blocks.norm(value, f"{start}.output.LayerNorm", f"{name}/norm_2")

    def _head(self, first: str) -> None:
        """Add the products from the first token's vector to logits."""
        blocks, made = self._floats, self._made
        is_bert = made.start == "bert"
        dense, last = ("bert.pooler.dense", "classifier") if is_bert else ("classifier.dense", "classifier.out_proj")
        pooled = blocks.product(first, dense, "/pooler", (made.hidden_size, made.hidden_size))
        bent = blocks.node("Tanh", [pooled], "/pooler/Tanh")
        logits = blocks.product(bent, last, "/classifier", (made.labels, made.hidden_size))
        blocks.graph.node("Identity", [logits], "logits", "/logits")
