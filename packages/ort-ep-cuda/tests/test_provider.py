"""What the provider does without a GPU: availability, options, reasons of claims, cache keys, the policy of runs."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import threading
import types

import numpy as np
import pytest
from emulated_gpu import EmulatedGpu
from emulated_provider import EmulatedCudaProvider, session_of

from ort_core.plugin import AllocationLimitExceeded, InvalidArgument, Unavailable
from ort_core.plugin.cache import ArtefactCache
from ort_ep_cuda import _sdk
from ort_ep_cuda.device_api import CudaDeviceApi
from ort_ep_cuda.kernel_cache import KernelCache
from ort_ep_cuda.lowering.program import Kernel
from ort_ep_cuda.options import CudaOptions
from ort_ep_cuda.provider import CudaExecutionProvider

X = np.arange(12, dtype=np.float32).reshape(3, 4)
CHAIN = "g (float[N,4] x) => (float[N,4] y) { a = Softmax(x) b = Transpose(a) c = Softmax(b) y = Transpose(c) }"


def _cupy(driver: int, runtime: int, error: str = "", count: int = 0) -> types.SimpleNamespace:
    """A CuPy that reports these versions."""

    def device_count() -> int:
        if error:
            raise RuntimeError(error)
        return count

    versions = {"driverGetVersion": lambda: driver, "runtimeGetVersion": lambda: runtime}
    runtime_api = types.SimpleNamespace(getDeviceCount=device_count, **versions)
    return types.SimpleNamespace(cuda=types.SimpleNamespace(runtime=runtime_api))


@pytest.mark.parametrize(
    ("library", "reason", "remedy"),
    [
        (_cupy(0, 13000, "cudaErrorInsufficientDriver"), "no NVIDIA driver", "install the driver"),
        (
            _cupy(12040, 13000, "cudaErrorInsufficientDriver"),
            "supports CUDA 12.4, older than CUDA 13.0",
            "ort-ep-cuda12",
        ),
        (_cupy(13000, 13000, "cudaErrorSystemNotReady"), "cudaErrorSystemNotReady", "nvidia-smi"),
        (_cupy(13000, 13000), "sees no GPU", "CUDA_VISIBLE_DEVICES"),
    ],
)
def test_a_machine_without_a_usable_gpu_is_told_what_to_do(monkeypatch, library, reason, remedy) -> None:
    monkeypatch.setattr(_sdk, "cupy", lambda: library)
    found = CudaExecutionProvider.check()
    assert isinstance(found, Unavailable)
    assert reason in found.reason
    assert remedy in found.remedy


def test_a_missing_cupy_is_told_with_the_line_that_installs_it(monkeypatch) -> None:
    def absent() -> None:
        raise ImportError("No module named 'cupy'")

    monkeypatch.setattr(_sdk, "cupy", absent)
    found = CudaExecutionProvider.check()
    assert "No module named 'cupy'" in found.reason
    assert "pip install ort-ep-cuda" in found.remedy


def test_importing_the_plugin_loads_no_library() -> None:
    code = (
        "import sys, ort_ep_cuda.plugin as p; p.ort_providers(); p.ort_devices()\n"
        "heavy = {'cupy', 'cudnn', 'ort_ep_cuda.lowering.operators'} & set(sys.modules)\n"
        "sys.exit(f'loaded: {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_options_of_onnxruntime_are_taken_as_texts() -> None:
    options = CudaExecutionProvider(
        {"device_id": "1", "gpu_mem_limit": "1024", "use_tf32": "1", "cudnn_conv_algo_search": "EXHAUSTIVE"}
    ).options
    assert (options.device_id, options.gpu_mem_limit, options.use_tf32) == (1, 1024, True)
    assert options.cudnn_conv_algo_search == "EXHAUSTIVE"


OPTIONS_OF_ONNXRUNTIME = (
    "device_id", "has_user_compute_stream", "user_compute_stream", "gpu_mem_limit", "arena_extend_strategy",
    "cudnn_conv_algo_search", "do_copy_in_default_stream", "gpu_external_alloc", "gpu_external_free",
    "gpu_external_empty_cache", "cudnn_conv_use_max_workspace", "enable_cuda_graph", "cudnn_conv1d_pad_to_nc1d",
    "enable_cudnn", "tunable_op_enable", "tunable_op_tuning_enable", "tunable_op_max_tuning_duration_ms",
    "enable_skip_layer_norm_strict_mode", "prefer_nhwc", "use_ep_level_unified_stream", "use_tf32", "fuse_conv_bias",
    "sdpa_kernel", "external_data_loader_use_gds", "external_data_loader_use_directstorage",
    "external_data_loader_reading_threads",
)  # fmt: skip


def test_every_option_of_onnxruntime_is_known() -> None:
    known = {field.name for field in dataclasses.fields(CudaOptions)}
    assert set(OPTIONS_OF_ONNXRUNTIME) <= known
    defaults = CudaOptions()
    texts = {name: getattr(defaults, name) for name in OPTIONS_OF_ONNXRUNTIME}
    texts = {name: str(int(value) if isinstance(value, bool) else value) for name, value in texts.items()}
    assert CudaExecutionProvider(texts).options == defaults


def test_convolutions_are_left_where_cudnn_is_switched_off() -> None:
    reason = CudaExecutionProvider({"enable_cudnn": "0"}).missing_library("Conv")
    assert "enable_cudnn" in reason


def test_a_device_without_a_driver_says_what_to_install(monkeypatch) -> None:
    monkeypatch.setattr(_sdk, "cupy", lambda: _cupy(0, 13000, "cudaErrorInsufficientDriver"))
    with pytest.raises(InvalidArgument, match=r"no NVIDIA driver .*install the driver"):
        CudaDeviceApi(0)


def test_float32_means_float32_unless_asked_otherwise() -> None:
    assert CudaExecutionProvider().options.use_tf32 is False


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"tunable_op_enable": "1"}, "tunable_op_enable.*exhaustive search"),
        ({"gpu_external_alloc": "12345"}, "gpu_external_alloc.*CuPy's pool"),
        ({"use_ep_level_unified_stream": "1"}, "use_ep_level_unified_stream.*user_compute_stream"),
        ({"external_data_loader_use_gds": "1"}, "external_data_loader_use_gds.*maps them"),
        ({"device_id": "-1"}, "device_id.*0 or more"),
        ({"has_user_compute_stream": "1"}, "gives no handle"),
        ({"use_tf33": "1"}, "use_tf32"),
    ],
)
def test_an_option_that_cannot_be_honoured_is_refused_by_name(given, words) -> None:
    with pytest.raises(InvalidArgument, match=words):
        CudaExecutionProvider(given)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("g (float[N,4] x) => (int64[a] y) { y = Shape(x) }", "host must know"),
        ("g (float[N,4] x) => (int64[a,b] y) { y = NonZero(x) }", "no lowering"),
        ("g (uint16[N,4] x, uint16[4] z) => (uint16[N,4] y) { y = Add(x, z) }", "uint16"),
        ("g (int32[N,4] x, int32[4] z) => (int32[N,4] y) { y = Pow(x, z) }", "power of integers"),
        ("g (float[N,4] x, int64[1] n) => (float[a,b] y) { m = Neg(n) s = Neg(m) y = Expand(x, s) }", "decides sizes"),
    ],
)  # fmt: skip
def test_a_node_that_is_left_has_its_reason(body, words, gpu) -> None:
    session = session_of(body, strict=False)
    report = str(session.explain())
    assert words in report


def test_a_captured_graph_runs_from_the_second_run_on(gpu) -> None:
    session = session_of(CHAIN)
    results = [session.run(None, {"x": X + n})[0] for n in range(4)]
    assert (gpu.captures, gpu.replays) == (1, 3)
    fresh = session_of(CHAIN, options={"enable_cuda_graph": "0"})
    for n, found in enumerate(results):
        np.testing.assert_array_equal(found, fresh.run(None, {"x": X + n})[0])
    assert gpu.captures == 1


def test_another_shape_is_captured_by_itself_and_compiles_nothing(gpu) -> None:
    session = session_of(CHAIN)
    for rows in (3, 5, 3, 5, 3, 5):
        session.run(None, {"x": np.ones((rows, 4), np.float32)})
    assert gpu.captures == 2
    compiled = len(gpu.compiled)
    session.run(None, {"x": np.ones((9, 4), np.float32)})
    assert len(gpu.compiled) == compiled


def test_a_driver_that_captures_nothing_costs_a_warning_and_no_result(caplog) -> None:
    EmulatedCudaProvider.device = EmulatedGpu(refuses_capture=True)
    session = session_of(CHAIN)
    first, *others = [session.run(None, {"x": X})[0] for _ in range(3)]
    for other in others:
        np.testing.assert_array_equal(other, first)
    assert "without a CUDA graph" in caplog.text


def test_threads_share_a_session(gpu) -> None:
    session = session_of(CHAIN)
    expected = [session.run(None, {"x": X + n})[0] for n in range(4)]
    found: list[np.ndarray | None] = [None] * 4

    def work(n: int) -> None:
        for _ in range(3):
            found[n] = session.run(None, {"x": X + n})[0]

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for got, wanted in zip(found, expected, strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_an_index_out_of_range_is_an_error_that_names_the_node(gpu) -> None:
    session = session_of("g (float[3,4] x, int64[2] i) => (float[2,4] y) { y = Gather(x, i) }")
    with pytest.raises(InvalidArgument, match=r"Gather.*out of range"):
        session.run(None, {"x": X, "i": np.array([0, 7])})
    found = session.run(None, {"x": X, "i": np.array([-1, 0])})[0]
    np.testing.assert_array_equal(found, X[[-1, 0]])


@pytest.mark.parametrize("op_type", ["Div", "Mod"])
def test_an_integer_divided_by_zero_is_an_error_that_names_the_node(op_type, gpu) -> None:
    session = session_of(f"g (int32[3] x, int32[3] z) => (int32[3] y) {{ y = {op_type}(x, z) }}")
    x = np.array([7, 8, 9], np.int32)
    with pytest.raises(InvalidArgument, match=f"{op_type}.*a divisor is zero"):
        session.run(None, {"x": x, "z": np.array([1, 0, 2], np.int32)})
    found = session.run(None, {"x": x, "z": np.array([2, 3, -4], np.int32)})[0]
    np.testing.assert_array_equal(found, [3, 2, -2] if op_type == "Div" else [1, 2, -3])


def test_an_operator_in_parts_is_left_whole_with_the_reason_of_the_part(gpu) -> None:
    body = "g (float[2,3,4] theta, int64[4] size) => (float[a,b,c,2] y) { y = AffineGrid(theta, size) }"
    report = str(session_of(body, strict=False).explain())
    assert "AffineGrid has no lowering to CUDA; in parts: its part If: If has no lowering to CUDA" in report


def test_too_little_memory_is_an_error_that_says_how_much() -> None:
    EmulatedCudaProvider.device = EmulatedGpu(limit=1000)
    session = session_of("g (float[N,4] x) => (float[N,4] y) { y = Neg(x) }")
    with pytest.raises(AllocationLimitExceeded, match="16000 bytes"):
        session.run(None, {"x": np.ones((1000, 4), np.float32)})


def test_machine_code_is_compiled_once_for_each_architecture_and_compiler(tmp_path) -> None:
    asked = []

    def compile_source(source: str, architecture: str) -> bytes:
        asked.append(architecture)
        return f"{architecture}".encode()

    kernels, store = [Kernel("b", "B"), Kernel("a", "A")], ArtefactCache(tmp_path)
    for architecture, compiler in (("sm_90", "13.0"), ("sm_90", "13.0"), ("sm_80", "13.0"), ("sm_90", "13.5")):
        cache = KernelCache(architecture, compiler, compile_source, store)
        assert cache.code_of(kernels) == architecture.encode()
    assert asked == ["sm_90", "sm_80", "sm_90"]
    assert KernelCache("sm_90", "13.0", compile_source, store).code_of(kernels[::-1]) == b"sm_90"
    assert len(asked) == 3
