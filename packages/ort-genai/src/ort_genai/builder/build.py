"""From a source to a folder that ort-genai and onnxruntime-genai run."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ort_genai.builder.architecture import Architecture
from ort_genai.builder.bert import NAMES as PAIRS
from ort_genai.builder.bert import PairArchitecture, pairs_of, write_pairs
from ort_genai.builder.cache_types import store_caches
from ort_genai.builder.decoder_graph import DecoderGraph
from ort_genai.builder.families import architecture_of
from ort_genai.builder.graph_writer import GraphWriter
from ort_genai.builder.layer_weights import LayerWeights
from ort_genai.builder.llava import NAME as LLAVA
from ort_genai.builder.llava import LlavaArchitecture, llava_of, write_llava
from ort_genai.builder.precision_names import CacheType, Method, Precision
from ort_genai.builder.smolvlm import NAMES as SMOLVLM
from ort_genai.builder.smolvlm import SmolVlmArchitecture, smolvlm_of, write_smolvlm
from ort_genai.builder.sources import WeightSource, open_source
from ort_genai.builder.vision_parts import with_images
from ort_genai.builder.weight_precision import WeightFormat
from ort_genai.builder.whisper import NAME as WHISPER
from ort_genai.builder.whisper import (
    WhisperArchitecture,
    audio_processor_config,
    whisper_config,
    whisper_of,
    write_whisper,
)
from ort_genai.errors import InvalidModelFolder

Seeing = LlavaArchitecture | SmolVlmArchitecture
Made = Architecture | Seeing | PairArchitecture | WhisperArchitecture
_BLOCKS = (16, 32, 64, 128, 256)
# what onnxruntime-genai 0.18 runs as any decoder; it refuses names that it does not know, and reads gpt2's caches in
# another way: all others are called decoder, its name for them
_NAMED = frozenset({
    "ernie4_5", "gemma", "gemma2", "gemma3_text", "gptoss", "granite", "llama", "mistral", "nemotron", "olmo", "phi3",
    "qwen2", "qwen3", "smollm3",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """How a model is built.

    Attributes:
        precision: of weights; caches and activations are float32 but for fp16 and bf16.
        block_size: of quantized weights.
        method: that finds numbers of 4 bits.
        is_symmetric: whether numbers have no zero points.
        accuracy_level: of MatMulNBits: 2 for activations of 16 bits, 4 for 8 bits, where the processor is faster so.
        head_bits: of the table of tokens and the last product in int4 and int8; 0: floats.
        context_length: longest context; ``None``: the model's own.
        has_hidden_states: whether the graph gives the vectors before the last product, too: for embeddings.
        caches: type of keys and values that are kept; ``None``: that of activations.
    """

    precision: Precision = Precision.INT4
    block_size: int = 32
    method: Method = Method.REAL
    is_symmetric: bool = False
    accuracy_level: int = 2
    head_bits: int = 8
    context_length: int | None = None
    has_hidden_states: bool = False
    caches: CacheType | None = None

    def formats(self) -> tuple[WeightFormat, WeightFormat]:
        """Return how weights of layers, and of the head, are written.

        Raises:
            InvalidModelFolder: the numbers of bits or the blocks are none that MatMulNBits has.
        """
        if self.block_size not in _BLOCKS or self.head_bits not in (0, 4, 8) or self.accuracy_level not in range(5):
            raise InvalidModelFolder(
                f"blocks of {self.block_size}, a head of {self.head_bits} bits, accuracy level {self.accuracy_level}; "
                f"expected blocks of {', '.join(map(str, _BLOCKS))}, 0, 4 or 8 bits, a level from 0 to 4"
            )
        bits = {Precision.INT4: 4, Precision.INT8: 8}.get(self.precision, 0)
        layers = WeightFormat(
            self.precision, bits, self.block_size, self.method, self.is_symmetric, self.accuracy_level
        )  # fmt: skip
        return layers, replace(layers, bits=self.head_bits if bits else 0)


def build(
    source: Path,
    folder: Path,
    options: BuildOptions | None = None,
    progress: Callable[[int, int], None] = lambda *_: None,
) -> Made:
    """Build a model folder: graph, weights, tokenizer and configuration.

    The folder appears whole or not at all.

    Args:
        source: a folder of safetensors, or a GGUF file.
        folder: to write; must not be there, or be empty.
        options: precision and more.
        progress: is called with layers done and all layers.

    Raises:
        InvalidModelFolder: the source cannot be built, or the folder holds something.
    """
    options = options or BuildOptions()
    options.formats()  # refused before anything is read
    opened = open_source(source)
    made = _architecture(opened, options)
    if options.caches is not None and not isinstance(made, Architecture | Seeing):
        raise InvalidModelFolder(f"caches of {options.caches} are for decoders; {str(source)!r} is none")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidModelFolder(f"{str(folder)!r} is there already; name a new folder")
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        opened.write_tokenizer(temporary)
        with np.errstate(over="ignore", invalid="ignore"):  # such tensors are refused by their names, with what to do
            _write_parts(temporary, opened, made, options, progress)
        if options.caches is not None:
            store_caches(temporary, options.caches)
        if folder.is_dir():
            folder.rmdir()
        temporary.chmod(0o755)
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return made


def _architecture(opened: WeightSource, options: BuildOptions) -> Made:
    named = opened.config.get("architectures")
    if named == [WHISPER]:
        return whisper_of(opened.config)
    if isinstance(named, list) and len(named) == 1 and named[0] in PAIRS:
        return pairs_of(opened.config)
    if named == [LLAVA]:
        seeing = llava_of(opened.config)
        return replace(seeing, text=_with_context(seeing.text, options.context_length))
    if isinstance(named, list) and len(named) == 1 and named[0] in SMOLVLM:
        tiled = smolvlm_of(opened.config)
        return replace(tiled, text=_with_context(tiled.text, options.context_length))
    return _with_context(architecture_of(opened.config), options.context_length)


def _write_parts(
    folder: Path, source: WeightSource, made: Made, options: BuildOptions,
    progress: Callable[[int, int], None],
) -> None:  # fmt: skip
    """Write the graphs and the configuration."""
    if isinstance(made, PairArchitecture):
        write_pairs(folder, source, made, options.formats()[0], progress)
        return
    if isinstance(made, WhisperArchitecture):
        write_whisper(folder, source, made, options.formats(), progress)
        source.write_others(folder, ("generation_config.json", "preprocessor_config.json"))
        (folder / "audio_processor_config.json").write_text(audio_processor_config(made), encoding="utf-8")
        _write_config(folder, whisper_config(source.config, made))
        return
    if isinstance(made, Seeing):
        whole = made.num_layers
        if isinstance(made, LlavaArchitecture):
            write_llava(folder, source, made, options.formats()[0], lambda done: progress(done, whole))
        else:
            write_smolvlm(folder, source, made, options.formats()[0], lambda done: progress(done, whole))
        source.write_others(folder, ("preprocessor_config.json", "processor_config.json"))
        _write_graph(folder, source, made.text, options, lambda done, _: progress(made.layers + done, whole), True)
        _write_config(folder, with_images(genai_config(source.config, made.text), made))
        return
    _write_graph(folder, source, made, options, progress)
    _write_config(folder, genai_config(source.config, made))


def _with_context(made: Architecture, length: int | None) -> Architecture:
    if length is None:
        return made
    if not 1 <= length <= made.context_length:
        raise InvalidModelFolder(
            f"a context of {length} tokens; the model has positions for 1 to {made.context_length}"
        )
    return replace(made, context_length=length)


def _write_graph(
    folder: Path, source: WeightSource, made: Architecture, options: BuildOptions,
    progress: Callable[[int, int], None], takes_vectors: bool = False,
) -> None:  # fmt: skip
    with GraphWriter(folder / "model.onnx") as graph:
        weights = LayerWeights(source, made)
        decoder = DecoderGraph(
            graph, made, weights, *options.formats(), lambda done: progress(done, made.num_layers),
            has_hidden_states=options.has_hidden_states, takes_vectors=takes_vectors,
        )  # fmt: skip
        decoder.write()
        graph.save(decoder.inputs(), decoder.outputs(), {"model_type": made.type, "precision": str(options.precision)})


def _write_config(folder: Path, config: Mapping[str, object]) -> None:
    text = json.dumps(config, indent=4)
    (folder / "genai_config.json").write_text(text, encoding="utf-8")


def _check_tokens(config: Mapping[str, object]) -> None:
    """Refuse what no tokens are, before they are written for others to stumble at."""
    for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
        stated = config.get(name)
        listed = stated if isinstance(stated, list) and name == "eos_token_id" else [] if stated is None else [stated]
        if not all(isinstance(each, int) and not isinstance(each, bool) and abs(each) < 1 << 31 for each in listed):
            raise InvalidModelFolder(f"config.json has {name} = {stated!r}, expected tokens")


def genai_config(config: Mapping[str, object], made: Architecture) -> dict[str, object]:
    """Return the contents of ``genai_config.json``."""
    inputs = {"input_ids": "input_ids", "attention_mask": "attention_mask"}
    if made.has_positions:
        inputs["position_ids"] = "position_ids"
    inputs.update(past_key_names="past_key_values.%d.key", past_value_names="past_key_values.%d.value")
    _check_tokens(config)
    ends = config.get("eos_token_id")
    first = next(iter(ends), 0) if isinstance(ends, list) else ends
    start, padding = config.get("bos_token_id"), config.get("pad_token_id")
    decoder = {
        "session_options": {"log_id": "onnxruntime-genai", "provider_options": []},
        "filename": "model.onnx",
        "head_size": made.head_size,
        "hidden_size": made.hidden_size,
        "inputs": inputs,
        "outputs": {
            "logits": "logits",
            "present_key_names": "present.%d.key",
            "present_value_names": "present.%d.value",
        },
        "num_attention_heads": made.num_heads,
        "num_hidden_layers": made.num_layers,
        "num_key_value_heads": made.num_kv_heads,
    }
    search = {
        "diversity_penalty": 0.0, "do_sample": bool(config.get("do_sample", False)), "early_stopping": True,
        "length_penalty": 1.0, "max_length": made.context_length, "min_length": 0, "no_repeat_ngram_size": 0,
        "num_beams": 1, "num_return_sequences": 1, "past_present_share_buffer": True, "repetition_penalty": 1.0,
        "temperature": config.get("temperature", 1.0), "top_k": config.get("top_k", 50),
        "top_p": config.get("top_p", 1.0),
    }  # fmt: skip
    model = {
        "bos_token_id": first if start is None else start,
        "context_length": made.context_length,
        "decoder": decoder,
        "eos_token_id": ends,
        "pad_token_id": first if padding is None else padding,
        "type": made.type if made.type in _NAMED else "decoder",
        "vocab_size": made.vocab_size,
    }
    return {"model": model, "search": search}
