"""Running: memory that is shared, values that do not fit, sizes that change, runs at the same time, and errors."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import ort_core as ort
from ort_core.plugin import Claim, EPFail, Rejection
from ort_core.testing.claims import new_run_state, request_for
from ort_core.tolerances import compare
from ort_ep_openvino import _sdk
from ort_ep_openvino.fixed_sizes import KEPT
from ort_ep_openvino.provider import OpenVinoExecutionProvider
from ort_ep_openvino.staging import STAGED_NBYTES

pytestmark = pytest.mark.usefixtures("sdk")
RELU = "g (float[n,4] x) => (float[n,4] y) { y = Relu(x) }"


def assert_close(found, expected, name):
    facts = compare(found, expected, name)
    assert facts.passes, str(facts)


def compiled_claim(view, text: str):
    seen = view(text)
    provider = OpenVinoExecutionProvider()
    (claim,) = [answer for answer in provider.get_capability(seen) if isinstance(answer, Claim)]
    return provider, request_for(seen, claim)


def test_results_are_written_into_the_buffer_that_is_handed_in(view):
    provider, request = compiled_claim(view, RELU)
    partition = provider.compile(request)
    x, y = np.array([[-1, 2, -3, 4]], np.float32), np.full((1, 4), 9, np.float32)
    outputs = [y]
    partition.run(partition.plan([x.shape], {}), [x], outputs, new_run_state())
    assert outputs[0] is y
    assert y.tolist() == [[0, 2, 0, 4]]


@pytest.mark.parametrize("prepare", [np.asfortranarray, lambda x: x[:, ::-1], lambda x: x.copy()[::2]])
def test_inputs_that_are_not_contiguous_are_read_rightly(session, prepare):
    x = prepare(np.arange(-8, 8, dtype=np.float32).reshape(4, 4))
    with session(RELU) as opened:
        assert_close(opened.run(None, {"x": x})[0], np.maximum(x, 0), "exact")


def test_a_read_only_input_is_read(session):
    x = np.ones((2, 4), np.float32)
    x.flags.writeable = False
    with session(RELU) as opened:
        assert_close(opened.run(None, {"x": x})[0], x, "exact")


TABLE = np.array([[1, -2, 3, -4], [5, 6, -7, 8], [9, 1, 2, -3], [-1, 4, 0, 2]], np.float32)
FIXED = {  # what constants decide, which OpenVINO does not fold
    "m = MatMul(c, c)": TABLE @ TABLE,
    "q = DequantizeLinear(b, s) m = MatMul(c, q)": TABLE @ (TABLE / 2),
    "p = MatMul(c, c) m = Relu(p)": np.maximum(TABLE @ TABLE, 0),
    "r = Reshape(c, i) k = Reshape(t, j) p = Conv(r, k) m = Reshape(p, l)": TABLE * 2,
    "r = Reshape(c, i) p = AveragePool<kernel_shape = [1, 1]>(r) m = Reshape(p, l)": TABLE,
}


@pytest.mark.parametrize("follows", ["Add(m, x)", "Sub(m, x)", "Mul(m, x)"])
@pytest.mark.parametrize("fixed", FIXED)
def test_what_constants_decide_stays_the_same_in_every_run(session, fixed, follows):
    table = ", ".join(f"{number}" for number in TABLE.ravel().tolist())
    text = (
        f"g (float[4,4] x) => (float[4,4] y) <float[4,4] c = {{{table}}}, "
        f"int8[4,4] b = {{{table.replace('.0', '')}}}, float s = {{0.5}}, float[1] t = {{2.0}}, "
        "int64[4] i = {1, 1, 4, 4}, int64[4] j = {1, 1, 1, 1}, int64[2] l = {4, 4}> "
        f"{{ {fixed} y = {follows} }}"
    )
    operator = {"Add(m, x)": np.add, "Sub(m, x)": np.subtract, "Mul(m, x)": np.multiply}[follows]
    with session(text) as opened:
        for factor in (1, 2, -3, 1):
            x = TABLE[::-1] * np.float32(factor)
            assert_close(opened.run(None, {"x": x})[0], operator(FIXED[fixed], x), "float32")


def test_sizes_may_change_from_run_to_run(session):
    generator = np.random.default_rng(0)
    with session(RELU) as opened:
        for rows in (3, 1, 7, 3, 0, 7):
            x = generator.standard_normal((rows, 4)).astype(np.float32)
            assert_close(opened.run(None, {"x": x})[0], np.maximum(x, 0), "exact")


@pytest.mark.parametrize(
    "text",
    [
        "g (float[n] x) => (float[n] y) { z = Constant<value_float = 0.0>()  y = CastLike(x, z) }",
        "g (float[n] x) => (float[n] y, float[n] w) { y = Cast<to = 1>(x)  w = Relu(y) }",
        "g (float[n] x) => (float[n] y) { r = Relu(x)  y = Cast<to = 1>(r) }",
    ],
)
def test_a_conversion_to_the_type_that_there_is_hands_on_what_it_is_given_at_any_size(session, text):
    with session(text) as opened:
        for size in (2, 32, 7, 2, 2, 7, 32, 3):
            x = np.arange(size, dtype=np.float32) + 1
            for found in opened.run(None, {"x": x}):
                assert_close(found, x, "exact")


def test_each_combination_of_sizes_has_a_model_of_its_own_where_sizes_are_fixed(session, monkeypatch):
    made, compile_model = [], _sdk.compile_model

    def seen(model, *given):
        made.append(sorted(str(each.get_partial_shape()) for each in model.inputs))
        return compile_model(model, *given)

    monkeypatch.setattr(_sdk, "compile_model", seen)
    generator = np.random.default_rng(0)
    text = """g (float[n,4] a, float[m,4] b) => (float[k,4] y, float[n,m] p)
        { t = Transpose<perm=[1,0]>(b)  p = MatMul(a, t)  y = Concat<axis=0>(a, b) }"""
    with session(text, disable_dynamic_shapes="True") as opened:
        assert not made, "nothing is compiled before a run says how large"
        for rows in (3, 1, 7, 3, 0, 7):
            a, b = (generator.standard_normal((n, 4)).astype(np.float32) for n in (rows, 2))
            joined, product = opened.run(None, {"a": a, "b": b})
            assert_close(joined, np.concatenate([a, b]), "exact")
            assert_close(product, a @ b.T, "rounding")
    assert made == [sorted([f"[{rows},4]", "[2,4]"]) for rows in (3, 1, 7)]


def test_models_of_fixed_sizes_are_made_once_by_many_threads_and_the_eldest_go(session, monkeypatch):
    made, compile_model = [], _sdk.compile_model
    monkeypatch.setattr(_sdk, "compile_model", lambda *given: made.append(0) or compile_model(*given))
    with session(RELU, disable_dynamic_shapes="1") as opened, ThreadPoolExecutor(4) as threads:
        inputs = [np.full((1 + n % 3, 4), n - 5, np.float32) for n in range(24)]
        found = list(threads.map(lambda x: opened.run(None, {"x": x})[0], inputs))
        assert all((y == np.maximum(x, 0)).all() for x, y in zip(inputs, found, strict=True))
        assert len(made) == 3
        for rows in range(4, 4 + KEPT):
            opened.run(None, {"x": np.ones((rows, 4), np.float32)})
        opened.run(None, {"x": inputs[0]})
    assert len(made) == 3 + KEPT + 1


def test_a_shape_that_depends_on_the_values_is_found_in_the_run(session):
    with session("g (float[6] x) => (int64[1,k] y) { y = NonZero(x) }") as opened:
        for x in ([0, 1, 0, 2, 3, 0], [0, 0, 0, 0, 5, 0], [1, 2, 3, 4, 5, 6]):
            array = np.array(x, np.float32)
            assert opened.run(None, {"x": array})[0].tolist() == [np.flatnonzero(array).tolist()]


def test_integers_beyond_what_openvino_holds_are_computed_elsewhere_and_said(session, caplog):
    with session("g (int64[2] x) => (int64[4] y) { y = Concat<axis=0>(x, x) }") as opened:
        assert opened.run(None, {"x": np.array([1, -(2**31)])})[0].tolist() == [1, -(2**31)] * 2
        assert not caplog.messages
        for _ in range(2):
            assert opened.run(None, {"x": np.array([1, 2**31])})[0].tolist() == [1, 2**31] * 2
        assert opened.run(None, {"x": np.array([3, 4])})[0].tolist() == [3, 4] * 2
    assert len([text for text in caplog.messages if "'x'" in text]) == 1


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_sums_of_integers_are_right_for_every_size_of_element_and_tensor(session, caplog, dtype):
    kind, small = np.dtype(dtype).name, 2**24 - 1
    sums = f"g ({kind}[b,n] x) => ({kind}[b] y) <int64[1] axes = {{1}}> {{ y = ReduceSum<keepdims=0>(x, axes) }}"
    with session(sums) as opened:
        for shape in ((1, 5), (3, 7), (2, 300)):
            x = np.full(shape, small // np.prod(shape), dtype)
            for sign in (1, -1):
                assert opened.run(None, {"x": x * sign})[0].tolist() == (x * sign).sum(1, dtype).tolist()
        assert not caplog.messages
        for values in ([small, small, 3, 3, 1], [2**30, -(2**30), 2**30, 1, 2]):
            x = np.array([values], dtype)
            assert opened.run(None, {"x": x})[0].tolist() == x.sum(1, dtype).tolist()
    assert any("'x'" in text for text in caplog.messages)


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32, np.uint64])
@pytest.mark.parametrize("operator", ["Add", "Sub", "Max", "Min", "Div", "Mod"])
def test_integers_of_every_size_are_computed_rightly(session, dtype, operator):
    limits = np.iinfo(dtype)
    near = [1, 3, 2**24 - 1, 2**24, 2**24 + 1, 2**31 - 1, 2**31, 2**40 + 1, limits.max]
    values = np.array([value for value in near if value <= limits.max], dtype)
    plain = {"Add": np.add, "Sub": np.subtract, "Max": np.maximum, "Min": np.minimum, "Mod": np.mod}
    divide = {"Div": np.floor_divide}
    kind = np.dtype(dtype).name
    with session(f"g ({kind}[1] a, {kind}[1] b) => ({kind}[1] y) {{ y = {operator}(a, b) }}") as opened:
        for left in values:
            for right in values:
                a, b = np.array([left]), np.array([right])
                assert opened.run(None, {"a": a, "b": b})[0].tolist() == {**plain, **divide}[operator](a, b).tolist()


@pytest.mark.parametrize("through", ["w = Gather(x, i)", "j = Cast<to=6>(i)  k = Squeeze(j)  w = Gather(x, k)"])
def test_an_index_beyond_its_axis_is_an_error_and_the_session_lives_on(session, through):
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    text = f"g (float[4,3] x, int64[1,2] i) => (float[2,3] y) <int64[2] s = {{2,3}}> {{ {through}  y = Reshape(w, s) }}"
    with session(text) as opened:
        for _ in range(2):
            assert_close(opened.run(None, {"x": x, "i": np.array([[-4, 3]])})[0], x[[0, 3]], "exact")
            for index in (4, -5, 2**40 + 4):
                with pytest.raises(ort.OrtError):
                    opened.run(None, {"x": x, "i": np.array([[0, index]])})


def test_two_readers_of_one_index_are_both_kept_in_bounds(session):
    text = (
        "g (float[4] x, float[2] z, int64[2] i) => (float[2] y) { a = Gather(x, i)  b = Gather(z, i)  y = Add(a, b) }"
    )
    feeds = {"x": np.arange(4, dtype=np.float32), "z": np.array([10, 20], np.float32)}
    with session(text) as opened:
        assert opened.run(None, {**feeds, "i": np.array([-1, 0])})[0].tolist() == [23, 10]
        with pytest.raises(ort.OrtError):
            opened.run(None, {**feeds, "i": np.array([2, 0])})


def test_an_output_that_is_an_input_is_a_copy_of_it(session):
    x = np.array([1, -2], np.float32)
    with session("g (float[2] x) => (float[2] y, float[2] z) { y = Identity(x)  z = Relu(x) }") as opened:
        for _ in range(2):
            same, positive = opened.run(None, {"x": x})
            assert same.tolist() == [1, -2]
            assert positive.tolist() == [1, 0]
            assert not np.shares_memory(same, x)


def test_an_input_that_nothing_reads_may_hold_anything(session):
    text = "g (float[2] x, int64[1] like) => (int64[2] y) { e = Equal(x, x)  y = CastLike(e, like) }"
    with session(text) as opened:
        found = opened.run(None, {"x": np.array([2, 3], np.float32), "like": np.array([2**60])})
        assert found[0].tolist() == [1, 1]


def test_bounds_of_slice_beyond_int32_mean_the_end(session):
    text = "g (float[5] x, int64[1] s, int64[1] e) => (float[k] y) { y = Slice(x, s, e) }"
    with session(text) as opened:
        feeds = {"x": np.arange(5, dtype=np.float32), "s": np.array([2]), "e": np.array([2**63 - 1])}
        assert opened.run(None, feeds)[0].tolist() == [2, 3, 4]


def test_runs_at_the_same_time_do_not_mix(session):
    with session(RELU) as opened, ThreadPoolExecutor(4) as pool:
        inputs = [np.full((2 + i % 3, 4), i - 8, np.float32) for i in range(64)]
        results = list(pool.map(lambda x: opened.run(None, {"x": x})[0], inputs))
    for x, y in zip(inputs, results, strict=True):
        assert_close(y, np.maximum(x, 0), "exact")


def test_known_signatures_run_directly_and_give_the_same(session):
    x = np.array([[-1, 2, -3, 4]], np.float32)
    with session("g (float[1, 4] x) => (float[1, 4] y) { y = Relu(x) }") as opened:
        first, second = opened.run(None, {"x": x})[0], opened.run(None, {"x": x})[0]
        assert opened._loaded.direct.refusal is None
        assert opened._loaded.direct.call({"x": x}, None) is not None
        assert opened._loaded.direct.call({"x": x.astype(np.float64)}, None) is None
        assert opened._loaded.direct.call({"x": np.zeros((9, 4), np.float32)}, None) is None
    assert_close(second, first, "exact")
    assert not np.shares_memory(first, second)


def test_an_output_that_is_bound_is_written_in_place(session):
    x, y = np.array([[-1, 2, -3, 4]], np.float32), np.zeros((1, 4), np.float32)
    with session(RELU) as opened:
        binding = opened.io_binding()
        binding.bind_cpu_input("x", x)
        binding.bind_ortvalue_output("y", ort.OrtValue.ortvalue_from_numpy(y))
        for _ in range(3):
            opened.run_with_iobinding(binding)
            assert binding.copy_outputs_to_cpu()[0].tolist() == [[0, 2, 0, 4]]


def test_small_tensors_are_copied_and_large_ones_shared_in_one_direct_run(session):
    large = "g (float[100,100] x, float[4] b) => (float[100,100] y, float[4] z) { y = Relu(x) z = Neg(b) }"
    x, b = np.ones((100, 100), np.float32), np.arange(4, dtype=np.float32)
    assert b.nbytes <= STAGED_NBYTES < x.nbytes
    with session(large) as opened:
        found = [opened.run(None, {"x": x * sign, "b": b + sign}) for sign in (1, -1, 2, -2)]
        for (y, z), sign in zip(found, (1, -1, 2, -2), strict=True):
            assert_close(y, np.maximum(x * sign, 0), "exact")
            assert_close(z, -(b + sign), "exact")  # an array of its own, which later runs do not write to


def test_staged_requests_of_a_model_that_was_replaced_are_not_used(view):
    provider, request = compiled_claim(view, "g (float[2] x) => (float[2] y) { y = Neg(x) }")
    partition = provider.compile(request)
    calls = partition.direct_calls(["x"], [0])
    calls.learn({"x": np.ones(2, np.float32)})
    feeds = {"x": np.array([1, 2], np.float32)}
    assert calls.call(feeds, None)[0].tolist() == [-1, -2]
    (place,) = partition._requests._bound
    (before,) = place
    partition._requests.replace(before.generation)
    assert not place
    place.append(before)  # as a run that was under way gives it back
    assert calls.call(feeds, None)[0].tolist() == [-1, -2]
    (after,) = place
    assert (before.generation, after.generation) == (0, 1)


def test_requests_run_by_the_public_method_where_the_extensions_is_another(view):
    provider, request = compiled_claim(view, "g (float[2] x) => (float[2] y) { y = Neg(x) }")
    inference = provider.compile(request)._requests.take()

    class Other:
        def infer(self, **options):
            return options

    assert _sdk.infer_function(Other())() == {"share_outputs": True}
    assert _sdk.infer_function(inference).args == ({}, True, False), "OpenVINO's own method changed: look at _BINDING"


def test_a_matrix_product_keeps_float32(session, parse):
    generator = np.random.default_rng(1)
    left = generator.standard_normal((64, 64)).astype(np.float32)
    right = generator.standard_normal((64, 32)).astype(np.float32)
    with session("g (float[n,64] x, float[64,32] W) => (float[n,32] y) { y = MatMul(x, W) }") as opened:
        found = opened.run(None, {"x": left, "W": right})[0]
    assert_close(found, (left.astype(np.float64) @ right).astype(np.float32), "approximate")


def test_a_stored_partition_is_restored_and_foreign_bytes_are_refused(view):
    provider, request = compiled_claim(view, RELU)
    blob = provider.compile(request).serialize()
    assert isinstance(blob, bytes)
    restored = provider.load(blob, request)
    x, outputs = np.array([[-1, 2, -3, 4]], np.float32), [None]
    restored.run(restored.plan([x.shape], {}), [x], outputs, new_run_state())
    assert outputs[0].tolist() == [[0, 2, 0, 4]]
    assert isinstance(provider.load(blob[:-1], request), Rejection)
    assert isinstance(OpenVinoExecutionProvider({"num_streams": "2"}).load(blob, request), Rejection)


def test_a_run_of_one_thread_that_fails_says_so_and_the_next_session_runs(session):
    """OpenVINO returned as if it had computed something, and ended the process in the next model."""
    x, wrong = np.ones((2, 3), np.float32), np.ones((4, 5), np.float32)
    text = "g (float[n,m] x, float[k,l] y) => (float[a,b] z) { s = Add(x, y)  z = Relu(s) }"
    with session(text, num_of_threads="1") as opened, pytest.raises(EPFail, match="OpenVINO failed in a run"):
        opened.run(None, {"x": x, "y": wrong})
    with session(text, num_of_threads="1") as opened:
        np.testing.assert_array_equal(opened.run(None, {"x": x, "y": x})[0], x + x)


def test_no_stream_of_one_thread_is_asked_for():
    assert _sdk._keeping_errors("CPU", {"INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": "2"})["NUM_STREAMS"] == 0
    assert _sdk._keeping_errors("HETERO:GPU,CPU", {"INFERENCE_NUM_THREADS": "1"})["NUM_STREAMS"] == 0
    assert "NUM_STREAMS" not in _sdk._keeping_errors("GPU", {"INFERENCE_NUM_THREADS": 1})


def test_messages_of_openvino_lose_their_paths():
    text = (
        "Exception from src/inference/src/cpp/core.cpp:109:\nException from src/frontends/onnx/x.cpp:5:\n"
        "Check 'a.is_static()' failed at src/core/src/node.cpp:108:\nUnexpected: Maximum_38 has no rank\n\n"
        "Unexpected: Maximum_39 has no rank\n"
    )
    assert _sdk.stripped(text) == "Unexpected: Maximum has no rank"
