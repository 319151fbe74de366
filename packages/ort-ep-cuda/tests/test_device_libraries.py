"""Which library runs a step, with and without those that are optional; streams of a CuPy that is made up."""

from __future__ import annotations

import contextlib
import gc
import types

import numpy as np
import pytest
from fake_cublas_lt import FakeCublasLt, FakeLtError
from test_cudnn import FakeCudnn, Unsupported, attention, convolution
from test_lt_products import FakeStream, view_of

from ort_core.plugin import Available, EPFail, Unavailable
from ort_core.plugin.ir import DataType
from ort_ep_cuda import _sdk
from ort_ep_cuda.cupy_gpu import CupyStream
from ort_ep_cuda.engines import device_libraries
from ort_ep_cuda.engines.device_libraries import DeviceLibraries
from ort_ep_cuda.lowering.libraries.library_steps import Activation, Epilogue, MatrixProduct
from ort_ep_cuda.options import CudaOptions


class Current(contextlib.AbstractContextManager):
    """The device as the current one; may be entered again."""

    depth = 0

    def __enter__(self) -> None:
        self.depth += 1

    def __exit__(self, *found: object) -> None:
        self.depth -= 1


class Stream(FakeStream):
    cudnn_handle = 9


@pytest.fixture
def installed(monkeypatch, tmp_path):
    """A function that says which libraries are there, and returns those of a session with cuBLAS' calls."""
    monkeypatch.setenv("ORT_CACHE_DIR", str(tmp_path))

    def make(*, lt: bool = True, cudnn: bool = True, **options: object) -> tuple[DeviceLibraries, list]:
        current, plain = Current(), []
        library = FakeCublasLt()
        create = library.create

        def created() -> int:
            assert current.depth, "a handle belongs to the device that is current"
            return create()

        library.create = created
        absent = Unavailable("it cannot be loaded", "pip install it")
        monkeypatch.setattr(_sdk, "cublas_lt", lambda: library)
        monkeypatch.setattr(_sdk, "cudnn", FakeCudnn)
        monkeypatch.setattr(_sdk, "library_errors", lambda: (RuntimeError, ValueError, FakeLtError, Unsupported))
        monkeypatch.setattr(_sdk, "find_cublas_lt", lambda: Available("cuBLASLt 1") if lt else absent)
        monkeypatch.setattr(_sdk, "find_cudnn", lambda: Available("cuDNN 1") if cudnn else absent)
        monkeypatch.setattr(device_libraries, "multiply", lambda *arguments: plain.append(arguments))
        return DeviceLibraries(CudaOptions(**options), (("device", "x"),), lambda: 5, lambda: 9, current), plain

    return make


def _product(dtype: type = np.float32, kind: str | None = None) -> tuple[MatrixProduct, list[np.ndarray]]:
    a, b, out = (np.ones(shape, dtype) for shape in ((1, 2, 3), (1, 3, 4), (1, 2, 4)))
    epilogue = Epilogue(activation=Activation(kind) if kind else None)
    return MatrixProduct(view_of(out), view_of(a), view_of(b), 1.0, epilogue), [a, b, out]


def test_products_run_by_cublaslt_and_those_of_float64_by_cublas(installed) -> None:
    found, plain = installed()
    step, arrays = _product(kind="relu")
    assert found.fuses
    assert found.refuse(step) is None
    found.run(step, [array.ctypes.data for array in arrays], Stream())
    np.testing.assert_array_equal(arrays[2], np.full((1, 2, 4), 3))
    double, arrays = _product(np.float64)
    found.run(double, [array.ctypes.data for array in arrays], Stream())
    assert [arguments[:3] for arguments in plain] == [(5, 11, double)]


def test_a_plain_product_on_which_cublaslt_fails_in_a_run_goes_to_cublas_for_good(
    installed, monkeypatch, caplog
) -> None:
    found, plain = installed()
    calls = []

    def fails(*given: object) -> None:
        calls.append(given)
        raise FakeLtError("CUBLAS_STATUS_INTERNAL_ERROR")

    monkeypatch.setattr(found._lt, "run", fails)
    step, arrays = _product()
    for _ in range(2):
        found.run(step, [array.ctypes.data for array in arrays], Stream())
    assert ([arguments[2] for arguments in plain], len(calls)) == ([step, step], 1)
    assert "CUBLAS_STATUS_INTERNAL_ERROR" in caplog.text
    fused, arrays = _product(kind="relu")
    with pytest.raises(FakeLtError):
        found.run(fused, [array.ctypes.data for array in arrays], Stream())


def test_a_product_with_an_activation_that_cublaslt_lacks_is_cudnns(installed) -> None:
    found, plain = installed()
    step, arrays = _product(np.float16, kind="gelu")
    assert found.refuse(step) is None
    found.run(step, [array.ctypes.data for array in arrays], Stream())
    assert (plain, found._lt._plans) == ([], {})
    without, _ = installed(cudnn=False)
    assert without.refuse(step) == "cuDNN is not there"


def test_without_cublaslt_products_run_by_cublas_and_nothing_is_fused_with_them(installed, caplog) -> None:
    caplog.set_level("INFO")
    found, plain = installed(lt=False, cudnn=False)
    step, arrays = _product()
    assert not found.fuses
    assert found.refuse(step) == "cuBLASLt is not there"
    found.run(step, [array.ctypes.data for array in arrays], Stream())
    assert len(plain) == 1
    assert "pip install it" in caplog.text


def test_without_cudnn_a_convolution_is_an_error_that_says_what_to_install(installed) -> None:
    found, _ = installed(cudnn=False)
    assert found.fuses
    assert found.refuse(attention()) == "cuDNN is not there"
    with pytest.raises(EPFail, match="pip install it"):
        found.run(convolution(), (1, 2, 3), Stream())


@pytest.mark.parametrize(
    ("dtype", "options", "expected"),
    [
        (DataType.FLOAT, {}, False), (DataType.FLOAT, {"use_tf32": True}, True),
        (DataType.FLOAT, {"prefer_nhwc": True}, True), (DataType.FLOAT16, {}, True), (DataType.BFLOAT16, {}, True),
        (DataType.FLOAT16, {"enable_cudnn": False}, False),
    ],
)  # fmt: skip
def test_channels_lie_last_where_tensor_cores_read_them(installed, dtype, options, expected) -> None:
    assert installed(**options)[0].prefers_channels_last(dtype) is expected


def test_a_stream_times_by_events_and_keeps_smaller_scratch_memory(monkeypatch) -> None:
    order: list[str] = []
    clock = iter(("first", "last"))

    class Event:
        def __init__(self) -> None:
            self.name = next(clock)

        def record(self, stream: object) -> None:
            order.append(self.name)

        def synchronize(self) -> None:
            order.append("waited")

    cuda = types.SimpleNamespace(runtime=None, Event=Event, get_elapsed_time=lambda first, last: 2.5)
    blocks: list[types.SimpleNamespace] = []

    def allocate(nbytes: int) -> types.SimpleNamespace:
        blocks.append(types.SimpleNamespace(nbytes=nbytes, address=1000 * (len(blocks) + 1)))
        return blocks[-1]

    gpu = types.SimpleNamespace(library=types.SimpleNamespace(cuda=cuda), allocate=allocate)
    stream = CupyStream(gpu, types.SimpleNamespace(ptr=7))
    assert stream.seconds(lambda: order.append("call")) == 0.0025
    assert order == ["first", "call", "last", "waited"]
    assert [stream.scratch(nbytes) for nbytes in (10, 5, 20, 10)] == [1000, 1000, 2000, 2000]
    assert len(blocks) == 2
    handles: list[tuple[int, int]] = []
    destroyed: list[int] = []
    made = types.SimpleNamespace(
        create_handle=lambda: 9,
        set_stream=lambda handle, stream: handles.append((handle, stream)),
        destroy_handle=destroyed.append,
    )
    monkeypatch.setattr(_sdk, "cudnn", lambda: made)
    assert [stream.cudnn_handle, stream.cudnn_handle] == [9, 9]
    assert (handles, destroyed) == ([(9, 7)], [])
    del stream
    gc.collect()
    assert destroyed == [9]


def test_the_device_tells_by_which_libraries_products_and_convolutions_run(monkeypatch) -> None:
    monkeypatch.setattr(_sdk, "find_cublas_lt", lambda: Unavailable("no nvmath", "pip install nvmath-python"))
    monkeypatch.setattr(_sdk, "find_cudnn", lambda: Available("cuDNN 92800"))
    told = _sdk._fusions()
    assert "products without fused epilogues" in told
    assert "pip install nvmath-python" in told
    assert told.endswith("cuDNN 92800")
