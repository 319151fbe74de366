"""The weights of a decoder by what they do, whatever the checkpoint calls them or has joined."""

from __future__ import annotations

import numpy as np

from ort_genai.builder.architecture import Architecture
from ort_genai.builder.sources import WeightSource
from ort_genai.errors import InvalidModelFolder

Linear = tuple[np.ndarray, np.ndarray | None]
Joined = tuple[np.ndarray, np.ndarray]
_NO_BIAS = None
_HEADS = ("lm_head.weight", "language_model.lm_head.weight")
_STARTS = ("model.", "model.language_model.", "model.text_model.", "language_model.model.", "transformer.", "")


class LayerWeights:
    """Reads weights, checks their shapes, and splits or joins them as the graph has them.

    Args:
        source: where they are.
        made: what they belong to.
    """

    def __init__(self, source: WeightSource, made: Architecture) -> None:
        self._source, self._made = source, made
        self._is_gpt2 = made.has_positions
        table = "wte.weight" if self._is_gpt2 else "embed_tokens.weight"
        self._start = next((each for each in _STARTS if source.has(each + table)), "model.")

    def table(self) -> np.ndarray:
        """Return the vectors of tokens (vocabulary, hidden)."""
        name = self._start + ("wte.weight" if self._is_gpt2 else "embed_tokens.weight")
        return self._read(name, (self._made.vocab_size, self._made.hidden_size))

    def positions(self) -> np.ndarray:
        """Return the vectors of positions (context, hidden)."""
        return self._read(self._start + "wpe.weight", (self._made.context_length, self._made.hidden_size))

    def head(self, is_tied: bool) -> np.ndarray:
        """Return the last product (vocabulary, hidden)."""
        name = next((each for each in _HEADS if self._source.has(each)), None)
        if is_tied or name is None:
            return self.table()
        return self._read(name, (self._made.vocab_size, self._made.hidden_size))

    def norm(self, name: str, made: Architecture) -> list[np.ndarray]:
        """Return the weight of a norm, with its offset, and where it subtracts the mean a bias.

        Args:
            name: ``final_norm``, or below ``model.layers.``.
            made: the architecture.
        """
        size = made.hidden_size
        if made.are_norms_plain:
            return [np.ones(size, np.float32), np.zeros(size, np.float32)]
        if name == "final_norm":
            start = self._start + ("ln_f" if self._is_gpt2 else "norm")
        else:
            start = f"{self._layers}.{name}"
        weight = self._source.read(f"{start}.weight")
        if weight.ndim != 1:
            raise InvalidModelFolder(f"tensor {start}.weight has shape {weight.shape}, expected one axis")
        offset = 0.0 if self._source.norms_hold_offset else made.norm_offset
        found = [weight + np.float32(offset)]
        if made.has_mean_norms:
            bias = f"{start}.bias"
            found.append(self._source.read(bias) if self._source.has(bias) else np.zeros_like(weight))
        return found

    def packed_qkv(self, place: int) -> Linear:
        """Return queries, keys and values as one product."""
        parts = self.split_qkv(place)
        weight = np.concatenate([each[0] for each in parts])
        biases = [each[1] for each in parts]
        if all(each is None for each in biases):
            return weight, _NO_BIAS
        zeros = [np.zeros(len(each[0]), np.float32) if each[1] is None else each[1] for each in parts]
        return weight, np.concatenate(zeros)

    def split_qkv(self, place: int) -> list[Linear]:
        """Return the products of queries, keys and values."""
        made = self._made
        rows = [heads * made.head_size for heads in (made.num_heads, made.num_kv_heads, made.num_kv_heads)]
        start = f"{self._layers}.{place}"
        if self._is_gpt2:
            return self._split(*self._linear(f"{start}.attn.c_attn", (sum(rows), made.hidden_size)), rows)
        joined = f"{start}.self_attn.qkv_proj"
        if self._source.has(f"{joined}.weight"):
            return self._split(*self._linear(joined, (sum(rows), made.hidden_size)), rows)
        return [
            self._linear(f"{start}.self_attn.{letter}_proj", (size, made.hidden_size))
            for letter, size in zip("qkv", rows, strict=True)
        ]

    def output(self, place: int) -> Linear:
        """Return the product behind the attention."""
        name = "attn.c_proj" if self._is_gpt2 else "self_attn.o_proj"
        made = self._made
        return self._linear(f"{self._layers}.{place}.{name}", (made.hidden_size, made.num_heads * made.head_size))

    def product(self, place: int, part: str) -> Linear:
        """Return the product ``gate``, ``up`` or ``down`` of a layer."""
        made, start = self._made, f"{self._layers}.{place}.mlp"
        shape = (made.hidden_size, made.inner_size) if part == "down" else (made.inner_size, made.hidden_size)
        if self._is_gpt2:
            return self._linear(f"{start}.{'c_proj' if part == 'down' else 'c_fc'}", shape)
        joined = f"{start}.gate_up_proj"
        if part != "down" and self._source.has(f"{joined}.weight"):
            parts = self._split(*self._linear(joined, (2 * shape[0], shape[1])), [shape[0]] * 2)
            return parts[("gate", "up").index(part)]
        return self._linear(f"{start}.{part}_proj", shape)

    def shared(self, place: int) -> list[Linear]:
        """Return gate, product and last product of the expert of all tokens."""
        made, start = self._made, f"{self._layers}.{place}.mlp.shared_expert"
        size = made.experts.shared_size if made.experts is not None else 0
        inner, outer = (size, made.hidden_size), (made.hidden_size, size)
        shapes = {"gate": inner, "up": inner, "down": outer}
        return [self._linear(f"{start}.{part}_proj", shape) for part, shape in shapes.items()]

    def sinks(self, place: int) -> np.ndarray:
        """Return the scores that take a share of each head's and give nothing, (heads,)."""
        return self._read(f"{self._layers}.{place}.self_attn.sinks", (self._made.num_heads,))

    def joined(self, place: int, name: str, shape: tuple[int, int, int]) -> Joined:
        """Return a product of all experts, (experts, outputs, inputs), and its biases (experts, outputs).

        Args:
            place: of the layer.
            name: below it.
            shape: of the product.
        """
        start = f"{self._layers}.{place}.{name}"
        experts, outputs, inputs = shape
        weight = np.swapaxes(self._read(start, (experts, inputs, outputs)), 1, 2)
        return weight, self._read(f"{start}_bias", shape[:2])

    def vector(self, place: int, name: str, size: int) -> np.ndarray:
        """Return a vector below a layer, (size,)."""
        return self._read(f"{self._layers}.{place}.{name}", (size,))

    def plain(self, place: int, name: str, shape: tuple[int, ...]) -> np.ndarray:
        """Return a matrix below a layer."""
        return self._read(f"{self._layers}.{place}.{name}.weight", shape)

    @property
    def _layers(self) -> str:
        return self._start + ("h" if self._is_gpt2 else "layers")

    def _linear(self, name: str, shape: tuple[int, int]) -> Linear:
        stored = shape[::-1] if self._is_gpt2 else shape  # its products are stored as (inputs, outputs)
        weight = self._read(f"{name}.weight", stored)
        bias = self._read(f"{name}.bias", shape[:1]) if self._source.has(f"{name}.bias") else _NO_BIAS
        return (weight.T if self._is_gpt2 else weight), bias

    def _split(self, weight: np.ndarray, bias: np.ndarray | None, rows: list[int]) -> list[Linear]:
        ends = np.cumsum(rows)[:-1]
        biases = [None] * len(rows) if bias is None else np.split(bias, ends)
        return list(zip(np.split(weight, ends), biases, strict=True))

    def _read(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        found = self._source.read(name)
        if found.shape != shape:
            raise InvalidModelFolder(f"tensor {name} has shape {found.shape}, its configuration states {shape}")
        return found
