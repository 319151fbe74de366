"""What benchmarks of transformers share: sessions, folders, runs timed, tables written, memory watched.

torch is imported by the functions that need it, not before.
"""

from __future__ import annotations

import csv
import importlib
import importlib.metadata
import importlib.util
import logging
import os
import random
import time
import timeit
from collections.abc import Callable, Mapping, MutableSequence, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np

import ort_core
from ort_core.errors import OrtError, ProviderUnavailable

log = logging.getLogger(__name__)

Tensor = Any  # torch's, which need not be installed
Rows = Sequence[Mapping[str, object]]

IO_BINDING_DATA_TYPE_MAP = {"float32": np.float32}
_MEASURE_EVERY_S = 0.005
_MEGABYTE = 1024**2
_GPU_PROVIDERS = {
    "cuda": ("CUDAExecutionProvider",),
    "tensorrt": ("TensorrtExecutionProvider", "CUDAExecutionProvider"),
    "dml": ("DmlExecutionProvider",),
    "migraphx": ("MIGraphXExecutionProvider",),
}
_DETAILS = (
    "engine", "version", "providers", "device", "precision", "optimizer", "io_binding", "model_name", "inputs",
    "threads", "batch_size", "sequence_length", "custom_layer_num", "datetime", "test_times", "QPS",
    "average_latency_ms", "latency_variance", "latency_90_percentile", "latency_95_percentile",
    "latency_99_percentile",
)  # fmt: skip
_SUMMARY = (
    "model_name", "inputs", "custom_layer_num", "engine", "version", "providers", "device", "precision", "optimizer",
    "io_binding", "threads",
)  # fmt: skip
_ENVIRONMENT = (
    "ORT_DISABLE_FUSED_ATTENTION", "ORT_DISABLE_FUSED_CROSS_ATTENTION", "ORT_DISABLE_TRT_FLASH_ATTENTION",
    "ORT_DISABLE_MEMORY_EFFICIENT_ATTENTION", "ORT_TRANSFORMER_OPTIONS", "ORT_CUDA_GEMM_OPTIONS",
)  # fmt: skip


class Precision(Enum):
    """The element type of weights."""

    FLOAT32 = "fp32"
    FLOAT16 = "fp16"
    INT8 = "int8"
    INT4 = "int4"

    def __str__(self) -> str:
        return self.value


class OptimizerInfo(Enum):
    """Who optimizes a model: nobody, a session, or fusions."""

    NOOPT = "no_opt"
    BYORT = "by_ort"
    BYSCRIPT = "by_script"

    def __str__(self) -> str:
        return self.value


class ConfigModifier:
    """Sets the number of layers of a configuration of transformers; ``None`` leaves it."""

    def __init__(self, num_layers: int | None) -> None:
        self.num_layers = num_layers

    def modify(self, config: Any) -> None:  # Any: transformers' configurations
        """Set it, in each of the names that configurations have for it."""
        if self.num_layers is None:
            return
        for name in ("num_hidden_layers", "encoder_layers", "decoder_layers"):
            if hasattr(config, name):
                setattr(config, name, self.num_layers)

    def get_layer_num(self) -> int | None:
        """Return it."""
        return self.num_layers


def gpu_providers(provider: str | None) -> list[str]:
    """Return the providers that a short name stands for, the CPU's at the end.

    Raises:
        ValueError: the name is not known.
    """
    if provider not in (None, *_GPU_PROVIDERS):
        raise ValueError(f"provider {provider!r} is not known; known are {', '.join(_GPU_PROVIDERS)}")
    return [*_GPU_PROVIDERS[provider or "cuda"], "CPUExecutionProvider"]


def create_onnxruntime_session(
    onnx_model_path: str,
    use_gpu: bool,
    provider: str | None = None,
    enable_all_optimization: bool = True,
    num_threads: int = -1,
    enable_profiling: bool = False,
    verbose: bool = False,
    enable_mlas_gemm_fastmath_arm64_bfloat16: bool = False,
    provider_options: Mapping[str, Mapping[str, str]] | None = None,
) -> ort_core.InferenceSession | None:
    """Return a session, ``None`` where the model cannot be loaded, which is logged.

    Args:
        onnx_model_path: the model.
        use_gpu: take the providers that ``provider`` stands for, by default CUDA.
        provider: ``"cuda"``, ``"tensorrt"``, ``"dml"``, ``"migraphx"``, or a provider's own name, which is taken alone.
        enable_all_optimization: all passes, or the basic ones.
        num_threads: by default the session's own number.
        enable_profiling: write a profile.
        verbose: log everything, or errors alone.
        enable_mlas_gemm_fastmath_arm64_bfloat16: products by way of bfloat16, where the processor has them.
        provider_options: by provider.
    """
    options = ort_core.SessionOptions()
    levels = ort_core.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if enable_all_optimization else levels.ORT_ENABLE_BASIC
    options.enable_profiling = enable_profiling
    if num_threads > 0:
        options.intra_op_num_threads = num_threads
    options.log_severity_level = 0 if verbose else 4
    if enable_mlas_gemm_fastmath_arm64_bfloat16:
        options.add_session_config_entry("mlas.enable_gemm_fastmath_arm64_bfloat16", "1")
    if provider in ort_core.get_available_providers():
        names = [provider]
    else:
        names = gpu_providers(provider) if use_gpu else ["CPUExecutionProvider"]
    given = provider_options or {}
    try:
        return ort_core.InferenceSession(
            onnx_model_path, options, providers=names, provider_options=[dict(given.get(name, {})) for name in names]
        )
    except OrtError:
        log.exception("%s cannot be loaded with providers %s", onnx_model_path, names)
        return None


def setup_logger(verbose: bool = True) -> None:
    """Let a program's log be seen, with its places where ``verbose``."""
    if verbose:
        logging.basicConfig(format="[%(filename)s:%(lineno)s - %(funcName)20s()] %(message)s", level=logging.DEBUG)
        return
    logging.basicConfig(format="%(message)s", level=logging.INFO)
    logging.getLogger("transformers").setLevel(logging.WARNING)


def prepare_environment(
    cache_dir: str | None, output_dir: str | None, use_gpu: bool, provider: str | None = None
) -> None:
    """Make the folders, and log the versions of what is installed.

    Raises:
        ProviderUnavailable: a GPU is asked for whose provider cannot be used.
    """
    for folder in (cache_dir, output_dir):
        if folder:
            Path(folder).mkdir(parents=True, exist_ok=True)
    wanted = gpu_providers(provider)[:1] if use_gpu else []
    for name in wanted:
        if name not in ort_core.get_available_providers():
            raise ProviderUnavailable(f"{name} cannot be used here; `ort providers` says what it needs")
    for name in ("torch", "transformers"):
        try:
            log.info("%s: %s", name, importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            log.info("%s: not installed", name)
    log.info("ort-core: %s", ort_core.__version__)


def get_latency_result(latency_list: Sequence[float], batch_size: int) -> dict[str, object]:
    """Return statistics of runs, as texts of milliseconds, from seconds."""
    milliseconds = np.asarray(latency_list, np.float64) * 1e3
    mean = float(milliseconds.mean())
    percentiles = {f"latency_{each}_percentile": f"{np.percentile(milliseconds, each):.2f}" for each in (90, 95, 99)}
    return {
        "test_times": len(latency_list),
        "latency_variance": f"{np.var(latency_list, dtype=np.float64) * 1e3:.2f}",
        **percentiles,
        "average_latency_ms": f"{mean:.2f}",
        "QPS": f"{batch_size * 1e3 / mean:.2f}",
    }


def _write_rows(csv_filename: str, columns: Sequence[str], rows: Rows) -> None:
    with Path(csv_filename).open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)


def output_details(results: Rows, csv_filename: str) -> None:
    """Append a line for each result to a CSV file."""
    _write_rows(csv_filename, _DETAILS, results)
    log.info("details are in %s", csv_filename)


def output_summary(results: Rows, csv_filename: str, args: Any) -> None:  # Any: a parsed command line
    """Append a line for each setting to a CSV file, with the latency of each batch size and length in a column.

    ``args`` has ``models``, ``engines``, ``batch_sizes`` and ``sequence_lengths``.
    """
    sizes = [f"b{batch}" if length == 0 else f"b{batch}_s{length}"
             for batch in args.batch_sizes for length in args.sequence_lengths or [0]]  # fmt: skip
    rows: dict[tuple[object, ...], dict[str, object]] = {}
    for each in results:
        setting = {name: each.get(name) for name in _SUMMARY}
        row = rows.setdefault(tuple(setting.values()), setting)
        length = each.get("sequence_length")
        row[f"b{each['batch_size']}" if not length else f"b{each['batch_size']}_s{length}"] = each["average_latency_ms"]
    known = {name for row in rows.values() for name in row}
    _write_rows(csv_filename, [*_SUMMARY, *sizes, *sorted(known - {*_SUMMARY, *sizes})], list(rows.values()))
    log.info("a summary is in %s", csv_filename)


def output_fusion_statistics(model_fusion_statistics: Mapping[str, Mapping[str, object]], csv_filename: str) -> None:
    """Append a line for each model file to a CSV file, with how many of each fused operator it has."""
    rows = [{"model_filename": name, **values} for name, values in model_fusion_statistics.items()]
    columns = list(dict.fromkeys(name for row in rows for name in row)) or ["model_filename"]
    _write_rows(csv_filename, columns, rows)
    log.info("fusion statistics are in %s", csv_filename)


def inference_ort(
    ort_session: ort_core.InferenceSession,
    ort_inputs: Mapping[str, np.ndarray],
    result_template: Mapping[str, object],
    repeat_times: int,
    batch_size: int,
    warm_up_repeat: int = 0,
) -> dict[str, object]:
    """Time runs; return the template with their statistics."""
    feeds = dict(ort_inputs)
    timeit.repeat(lambda: ort_session.run(None, feeds), number=1, repeat=warm_up_repeat)
    seconds = timeit.repeat(lambda: ort_session.run(None, feeds), number=1, repeat=repeat_times)
    return {**result_template, "io_binding": False, **get_latency_result(seconds, batch_size)}


def inference_ort_with_io_binding(
    ort_session: ort_core.InferenceSession,
    ort_inputs: Mapping[str, np.ndarray],
    result_template: Mapping[str, object],
    repeat_times: int,
    ort_output_names: Sequence[str],
    ort_outputs: Sequence[np.ndarray],
    output_buffers: MutableSequence[Tensor],
    output_buffer_max_sizes: Sequence[int],
    batch_size: int,
    device: Any,
    data_type: Any = np.longlong,
    warm_up_repeat: int = 0,
) -> dict[str, object]:
    """Time runs whose inputs and outputs are torch's; return the template with their statistics.

    Args:
        ort_session: runs.
        ort_inputs: by name.
        result_template: what the result begins with.
        repeat_times: how many runs are timed.
        ort_output_names: the outputs to bind.
        ort_outputs: arrays of their shapes.
        output_buffers: flat tensors of float32 for them; made where there are none yet.
        output_buffer_max_sizes: their sizes.
        batch_size: of the inputs.
        device: torch's.
        data_type: of inputs that are not float32.
        warm_up_repeat: runs before.
    """
    torch = importlib.import_module("torch")
    binding = ort_session.io_binding()
    tensors = {name: torch.from_numpy(np.ascontiguousarray(each)).to(device) for name, each in ort_inputs.items()}
    for name, tensor in tensors.items():
        kind = IO_BINDING_DATA_TYPE_MAP.get(str(ort_inputs[name].dtype), data_type)
        binding.bind_input(name, tensor.device.type, 0, kind, list(tensor.shape), tensor.data_ptr())
    if not output_buffers:
        allocateOutputBuffers(output_buffers, output_buffer_max_sizes, device)
    for name, shaped, buffer in zip(ort_output_names, ort_outputs, output_buffers, strict=False):
        binding.bind_output(name, buffer.device.type, 0, np.float32, list(shaped.shape), buffer.data_ptr())
    timeit.repeat(lambda: ort_session.run_with_iobinding(binding), number=1, repeat=warm_up_repeat)
    seconds = timeit.repeat(lambda: ort_session.run_with_iobinding(binding), number=1, repeat=repeat_times)
    return {**result_template, "io_binding": True, **get_latency_result(seconds, batch_size)}


def allocateOutputBuffers(  # noqa: N802 - the name that programs use
    output_buffers: MutableSequence[Tensor], output_buffer_max_sizes: Sequence[int], device: Any
) -> None:
    """Append flat tensors of float32."""
    torch = importlib.import_module("torch")
    for size in output_buffer_max_sizes:
        output_buffers.append(torch.empty(size, dtype=torch.float32, device=device))


def set_random_seed(seed: int = 123) -> None:
    """Seed Python's, numpy's and torch's generators, the last one where it is installed."""
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - programs draw from numpy's own generator
    if importlib.util.find_spec("torch") is not None:
        importlib.import_module("torch").manual_seed(seed)


def get_gpu_info() -> list[dict[str, Any]] | None:
    """Return name and memory of each GPU that torch sees, in bytes; ``None`` without torch or without a GPU."""
    if importlib.util.find_spec("torch") is None:
        return None
    cuda = importlib.import_module("torch").cuda
    if not cuda.is_available():
        return None
    found = []
    for place in range(cuda.device_count()):
        free, total = cuda.mem_get_info(place)
        name = cuda.get_device_name(place)
        found.append({"id": place, "name": name, "total": total, "free": free, "used": total - free})
    return found


class MemoryMonitor:
    """Watches memory until ``keep_measuring`` is off; one measurement without it."""

    def __init__(self, keep_measuring: bool = True) -> None:
        self.keep_measuring = keep_measuring

    def measure_cpu_usage(self) -> float:
        """Return the most memory of this process, in megabytes."""
        psutil = importlib.import_module("psutil")
        process = psutil.Process(os.getpid())
        most = 0.0
        while True:
            most = max(most, process.memory_info().rss / _MEGABYTE)
            time.sleep(_MEASURE_EVERY_S)
            if not self.keep_measuring:
                return most

    def measure_gpu_usage(self) -> list[dict[str, Any]] | None:
        """Return the most memory used of each GPU, in megabytes; ``None`` without one."""
        most: list[dict[str, Any]] | None = None
        while True:
            found = get_gpu_info()
            if found is None:
                return None
            used = [each["used"] / _MEGABYTE for each in found]
            before = [each["max_used_MB"] for each in most] if most else used
            most = [
                {"device_id": each["id"], "name": each["name"], "max_used_MB": max(pair)}
                for each, pair in zip(found, zip(used, before, strict=True), strict=True)
            ]
            time.sleep(_MEASURE_EVERY_S)
            if not self.keep_measuring:
                return most


class CudaMemoryMonitor(MemoryMonitor):
    """Of GPUs that torch calls CUDA's."""


class RocmMemoryMonitor(MemoryMonitor):
    """Of AMD's, which torch calls CUDA's, too."""


def measure_memory(
    is_gpu: bool, func: Callable[[], object] | None, monitor_type: str = "cuda", start_memory: Any = None
) -> Any:
    """Return how much more memory a function takes at its peak, in megabytes, of the GPU that it takes most of.

    Args:
        is_gpu: of GPUs, or of this process.
        func: what to run; without one the memory before is returned.
        monitor_type: ``"cuda"`` or ``"rocm"``.
        start_memory: the memory before, measured otherwise.

    Returns:
        Megabytes; ``None`` where there is no GPU.
    """
    kind = RocmMemoryMonitor if monitor_type == "rocm" else CudaMemoryMonitor
    once, during = kind(keep_measuring=False), kind()
    before: Any = start_memory
    if before is None:
        before = once.measure_gpu_usage() if is_gpu else once.measure_cpu_usage()
    if func is None or before is None:
        return before
    with ThreadPoolExecutor() as executor:
        watched = executor.submit(during.measure_gpu_usage if is_gpu else during.measure_cpu_usage)
        try:
            executor.submit(func).result()
        finally:
            during.keep_measuring = False
            most: Any = watched.result()
    log.info("memory: before %s, peak %s", before, most)
    if not is_gpu:
        return most - before
    if most is None or len(most) != len(before):
        return None
    return max(after["max_used_MB"] - earlier["max_used_MB"] for after, earlier in zip(most, before, strict=True))


def get_ort_environment_variables() -> str:
    """Return those variables of the environment that choose onnxruntime's kernels of attention: ``NAME=value,...``."""
    return ",".join(f"{name}={os.environ[name]}" for name in _ENVIRONMENT if name in os.environ)
