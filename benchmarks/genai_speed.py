"""SmolLM2 in float32 and int4: ort-genai beside onnxruntime-genai and llama.cpp, one line.

    python benchmarks/genai_speed.py build MODEL.gguf WORK     once: the files of onnxruntime-genai's builder (torch)
    python benchmarks/genai_speed.py run WORK --rows benchmarks/results/DATE-genai.jsonl

`build` needs torch, transformers, accelerate, gguf, onnx-ir and onnxruntime-genai; `run` needs ort-genai, and
onnxruntime-genai and xllamacpp where they are to be measured (what is missing is said, and left out). Each engine runs
in a process of its own, one at a time, in turns, with 1 and with 2 threads. A row of results is one measurement.
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

import numpy as np

ENGINES = {"ort-genai": "ort_genai", "onnxruntime-genai": "onnxruntime_genai", "llama.cpp": "xllamacpp"}
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
    (work / "int4.gguf").write_bytes(source.read_bytes())
    write_floats(source, work / "fp32.gguf")


def write_floats(source: Path, target: Path) -> None:
    """Write a GGUF file with the same weights as float32."""
    from gguf import GGUFReader, GGUFValueType, GGUFWriter
    from gguf.quants import dequantize

    reader = GGUFReader(source)
    writer = GGUFWriter(target, str(reader.fields["general.architecture"].contents()))
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in ("general.architecture", "general.file_type"):
            continue
        kind, inner = field.types[0], field.types[-1] if field.types[0] is GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), kind, sub_type=inner)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, np.ascontiguousarray(dequantize(tensor.data, tensor.tensor_type), np.float32))
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

    def _asked(self, tokens: Sequence[int], count: int) -> dict[str, float]:
        body = {"prompt": list(tokens), "n_predict": count, "temperature": 0, "cache_prompt": False, "ignore_eos": True}
        found = self._server.handle_completions(body)
        found = json.loads(found) if isinstance(found, str) else found
        return dict(found["timings"])

    def steps_ms(self, past: int, rows: int = 1) -> float:
        """Return milliseconds of a step behind so many tokens."""
        if rows == 1:
            return self._asked(prompt(max(past, 1)), STEPS)["predicted_per_token_ms"]
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
    if engine == "llama.cpp":
        made: GenaiEngine | LlamaEngine = LlamaEngine(work / f"{precision}.gguf", threads)
    else:
        made = GenaiEngine(ENGINES[engine], work / precision, threads)
    made.prefill_ms(5)
    report("start to first token, ms", 1e3 * (time.perf_counter() - start))
    for past in PASTS:
        report(f"step behind {past} tokens, ms", made.steps_ms(past))
    for length in PREFILLS:
        report(f"prompt of {length} tokens, ms", made.prefill_ms(length))
    report(f"step of {ROWS} rows behind 64 tokens, ms", made.steps_ms(64, ROWS))
    report("peak memory, MB", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def run(work: Path, rows: Path | None, threads: Sequence[int], precisions: Sequence[str], turns: int) -> None:
    """Measure all engines in turns, and show what was found."""
    engines = [name for name, module in ENGINES.items() if importlib.util.find_spec(module)]
    for name in ENGINES:
        if name not in engines:
            say(f"{name} is not installed, and left out")
    found: list[dict[str, object]] = []
    for turn in range(turns):
        for precision in precisions:
            for count in threads:
                for engine in engines:
                    found += one(engine, work, precision, count, turn)
    if rows is not None:
        rows.parent.mkdir(parents=True, exist_ok=True)
        rows.write_text("".join(json.dumps(each) + "\n" for each in found), encoding="utf-8")
    show(found, engines)


def one(engine: str, work: Path, precision: str, threads: int, turn: int) -> list[dict[str, object]]:
    """Return the rows of one process; what fails is said."""
    command = [sys.executable, __file__, "one", engine, str(work), precision, str(threads)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        say(f"{engine}, {precision}, {threads} threads did not end in {LIMIT_S} s: no rows")
        return []
    facts = {"engine": engine, "precision": precision, "threads": threads, "turn": turn}
    rows = [{**facts, **json.loads(line)} for line in done.stdout.splitlines() if line.startswith('{"what"')]
    if done.returncode:
        say(f"{engine}, {precision}, {threads} threads ended with {done.returncode}: {done.stderr[-500:]}")
    return rows


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
    running = commands.add_parser("run")
    running.add_argument("work", type=Path)
    running.add_argument("--rows", type=Path)
    running.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    running.add_argument("--precisions", nargs="*", default=list(PRECISIONS))
    running.add_argument("--turns", type=int, default=1)
    asked = commands.add_parser("one")
    for name in ("engine", "work", "precision", "threads"):
        asked.add_argument(name)
    given = parser.parse_args()
    if given.command == "build":
        build(given.source, given.work)
    elif given.command == "run":
        run(given.work, given.rows, given.threads, given.precisions, given.turns)
    else:
        measured(given.engine, Path(given.work), given.precision, int(given.threads), report)


if __name__ == "__main__":
    main()
