"""Kernels that were compiled elsewhere: C functions through ctypes, functions of numba."""

from __future__ import annotations

import ctypes
import subprocess

import numpy as np
import pytest
from acme import session_of
from numpy.typing import NDArray

import ort_core as ort
from ort_core.errors import InvalidArgument, OrtError
from ort_core.plugin.loops import Scalar
from ort_core.testing import OpCase, check_custom_op
from ort_core.testing.cuda_emulation import find_compiler

POINTER = ctypes.POINTER(ctypes.c_float)
BODY = "g (float[N] x) => (float[N] y) { y = com.acme.Op <factor: float = 3.0> (x) }"
SOURCE = """
#include <cstdint>
extern "C" void scale(const float* x, float* y, int64_t count, float factor) {
  for (int64_t i = 0; i < count; ++i) y[i] = x[i] * factor;
}
"""


def scaled_op():
    @ort.custom_op("com.acme", "Op")
    def op(x: NDArray[np.float32], *, factor: float = 2.0) -> NDArray[np.float32]:
        return x * np.float32(factor)

    op.shape(lambda x: x)
    return op


@pytest.fixture(scope="module")
def scale(tmp_path_factory) -> ctypes.CDLL:
    compiler = find_compiler()
    if compiler is None:
        pytest.skip("no C++ compiler was found to make a library with")
    folder = tmp_path_factory.mktemp("library")
    (folder / "scale.cpp").write_text(SOURCE)
    subprocess.run([compiler, "-shared", "-fPIC", "scale.cpp", "-o", "scale.compiled"], cwd=folder, check=True)
    function = ctypes.CDLL(str(folder / "scale.compiled")).scale
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_float]
    function.restype = None
    return function


def test_a_c_function_runs_in_place_of_the_numpy_kernel(scale) -> None:
    op = scaled_op()
    op.ctypes(scale, lambda request: (np.prod(request.outputs[0], dtype=int), request.attributes["factor"]))
    x = np.arange(5, dtype=np.float32)
    np.testing.assert_array_equal(session_of(BODY, op).run(None, {"x": x})[0], x * 3)
    report = check_custom_op(op, [OpCase([x.reshape(5, 1)], {"factor": 2.5}, expected=[x.reshape(5, 1) * 2.5])])
    assert "strided inputs" in report.checked


def test_a_c_function_that_is_given_too_much_or_too_little_is_not_called(scale) -> None:
    for arguments, given in ((None, 3), (lambda request: (5, 2.0, 7), 5)):
        op = scaled_op()
        op.ctypes(scale, arguments)
        with pytest.raises(OrtError, match=f"has 4 argtypes and is given {given} arguments"):
            session_of(BODY, op).run(None, {"x": np.ones(2, np.float32)})


def test_a_c_function_without_argtypes_gets_numbers_in_their_full_width() -> None:
    class Undeclared:
        argtypes = None

        def __call__(self, *words: object) -> None:
            self.words = words

    function, op = Undeclared(), scaled_op()
    op.ctypes(function, lambda request: (2**40, 0.5, np.float32(3), np.int32(-1), ctypes.c_bool(True)))
    session_of(BODY, op).run(None, {"x": np.ones(2, np.float32)})
    kinds = [type(word) for word in function.words[2:]]
    assert kinds == [ctypes.c_int64, ctypes.c_double, ctypes.c_float, ctypes.c_int32, ctypes.c_bool]
    assert function.words[2].value == 2**40


def test_any_ctypes_function_will_do_and_is_told_the_number_of_elements() -> None:
    told = []

    @ctypes.CFUNCTYPE(None, POINTER, POINTER, ctypes.c_int64)
    def negate(x, y, count) -> None:
        told.append(count)
        for i in range(count):
            y[i] = -x[i]

    op = scaled_op()
    op.ctypes(lambda x, y, count: negate(ctypes.cast(x, POINTER), ctypes.cast(y, POINTER), count))
    found = session_of(BODY, op).run(None, {"x": np.arange(4, dtype=np.float32)})[0]
    np.testing.assert_array_equal(found, -np.arange(4))
    assert told == [4]


def test_a_c_function_without_a_shape_function_is_refused_with_the_reason() -> None:
    @ort.custom_op("com.acme", "Op")
    def op(x: NDArray[np.float32], *, factor: float = 2.0) -> NDArray[np.float32]:
        return x

    op.ctypes(lambda *arguments: None)
    with pytest.raises(OrtError, match="no shape function"):
        session_of(BODY, op).run(None, {"x": np.ones(2, np.float32)})


def test_a_function_of_numba_gets_inputs_and_attributes_by_position() -> None:
    op = scaled_op()

    @op.numba
    def compiled(x, factor, /):  # takes no keywords, as what numba makes
        return x * np.float32(factor * 10)

    x = np.arange(3, dtype=np.float32)
    np.testing.assert_array_equal(session_of(BODY, op).run(None, {"x": x})[0], x * 30)
    np.testing.assert_array_equal(
        session_of(BODY.replace(" <factor: float = 3.0>", ""), op).run(None, {"x": x})[0], x * 20
    )


def test_numba_itself() -> None:
    numba = pytest.importorskip("numba", reason="numba is not installed")
    op = scaled_op()
    op.numba(numba.njit(lambda x, factor: x * np.float32(factor)))
    x = np.arange(3, dtype=np.float32)
    np.testing.assert_array_equal(session_of(BODY, op).run(None, {"x": x})[0], x * 3)


def test_one_compiled_kernel_is_enough() -> None:
    op = scaled_op()
    op.numba(lambda x, factor: x)
    with pytest.raises(InvalidArgument, match="has a compiled kernel already"):
        op.numba(lambda x, factor: x)


def test_a_formula_goes_before_a_compiled_kernel_on_the_cpu_provider() -> None:
    op = scaled_op()
    op.numba(lambda x, factor: x * 0)

    @op.loops
    def _(x: Scalar, *, factor: float) -> Scalar:
        return x * factor

    x = np.arange(3, dtype=np.float32)
    np.testing.assert_array_equal(session_of(BODY, op).run(None, {"x": x})[0], x * 3)
