"""How fast a BERT is: latency and throughput of batch sizes and numbers of threads, as a table.

python -m ort_transformers.bert_perf_test --model model.onnx --batch_size 1 4 --sequence_length 64
"""

from __future__ import annotations

import argparse
import csv
import importlib
import json
import logging
import os
import random
import time
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

import ort_core
from ort_core.cli.interrupts import run_program
from ort_core.errors import ProviderUnavailable
from ort_core.whole_files import replace_text, written_whole
from ort_transformers.benchmark_helper import gpu_providers
from ort_transformers.bert_test_data import add_input_arguments, generate_test_data, get_bert_inputs, known_words

log = logging.getLogger("ort_transformers.bert_perf_test")  # not __name__, which is __main__ of a command line

Feeds = Sequence[Mapping[str, np.ndarray]]
Results = MutableMapping[str, tuple[float, ...]]
_LEVELS = {0: "ORT_DISABLE_ALL", 1: "ORT_ENABLE_BASIC", 2: "ORT_ENABLE_EXTENDED", 3: "ORT_ENABLE_LAYOUT"}
_COLUMNS = ("Latency(ms)", "Latency_P50", "Latency_P75", "Latency_P90", "Latency_P95", "Latency_P99",
            "Throughput(QPS)")  # fmt: skip
_MOST_THREADS = 16
_MOST_SENTENCES = 128


@dataclass
class TestSetting:
    """How a model is tested."""

    __test__ = False  # pytest collects classes of this name

    batch_size: int
    sequence_length: int
    test_cases: int
    test_times: int
    use_gpu: bool
    use_io_binding: bool
    provider: str | None
    intra_op_num_threads: int | None
    seed: int
    verbose: bool
    log_severity: int
    average_sequence_length: int
    random_sequence_length: bool


@dataclass
class ModelSetting:
    """Which model is tested, and what its inputs are."""

    model_path: str
    input_ids_name: str | None
    segment_ids_name: str | None
    input_mask_name: str | None
    opt_level: int
    input_tuning_results: str | None
    output_tuning_results: str | None
    mask_type: int


def create_session(
    model_path: str,
    use_gpu: bool,
    provider: str | None,
    intra_op_num_threads: int | None,
    graph_optimization_level: Any = None,
    log_severity: int = 2,
    tuning_results_path: str | None = None,
) -> ort_core.InferenceSession:
    """Return a session.

    Raises:
        ProviderUnavailable: a GPU is asked for that cannot be used.
        OrtError: the model cannot be loaded.
    """
    names = gpu_providers(provider) if use_gpu else ["CPUExecutionProvider"]
    options = ort_core.SessionOptions()
    options.log_severity_level = log_severity
    options.execution_mode = ort_core.ExecutionMode.ORT_SEQUENTIAL
    level = _LEVELS.get(99 if graph_optimization_level is None else graph_optimization_level, "ORT_ENABLE_ALL")
    options.graph_optimization_level = getattr(ort_core.GraphOptimizationLevel, level)
    if intra_op_num_threads is not None:
        options.intra_op_num_threads = intra_op_num_threads
    session = ort_core.InferenceSession(model_path, options, providers=names)
    if names[0] not in session.get_providers():
        raise ProviderUnavailable(f"{names[0]} cannot be used here; `ort providers` says what it needs")
    if tuning_results_path is not None:
        session.set_tuning_results(json.loads(Path(tuning_results_path).read_text(encoding="utf-8")))
    return session


def numpy_type(torch_type: Any) -> type:
    """Return numpy's element type of torch's.

    Raises:
        KeyError: a BERT has no inputs or outputs of that type.
    """
    types = {"float32": np.float32, "float16": np.float16, "int32": np.int32, "int64": np.int64}
    return types[str(torch_type).removeprefix("torch.")]


def create_input_output_tensors(
    inputs: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray], device: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return torch's tensors on a device of the arrays of inputs and of outputs, by name."""
    torch = importlib.import_module("torch")
    found = [
        {name: torch.from_numpy(array).to(device) for name, array in arrays.items()} for arrays in (inputs, outputs)
    ]
    return found[0], found[1]


def create_io_binding(
    sess: ort_core.InferenceSession, input_tensors: Mapping[str, Any], output_tensors: Mapping[str, Any]
) -> Any:
    """Return a binding of a session's inputs and outputs to torch's tensors."""
    binding = sess.io_binding()
    for tensors, bind in ((input_tensors, binding.bind_input), (output_tensors, binding.bind_output)):
        for name, tensor in tensors.items():
            place = (tensor.device.type, tensor.device.index or 0)
            bind(name, *place, numpy_type(tensor.dtype), list(tensor.shape), tensor.data_ptr())
    return binding


def onnxruntime_inference(
    session: ort_core.InferenceSession, all_inputs: Feeds, output_names: Sequence[str]
) -> tuple[list[Any], list[float]]:
    """Run each feed behind one run that does not count; return the results, and the seconds of each run."""
    if all_inputs:
        session.run(list(output_names), dict(random.choice(all_inputs)))
    results, seconds = [], []
    for feeds in all_inputs:
        given = dict(feeds)
        begin = time.perf_counter()
        results.append(session.run(list(output_names), given))
        seconds.append(time.perf_counter() - begin)
    return results, seconds


def onnxruntime_inference_with_io_binding(
    session: ort_core.InferenceSession, all_inputs: Feeds, output_names: Sequence[str], test_setting: TestSetting
) -> tuple[list[Any], list[float]]:
    """Run each feed with its inputs and outputs bound; return the results, and the seconds of each run."""
    device = "cuda" if test_setting.use_gpu else "cpu"
    results, seconds = [], []
    for feeds in all_inputs:
        expected = session.run(list(output_names), dict(feeds))
        results.append(expected)
        binding = session.io_binding()
        for name, value in feeds.items():
            binding.bind_ortvalue_input(name, ort_core.OrtValue.ortvalue_from_numpy(value, device, 0))
        for name, result in zip(output_names, expected, strict=True):
            binding.bind_ortvalue_output(name, ort_core.OrtValue.ortvalue_from_numpy(np.asarray(result), device, 0))
        session.run_with_iobinding(binding)
        begin = time.perf_counter()
        session.run_with_iobinding(binding)
        seconds.append(time.perf_counter() - begin)
    return results, seconds


def to_string(model_path: str, session: ort_core.InferenceSession, test_setting: TestSetting) -> str:
    """Return what was tested as ``name=value,...``."""
    options = session.get_session_options()
    known = {
        "model": Path(model_path).name,
        "graph_optimization_level": options.graph_optimization_level,
        "intra_op_num_threads": options.intra_op_num_threads,
        "batch_size": test_setting.batch_size,
        "sequence_length": test_setting.sequence_length,
        "test_cases": test_setting.test_cases,
        "test_times": test_setting.test_times,
        "use_gpu": test_setting.use_gpu,
        "use_io_binding": test_setting.use_io_binding,
        "average_sequence_length": test_setting.average_sequence_length,
        "random_sequence_length": test_setting.random_sequence_length,
    }
    return ",".join(f"{name}={value}" for name, value in known.items()).replace("GraphOptimizationLevel.ORT_", "")


def run_one_test(
    model_setting: ModelSetting,
    test_setting: TestSetting,
    perf_results: Results,
    all_inputs: Feeds,
    intra_op_num_threads: int | None,
) -> None:
    """Time runs, and put mean, percentiles and throughput into the results."""
    session = create_session(
        model_setting.model_path, test_setting.use_gpu, test_setting.provider, intra_op_num_threads,
        model_setting.opt_level, test_setting.log_severity, model_setting.input_tuning_results,
    )  # fmt: skip
    names = [each.name for each in session.get_outputs()]
    key = to_string(model_setting.model_path, session, test_setting)
    if key in perf_results:
        log.info("tested already: %s", key)
        return
    seconds: list[float] = []
    for _ in range(test_setting.test_times):
        if test_setting.use_io_binding:
            seconds += onnxruntime_inference_with_io_binding(session, all_inputs, names, test_setting)[1]
        else:
            seconds += onnxruntime_inference(session, all_inputs, names)[1]
    milliseconds = 1e3 * np.asarray(seconds)
    mean = float(milliseconds.mean())
    percentiles = (float(np.percentile(milliseconds, each)) for each in (50, 75, 90, 95, 99))
    perf_results[key] = (mean, *percentiles, test_setting.batch_size * 1e3 / mean)
    log.info("%s: %.2f ms on average, %.2f sentences a second", key, mean, perf_results[key][-1])
    if model_setting.output_tuning_results:
        _write_tuning(session, Path(model_setting.output_tuning_results))


def _write_tuning(session: ort_core.InferenceSession, path: Path) -> None:
    if path.exists():
        path = path.with_suffix(f".{datetime.now().timestamp()}.json")
        log.warning("the file of tuning results exists already: writing %s", path)
    replace_text(path, json.dumps(session.get_tuning_results()))


def launch_test(
    model_setting: ModelSetting,
    test_setting: TestSetting,
    perf_results: Results,
    all_inputs: Feeds,
    intra_op_num_threads: int | None,
) -> None:
    """Time runs as ``run_one_test`` does; onnxruntime needs a process for each number of threads."""
    run_one_test(model_setting, test_setting, perf_results, all_inputs, intra_op_num_threads)


def run_perf_tests(
    model_setting: ModelSetting, test_setting: TestSetting, perf_results: Results, all_inputs: Feeds
) -> None:
    """Test the number of threads that is asked for, or all from the most to one."""
    asked = test_setting.intra_op_num_threads
    most = os.cpu_count() or 1
    tried = [asked] if asked is not None else sorted({most, *range(1, min(_MOST_THREADS, most))}, reverse=True)
    for num_threads in tried:
        launch_test(model_setting, test_setting, perf_results, all_inputs, num_threads)


def run_performance(model_setting: ModelSetting, test_setting: TestSetting, perf_results: Results) -> None:
    """Make up inputs and test."""
    found = get_bert_inputs(
        model_setting.model_path, model_setting.input_ids_name, model_setting.segment_ids_name,
        model_setting.input_mask_name,
    )  # fmt: skip
    feeds = generate_test_data(
        test_setting.batch_size, test_setting.sequence_length, test_setting.test_cases, test_setting.seed,
        test_setting.verbose, *found, test_setting.average_sequence_length, test_setting.random_sequence_length,
        mask_type=model_setting.mask_type,
        dictionary_size=known_words(model_setting.model_path, found[0]),
    )  # fmt: skip
    run_perf_tests(model_setting, test_setting, perf_results, feeds)


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Return what a command line asks for; by default this process's."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, type=str, help="the model")
    parser.add_argument("-b", "--batch_size", required=True, type=int, nargs="+")
    parser.add_argument("-s", "--sequence_length", required=True, type=int)
    parser.add_argument("--samples", type=int, default=10, help="how many feeds")
    parser.add_argument("-t", "--test_times", type=int, default=0, help="runs of each, by default 1000 / samples")
    parser.add_argument("--opt_level", type=int, choices=[0, 1, 2, 3, 99], default=99)
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--log_severity", type=int, default=2, choices=[0, 1, 2, 3, 4])
    parser.add_argument("--use_gpu", action="store_true")
    parser.add_argument("--use_io_binding", action="store_true")
    parser.add_argument("--provider", type=str, default=None, help="cuda, tensorrt, dml or migraphx")
    parser.add_argument("-n", "--intra_op_num_threads", type=int, default=None, help="by default all numbers")
    parser.add_argument("--input_tuning_results", type=str, default=None)
    parser.add_argument("--output_tuning_results", type=str, default=None)
    add_input_arguments(parser)
    asked = parser.parse_args(argv)
    if not all(1 <= each <= _MOST_SENTENCES for each in asked.batch_size):
        parser.error(f"--batch_size is from 1 to {_MOST_SENTENCES}, not {asked.batch_size}")
    if asked.average_sequence_length <= 0:
        asked.average_sequence_length = asked.sequence_length
    asked.test_times = asked.test_times or max(1, 1000 // asked.samples)
    return asked


def write_summary(path: Path, results: Mapping[str, tuple[float, ...]]) -> None:
    """Write a line for each test, the fastest first, separated by tabs."""
    with written_whole(path) as place, place.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        for number, (key, figures) in enumerate(sorted(results.items(), key=lambda pair: pair[1])):
            settings = [each.split("=", 1) for each in key.split(",")]
            if number == 0:
                writer.writerow([*_COLUMNS, *(name for name, _ in settings)])
            writer.writerow([*(f"{each:.2f}" for each in figures), *(value for _, value in settings)])


def main(argv: Sequence[str] | None = None) -> None:
    """Test what a command line asks for, and write the table beside the model."""
    asked = parse_arguments(argv)
    logging.basicConfig(format="%(message)s", level=logging.INFO)
    model_setting = ModelSetting(
        asked.model, asked.input_ids_name, asked.segment_ids_name, asked.input_mask_name, asked.opt_level,
        asked.input_tuning_results, asked.output_tuning_results, asked.mask_type,
    )  # fmt: skip
    sizes = sorted(set(asked.batch_size))
    results: dict[str, tuple[float, ...]] = {}
    for batch_size in sizes:
        run_performance(model_setting, TestSetting(
            batch_size, asked.sequence_length, asked.samples, asked.test_times, asked.use_gpu,
            asked.use_io_binding, asked.provider, asked.intra_op_num_threads, asked.seed, asked.verbose,
            asked.log_severity, asked.average_sequence_length, asked.random_sequence_length,
        ), results)  # fmt: skip
    device, now = "GPU" if asked.use_gpu else "CPU", datetime.now().strftime("%Y%m%d-%H%M%S")
    name = f"perf_results_{device}_B{'-'.join(map(str, sizes))}_S{asked.sequence_length}_{now}.txt"
    path = Path(asked.model).parent / name
    write_summary(path, results)
    log.info("a summary is in %s", path)


if __name__ == "__main__":
    run_program(main)
