"""The graph of a decoder, written from its architecture: the operators that onnxruntime-genai's builder uses.

A layer adds to the stream twice. What is added last stands beside the stream until the next norm takes both, because
SkipSimplifiedLayerNormalization adds and scales in one step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from onnx import TensorProto, ValueInfoProto, helper

from ort_genai.builder.architecture import Architecture, QueryKeyNorm
from ort_genai.builder.experts import write_experts
from ort_genai.builder.graph_writer import CONTRIB, GraphWriter
from ort_genai.builder.layer_weights import LayerWeights, Linear
from ort_genai.builder.precision_names import Method
from ort_genai.builder.rotary import tables
from ort_genai.builder.weight_precision import WeightFormat, store_blocks, write_blocks, write_product

_Shape = list[str | int | None]
HIDDEN_STATES = "hidden_states"  # as onnxruntime-genai's builder calls them
_MASK = "/model/attn_mask_reformat/attn_mask_subgraph"


@dataclass(frozen=True, slots=True)
class Stream:
    """What a layer reads: a sum so far, and what is still to be added to it."""

    value: str
    added: str | None = None


class DecoderGraph:
    """Writes one decoder.

    Args:
        graph: takes nodes and tensors.
        made: the architecture.
        weights: of the layers.
        form: of weights in layers.
        head: of the table of tokens and the last product.
        progress: is called behind each layer with how many are done.
        has_hidden_states: whether the vectors before the last product are an output.
        takes_vectors: whether ``inputs_embeds`` is read in the place of tokens.
    """

    def __init__(
        self, graph: GraphWriter, made: Architecture, weights: LayerWeights, form: WeightFormat, head: WeightFormat,
        progress: Callable[[int], None] = lambda _: None, *, has_hidden_states: bool = False,
        takes_vectors: bool = False,
    ) -> None:  # fmt: skip
        self._has_hidden_states, self._takes_vectors = has_hidden_states, takes_vectors
        self._graph, self._made, self._weights, self._form, self._head = graph, made, weights, form, head
        self._progress = progress
        self._type = helper.np_dtype_to_tensor_dtype(form.dtype)
        self._head_tensors: list[str] = []

    def write(self) -> None:
        """Add everything from the tokens to the logits."""
        self._lengths()
        self._rotations()
        stream = Stream("inputs_embeds" if self._takes_vectors else self._embedded())
        for place in range(self._made.num_layers):
            stream = self._layer(stream, place)
            self._progress(place + 1)
        last = f"/model/layers.{self._made.num_layers}/final_norm_layernorm"
        normed, _ = self._normed(stream, "final_norm", last)
        if self._has_hidden_states:
            self._graph.node("Identity", [normed], HIDDEN_STATES, "/model/hidden_states/Identity")
        self._logits(normed)

    def inputs(self) -> list[ValueInfoProto]:
        """Return the inputs of the model."""
        batch, whole = "batch_size", TensorProto.INT64
        names: list[tuple[str, _Shape]] = [
            ("input_ids", [batch, "sequence_length"]),
            ("attention_mask", [batch, "total_sequence_length"]),
        ]
        if self._made.has_positions:
            names.append(("position_ids", [batch, "sequence_length"]))
        found = [helper.make_tensor_value_info(name, whole, shape) for name, shape in names]
        if self._takes_vectors:
            vectors: _Shape = [batch, "sequence_length", self._made.hidden_size]
            found[0] = helper.make_tensor_value_info("inputs_embeds", self._type, vectors)
        return found + self._caches("past_key_values", "past_sequence_length")

    def outputs(self) -> list[ValueInfoProto]:
        """Return the outputs of the model."""
        shape: _Shape = ["batch_size", "sequence_length", self._made.vocab_size]
        logits = helper.make_tensor_value_info("logits", self._type, shape)
        found = [logits, *self._caches("present", "total_sequence_length")]
        if self._has_hidden_states:
            vectors: _Shape = ["batch_size", "sequence_length", self._made.hidden_size]
            found.append(helper.make_tensor_value_info(HIDDEN_STATES, self._type, vectors))
        return found

    def _caches(self, start: str, length: str) -> list[ValueInfoProto]:
        shape: _Shape = ["batch_size", self._made.num_kv_heads, length, self._made.head_size]
        return [
            helper.make_tensor_value_info(f"{start}.{place}.{part}", self._type, shape)
            for place in range(self._made.num_layers) for part in ("key", "value")
        ]  # fmt: skip

    # ------------------------------------------------------------ before the layers

    def _constant(self, name: str, value: np.ndarray) -> str:
        return self._graph.tensor(f"/model/constants/{name}", value)

    def _lengths(self) -> None:
        """Add the lengths that GroupQueryAttention reads, from the mask."""
        node, one = self._graph.node, self._constant("INT64/[1]", np.array([1], np.int64))
        total = node(
            "ReduceSum", ["attention_mask", one], f"{_MASK}/ReduceSum/output_0", f"{_MASK}/ReduceSum", keepdims=0
        )
        behind = node("Sub", [total, one], f"{_MASK}/Sub/output_0", f"{_MASK}/Sub")
        node("Cast", [behind], f"{_MASK}/Sub/Cast/output_0", f"{_MASK}/Sub/Cast", to=TensorProto.INT32)
        shape = node("Shape", ["attention_mask"], f"{_MASK}/Shape/output_0", f"{_MASK}/Shape")
        place = self._constant("INT64/1", np.array(1, np.int64))
        length = node("Gather", [shape, place], f"{_MASK}/Gather/output_0", f"{_MASK}/Gather", axis=0)
        node("Cast", [length], f"{_MASK}/Gather/Cast/output_0", f"{_MASK}/Gather/Cast", to=TensorProto.INT32)

    def _rotations(self) -> None:
        for number, rotation in enumerate(self._made.rotations):
            for name, value in zip(_rotation_names(number), tables(rotation, self._made.context_length), strict=True):
                self._graph.tensor(name, value.astype(self._form.dtype))

    def _embedded(self) -> str:
        table = self._weights.table()
        name = "/model/embed_tokens/Gather"
        found = self._quantized_rows(table) if self._head.bits and self._made.is_tied else None
        if found is None:
            tensor = self._graph.tensor("model.embed_tokens.weight", table.astype(self._form.dtype))
            found = self._graph.node("Gather", [tensor, "input_ids"], f"{name}/output_0", name)
        if self._made.has_positions:
            rows = self._graph.tensor("model.positions.weight", self._weights.positions().astype(self._form.dtype))
            at = self._graph.node(
                "Gather", [rows, "position_ids"], "/model/positions/output_0", "/model/positions/Gather"
            )
            found = self._graph.node("Add", [found, at], "/model/embed_tokens/Add/output_0", "/model/embed_tokens/Add")
        return self._scaled(found, self._made.embedding_scale, "/model/embed_tokens")

    def _quantized_rows(self, table: np.ndarray) -> str:
        """Add the table as numbers that the last product reads, too; GatherBlockQuantized has no float zero points."""
        is_real = self._head.bits == 4 and self._head.method is Method.REAL
        form = replace(self._head, method=Method.DEFAULT) if is_real else self._head
        blocks = form.quantized(np.ascontiguousarray(table.T))
        self._head_tensors = store_blocks(self._graph, blocks, "lm_head.MatMul.weight")
        start, rows = "/model/embed_tokens", blocks.data.reshape(len(table), -1).shape
        shape = self._constant(f"INT64/[{rows[0]}, {rows[1]}]", np.array(rows, np.int64))
        flat = self._graph.node(
            "Reshape", [self._head_tensors[0], shape], f"{start}/Reshape/output_0", f"{start}/Reshape"
        )
        name = f"{start}/GatherBlockQuantized"
        found = self._graph.node(
            "GatherBlockQuantized", [flat, "input_ids", *self._head_tensors[1:]], f"{name}/output_0", name, CONTRIB,
            bits=self._head.bits, block_size=self._head.block_size, gather_axis=0, quantize_axis=1,
        )  # fmt: skip
        size = self._made.hidden_size
        rest = -size % self._head.block_size
        if not rest:
            return found
        sizes = self._constant(f"INT64/[{size}, {rest}]", np.array([size, rest], np.int64))
        split = f"{start}/Split"  # the last block is filled up: its rest is no part of a vector
        return self._graph.node("Split", [found, sizes], [f"{split}/output_0", f"{split}/output_1"], split, axis=-1)

    def _logits(self, value: str) -> None:
        made, name = self._made, "/lm_head/MatMul"
        steps = (made.logits_scale != 1, made.logits_softcap != 0)
        result = f"{name}/output_0" if any(steps) else "logits"
        if self._head_tensors:
            shape = (made.vocab_size, made.hidden_size)
            write_blocks(self._graph, self._head, value, self._head_tensors, shape, name, result)
        else:
            write_product(self._graph, self._head, value, self._weights.head(made.is_tied), name, result)
        if steps[0]:
            scale = self._constant("logits_scale", np.array(made.logits_scale, self._form.dtype))
            result = self._graph.node(
                "Mul", [result, scale], "/lm_head/Mul/output_0" if steps[1] else "logits", "/lm_head/Mul"
            )
        if steps[1]:
            bound = self._constant("logits_softcap", np.array(made.logits_softcap, self._form.dtype))
            share = self._graph.node("Div", [result, bound], "/lm_head/softcap/Div/output_0", "/lm_head/softcap/Div")
            flat = self._graph.node("Tanh", [share], "/lm_head/softcap/Tanh/output_0", "/lm_head/softcap/Tanh")
            self._graph.node("Mul", [flat, bound], "logits", "/lm_head/softcap/Mul")

    # ------------------------------------------------------------ layers

    def _layer(self, stream: Stream, place: int) -> Stream:
        start, norms = f"/model/layers.{place}", self._made.norms
        for before, after, step in (
            (norms.before_attention, norms.after_attention, self._attention),
            (norms.before_mlp, norms.after_mlp, self._mlp),
        ):
            value, total = self._normed(
                stream, before and f"{place}.{before}", f"{start}/{before or step.__name__[1:]}"
            )
            added = step(value, place)
            if after is not None:
                added = self._norm(added, f"{place}.{after}", f"{start}/{after}")
            stream = Stream(
                total, self._scaled(added, self._made.residual_scale, f"{start}/{step.__name__[1:]}/residual")
            )
        return stream

    def _normed(self, stream: Stream, weight: str | None, name: str) -> tuple[str, str]:
        """Return the normed sum and the sum of a stream; without a weight's name there is no norm."""
        if stream.added is None:
            return (stream.value if weight is None else self._norm(stream.value, weight, name)), stream.value
        made = self._made
        if weight is None:
            total = self._graph.node("Add", [stream.value, stream.added], f"{name}/Add/output_0", f"{name}/Add")
            return total, total
        op_type = "SkipLayerNormalization" if made.has_mean_norms else "SkipSimplifiedLayerNormalization"
        inputs: list[str | None] = [stream.value, stream.added, *self._norm_tensors(weight)]
        total = f"{name}/output_3"
        results: list[str | None] = [f"{name}/output_0", None, None, total]
        if weight == "final_norm":
            results = results[:1]
        self._graph.node(op_type, inputs, results, f"{name}/SkipLayerNorm", CONTRIB, epsilon=made.norm_epsilon)
        return f"{name}/output_0", total

    def _norm(self, value: str, weight: str, name: str) -> str:
        return self._norm_of(value, self._norm_tensors(weight), name)

    def _norm_of(self, value: str, tensors: list[str], name: str) -> str:
        op_type = "LayerNormalization" if self._made.has_mean_norms else "SimplifiedLayerNormalization"
        return self._graph.node(
            op_type, [value, *tensors], f"{name}/output_0", f"{name}/LayerNorm", axis=-1, stash_type=1,
            epsilon=self._made.norm_epsilon,
        )  # fmt: skip

    def _norm_tensors(self, weight: str) -> list[str]:
        arrays = self._weights.norm(weight, self._made)
        names = ("weight", "bias")[: len(arrays)]
        start = f"model.layers.{weight}" if weight != "final_norm" else "model.final_norm"
        return [
            self._graph.tensor(f"{start}.{name}", array.astype(self._form.dtype))
            for name, array in zip(names, arrays, strict=True)
        ]

    def _scaled(self, value: str, factor: float, name: str) -> str:
        if factor == 1:
            return value
        tensor = self._constant(f"scale/{factor}", np.array(factor, self._form.dtype))
        return self._graph.node("Mul", [value, tensor], f"{name}/Mul/output_0", f"{name}/Mul")

    def _product(self, value: str, weight: np.ndarray, bias: np.ndarray | None, name: str) -> str:
        result = write_product(self._graph, self._form, value, weight, f"{name}/MatMul", f"{name}/MatMul/output_0")
        if bias is None:
            return result
        tensor = self._graph.tensor(name.strip("/").replace("/", ".") + ".bias", bias.astype(self._form.dtype))
        return self._graph.node("Add", [result, tensor], f"{name}/Add/output_0", f"{name}/Add")

    def _attention(self, value: str, place: int) -> str:
        made, start = self._made, f"/model/layers.{place}/attn"
        inputs: list[str | None]
        if made.query_key_norm is QueryKeyNorm.NONE:
            weight, bias = self._weights.packed_qkv(place)
            packed = self._clipped(self._product(value, weight, bias, f"{start}/qkv_proj"), f"{start}/qkv_proj")
            inputs = [packed, None, None]
        else:
            inputs = [*self._normed_qkv(value, place)]
        number = made.layer_rotations[place]
        rotation = _rotation_names(number) if number >= 0 else (None, None)
        past, present = (
            [f"{side}.{place}.{part}" for part in ("key", "value")] for side in ("past_key_values", "present")
        )
        further: list[str | None] = [*rotation] if number >= 0 else []
        if made.has_sinks:
            sinks = self._weights.sinks(place).astype(self._form.dtype)
            tensor = self._graph.tensor(f"model.layers.{place}.attn.sinks", sinks)
            further = [*rotation, None, None, tensor]
        lengths = [f"{_MASK}/Sub/Cast/output_0", f"{_MASK}/Gather/Cast/output_0"]
        name = f"{start}/GroupQueryAttention"
        seen = self._graph.node(
            "GroupQueryAttention", [*inputs, *past, *lengths, *further],
            [f"{name}/output_0", *present], name, CONTRIB,
            num_heads=made.num_heads, kv_num_heads=made.num_kv_heads,
            scale=made.attention_scale / (place + 1 if made.is_scale_by_layer else 1),
            local_window_size=made.windows[place], softcap=made.attention_softcap, do_rotary=int(number >= 0),
            rotary_interleaved=int(made.is_rotation_interleaved),
        )  # fmt: skip
        weight, bias = self._weights.output(place)
        return self._product(seen, weight, bias, f"{start}/o_proj")

    def _clipped(self, value: str, name: str) -> str:
        if not self._made.clip:
            return value
        bounds = [
            self._constant(f"clip/{sign}", np.array(sign * self._made.clip, self._form.dtype)) for sign in (-1, 1)
        ]
        return self._graph.node("Clip", [value, *bounds], f"{name}/Clip/output_0", f"{name}/Clip")

    def _normed_qkv(self, value: str, place: int) -> list[str]:
        """Add three products, with norms of queries and keys."""
        made, start = self._made, f"/model/layers.{place}/attn"
        found = []
        for letter, (weight, bias) in zip("qkv", self._weights.split_qkv(place), strict=True):
            name = f"{start}/{letter}_proj"
            result = self._clipped(self._product(value, weight, bias, name), name)
            if letter != "v":
                heads = made.num_heads if letter == "q" else made.num_kv_heads
                result = self._head_norm(result, f"{place}.self_attn.{letter}_norm", heads, f"{start}/{letter}_norm")
            found.append(result)
        return found

    def _head_norm(self, value: str, weight: str, heads: int, name: str) -> str:
        if self._made.query_key_norm is QueryKeyNorm.WHOLE:
            return self._norm(value, weight, name)
        size = self._made.head_size
        split = self._constant(f"INT64/[0, 0, {heads}, {size}]", np.array([0, 0, heads, size], np.int64))
        whole = self._constant(f"INT64/[0, 0, {heads * size}]", np.array([0, 0, heads * size], np.int64))
        by_head = self._graph.node("Reshape", [value, split], f"{name}/Reshape_1/output_0", f"{name}/Reshape_1")
        normed = self._norm(by_head, weight, name)
        return self._graph.node("Reshape", [normed, whole], f"{name}/Reshape_2/output_0", f"{name}/Reshape_2")

    def _mlp(self, value: str, place: int) -> str:
        made, start = self._made, f"/model/layers.{place}/mlp"
        if made.experts is not None and made.experts.are_in(place):
            found = write_experts(self._graph, self._form, made, self._weights, value, place)
            return self._with_shared(found, value, place) if made.experts.shared_size else found
        if not made.is_gated:
            weight, bias = self._weights.product(place, "up")
            inner = self._activated(self._product(value, weight, bias, f"{start}/fc1"), start)
            weight, bias = self._weights.product(place, "down")
            return self._product(inner, weight, bias, f"{start}/fc2")
        return self._gated(value, [self._weights.product(place, part) for part in ("gate", "up", "down")], start)

    def _gated(self, value: str, weights: list[Linear], start: str) -> str:
        """Add two products, one the gate of the other, and a third."""
        gate, up = (
            self._product(value, *weight, f"{start}/{part}_proj")
            for part, weight in zip(("gate", "up"), weights[:2], strict=True)
        )
        inner = self._graph.node("Mul", [self._activated(gate, start), up], f"{start}/Mul/output_0", f"{start}/Mul")
        return self._product(inner, *weights[2], f"{start}/down_proj")

    def _with_shared(self, value: str, given: str, place: int) -> str:
        """Add the expert of all tokens to those that are chosen."""
        start, node, weights = f"/model/layers.{place}/shared_expert", self._graph.node, self._weights
        found = self._gated(given, weights.shared(place), start)
        gate = self._product(
            given, weights.plain(place, "mlp.shared_expert_gate", (1, self._made.hidden_size)), None, f"{start}_gate"
        )
        share = node("Sigmoid", [gate], f"{start}_gate/Sigmoid/output_0", f"{start}_gate/Sigmoid")
        weighed = node("Mul", [found, share], f"{start}/Weighed/output_0", f"{start}/Weighed")
        return node("Add", [value, weighed], f"{start}/Add/output_0", f"{start}/Add")

    def _activated(self, value: str, start: str) -> str:
        name, node = f"{start}/act_fn", self._graph.node
        if self._made.activation == "relu":
            return node("Relu", [value], f"{name}/Relu/output_0", f"{name}/Relu")
        if self._made.activation == "silu":
            share = node("Sigmoid", [value], f"{name}/Sigmoid/output_0", f"{name}/Sigmoid")
            return node("Mul", [value, share], f"{name}/Mul/output_0", f"{name}/Mul")
        if self._made.activation == "relu2":
            above = node("Relu", [value], f"{name}/Relu/output_0", f"{name}/Relu")
            return node("Mul", [above, above], f"{name}/Mul/output_0", f"{name}/Mul")
        form = "tanh" if self._made.activation == "gelu_tanh" else "none"
        return node("Gelu", [value], f"{name}/Gelu/output_0", f"{name}/Gelu", approximate=form)


def _rotation_names(number: int) -> tuple[str, str]:
    end = "" if number == 0 else "_local"
    return f"cos_cache{end}", f"sin_cache{end}"
