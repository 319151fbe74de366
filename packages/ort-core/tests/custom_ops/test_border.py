"""The border around kernels: wrong results are caught, failures keep the user's traceback, state and threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
import pytest
from acme import session_of
from numpy.typing import NDArray

import ort_core as ort
from ort_core.errors import Fail, InvalidArgument, InvalidGraph, OrtError, RuntimeException
from ort_core.plugin.kernels import KernelContext

T = TypeVar("T", np.float32, np.float64)
X = np.arange(6, dtype=np.float32).reshape(2, 3)
BODY = "g (float[2,3] x) => (float[2,3] y) { [the_node] y = com.acme.Op (x) }"


def op_of(result: Callable[[np.ndarray], Any], shape=None):
    @ort.custom_op("com.acme", "Op")
    def kernel(x: NDArray[np.float32]) -> NDArray[np.float32]:
        return result(x)

    if shape is not None:
        kernel.shape(shape)
    return kernel


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (lambda x: x.astype(np.float64), r"output 0 \(y\) as float64, expected float32; convert it with \.astype"),
        (lambda x: (x, x), "2 results where the node has 1 outputs"),
        (lambda x: (), "0 results where the node has 1 outputs"),
        (lambda x: None, "None for output 0"),
        (lambda x: [1.0, 2.0], "a list for output 0.*expected a numpy array"),
    ],
)
def test_a_wrong_result_is_told_with_the_node_and_the_kernel(result, reason: str) -> None:
    session = session_of(BODY, op_of(result))
    with pytest.raises(RuntimeException, match=reason) as caught:
        session.run(None, {"x": X})
    text = str(caught.value)
    assert "running Op node" in text
    assert "test_border.py" in text
    assert "inputs: (float32[2, 3])" in text


@pytest.mark.parametrize("result", [lambda x: x[:1], lambda x: x.ravel()])
def test_a_result_of_another_shape_than_the_model_declares_stands_with_a_warning(
    result: Callable[[np.ndarray], Any], caplog: pytest.LogCaptureFixture
) -> None:
    body = "g (float[2,3] x) => (float[2,3] y) { a = com.acme.Op (x) b = Exp (a) y = Tanh (b) }"
    session = session_of(body, op_of(result))
    (y,) = session.run(None, {"x": X})
    np.testing.assert_allclose(y, np.tanh(np.exp(result(X))), rtol=1e-5)
    assert any("Expected shape from model of {2,3} does not match" in text for text in caplog.messages)


def test_a_result_that_differs_from_the_shape_function_is_caught_though_the_model_knows_nothing() -> None:
    body = "g (float[N] x) => (float[M] y) { y = com.acme.Op (x) }"
    session = session_of(body, op_of(lambda x: x[1:], shape=lambda x: (x[0] - 2,)))
    with pytest.raises(RuntimeException, match=r"shape \[2\], expected \[1\] by its shape function"):
        session.run(None, {"x": np.ones(3, np.float32)})


def test_an_exception_keeps_the_traceback_from_the_users_function_on() -> None:
    def deeper(x: np.ndarray) -> np.ndarray:
        raise KeyError("no such row")

    def outer(x: np.ndarray) -> np.ndarray:
        return deeper(x)

    session = session_of(BODY, op_of(outer))
    with pytest.raises(RuntimeException) as caught:
        session.run(None, {"x": X})
    text = str(caught.value)
    assert "running Op node. Name:'the_node'" in text
    assert "the kernel of com.acme::Op failed on (float32[2, 3])" in text
    assert "KeyError: 'no such row'" in text
    assert text.index("in kernel") < text.index("in outer") < text.index("in deeper")
    assert "raise KeyError" in text
    assert "evaluator.py" not in text, "frames of the engine are of no use to the user"
    chain, causes = caught.value, []
    while chain is not None:
        causes.append(type(chain))
        chain = chain.__cause__
    assert KeyError in causes


def test_attributes_are_shown_where_a_kernel_fails() -> None:
    @ort.custom_op("com.acme", "Op")
    def kernel(x: NDArray[np.float32], *, scale: float = 2.0) -> NDArray[np.float32]:
        return x / (scale - scale_of_nothing)  # noqa: F821 - the mistake that is tested

    session = session_of(BODY.replace("Op (x)", "Op <scale: float = 1.5> (x)"), kernel)
    with pytest.raises(RuntimeException, match=r"failed on \(float32\[2, 3\], scale=1\.5\): NameError"):
        session.run(None, {"x": X})


def test_a_shape_function_that_fails_is_a_fault_of_the_model_with_its_traceback() -> None:
    with pytest.raises(Fail, match=r"shape function of com.acme::Op version 1 failed: IndexError") as caught:
        session_of(BODY, op_of(lambda x: x, shape=lambda x: (x[5],)))
    assert "test_border.py" in str(caught.value)
    for result, reason in (((2.5,), "a size is an integer"), ((-1,), "at least 0"), (3, "a tuple of sizes")):
        with pytest.raises(Fail, match=reason):
            session_of(BODY, op_of(lambda x: x, shape=lambda x, result=result: result))


def test_a_model_that_breaks_the_signature_is_refused_when_it_is_loaded() -> None:
    for body, reason in (
        ("g (double[2] x) => (double[2] y) { y = com.acme.Op (x) }", "Type Error"),
        ("g (float[2] x) => (float[2] y) { y = com.acme.Op (x, x) }", r"input size 2 not in range \[min=1, max=1\]"),
        ("g (float[2] x) => (float[2] y) { y = com.acme.Op <k: int = 1> (x) }", "Unrecognized attribute: k"),
    ):
        with pytest.raises(InvalidGraph, match=reason):
            session_of(body, op_of(lambda x: x))


def test_strings_may_be_returned_as_numpy_makes_them() -> None:
    @ort.custom_op("com.acme", "Op")
    def upper(x: NDArray[np.str_]) -> NDArray[np.str_]:
        return np.char.upper(x.astype(str))

    session = session_of("g (string[N] x) => (string[N] y) { y = com.acme.Op (x) }", upper)
    (found,) = session.run(None, {"x": np.array(["a", "bc"], object)})
    assert found.dtype == object
    assert found.tolist() == ["A", "BC"]


def test_optional_and_variadic_inputs_booleans_and_several_outputs_arrive_as_written() -> None:
    seen = []

    @ort.custom_op("com.acme", "Op")
    def kernel(
        x: NDArray[T], bias: NDArray[T] | None, *rest: NDArray[T], flip: bool = False, sizes: tuple[int, ...] = (7,)
    ) -> tuple[NDArray[T], NDArray[np.int64]]:
        seen.append((bias is None, len(rest), flip, sizes))
        return x, np.array(len(rest))

    session = session_of(
        """g (float[N] x) => (float[N] a, int64 b, float[N] c, float[N] d) {
            a, b = com.acme.Op <flip: int = 1, sizes: ints = [1, 2]> (x, , x, x)
            c, e = com.acme.Op (x)
            d = com.acme.Op (x, x)
        }""",
        kernel,
        provider="ReferenceExecutionProvider",
    )
    a, b, _, _ = session.run(None, {"x": X[0]})
    assert seen == [(True, 2, True, (1, 2)), (True, 0, False, (7,)), (False, 0, False, (7,))]
    assert b == 2
    np.testing.assert_array_equal(a, X[0])


def test_a_nodes_state_is_made_once_for_each_session_from_the_attributes_it_names() -> None:
    made = []

    class Counter:
        def __init__(self, start: int) -> None:
            made.append(start)
            self.count = start

    @ort.custom_op("com.acme", "Op", state=lambda *, start: Counter(start), is_reentrant=False)
    def counted(x: NDArray[np.float32], *, start: int, state: Counter) -> NDArray[np.float32]:
        state.count += 1
        return x + state.count

    body = """g (float[1] x) => (float[1] y, float[1] z) {
        y = com.acme.Op <start: int = 10> (x)
        z = com.acme.Op <start: int = 20> (y)
    }"""
    first, second = (session_of(body, counted) for _ in range(2))
    zero = {"x": np.zeros(1, np.float32)}
    assert [float(first.run(["y"], zero)[0][0]) for _ in range(3)] == [11, 12, 13]
    assert float(second.run(["y"], zero)[0][0]) == 11
    assert sorted(made) == [10, 10, 20, 20]


def test_state_and_its_parameter_come_together() -> None:
    with pytest.raises(InvalidArgument, match="one of the two is missing"):
        ort.custom_op("com.acme", "Op")(lambda x, *, state: x)
    with pytest.raises(InvalidArgument, match="one of the two is missing"):
        ort.custom_op("com.acme", "Op", state=dict)(lambda x: x)


def test_state_that_cannot_be_made_is_told_with_its_traceback() -> None:
    def load() -> object:
        raise FileNotFoundError("vocabulary.txt")

    @ort.custom_op("com.acme", "Op", state=load)
    def kernel(x: NDArray[np.float32], *, state: object) -> NDArray[np.float32]:
        return x

    with pytest.raises(OrtError, match=r"state of com.acme::Op could not be made: FileNotFoundError: vocabulary.txt"):
        session_of(BODY, kernel).run(None, {"x": X})


@pytest.mark.parametrize("is_reentrant", [True, False])
def test_a_kernel_that_is_not_reentrant_is_entered_by_one_thread_at_a_time(is_reentrant: bool) -> None:
    meeting = threading.Barrier(2)
    inside, most = [0], [0]
    counting = threading.Lock()

    @ort.custom_op("com.acme", "Op", is_reentrant=is_reentrant)
    def kernel(x: NDArray[np.float32]) -> NDArray[np.float32]:
        with counting:
            inside[0] += 1
            most[0] = max(most[0], inside[0])
        if is_reentrant:
            meeting.wait(timeout=200)  # nobody gets on before two are here
        with counting:
            inside[0] -= 1
        return x

    session = session_of(BODY, kernel)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: session.run(None, {"x": X}), range(8 if not is_reentrant else 2)))
    assert most[0] == (2 if is_reentrant else 1)


def test_a_kernel_is_told_how_many_threads_it_may_use() -> None:
    told = []

    @ort.custom_op("com.acme", "Op")
    def kernel(x: NDArray[np.float32], *, ctx: KernelContext) -> NDArray[np.float32]:
        told.append((ctx.num_threads, ctx.node_name, ctx.opset))
        return x

    session_of(BODY, kernel, intra_op_num_threads=3).run(None, {"x": X})
    session_of(BODY, kernel).run(None, {"x": X})
    assert told[0] == (3, "the_node", 1)
    assert told[1][0] >= 1


def test_an_operator_without_annotations_takes_and_returns_anything() -> None:
    @ort.custom_op("com.acme", "Op")
    def kernel(x, y):
        return x + y

    session = session_of(BODY.replace("(x) }", "(x, x) }"), kernel)
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], X + X)


def test_an_operator_is_still_called_like_its_function() -> None:
    op = op_of(lambda x: x * 2)
    np.testing.assert_array_equal(op(X), X * 2)
    assert "com.acme::Op version 1" in repr(op)
