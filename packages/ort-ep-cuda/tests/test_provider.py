"""What the provider does without a GPU: availability, options, reasons of claims, cache keys, the policy of runs."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import inspect
import subprocess
import sys
import threading
import types

import numpy as np
import pytest
from emulated_gpu import EmulatedGpu, EmulatedStream
from emulated_provider import EmulatedCudaProvider, session_of

from ort_core.plugin import (
    AllocationLimitExceeded,
    Available,
    EPFail,
    InvalidArgument,
    OrtError,
    Unavailable,
    describe_options,
)
from ort_core.plugin.cache import ArtefactCache
from ort_core.testing.claims import typed_model, view_of
from ort_core.testing.models import model_of
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


TAKEN = {  # options of onnxruntime's CUDA provider and of its plugin: a text, and what it means
    "device_id": ("1", 1), "has_user_compute_stream": ("0", False), "user_compute_stream": ("4096", 4096),
    "gpu_mem_limit": ("1024", 1024), "arena_extend_strategy": ("kNextPowerOfTwo", "kNextPowerOfTwo"),
    "cudnn_conv_algo_search": ("EXHAUSTIVE", "EXHAUSTIVE"), "do_copy_in_default_stream": ("0", False),
    "cudnn_conv_use_max_workspace": ("0", False), "enable_cuda_graph": ("0", False),
    "cudnn_conv1d_pad_to_nc1d": ("1", True), "enable_cudnn": ("0", False),
    "tunable_op_max_tuning_duration_ms": ("5", 5), "enable_skip_layer_norm_strict_mode": ("1", True),
    "prefer_nhwc": ("1", True), "use_tf32": ("1", True), "fuse_conv_bias": ("1", True),
    "external_data_loader_reading_threads": ("8", 8), "min_num_runs_before_cuda_graph_capture": ("3", 3),
    "prefer_nhwc_layout": ("1", True), "cudnn_conv_algo": ("DEFAULT", "DEFAULT"),
}  # fmt: skip
REFUSED = {  # options without a meaning here: a text, and words of the reason
    "gpu_external_alloc": ("12345", "CuPy's pool"), "gpu_external_free": ("12345", "CuPy's pool"),
    "gpu_external_empty_cache": ("12345", "CuPy's pool"), "tunable_op_enable": ("1", "exhaustive search"),
    "tunable_op_tuning_enable": ("1", "exhaustive search"), "sdpa_kernel": ("1", "what cuDNN takes"),
    "use_ep_level_unified_stream": ("1", "user_compute_stream"),
    "external_data_loader_use_gds": ("1", "maps them"), "external_data_loader_use_directstorage": ("1", "maps them"),
}  # fmt: skip


@pytest.mark.parametrize("prefix", ["", "ep.cuda."])
@pytest.mark.parametrize("name", TAKEN)
def test_an_option_of_onnxruntime_is_taken_as_text_and_typed(name, prefix) -> None:
    text, meaning = TAKEN[name]
    options = CudaExecutionProvider({f"{prefix}{name}": text}).options
    assert getattr(options, name) == meaning
    assert type(getattr(options, name)) is type(meaning)


@pytest.mark.parametrize("name", REFUSED)
def test_an_option_without_a_meaning_is_refused_with_the_reason_unless_it_is_off(name) -> None:
    text, words = REFUSED[name]
    with pytest.raises(InvalidArgument, match=f"option '{name}' cannot be used: .*{words}"):
        CudaExecutionProvider({name: text})
    CudaExecutionProvider({name: "0"})


def test_every_option_is_in_one_of_the_tables_and_documented() -> None:
    known = {field.name for field in dataclasses.fields(CudaOptions)}
    assert known == set(TAKEN) | set(REFUSED)
    assert not set(TAKEN) & set(REFUSED)
    described = inspect.getdoc(CudaOptions) or ""
    assert [name for name in TAKEN if f"    {name}: " not in described] == []


def test_names_of_the_plugin_mean_what_the_others_do() -> None:
    assert CudaOptions(prefer_nhwc_layout=True).puts_channels_last
    assert CudaOptions(cudnn_conv_algo="DEFAULT", cudnn_conv_algo_search="EXHAUSTIVE").search == "DEFAULT"
    assert CudaOptions(cudnn_conv_algo_search="EXHAUSTIVE").search == "EXHAUSTIVE"


def test_a_usable_gpu_is_told_with_driver_runtime_libraries_and_memory(monkeypatch) -> None:
    library = _cupy(13000, 13000, count=2)
    library.__version__ = "14.2.0"
    facts = {"name": b"NVIDIA H200", "totalGlobalMem": 150 << 30, "major": 9, "minor": 0}
    library.cuda.runtime.getDeviceProperties = lambda index: facts
    library.cuda.nvrtc = types.SimpleNamespace(getVersion=lambda: (13, 5), getSupportedArchs=lambda: [75, 90, 120])
    monkeypatch.setattr(_sdk, "cupy", lambda: library)
    monkeypatch.setattr(_sdk, "find_cublas_lt", lambda: Available("cuBLASLt 130100"))
    monkeypatch.setattr(_sdk, "find_cudnn", lambda: Available("cuDNN 92800"))
    assert str(CudaExecutionProvider.check().detail) == (
        "NVIDIA H200, 150.0 GiB of memory; driver for CUDA 13.0, runtime 13.0, NVRTC 13.5, CuPy 14.2.0, "
        "cuBLASLt 130100, cuDNN 92800; 2 device(s)"
    )


@pytest.mark.parametrize(
    ("own", "words", "remedy"),
    [((7, 0), "sm_70, and NVRTC 13.5 compiles for sm_75 and newer", "ort-ep-cuda12"), ((13, 0), "sm_130", "update")],
)
def test_a_gpu_for_which_no_kernel_can_be_compiled_is_told_before_anything_is_compiled(
    monkeypatch, own, words, remedy
) -> None:
    facts = [{"name": b"old", "totalGlobalMem": 1 << 30, "major": own[0], "minor": own[1]}]
    facts += [{"name": b"NVIDIA L4", "totalGlobalMem": 24 << 30, "major": 8, "minor": 9}]
    library = _cupy(13000, 13000, count=1)
    library.__version__ = "14.2.0"
    library.cuda.runtime.getDeviceProperties = lambda index: facts[index]
    library.cuda.nvrtc = types.SimpleNamespace(getVersion=lambda: (13, 5), getSupportedArchs=lambda: [75, 89, 120])
    monkeypatch.setattr(_sdk, "cupy", lambda: library)
    for found in (CudaExecutionProvider.check(), CudaExecutionProvider().check_device()):
        assert words in found.reason
        assert remedy in found.remedy
    assert "sees 1" in CudaExecutionProvider({"device_id": "1"}).check_device().reason
    library.cuda.runtime.getDeviceCount = lambda: 2
    assert "NVIDIA L4" in CudaExecutionProvider.check().detail
    assert CudaExecutionProvider({"device_id": "1"}).check_device()


def test_a_provider_makes_one_device_for_all_of_its_partitions(monkeypatch) -> None:
    monkeypatch.setattr("ort_ep_cuda.cupy_gpu.CupyGpu", lambda options: object())
    provider = CudaExecutionProvider()
    assert provider.gpu() is provider.gpu()
    assert CudaExecutionProvider().gpu() is not provider.gpu()


@pytest.mark.parametrize("is_for_12", [False, True])
def test_what_to_install_names_the_package_that_is_installed(monkeypatch, is_for_12) -> None:
    def distribution(name: str) -> object:
        if name == "ort-ep-cuda12" and not is_for_12:
            raise importlib.metadata.PackageNotFoundError(name)
        return object()

    monkeypatch.setattr(importlib.metadata, "distribution", distribution)
    for text in (_sdk._TOOLKIT, _sdk._CUDNN, _sdk._EPILOGUES):
        assert ("ort-ep-cuda12" in _sdk._remedy(text)) is is_for_12


def test_a_missing_compiler_is_told_with_the_line_that_installs_it(monkeypatch) -> None:
    def absent() -> tuple[int, int]:
        raise RuntimeError("Failure finding libnvrtc.so.13\nand more")

    library = _cupy(13000, 13000, count=1)
    library.cuda.nvrtc = types.SimpleNamespace(getVersion=absent)
    library.cuda.runtime.getDeviceProperties = lambda index: {"name": b"any", "major": 9, "minor": 0}
    monkeypatch.setattr(_sdk, "cupy", lambda: library)
    found = CudaExecutionProvider.check()
    assert found.reason.endswith("cannot be loaded: Failure finding libnvrtc.so.13")
    assert "ort-ep-cuda[toolkit]" in found.remedy


@pytest.mark.parametrize(
    ("missing", "body", "words"),
    [
        ("cublas", "g (float[2,3] x, float[3,4] w) => (float[2,4] y) { y = MatMul(x, w) }", "ort-ep-cuda[toolkit]"),
        (
            "cudnn",
            "g (float[1,2,5,5] x, float[3,2,3,3] w) => (float[1,3,a,b] y) { y = Conv(x, w) }",
            "ort-ep-cuda[cudnn]",
        ),
    ],
)
def test_a_missing_library_is_the_reason_of_its_operators_with_what_to_install(
    monkeypatch, missing, body, words
) -> None:
    def absent() -> None:
        raise ImportError(f"lib{missing}.so not found")

    monkeypatch.setattr(_sdk, missing, absent)
    getattr(_sdk, f"find_{missing}").cache_clear()
    view = view_of(typed_model(model_of(body, opsets='"" : 21')))
    (refused,) = CudaExecutionProvider().get_capability(view)
    getattr(_sdk, f"find_{missing}").cache_clear()
    assert f"lib{missing}.so not found" in refused.reason
    assert words in refused.reason


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
        ({"device_id": "-1"}, "device_id.*0 or more"),
        ({"use_tf33": "1"}, "use_tf32"),
    ],
)
def test_an_option_that_cannot_be_honored_is_refused_by_name(given, words) -> None:
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


@pytest.mark.usefixtures("gpu")
def test_a_driver_that_captures_nothing_costs_a_warning_and_no_result(caplog) -> None:
    EmulatedCudaProvider.device = EmulatedGpu(refuses_capture=True)
    session = session_of(CHAIN)
    first, *others = [session.run(None, {"x": X})[0] for _ in range(3)]
    for other in others:
        np.testing.assert_array_equal(other, first)
    assert "without a CUDA graph" in caplog.text


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("error", [RuntimeError("CUBLAS_STATUS_NOT_SUPPORTED"), ValueError("of CuPy"), EPFail("ours")])
def test_a_capture_that_fails_on_its_way_is_ended_and_costs_no_result(caplog, error) -> None:
    EmulatedCudaProvider.device = EmulatedGpu(fails_within_capture=error)
    session = session_of(CHAIN)
    first, *others = [session.run(None, {"x": X})[0] for _ in range(3)]
    for other in others:
        np.testing.assert_array_equal(other, first)
    assert str(error) in caplog.text


@pytest.mark.parametrize(
    ("options", "handle"),
    [
        ({}, None),
        ({"has_user_compute_stream": "1"}, 0),
        ({"user_compute_stream": "4096"}, 4096),
        ({"user_compute_stream": "0"}, 0),
        ({"has_user_compute_stream": "1", "user_compute_stream": "4096"}, 4096),
    ],
)
def test_a_handle_alone_gives_a_stream_as_programs_for_onnxruntime_do(options, handle) -> None:
    assert CudaExecutionProvider(options).options.callers_stream == handle


@pytest.mark.parametrize("handle", ["4096", "0"])
def test_a_stream_of_the_callers_never_captures(gpu, handle) -> None:
    session = session_of(CHAIN, options={"user_compute_stream": handle})
    for _ in range(4):
        session.run(None, {"x": X})
    assert (gpu.captures, gpu.replays) == (0, 0)


def test_a_run_that_fails_on_its_way_leaves_nothing_under_way(gpu, monkeypatch) -> None:
    """What still ran would write to memory that other runs have been given by then."""

    def refuse(*given: object) -> None:
        raise RuntimeError("cudaErrorUnknown")

    session = session_of(CHAIN)
    with monkeypatch.context() as patch:
        patch.setattr(EmulatedStream, "download", refuse)
        with pytest.raises(OrtError, match="cudaErrorUnknown"):
            session.run(None, {"x": X})
    assert [stream.is_idle for stream in gpu.streams] == [True] * len(gpu.streams)
    taken = gpu.allocations
    session.run(None, {"x": X})
    assert gpu.allocations > taken, "the slot that failed is used again"


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
    taken = gpu.allocations
    found = session.run(None, {"x": X, "i": np.array([-1, 0])})[0]
    np.testing.assert_array_equal(found, X[[-1, 0]])
    assert gpu.allocations == taken, "an index that is wrong costs the next run new memory"


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


@pytest.mark.usefixtures("gpu")
def test_too_little_memory_is_an_error_that_says_how_much() -> None:
    EmulatedCudaProvider.device = EmulatedGpu(limit=1000)
    session = session_of("g (float[N,4] x) => (float[N,4] y) { y = Neg(x) }")
    with pytest.raises(AllocationLimitExceeded, match="16000 bytes"):
        session.run(None, {"x": np.ones((1000, 4), np.float32)})


def test_machine_code_is_compiled_once_for_each_architecture_and_compiler(tmp_path) -> None:
    asked = []

    def compile_source(source: str, architecture: str, *options: str) -> bytes:
        asked.append(architecture)
        assert options == ("--maxrregcount=128",), "a block of 512 threads has 65536 registers"
        return f"{architecture}".encode()

    kernels, store = [Kernel("b", "B"), Kernel("a", "A")], ArtefactCache(tmp_path)
    for architecture, compiler in (("sm_90", "13.0"), ("sm_90", "13.0"), ("sm_80", "13.0"), ("sm_90", "13.5")):
        cache = KernelCache(architecture, compiler, compile_source, store)
        assert cache.code_of(kernels) == architecture.encode()
    assert asked == ["sm_90", "sm_80", "sm_90"]
    assert KernelCache("sm_90", "13.0", compile_source, store).code_of(kernels[::-1]) == b"sm_90"
    assert len(asked) == 3


def test_every_option_has_a_sentence():
    assert [option.name for option in describe_options(CudaOptions) if not option.sentence] == []
