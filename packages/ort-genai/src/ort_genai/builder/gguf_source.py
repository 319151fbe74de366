"""Weights of a GGUF file: names, key-values and the order of rows, as Hugging Face's checkpoints have them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from gguf import GGUFReader, ReaderTensor
from gguf.quants import dequantize

from ort_genai.builder.gguf_head import check_head
from ort_genai.builder.gguf_tokenizer import write_tokenizer
from ort_genai.errors import InvalidModelFolder

_ARCHITECTURES = {
    "llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM", "phi3": "Phi3ForCausalLM",
    "gemma": "GemmaForCausalLM", "gemma2": "Gemma2ForCausalLM", "gemma3": "Gemma3ForCausalLM",
    "granite": "GraniteForCausalLM", "olmo2": "Olmo2ForCausalLM", "smollm3": "SmolLM3ForCausalLM",
}  # fmt: skip
_FAULTS = (ValueError, LookupError, OSError, ArithmeticError, TypeError, AttributeError, MemoryError, RecursionError)
_LARGEST_LAYERS = {"gemma2": 46, "gemma3": 62}  # which is how llama.cpp, too, knows the models of 27 billion
_SHORT = "rope_factors_short.weight"
_ROTATED_IN_PAIRS = ("llama", "granite", "smollm3")  # their queries and keys are stored for interleaved rotations
_WHOLE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_PARTS = {
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_qkv": "self_attn.qkv_proj", "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm", "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}  # fmt: skip
_AROUND = {
    "post_attention_norm": "post_attention_layernorm", "post_ffw_norm": "post_feedforward_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
}  # fmt: skip
_KEYS = {
    "num_hidden_layers": "block_count", "hidden_size": "embedding_length", "intermediate_size": "feed_forward_length",
    "num_attention_heads": "attention.head_count", "num_key_value_heads": "attention.head_count_kv",
    "max_position_embeddings": "context_length", "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "rope_theta": "rope.freq_base", "head_dim": "attention.key_length", "sliding_window": "attention.sliding_window",
    "attn_logit_softcapping": "attn_logit_softcapping", "final_logit_softcapping": "final_logit_softcapping",
    "embedding_multiplier": "embedding_scale", "residual_multiplier": "residual_scale",
    "attention_multiplier": "attention.scale", "logits_scaling": "logit_scale",
}  # fmt: skip


class GgufSource:
    """A GGUF file.

    Raises:
        InvalidModelFolder: it cannot be read, or is of an architecture that is not known.
    """

    norms_hold_offset = True

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            check_head(path)
            reader = GGUFReader(path)
            self._fields = {name: field.contents() for name, field in reader.fields.items()}
        except InvalidModelFolder:
            raise
        except _FAULTS as error:
            raise InvalidModelFolder(
                f"{str(path)!r} cannot be read as GGUF: {type(error).__name__}: {error}"
            ) from error
        self._kind = str(self._fields.get("general.architecture"))
        if self._kind not in _ARCHITECTURES:
            known = ", ".join(_ARCHITECTURES)
            raise InvalidModelFolder(
                f"{str(path)!r} is of the architecture {self._kind!r}, which cannot be built; known: {known}"
            )
        names = {**_PARTS, **(_AROUND if self._kind in ("gemma2", "gemma3") else {})}
        if self._kind == "olmo2":
            names.update(
                {"post_attention_norm": "post_attention_layernorm", "post_ffw_norm": "post_feedforward_layernorm"}
            )
        if self._kind == "phi3":
            names["ffn_up"] = "mlp.gate_up_proj"
        self._tensors = {_plain_name(each.name, names): each for each in reader.tensors}
        self.config: Mapping[str, object] = self._stated()

    def has(self, name: str) -> bool:
        """Return whether there is a tensor of this name."""
        return name in self._tensors

    def read(self, name: str) -> np.ndarray:
        """Return a tensor as float32, rows in the order of rotations by halves."""
        if name not in self._tensors:
            raise InvalidModelFolder(
                f"{str(self._path)!r} has no tensor {name!r} (as checkpoints call it), which its architecture needs"
            )
        tensor = self._tensors[name]
        found = self._dequantized(tensor)
        heads = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}.get(name.split(".")[-2])
        if heads is not None and self._kind in _ROTATED_IN_PAIRS:
            return self._by_halves(found, heads, name)
        return found

    def write_tokenizer(self, folder: Path) -> None:
        """Write the file's tokenizer."""
        write_tokenizer(self._fields, folder)

    def write_others(self, folder: Path, names: Sequence[str]) -> None:
        """Write nothing: a GGUF file holds a decoder alone."""

    def _dequantized(self, tensor: ReaderTensor) -> np.ndarray:
        try:
            return np.ascontiguousarray(dequantize(tensor.data, tensor.tensor_type), np.float32)
        except (NotImplementedError, ValueError, KeyError) as error:
            raise InvalidModelFolder(
                f"tensor {tensor.name!r} of {str(self._path)!r} is of type {tensor.tensor_type.name}, which cannot be "
                f"read: {error}"
            ) from error

    def _by_halves(self, value: np.ndarray, heads: str, name: str) -> np.ndarray:
        number = self.config[heads]
        if not isinstance(number, int) or number < 1 or len(value) % (2 * number):
            raise InvalidModelFolder(f"{name} has {len(value)} rows, which {number!r} heads do not share")
        pairs = value.reshape(number, len(value) // number // 2, 2, *value.shape[1:])
        return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(value.shape)

    def _stated(self) -> dict[str, object]:
        """Return what the key-values state, under the names of ``config.json``."""
        found: dict[str, object] = {"architectures": [_ARCHITECTURES[self._kind]], "model_type": self._kind}
        for name, key in _KEYS.items():
            value = self._fields.get(f"{self._kind}.{key}")
            if value is not None:
                found[name] = value
        if "num_attention_heads" in found:  # as llama.cpp reads a file that does not state the others
            found.setdefault("num_key_value_heads", found["num_attention_heads"])
        if isinstance(found.get("num_key_value_heads"), list) or isinstance(found.get("intermediate_size"), list):
            raise InvalidModelFolder(f"{str(self._path)!r} has layers of different sizes, which cannot be built")
        tokens = self._fields.get("tokenizer.ggml.tokens")
        table = self._tensors.get("model.embed_tokens.weight")
        if table is None or not isinstance(tokens, list):
            raise InvalidModelFolder(
                f"{str(self._path)!r} has no table of tokens (token_embd.weight, tokenizer.ggml.tokens)"
            )
        if len(table.shape) != 2:
            raise InvalidModelFolder(f"{str(self._path)!r} has a table of tokens of {len(table.shape)} axes, not 2")
        found["vocab_size"] = int(table.shape[-1])
        found["tie_word_embeddings"] = "lm_head.weight" not in self._tensors
        for name in ("bos", "eos"):
            found[f"{name}_token_id"] = self._fields.get(f"tokenizer.ggml.{name}_token_id")
        found["pad_token_id"] = self._fields.get("tokenizer.ggml.padding_token_id", found["eos_token_id"])
        if found.get("sliding_window") == 0:  # as llama.cpp's converter tells Phi-4, which has none, from Phi-3
            del found["sliding_window"]
        found["partial_rotary_factor"] = self._rotated_share(found)
        return {**found, **self._scaling(found), **self._score_scale(found)}

    def _rotated_share(self, found: dict[str, object]) -> float:
        """Return the share of a head that rotates.

        Raises:
            InvalidModelFolder: the file states no share of a head.
        """
        rotated, size = self._fields.get(f"{self._kind}.rope.dimension_count"), self._head_size(found)
        if rotated is None or size == 0:
            return 1.0
        if not isinstance(rotated, int) or not 0 < rotated <= size:
            raise InvalidModelFolder(
                f"{str(self._path)!r} has rope.dimension_count = {rotated!r}, expected 1 to {size}"
            )
        return rotated / size

    def _head_size(self, found: dict[str, object]) -> int:
        """Return the elements of a head, 0 where the file does not tell."""
        size, hidden, heads = (found.get(name) for name in ("head_dim", "hidden_size", "num_attention_heads"))
        if isinstance(size, int):
            return size
        return hidden // heads if isinstance(hidden, int) and isinstance(heads, int) and heads else 0

    def _score_scale(self, found: dict[str, object]) -> dict[str, object]:
        """Return what scores of Gemma 2 and 3 are scaled by: the size of a head, but for the models of 27 billion."""
        if self._kind not in _LARGEST_LAYERS:
            return {}
        size = self._head_size({**found, "head_dim": None} if self._is_largest(found) else found)
        return {"query_pre_attn_scalar": size} if size else {}

    def _is_largest(self, found: dict[str, object]) -> bool:
        return found.get("num_hidden_layers") == _LARGEST_LAYERS[self._kind]

    def _rotation_factors(self, found: dict[str, object], name: str = "rope_freqs.weight") -> list[float]:
        """Return what divides each frequency: the table that LLaMA 3.1 and later files hold."""
        factors = self._dequantized(self._tensors[name]).reshape(-1)
        size = int(self._head_size(found) * self._rotated_share(found))
        if len(factors) != size // 2 or not (np.isfinite(factors) & (factors > 0)).all():
            raise InvalidModelFolder(
                f"{str(self._path)!r} has {name} of {len(factors)} numbers; expected {size // 2} above 0"
            )
        return [float(each) for each in factors]

    def _scaling(self, found: dict[str, object]) -> dict[str, object]:
        kind, factor = (self._fields.get(f"{self._kind}.rope.scaling.{each}") for each in ("type", "factor"))
        if self._kind == "gemma3":
            found.setdefault("rope_theta", 1e6)
            return {} if factor is None else {"rope_scaling": {"rope_type": "linear", "factor": factor}}
        if _SHORT in self._tensors:
            return self._longrope(found)
        if kind not in (None, "none", "linear"):
            raise InvalidModelFolder(
                f"{str(self._path)!r} scales its rotation ({kind}); build from its safetensors, which state how"
            )
        if "rope_freqs.weight" in self._tensors:
            return {"rope_scaling": {"rope_type": "factors", "factors": self._rotation_factors(found)}}
        if self._kind == "smollm3":
            return {"no_rope_layer_interval": 4}
        return {} if kind != "linear" else {"rope_scaling": {"rope_type": "linear", "factor": factor}}

    def _longrope(self, found: dict[str, object]) -> dict[str, object]:
        """Return the scaling of Phi-3 and Phi-4 for contexts up to the one that they were trained with."""
        start = f"{self._kind}.rope.scaling"
        original = self._fields.get(f"{start}.original_context_length", found.get("max_position_embeddings"))
        stated: dict[str, object] = {"rope_type": "longrope", "short_factor": self._rotation_factors(found, _SHORT)}
        if f"{start}.attn_factor" in self._fields:
            stated["attention_factor"] = self._fields[f"{start}.attn_factor"]
        return {"original_max_position_embeddings": original, "rope_scaling": stated}


def _plain_name(name: str, parts: Mapping[str, str]) -> str:
    """Return the checkpoint's name of a tensor; one that is not known keeps its own."""
    start, _, end = name.rpartition(".")
    if start in _WHOLE:
        return f"{_WHOLE[start]}.{end}"
    found = re.fullmatch(r"blk\.(\d+)\.(.+)", start)
    if found is None or found[2] not in parts:
        return name
    return f"model.layers.{found[1]}.{parts[found[2]]}.{end}"
