"""Kernels of users that write where they only read, return what is no plain array, or come to themselves again."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest
from acme import OPSETS, session_of
from numpy.typing import NDArray
from onnx.reference.op_run import OpRun

import ort_core as ort
from ort_core.errors import Fail, OrtError, RuntimeException
from ort_core.onnx_io.save import model_to_bytes
from ort_core.testing.models import model_of

T = TypeVar("T", np.float32, np.float64)
X = np.arange(6, dtype=np.float32).reshape(2, 3)
ONE = "g (float[2,3] x) => (float[2,3] y) { y = com.acme.Op (x) }"
TWO = "g (float[2,3] x) => (float[2,3] y, float[2,3] z) { y = com.acme.Op (x) z = Mul (y, y) }"
TIMES = 'import ort_core\n\n\n@ort_core.custom_op("com.acme", "Op")\ndef op(x):\n    return x * {}\n'
TEXT = "g (string[N] x) => (string[M] y) { y = com.acme.Op (x) }"


def op_of(result, **options):
    @ort.custom_op("com.acme", "Op", **options)
    def kernel(x: NDArray[T]) -> NDArray[T]:
        return result(x)

    return kernel


def added(x):
    x += 1
    return x


class Op(OpRun):
    """A kernel of ONNX's evaluator that writes into its input."""

    op_domain = "com.acme"

    def _run(self, x):
        return (added(x),)


@pytest.mark.parametrize("operator", [op_of(added), Op])
def test_a_kernel_that_writes_into_its_input_is_refused_and_the_callers_array_stays(operator):
    feed = X.copy()
    with pytest.raises(OrtError, match="read-only"):
        session_of(ONE, operator).run(None, {"x": feed})
    np.testing.assert_array_equal(feed, X)


def test_a_kernel_that_writes_into_the_arrays_of_a_sequence_is_refused():
    @ort.custom_op("com.acme", "Op")
    def kernel(xs: list[NDArray[np.float32]]) -> NDArray[np.float32]:
        return added(xs[0])

    body = "g (float[2,3] x) => (float[2,3] y) { s = SequenceConstruct (x, x) y = com.acme.Op (s) }"
    with pytest.raises(RuntimeException, match="read-only"):
        session_of(body, kernel).run(None, {"x": X.copy()})


@pytest.mark.parametrize("result", [lambda x: x, lambda x: x[::-1], lambda x: np.broadcast_to(x[:1], x.shape)])
def test_what_a_kernel_returns_of_its_input_is_an_array_of_the_callers_own(result):
    feed = X.copy()
    for found in session_of(TWO, op_of(result)).run(None, {"x": feed}):
        assert found.flags.writeable
        assert not np.shares_memory(found, feed)


class Own(np.ndarray):
    """A subclass of arrays."""


@pytest.mark.parametrize("kind", [lambda x: x.view(Own), np.ma.masked_array])
def test_results_of_numpys_subclasses_become_plain_arrays(kind):
    y, z = session_of(TWO, op_of(kind)).run(None, {"x": X})
    assert type(y) is np.ndarray
    np.testing.assert_array_equal(z, X * X)


@pytest.mark.parametrize("items", [[b"a"], ["a", None], [1]])
def test_a_text_that_is_no_str_is_refused(items):
    @ort.custom_op("com.acme", "Op")
    def kernel(x: NDArray[np.str_]) -> NDArray[np.str_]:
        return np.array(items, object)

    with pytest.raises(RuntimeException, match=r"output 0 \(y\) with elements of .*, expected str"):
        session_of(TEXT, kernel).run(None, {"x": np.array(["q"], object)})


@pytest.mark.parametrize("texts", [np.array(["a", "b"], np.dtypes.StringDType()), np.array([np.str_("a")], object)])
def test_texts_of_numpys_own_kinds_become_str(texts):
    @ort.custom_op("com.acme", "Op")
    def kernel(x: NDArray[np.str_]) -> NDArray[np.str_]:
        return texts

    (found,) = session_of(TEXT, kernel).run(None, {"x": np.array(["q"], object)})
    assert [type(each) for each in found] == [str] * len(texts)
    assert found.tolist() == [str(each) for each in texts]


def test_a_result_of_another_type_than_the_model_declares_is_an_error_though_no_annotation_says_it():
    @ort.custom_op("com.acme", "Op")
    def kernel(x):
        return x.astype(np.float64)

    body = "g (float[2,3] x) => (float[2,3] y) { z = com.acme.Op (x) y = Add (z, x) }"
    with pytest.raises(RuntimeException, match=r"output 'y' is float64, the model declares tensor\(float\)"):
        session_of(body, kernel).run(None, {"x": X})


def test_a_kernel_that_comes_to_itself_again_is_refused_instead_of_waiting_for_itself():
    sessions, found = [], []

    @ort.custom_op("com.acme", "Op", is_reentrant=False)
    def kernel(x: NDArray[np.float32]) -> NDArray[np.float32]:
        return sessions[0].run(None, {"x": x})[0]

    sessions.append(session_of(ONE, kernel))

    def work():
        try:
            sessions[0].run(None, {"x": X})
        except OrtError as error:
            found.append(str(error))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(60)
    assert "is_reentrant=False" in found[0]


def test_a_kernel_that_ends_the_program_is_heard_of_by_the_callback():
    heard, done = [], threading.Event()

    def callback(results, data, error):
        heard.append(error)
        done.set()

    session_of(ONE, op_of(lambda x: sys.exit(3))).run_async(None, {"x": X}, callback, None)
    assert done.wait(60)
    assert heard == ["SystemExit: 3"]


def test_both_names_of_onnxs_domain_are_its_own():
    @ort.custom_op("ai.onnx", "Relu")
    def kernel(x: NDArray[T]) -> NDArray[T]:
        return x

    with pytest.raises(Fail, match=r"ai\.onnx::Relu version 1, an operator of ONNX"):
        session_of("g (float[2,3] x) => (float[2,3] y) { y = Relu (x) }", kernel)


def test_an_operator_and_a_file_may_be_given_twice(tmp_path: Path):
    path = tmp_path / "ops.py"
    path.write_text('import ort_core\n@ort_core.custom_op("com.acme", "Other")\ndef other(x):\n    return x\n')
    options, operator = ort.SessionOptions(), op_of(lambda x: x * 2)
    for source in (operator, operator, str(path), str(path)):
        options.register_custom_ops_library(source)
    model = model_to_bytes(model_of(ONE, opsets=OPSETS))
    np.testing.assert_array_equal(ort.InferenceSession(model, options).run(None, {"x": X})[0], X * 2)


def test_a_file_is_read_as_it_is_now_and_leaves_nothing_beside_it(tmp_path: Path):
    path = tmp_path / "ops.py"
    for factor in (2, 3):  # of one length, written within a second
        path.write_text(TIMES.format(factor))
        np.testing.assert_array_equal(session_of(ONE, str(path)).run(None, {"x": X})[0], X * factor)
    assert [each.name for each in tmp_path.iterdir()] == ["ops.py"]


def test_nothing_keeps_a_kernel_whose_session_is_gone():
    def made():
        operator = op_of(lambda x: x + 1)
        session_of(ONE, operator).run(None, {"x": X})
        return weakref.ref(operator.function)

    kernel = made()
    gc.collect()
    assert kernel() is None
