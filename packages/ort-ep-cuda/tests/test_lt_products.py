"""Products by cuBLASLt on a library that does what the documentation says: values, candidates, what is remembered."""

from __future__ import annotations

import gc

import ml_dtypes
import numpy as np
import pytest
from fake_cublas_lt import FakeCublasLt, FakeLtError
from library_numbers import computed

from ort_core import tolerances
from ort_core.plugin import EPFail
from ort_core.plugin.cache import ArtefactCache
from ort_core.plugin.ir import DataType
from ort_ep_cuda import _sdk
from ort_ep_cuda.engines import lt_products
from ort_ep_cuda.engines.lt_products import LtProducts, tuning_key
from ort_ep_cuda.engines.tuning import Tuner
from ort_ep_cuda.lowering.libraries.library_steps import NO_EPILOGUE, Activation, Epilogue, MatrixProduct
from ort_ep_cuda.lowering.values.views import TensorView

RANDOM = np.random.default_rng(5)
ERRORS = (RuntimeError, FakeLtError)


class FakeStream:
    """A stream whose work is done at once; times are as told, in milliseconds, and scratch memory is real."""

    handle = 11

    def __init__(self, *times: float) -> None:
        self.times = list(times)
        self.measured = 0
        self._memory = np.zeros(1 << 16, np.uint8)

    def scratch(self, nbytes: int) -> int:
        assert nbytes <= self._memory.nbytes
        return self._memory.ctypes.data

    def seconds(self, call) -> float:
        call()
        self.measured += 1
        return (self.times.pop(0) if self.times else 1.0) / 1e3


def view_of(array: np.ndarray, buffer: int = 0) -> TensorView:
    strides = tuple(stride // array.itemsize for stride in array.strides)
    return TensorView(buffer, DataType.from_numpy(array.dtype), array.shape, strides)


@pytest.fixture
def library(monkeypatch) -> FakeCublasLt:
    """The library that products call."""
    made = FakeCublasLt()
    monkeypatch.setattr(_sdk, "cublas_lt", lambda: made)
    monkeypatch.setattr(_sdk, "library_errors", lambda: ERRORS)
    return made


@pytest.fixture
def plain(monkeypatch) -> list[MatrixProduct]:
    """The products that were given to cuBLAS itself, which computes them, too."""
    called: list[MatrixProduct] = []
    monkeypatch.setattr(
        lt_products, "multiply", lambda handle, stream, product, addresses, tf32: called.append(product)
    )
    return called


def products(tmp_path, use_tf32: bool = False, driver: str = "1") -> LtProducts:
    return LtProducts(use_tf32, Tuner((("driver", driver),), ERRORS, ArtefactCache(tmp_path)), lambda: 1)


def _matrices(shape: tuple[int, int, int], is_transposed: bool, dtype: np.dtype) -> np.ndarray:
    if is_transposed:
        return RANDOM.standard_normal((shape[0], shape[2], shape[1])).astype(dtype).transpose(0, 2, 1)
    return RANDOM.standard_normal(shape).astype(dtype)


EPILOGUES = ("", "bias", "addend", "bias relu", "addend gelu_tanh", "bias addend gelu_tanh", "relu")


SIZES = ((1, 3, 4, 5), (2, 3, 4, 5), (3, 1, 4, 5), (1, 3, 1, 5), (1, 3, 4, 1), (1, 1, 1, 1))


@pytest.mark.parametrize("epilogue", EPILOGUES)
@pytest.mark.parametrize("transposed", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize(
    ("dtype", "sizes"),
    [*((np.float32, sizes) for sizes in SIZES), (np.float16, SIZES[1]), (ml_dtypes.bfloat16, SIZES[1])],
)
def test_a_product_with_its_epilogue_is_what_the_library_defines(
    library, plain, tmp_path, dtype, epilogue, transposed, sizes
) -> None:
    batch, rows, inner, columns = sizes
    a, b = (
        _matrices((batch, rows, inner), transposed[0], dtype),
        _matrices((batch, inner, columns), transposed[1], dtype),
    )
    bias = RANDOM.standard_normal(columns).astype(dtype) if "bias" in epilogue else None
    addend = RANDOM.standard_normal((batch, rows, columns)).astype(dtype) if "addend" in epilogue else None
    kinds = [Activation(kind) for kind in ("relu", "gelu_tanh") if kind in epilogue]
    behind = Epilogue(
        None if bias is None else view_of(bias), None if addend is None else view_of(addend),
        0.5 if addend is not None else 1.0, kinds[0] if kinds else None,
    )  # fmt: skip
    out = np.empty((batch, rows, columns), dtype)
    step = MatrixProduct(view_of(out), view_of(a), view_of(b), 0.25, behind)
    read = [array for array in (a, b, bias, addend) if array is not None]
    found = products(tmp_path)
    assert found.refuse(step) is None
    for _ in range(2):  # tuned, then by what was chosen
        out[...] = 0
        found.run(step, [array.ctypes.data for array in (*read, out)], FakeStream())
        limit = tolerances.tolerance("approximate", out.dtype)
        wanted = computed(step, read).astype(dtype).astype(np.float64)
        np.testing.assert_allclose(out.astype(np.float64), wanted, limit.relative, limit.absolute)


def test_a_factor_that_all_batches_share_is_not_stepped_through(library, plain, tmp_path) -> None:
    a, b = RANDOM.standard_normal((3, 4)).astype("f4"), RANDOM.standard_normal((2, 4, 5)).astype("f4")
    out = np.empty((2, 3, 5), np.float32)
    shared = TensorView(0, DataType.FLOAT, (2, 3, 4), (0, 4, 1))
    products(tmp_path).run(
        MatrixProduct(view_of(out), shared, view_of(b)), [x.ctypes.data for x in (a, b, out)], FakeStream()
    )
    np.testing.assert_allclose(out, a @ b, rtol=1e-5)


def _step(rows: int = 3, dtype: DataType = DataType.FLOAT, epilogue: Epilogue = NO_EPILOGUE) -> MatrixProduct:
    a, b, out = (TensorView.dense(0, dtype, shape) for shape in ((1, rows, 4), (1, 4, 5), (1, rows, 5)))
    return MatrixProduct(out, a, b, 1.0, epilogue)


def _run(found: LtProducts, step: MatrixProduct, stream: FakeStream) -> None:
    arrays = [np.zeros(view.shape, view.dtype.numpy) for view in step.operands]
    found.run(step, [array.ctypes.data for array in arrays], stream)


RELU = Epilogue(activation=Activation("relu"))


def test_the_fastest_candidate_is_kept_and_each_is_timed_four_times(library, plain, tmp_path) -> None:
    found, stream = products(tmp_path), FakeStream(9, 3, 3, 3, 9, 1, 1, 1)
    _run(found, _step(epilogue=RELU), stream)
    assert [call["algorithm"] for call in library.calls] == [7] * 4 + [8] * 5, "and run"
    assert stream.measured == 8
    _run(found, _step(epilogue=RELU), stream)
    assert library.calls[-1]["algorithm"] == 8
    assert stream.measured == 8


def test_cublas_itself_is_a_candidate_for_a_plain_product(library, plain, tmp_path) -> None:
    found = products(tmp_path)
    _run(found, _step(), FakeStream(9, 3, 3, 3, 9, 2, 2, 2, 9, 1, 1, 1))
    assert len(plain) == 5
    _run(found, _step(), FakeStream())
    assert len(plain) == 6
    assert len(library.calls) == 8


def test_a_choice_is_remembered_on_disk_for_the_device_its_driver_and_the_library(library, plain, tmp_path) -> None:
    _run(products(tmp_path), _step(epilogue=RELU), FakeStream(9, 3, 3, 3, 9, 1, 1, 1))
    again = FakeStream()
    library.calls.clear()
    _run(products(tmp_path), _step(epilogue=RELU), again)
    assert (again.measured, [call["algorithm"] for call in library.calls]) == (0, [8])
    other = FakeStream()
    _run(products(tmp_path, driver="2"), _step(epilogue=RELU), other)
    assert other.measured == 8


def test_a_sequence_that_grows_tunes_once_for_each_power_of_two(library, plain, tmp_path) -> None:
    found, stream = products(tmp_path), FakeStream()
    for rows in range(5, 20):
        _run(found, _step(rows, epilogue=RELU), stream)
    assert stream.measured == 3 * 8, "5 to 8, 9 to 16, 17 to 20"


def test_an_algorithm_that_another_size_found_is_checked_before_it_is_taken(
    library, plain, tmp_path, monkeypatch
) -> None:
    _run(products(tmp_path), _step(5, epilogue=RELU), FakeStream(9, 3, 3, 3, 9, 1, 1, 1))
    monkeypatch.setattr(lt_products, "CANDIDATES", 1)  # the heuristics of this size do not name it
    library.calls.clear()
    found = products(tmp_path)
    _run(found, _step(6, epilogue=RELU), FakeStream())
    assert [call["algorithm"] for call in library.calls] == [8]
    library.algorithms = {7: 0, 9: 0}
    library.calls.clear()
    stream = FakeStream()
    _run(products(tmp_path), _step(7, epilogue=RELU), stream)
    assert {call["algorithm"] for call in library.calls} == {7}, "what is not valid for this product is not taken"


def test_a_candidate_that_does_not_run_is_left_out_and_without_any_the_words_are_told(library, plain, tmp_path) -> None:
    library.failing = {8}
    _run(products(tmp_path), _step(epilogue=RELU), FakeStream())
    assert {call["algorithm"] for call in library.calls} == {7}
    library.failing = {7, 8}
    with pytest.raises(EPFail, match=r"no engine runs product float.*does not run here"):
        _run(products(tmp_path, driver="2"), _step(epilogue=RELU), FakeStream())


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (_step(dtype=DataType.DOUBLE, epilogue=RELU), "not used for double"),
        (_step(epilogue=Epilogue(activation=Activation("gelu"))), "no epilogue gelu"),
        (_step(epilogue=Epilogue(activation=Activation("gelu_tanh"))), "no algorithm"),
    ],
)
def test_what_is_not_fused_has_a_reason(library, tmp_path, step, words) -> None:
    library.refused = {32}
    assert words in products(tmp_path).refuse(step)


def test_precision_is_that_of_the_type_unless_tf32_is_allowed(library, plain, tmp_path) -> None:
    for use_tf32 in (False, True):
        for dtype in (DataType.FLOAT, DataType.FLOAT16):
            _run(products(tmp_path / str(use_tf32), use_tf32), _step(dtype=dtype, epilogue=RELU), FakeStream())
            assert library.calls[-1]["compute"] == (77 if use_tf32 and dtype is DataType.FLOAT else 68)


def test_heuristics_know_alignments_scratch_memory_and_that_parts_are_summed_in_float32(library, tmp_path) -> None:
    bias = TensorView(0, DataType.FLOAT16, (5,), (1,), offset=1)
    products(tmp_path).refuse(_step(dtype=DataType.FLOAT16, epilogue=Epilogue(bias=bias)))
    assert library.preferences[-1] == {1: 32 << 20, 3: 2, 5: 256, 6: 256, 7: 2, 8: 2}
    products(tmp_path).refuse(_step(epilogue=RELU))
    assert 3 not in library.preferences[-1]


def test_descriptors_are_given_back_with_the_session(library, plain, tmp_path) -> None:
    found = products(tmp_path)
    _run(found, _step(), FakeStream())
    assert library.alive
    del found
    gc.collect()
    assert library.alive == {}


def test_the_key_of_a_choice_tells_what_matters(library) -> None:
    assert tuning_key(_step(5), False) == tuning_key(_step(8), False) != tuning_key(_step(9), False)
    assert tuning_key(_step(5), False) != tuning_key(_step(5), True)
    assert tuning_key(_step(5), False) != tuning_key(_step(5, epilogue=RELU), False)
