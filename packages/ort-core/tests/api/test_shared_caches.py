"""A cache that is bound as past and present at once keeps what lies behind its rows, as in onnxruntime."""

from __future__ import annotations

import tracemalloc
from types import ModuleType

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import ort_core

ROWS, HEADS, SIZE, MARK = 8, 2, 8, 7
CACHES = {"past_key": "present_key", "past_value": "present_value"}


def decoder(element_type: int) -> bytes:
    def value(name: str, kind: int, *shape: str | int) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, kind, shape)

    cache = ("batch", HEADS, "rows", SIZE)
    inputs = [
        value("query", element_type, "batch", "fresh", 2 * HEADS * SIZE),
        *(value(name, element_type, "batch", "fresh", HEADS * SIZE) for name in ("key", "value")),
        *(value(name, element_type, *cache) for name in CACHES),
        value("lengths", TensorProto.INT32, "batch"),
        value("total", TensorProto.INT32, 1),
    ]
    outputs = [
        value("y", element_type, "batch", "fresh", 2 * HEADS * SIZE),
        *(value(name, element_type, *cache) for name in CACHES.values()),
    ]
    node = helper.make_node(
        "GroupQueryAttention",
        [each.name for each in inputs],
        [each.name for each in outputs],
        domain="com.microsoft",
        num_heads=2 * HEADS,
        kv_num_heads=HEADS,
    )
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "decoder", inputs, outputs)
    return helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()


def caches_after(engine: ModuleType, model: bytes, dtype: type, steps: list[tuple[int, list[int]]]) -> list[np.ndarray]:
    """Return both caches after each step of (new tokens, lengths with them)."""
    random = np.random.default_rng(3)
    session = engine.InferenceSession(model, providers=["CPUExecutionProvider"])
    batch = len(steps[0][1])
    filled = np.full((batch, HEADS, ROWS, SIZE), MARK, dtype)
    caches = {name: engine.OrtValue.ortvalue_from_numpy(filled.copy()) for name in CACHES}
    found = []
    for fresh, lengths in steps:
        widths = {"query": 2 * HEADS * SIZE, "key": HEADS * SIZE, "value": HEADS * SIZE}
        feeds = {name: random.normal(size=(batch, fresh, width)).astype(dtype) for name, width in widths.items()}
        feeds |= {"lengths": np.array(lengths, np.int32) - 1, "total": np.array([max(lengths)], np.int32)}
        binding = session.io_binding()
        for name, array in feeds.items():
            binding.bind_cpu_input(name, array)
        for past, present in CACHES.items():
            binding.bind_ortvalue_input(past, caches[past])
            binding.bind_ortvalue_output(present, caches[past])
        binding.bind_output("y")
        session.run_with_iobinding(binding)
        found += [cache.numpy().copy() for cache in caches.values()]
    return found


@pytest.mark.parametrize(("kind", "dtype"), [(TensorProto.FLOAT, np.float32), (TensorProto.FLOAT16, np.float16)])
@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([(3, [3, 3]), *((1, [n, n]) for n in range(4, 9))], id="a prompt, then token by token"),
        pytest.param([(4, [4, 2]), (1, [5, 3]), (1, [6, 4]), (1, [7, 5])], id="lengths differ"),
        pytest.param([(3, [3]), (2, [5]), (2, [7])], id="pieces of a prompt"),
    ],
)
def test_rows_behind_the_lengths_stay(kind: int, dtype: type, steps: list[tuple[int, list[int]]]) -> None:
    model = decoder(kind)
    expected = caches_after(onnxruntime, model, dtype, steps)
    assert (expected[0][:, :, steps[0][0] :] == MARK).all(), "onnxruntime keeps what lies behind the prompt"
    for got, want in zip(caches_after(ort_core, model, dtype, steps), expected, strict=True):
        np.testing.assert_array_equal(got, want)


def test_caches_of_their_own_end_in_zeros() -> None:
    session = ort_core.InferenceSession(decoder(TensorProto.FLOAT), providers=["CPUExecutionProvider"])
    past = np.full((1, HEADS, ROWS, SIZE), MARK, np.float32)
    widths = {"query": 2 * HEADS * SIZE, "key": HEADS * SIZE, "value": HEADS * SIZE}
    feeds = {name: np.ones((1, 1, width), np.float32) for name, width in widths.items()}
    feeds |= {
        "past_key": past,
        "past_value": past,
        "lengths": np.array([2], np.int32),
        "total": np.array([3], np.int32),
    }
    for _ in range(4):
        _, key, value = session.run(None, feeds)
        assert not key[:, :, 3:].any()
        assert not value[:, :, 3:].any()
    assert (past == MARK).all()


LONG = 1 << 16  # rows, of caches that a test would see copied


def bound_run(session: ort_core.InferenceSession, caches: dict[str, np.ndarray], fresh: int, length: int, order=()):
    """Run with each cache bound as its past and as its present, or as the present that ``order`` says."""
    widths = {"query": 2 * HEADS * SIZE, "key": HEADS * SIZE, "value": HEADS * SIZE}
    binding = session.io_binding()
    for name, width in widths.items():
        binding.bind_cpu_input(name, np.full((1, fresh, width), length, np.float32))
    binding.bind_cpu_input("lengths", np.array([length - 1], np.int32))
    binding.bind_cpu_input("total", np.array([length], np.int32))
    values = {name: ort_core.OrtValue.ortvalue_from_numpy(array) for name, array in caches.items()}
    for past, present in zip(CACHES, order or CACHES.values(), strict=True):
        binding.bind_ortvalue_input(past, values[past])
        binding.bind_ortvalue_output(present, values[past])
    binding.bind_output("y")
    session.run_with_iobinding(binding)
    return binding.get_outputs()[-1].numpy()


@pytest.mark.unguarded
def test_no_run_copies_caches_that_are_bound_as_both() -> None:
    """Sizes that come for the first time are run from Python, and grow caches where they lie, too."""
    session = ort_core.InferenceSession(decoder(TensorProto.FLOAT), providers=["CPUExecutionProvider"])
    caches = {name: np.full((1, HEADS, LONG, SIZE), MARK, np.float32) for name in CACHES}
    bound_run(session, caches, 1, 1)  # what is loaded by the first run is no part of this
    tracemalloc.start()
    try:
        for fresh in (2, 3, 4, 4, 5, 6, 6):
            bound_run(session, caches, fresh, 10 + fresh)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < caches["past_key"].nbytes / 4
    assert (caches["past_key"][:, :, 10:16] == 16).all()
    assert (caches["past_key"][:, :, 16:] == MARK).all()


@pytest.mark.parametrize("is_listed_first", [False, True])
def test_caches_that_are_bound_as_each_others_presents_are_right(is_listed_first: bool) -> None:
    model = onnx.load_from_string(decoder(TensorProto.FLOAT))
    if is_listed_first:
        model.graph.output.insert(1, model.graph.output.pop(2))
    session = ort_core.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    random = np.random.default_rng(1)
    for fresh in (1, 2, 2, 2):
        caches = {name: random.standard_normal((1, HEADS, ROWS, SIZE)).astype(np.float32) for name in CACHES}
        own = {name: array.copy() for name, array in caches.items()}
        expected = bound_run(session, own, fresh, 5)
        found = bound_run(session, caches, fresh, 5, order=("present_value", "present_key"))
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(caches["past_key"][:, :, :5], own["past_value"][:, :, :5])
        np.testing.assert_array_equal(caches["past_value"][:, :, :5], own["past_key"][:, :, :5])
