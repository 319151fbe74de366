"""Whisper: the graph that hears and the one that writes, as onnxruntime-genai runs them.

The encoder gives what each layer of the decoder looks at (``present_key_cross_N``), so that it is computed once.
``scale_embedding`` is not read: transformers takes it, and multiplies nothing by it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from onnx import ValueInfoProto

from ort_genai.builder.families import count
from ort_genai.builder.graph_writer import GraphWriter
from ort_genai.builder.layer_blocks import INT32, LayerBlocks, activation_of
from ort_genai.builder.sources import WeightSource
from ort_genai.builder.weight_precision import WeightFormat

NAME = "WhisperForConditionalGeneration"
_EPSILON = 1e-5


@dataclass(frozen=True, slots=True)
class WhisperArchitecture:
    """A Whisper.

    Attributes:
        hidden_size: elements of a vector.
        bands: of a frame of sound.
        frames: vectors of the encoder, half of what it hears.
        context_length: tokens of a text.
        encoder: layers, heads and inner elements.
        decoder: layers, heads and inner elements.
        activation: of both.
    """

    vocab_size: int
    hidden_size: int
    bands: int
    frames: int
    context_length: int
    encoder: tuple[int, int, int]
    decoder: tuple[int, int, int]
    activation: str
    type: str = "whisper"

    @property
    def num_layers(self) -> int:
        """Of both graphs."""
        return self.encoder[0] + self.decoder[0]


def whisper_of(config: Mapping[str, object]) -> WhisperArchitecture:
    """Return what ``config.json`` states."""
    hidden = count(config, "d_model")
    parts = [
        tuple(count(config, name) for name in (f"{side}_layers", f"{side}_attention_heads", f"{side}_ffn_dim"))
        for side in ("encoder", "decoder")
    ]
    return WhisperArchitecture(
        count(config, "vocab_size"), hidden, count(config, "num_mel_bins", 80), count(config, "max_source_positions"),
        count(config, "max_target_positions"), parts[0], parts[1],  # type: ignore[arg-type]  # three numbers each
        activation_of(config.get("activation_function", "gelu")),
    )  # fmt: skip


def write_whisper(
    folder: Path, source: WeightSource, made: WhisperArchitecture, forms: tuple[WeightFormat, WeightFormat],
    progress: Callable[[int, int], None],
) -> None:  # fmt: skip
    """Write both graphs."""
    done = 0

    def count_layer() -> None:
        nonlocal done
        done += 1
        progress(done, made.num_layers)

    metadata = {"model_type": made.type}
    with GraphWriter(folder / "encoder.onnx") as graph:
        inputs, outputs = _Encoder(LayerBlocks(graph, source, forms[0], _EPSILON), made, count_layer).write()
        graph.save(inputs, outputs, metadata)
    with GraphWriter(folder / "decoder.onnx") as graph:
        inputs, outputs = _Decoder(LayerBlocks(graph, source, forms[0], _EPSILON), made, count_layer).write()
        graph.save(inputs, outputs, metadata)


Ends = tuple[list[ValueInfoProto], list[ValueInfoProto]]


class _Encoder:
    def __init__(self, blocks: LayerBlocks, made: WhisperArchitecture, progress: Callable[[], None]) -> None:
        self._blocks, self._made, self._progress = blocks, made, progress

    def write(self) -> Ends:
        """Add everything from frames to what the decoder looks at."""
        blocks, made = self._blocks, self._made
        layers, heads, inner = made.encoder
        value = self._frames()
        for place in range(layers):
            start, name = f"model.encoder.layers.{place}", f"/encoder/layers.{place}"
            normed = blocks.norm(value, f"{start}.self_attn_layer_norm", f"{name}/attn_norm")
            value = blocks.node("Add", [value, self._attended(normed, start, name, heads)], f"{name}/attn/Add")
            normed = blocks.norm(value, f"{start}.final_layer_norm", f"{name}/norm")
            weights, sizes = (f"{start}.fc1", f"{start}.fc2"), (made.hidden_size, inner)
            added = blocks.inner(normed, f"{name}/mlp", weights, sizes, made.activation)
            value = blocks.node("Add", [value, added], f"{name}/mlp/Add_2")
            self._progress()
        last = blocks.norm(value, "model.encoder.layer_norm", "/encoder/layer_norm")
        blocks.graph.node("Identity", [last], "hidden_states", "/encoder/hidden_states")
        return self._inputs(), [
            blocks.info("hidden_states", ["batch_size", made.frames, made.hidden_size]),
            *self._crosses(last),
        ]

    def _inputs(self) -> list[ValueInfoProto]:
        return [self._blocks.info("audio_features", ["batch_size", self._made.bands, 2 * self._made.frames])]

    def _frames(self) -> str:
        blocks, made = self._blocks, self._made
        value, bands = "audio_features", made.bands
        for number, stride in ((1, 1), (2, 2)):
            start = f"model.encoder.conv{number}"
            name, shape = f"/encoder/conv{number}", (made.hidden_size, bands, 3)
            value = blocks.convolution(value, start, name, shape, kernel_shape=[3], pads=[1, 1], strides=[stride])
            value, bands = blocks.node("Gelu", [value], f"{name}/Gelu"), made.hidden_size
        turned = blocks.node("Transpose", [value], "/encoder/Transpose", perm=[0, 2, 1])
        places = blocks.weight("model.encoder.embed_positions.weight", (made.frames, made.hidden_size))
        return blocks.node("Add", [turned, places], "/encoder/positions/Add")

    def _attended(self, value: str, start: str, name: str, heads: int) -> str:
        shape = (self._made.hidden_size, self._made.hidden_size)
        parts = [
            self._blocks.product(value, f"{start}.self_attn.{part}_proj", f"{name}/attn/{part}_proj", shape)
            for part in "qkv"
        ]
        seen = self._blocks.attention(parts, heads, f"{name}/attn")
        return self._blocks.product(seen, f"{start}.self_attn.out_proj", f"{name}/attn/o_proj", shape)

    def _crosses(self, value: str) -> list[ValueInfoProto]:
        blocks, made = self._blocks, self._made
        layers, heads, _ = made.decoder
        size, found = made.hidden_size // heads, []
        for place in range(layers):
            for part, letter in (("key", "k"), ("value", "v")):
                name = f"/decoder/layers.{place}/cross/{letter}_proj"
                weight = f"model.decoder.layers.{place}.encoder_attn.{letter}_proj"
                given = blocks.product(value, weight, name, (made.hidden_size, made.hidden_size))
                result = f"present_{part}_cross_{place}"
                blocks.by_head(given, made.frames, heads, size, name, result)
                found.append(blocks.info(result, ["batch_size", heads, made.frames, size]))
        return found


class _Decoder:
    def __init__(self, blocks: LayerBlocks, made: WhisperArchitecture, progress: Callable[[], None]) -> None:
        self._blocks, self._made, self._progress = blocks, made, progress

    def write(self) -> Ends:
        """Add everything from tokens to logits."""
        blocks, made = self._blocks, self._made
        value = self._embedded()
        for place in range(made.decoder[0]):
            value = self._layer(value, place)
            self._progress()
        last = blocks.norm(value, "model.decoder.layer_norm", "/decoder/layer_norm")
        head = "proj_out.weight" if blocks.source.has("proj_out.weight") else "model.decoder.embed_tokens.weight"
        matrix = blocks.read(head, (made.vocab_size, made.hidden_size))
        tensor = blocks.graph.tensor("proj_out.MatMul.weight", np.ascontiguousarray(matrix.T).astype(blocks.form.dtype))
        blocks.graph.node("MatMul", [last, tensor], "logits", "/proj_out/MatMul")
        return self._inputs(), self._outputs()

    def _embedded(self) -> str:
        blocks, made = self._blocks, self._made
        table = blocks.weight("model.decoder.embed_tokens.weight", (made.vocab_size, made.hidden_size))
        value = blocks.node("Gather", [table, "input_ids"], "/decoder/embed_tokens/Gather")
        rows = blocks.weight("model.decoder.embed_positions.weight", (made.context_length, made.hidden_size))
        start = blocks.node("Shape", ["past_key_self_0"], "/decoder/past/Shape", start=2, end=3)
        count_ = blocks.node("Shape", ["input_ids"], "/decoder/now/Shape", start=1, end=2)
        end = blocks.node("Add", [start, count_], "/decoder/total/Add")
        part = blocks.node("Slice", [rows, start, end, blocks.integers([0])], "/decoder/positions/Slice")
        return blocks.node("Add", [value, part], "/decoder/positions/Add")

    def _layer(self, value: str, place: int) -> str:
        blocks, made = self._blocks, self._made
        _, heads, inner = made.decoder
        start, name = f"model.decoder.layers.{place}", f"/decoder/layers.{place}"
        normed = blocks.norm(value, f"{start}.self_attn_layer_norm", f"{name}/self_norm")
        value = blocks.node("Add", [value, self._seen(normed, start, name, place, heads)], f"{name}/self/Add")
        normed = blocks.norm(value, f"{start}.encoder_attn_layer_norm", f"{name}/cross_norm")
        value = blocks.node("Add", [value, self._heard(normed, start, name, place, heads)], f"{name}/cross/Add")
        normed = blocks.norm(value, f"{start}.final_layer_norm", f"{name}/norm")
        weights, sizes = (f"{start}.fc1", f"{start}.fc2"), (made.hidden_size, inner)
        return blocks.node(
            "Add", [value, blocks.inner(normed, f"{name}/mlp", weights, sizes, made.activation)], f"{name}/mlp/Add_2"
        )

    def _seen(self, value: str, start: str, name: str, place: int, heads: int) -> str:
        """Add the attention over the text so far."""
        shape = (self._made.hidden_size, self._made.hidden_size)
        parts = [
            self._blocks.product(value, f"{start}.self_attn.{part}_proj", f"{name}/self/{part}_proj", shape)
            for part in "qkv"
        ]
        caches = ([f"past_{part}_self_{place}" for part in ("key", "value")],
                  [f"present_{part}_self_{place}" for part in ("key", "value")])  # fmt: skip
        seen = self._blocks.attention(parts, heads, f"{name}/self", caches)
        return self._blocks.product(seen, f"{start}.self_attn.out_proj", f"{name}/self/o_proj", shape)

    def _heard(self, value: str, start: str, name: str, place: int, heads: int) -> str:
        """Add the attention over the sound."""
        shape = (self._made.hidden_size, self._made.hidden_size)
        query = self._blocks.product(value, f"{start}.encoder_attn.q_proj", f"{name}/cross/q_proj", shape)
        given = [f"past_{part}_cross_{place}" for part in ("key", "value")]
        heard = self._blocks.attention([query, *given], heads, f"{name}/cross")
        return self._blocks.product(heard, f"{start}.encoder_attn.out_proj", f"{name}/cross/o_proj", shape)

    def _inputs(self) -> list[ValueInfoProto]:
        made, (layers, heads, _) = self._made, self._made.decoder
        size, found = (
            made.hidden_size // heads,
            [self._blocks.info("input_ids", ["batch_size", "sequence_length"], INT32)],
        )
        for place in range(layers):
            found += [
                self._blocks.info(f"past_{part}_self_{place}", ["batch_size", heads, "past_sequence_length", size])
                for part in ("key", "value")
            ]
        for place in range(layers):
            found += [
                self._blocks.info(f"past_{part}_cross_{place}", ["batch_size", heads, made.frames, size])
                for part in ("key", "value")
            ]
        return found

    def _outputs(self) -> list[ValueInfoProto]:
        made, (layers, heads, _) = self._made, self._made.decoder
        shape: list[str | int] = ["batch_size", heads, "total_sequence_length", made.hidden_size // heads]
        presents = [
            self._blocks.info(f"present_{part}_self_{place}", shape)
            for place in range(layers) for part in ("key", "value")
        ]  # fmt: skip
        return [self._blocks.info("logits", ["batch_size", "sequence_length", made.vocab_size]), *presents]


def whisper_config(config: Mapping[str, object], made: WhisperArchitecture) -> dict[str, object]:
    """Return the contents of ``genai_config.json``."""
    session = {"log_id": "onnxruntime-genai", "provider_options": []}
    (layers, heads, _), (heard_layers, heard_heads, _) = made.decoder, made.encoder
    start = config.get("bos_token_id")
    decoder = {
        "session_options": session, "filename": "decoder.onnx", "head_size": made.hidden_size // heads,
        "hidden_size": made.hidden_size,
        "inputs": {
            "input_ids": "input_ids", "past_key_names": "past_key_self_%d", "past_value_names": "past_value_self_%d",
            "cross_past_key_names": "past_key_cross_%d", "cross_past_value_names": "past_value_cross_%d",
        },
        "outputs": {
            "logits": "logits", "present_key_names": "present_key_self_%d",
            "present_value_names": "present_value_self_%d",
        },
        "num_attention_heads": heads, "num_hidden_layers": layers, "num_key_value_heads": heads,
    }  # fmt: skip
    encoder = {
        "session_options": session, "filename": "encoder.onnx", "head_size": made.hidden_size // heard_heads,
        "hidden_size": made.hidden_size, "inputs": {"audio_features": "audio_features"},
        "outputs": {
            "encoder_hidden_states": "hidden_states", "cross_present_key_names": "present_key_cross_%d",
            "cross_present_value_names": "present_value_cross_%d",
        },
        "num_attention_heads": heard_heads, "num_hidden_layers": heard_layers, "num_key_value_heads": heard_heads,
    }  # fmt: skip
    model = {
        "bos_token_id": start, "context_length": made.context_length, "decoder": decoder, "encoder": encoder,
        "eos_token_id": config.get("eos_token_id"), "pad_token_id": config.get("pad_token_id"), "type": made.type,
        "vocab_size": made.vocab_size,
    }  # fmt: skip
    search = {
        "diversity_penalty": 0.0, "do_sample": False, "early_stopping": True, "length_penalty": 1.0,
        "max_length": made.context_length, "min_length": 0, "no_repeat_ngram_size": 0, "num_beams": 1,
        "num_return_sequences": 1, "past_present_share_buffer": False, "repetition_penalty": 1.0, "temperature": 1.0,
        "top_k": 1, "top_p": 1.0,
    }  # fmt: skip
    return {"model": model, "search": search}


def audio_processor_config(made: WhisperArchitecture) -> str:
    """Return ``audio_processor_config.json``, by which onnxruntime-genai hears."""
    window = [0.5 - 0.5 * float(np.cos(2 * np.pi * place / 400)) for place in range(400)]
    steps = [
        {"operation": {"name": "audio_decoder", "type": "AudioDecoder"}},
        {"operation": {"name": "STFT", "type": "STFTNorm", "attrs": {
            "n_fft": 400, "frame_length": 400, "hop_length": 160, "_comment": window}}},
        {"operation": {"name": "log_mel_spectrogram", "type": "LogMelSpectrum", "attrs": {
            "chunk_size": -(-made.frames // 50), "hop_length": 160, "n_fft": 400, "n_mel": made.bands}}},
    ]  # fmt: skip
    return json.dumps({"feature_extraction": {"sequence": steps}}, indent=4)
