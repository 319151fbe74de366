"""SmolLM2 in float32 and int4: ort-genai beside onnxruntime-genai and llama.cpp, one line.

    python benchmarks/genai_speed.py build MODEL.gguf WORK     once: the files of onnxruntime-genai's builder (torch)
    python benchmarks/genai_speed.py gguf MODEL.gguf WORK      once, without torch: the files of llama.cpp alone
    python benchmarks/genai_speed.py run WORK --rows benchmarks/results/DATE-genai.jsonl
    python benchmarks/genai_speed.py run WORK --engines llama.cpp --precisions int4 --rows FILE      a part of it

`build` needs torch, transformers, accelerate, gguf, onnx-ir and onnxruntime-genai; `run` needs ort-genai, and
onnxruntime-genai and xllamacpp where they are to be measured (what is missing is said, and left out). Each engine runs
in a process of its own, one at a time, in turns, with 1 and with 2 threads. A row of results is one measurement; what a
process had measured when its time ended is kept. llama.cpp has its weights as Q4_1, as the model is published, and as
Q4_0, for which it has faster products. Its threads wait for each other busily: where other programs take the cores,
its times with 2 threads are some ten times as long, and tell nothing.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import resource
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from gguf import GGMLQuantizationType

ENGINES = {
    "ort-genai": "ort_genai", "onnxruntime-genai": "onnxruntime_genai", "llama.cpp": "xllamacpp",
    "llama.cpp Q4_0": "xllamacpp",
}  # fmt: skip
PRECISIONS = ("int4", "fp32")
PASTS, PREFILLS, STEPS, ROWS = (0, 256, 2048), (257, 2048), 16, 8
LIMIT_S = 300  # of one process


def build(source: Path, work: Path) -> None:
    """Write WORK/int4, WORK/fp32 and, for llama.cpp, WORK/int4.gguf and WORK/fp32.gguf."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    work.mkdir(parents=True, exist_ok=True)
    checkpoint = work / "checkpoint"
    given = {"pretrained_model_name_or_path": str(source.parent), "gguf_file": source.name}
    model = AutoModelForCausalLM.from_pretrained(**given)
    model.hf_quantizer, model.config.quantization_config = None, None  # its weights are floats now
    del model.config.quantization_config
    model.save_pretrained(checkpoint)
    AutoTokenizer.from_pretrained(**given).save_pretrained(checkpoint)
    for precision in PRECISIONS:
        asked = ["-i", str(checkpoint), "-o", str(work / precision), "-p", precision, "-e", "cpu", "-c", str(work)]
        asked += ["--extra_options", "int4_accuracy_level=4"] if precision == "int4" else []
        subprocess.run([sys.executable, "-m", "onnxruntime_genai.models.builder", *asked], check=True)
    write_gguf(source, work)


def write_gguf(source: Path, work: Path) -> None:
    """Write WORK/int4.gguf, the source itself, and the same weights as Q4_0 and as float32."""
    from gguf import GGMLQuantizationType

    work.mkdir(parents=True, exist_ok=True)
    (work / "int4.gguf").write_bytes(source.read_bytes())
    write_as(source, work / "fp32.gguf", GGMLQuantizationType.F32)
    write_as(source, work / "int4-q4_0.gguf", GGMLQuantizationType.Q4_0)


def write_as(source: Path, target: Path, wanted: GGMLQuantizationType) -> None:
    """Write a GGUF file with the same weights in another type: all as float32, or those of 4 bits as Q4_0."""
    from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter
    from gguf.quants import dequantize, quantize

    reader = GGUFReader(source)
    writer = GGUFWriter(target, str(reader.fields["general.architecture"].contents()))
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in ("general.architecture", "general.file_type"):
            continue
        kind, inner = field.types[0], field.types[-1] if field.types[0] is GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), kind, sub_type=inner)
    for tensor in reader.tensors:
        floats = np.ascontiguousarray(dequantize(tensor.data, tensor.tensor_type), np.float32)
        if wanted is GGMLQuantizationType.F32:
            writer.add_tensor(tensor.name, floats)
        elif tensor.tensor_type is GGMLQuantizationType.Q4_1:
            writer.add_tensor(tensor.name, quantize(floats, wanted), raw_dtype=wanted)
        else:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def prompt(length: int) -> list[int]:
    """Return tokens that are not the same ones again and again."""
    return [int(each) for each in np.random.default_rng(length).integers(1000, 40000, length)]


class GenaiEngine:
    """onnxruntime-genai, or ort-genai by the same names."""

    def __init__(self, module: str, folder: Path, threads: int) -> None:
        self._module = importlib.import_module(module)
        config = self._module.Config(str(folder))
        options = {"intra_op_num_threads": threads}
        config.overlay(json.dumps({"model": {"decoder": {"session_options": options}}}))
        self._model = self._module.Model(config)

    def generator(self, tokens: Sequence[int], rows: int, further: int) -> object:
        """Return a generation of rows that have read the same tokens."""
        params = self._module.GeneratorParams(self._model)
        params.set_search_options(max_length=len(tokens) + further, min_length=len(tokens) + further, batch_size=rows)
        made = self._module.Generator(self._model, params)
        made.append_tokens(np.array([tokens] * rows, np.int32) if rows > 1 else np.array(tokens, np.int32))
        return made

    def steps_ms(self, past: int, rows: int = 1) -> float:
        """Return milliseconds of a step behind so many tokens: the median of some."""
        generator = self.generator(prompt(max(past, 1)), rows, STEPS + 4)
        times = []
        for _ in range(STEPS + 2):
            start = time.perf_counter()
            generator.generate_next_token()
            generator.get_next_tokens()
            times.append(time.perf_counter() - start)
        return 1e3 * statistics.median(times[2:])

    def prefill_ms(self, length: int) -> float:
        """Return milliseconds until the first token of a prompt: the least of two."""
        found = []
        for _ in range(2):
            start = time.perf_counter()
            generator = self.generator(prompt(length), 1, 2)
            generator.generate_next_token()
            found.append(time.perf_counter() - start)
        return 1e3 * min(found)


class LlamaEngine:
    """llama.cpp by xllamacpp; it tells its own times."""

    def __init__(self, file: Path, threads: int) -> None:
        import xllamacpp

        params = xllamacpp.CommonParams()
        params.model.path = str(file)
        params.n_ctx, params.n_parallel, params.n_batch, params.warmup = 2304 * ROWS, ROWS, 2048, False
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
        self._server = xllamacpp.Server(params)

    def _asked(self, tokens: Sequence[int], count: int, *, goes_on: bool = False) -> dict[str, float]:
        body = {"prompt": list(tokens), "n_predict": count, "temperature": 0, "cache_prompt": goes_on}
        found = self._server.handle_completions({**body, "ignore_eos": True, "id_slot": 0 if goes_on else -1})
        found = json.loads(found) if isinstance(found, str) else found
        return dict(found["timings"])

    def steps_ms(self, past: int, rows: int = 1) -> float:
        """Return milliseconds of a step behind so many tokens; a prompt that was read last is not read again."""
        if rows == 1:
            return self._asked(prompt(max(past, 1)), STEPS, goes_on=True)["predicted_per_token_ms"]
        found: list[float] = []

        def ask(place: int) -> None:
            found.append(self._asked(prompt(past + place)[place:], STEPS)["predicted_per_token_ms"])

        threads = [threading.Thread(target=ask, args=(place,)) for place in range(rows)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        return statistics.median(found)

    def prefill_ms(self, length: int) -> float:
        """Return milliseconds until the first token of a prompt: the least of two."""
        return min(self._asked(prompt(length), 1)["prompt_ms"] for _ in range(2))


def measured(engine: str, work: Path, precision: str, threads: int, report: Callable[[str, float], None]) -> None:
    """Measure one engine in this process."""
    start = time.perf_counter()
    if engine.startswith("llama.cpp"):
        file = "int4-q4_0.gguf" if engine.endswith("Q4_0") else f"{precision}.gguf"
        made: GenaiEngine | LlamaEngine = LlamaEngine(work / file, threads)
    else:
        made = GenaiEngine(ENGINES[engine], work / precision, threads)
    made.prefill_ms(5)
    report("start to first token, ms", 1e3 * (time.perf_counter() - start))
    for past in PASTS[:-1]:
        report(f"step behind {past} tokens, ms", made.steps_ms(past))
    report(f"step of {ROWS} rows behind 64 tokens, ms", made.steps_ms(64, ROWS))
    for length in PREFILLS:
        report(f"prompt of {length} tokens, ms", made.prefill_ms(length))
    report(f"step behind {PASTS[-1]} tokens, ms", made.steps_ms(PASTS[-1]))
    report("peak memory, MB", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def run(
    work: Path, rows: Path | None, threads: Sequence[int], precisions: Sequence[str], turns: int, wanted: Sequence[str]
) -> None:  # fmt: skip
    """Measure engines in turns, and show what was found."""
    engines = [name for name in wanted if importlib.util.find_spec(ENGINES[name])]
    for name in wanted:
        if name not in engines:
            say(f"{name} is not installed, and left out")
    found: list[dict[str, object]] = []
    for turn in range(turns):
        for precision in precisions:
            for count in threads:
                for engine in engines:
                    if engine.endswith("Q4_0") and precision != "int4":
                        continue
                    found += one(engine, work, precision, count, turn)
    if rows is not None:
        rows.parent.mkdir(parents=True, exist_ok=True)
        rows.write_text("".join(json.dumps(each) + "\n" for each in found), encoding="utf-8")
    show(found, engines)


def one(engine: str, work: Path, precision: str, threads: int, turn: int) -> list[dict[str, object]]:
    """Return the rows of one process; what fails is said."""
    command = [sys.executable, __file__, "one", engine, str(work), precision, str(threads)]
    facts = {"engine": engine, "precision": precision, "threads": threads, "turn": turn}
    who = f"{engine}, {precision}, {threads} threads"
    try:
        done = subprocess.run(command, capture_output=True, timeout=LIMIT_S, check=False)
        written = done.stdout
        if done.returncode:
            say(f"{who} ended with {done.returncode}: {done.stderr[-500:].decode(errors='replace')}")
    except subprocess.TimeoutExpired as error:
        written = error.stdout or b""
        say(f"{who} did not end in {LIMIT_S} s: what it had measured is kept")
    lines = written.decode(errors="replace").splitlines()
    return [{**facts, **json.loads(line)} for line in lines if line.startswith('{"what"') and line.endswith("}")]


def show(rows: Sequence[dict[str, object]], engines: Sequence[str]) -> None:
    """Print the least of the turns, engine beside engine."""
    least: dict[tuple[object, ...], dict[str, float]] = {}
    for row in rows:
        key = (row["precision"], row["threads"], row["what"])
        value, engine = float(str(row["value"])), str(row["engine"])
        known = least.setdefault(key, {})
        known[engine] = min(known.get(engine, value), value)
    say(" ".join([f"{'':48}", *(f"{engine:>18}" for engine in engines)]))
    for (precision, threads, what), found in least.items():
        cells = [f"{found[engine]:18.1f}" if engine in found else f"{'-':>18}" for engine in engines]
        say(" ".join([f"{precision}, {threads} threads, {what}"[:48].ljust(48), *cells]))


def say(text: str) -> None:
    """Write a line."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def report(what: str, value: float) -> None:
    """Write a measurement for the process that asked."""
    say(json.dumps({"what": what, "value": round(value, 3)}))


def main() -> None:
    """Read the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    building = commands.add_parser("build")
    building.add_argument("source", type=Path)
    building.add_argument("work", type=Path)
    converting = commands.add_parser("gguf")
    converting.add_argument("source", type=Path)
    converting.add_argument("work", type=Path)
    running = commands.add_parser("run")
    running.add_argument("work", type=Path)
    running.add_argument("--rows", type=Path)
    running.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    running.add_argument("--precisions", nargs="*", default=list(PRECISIONS))
    running.add_argument("--turns", type=int, default=1)
    running.add_argument("--engines", nargs="*", default=list(ENGINES), choices=list(ENGINES))
    asked = commands.add_parser("one")
    for name in ("engine", "work", "precision", "threads"):
        asked.add_argument(name)
    given = parser.parse_args()
    if given.command == "build":
        build(given.source, given.work)
    elif given.command == "gguf":
        write_gguf(given.source, given.work)
    elif given.command == "run":
        run(given.work, given.rows, given.threads, given.precisions, given.turns, given.engines)
    else:
        measured(given.engine, Path(given.work), given.precision, int(given.threads), report)


if __name__ == "__main__":
    main()
