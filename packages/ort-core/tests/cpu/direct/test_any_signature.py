"""Signatures that were never run: from the fourth on native code plans them, and results are those of onnxruntime."""

from __future__ import annotations

import ctypes
import gc
import logging
import random
import weakref
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from text_sessions import peer_of, session_of

import ort_core as ort
from ort_core.cpu.direct import open_records
from ort_core.cpu.direct.call_layout import Entry, Open
from ort_core.cpu.direct.direct_calls import OPEN_AFTER
from ort_core.cpu.direct.open_records import OpenSignatures
from ort_core.cpu.program.open_program import open_program
from ort_core.cpu.program.order import SERIAL_WORK
from ort_core.cpu.program.program import KEPT_NBYTES, ProgramPlan
from ort_core.cpu.program.size_words import Operation, SizeWordsState
from ort_core.cpu.program.sizes import Binding, SizeProgram, evaluate
from ort_core.errors import AllocationLimitExceeded, InvalidArgument
from ort_core.ir.dims import SymbolicDim, broadcast, maximum, minimum
from ort_core.ir.rejection import Rejection

pytestmark = pytest.mark.unguarded

HEAD = '<ir_version: 9, opset_import: ["": 18, "com.microsoft": 1]>'
MULTI_HEAD = (
    HEAD
    + """
    g (float[B, 1, 32] q, float[B, 1, 32] k, float[B, 1, 32] v, float[B, 4, P, 8] past_k, float[B, 4, P, 8] past_v)
    => (float[B, 1, 32] y, float[B, 4, T, 8] present_k, float[B, 4, T, 8] present_v) {
        y, present_k, present_v = com.microsoft.MultiHeadAttention <num_heads = 4> (q, k, v, , , , past_k, past_v) }"""
)
GROUPED = (
    HEAD
    + """
    g (float[B, 1, 32] q, float[B, 1, 16] k, float[B, 1, 16] v, float[B, 2, P, 8] past_k, float[B, 2, P, 8] past_v,
       int32[B] lengths, int32[1] total)
    => (float[B, 1, 32] y, float[B, 2, T, 8] present_k, float[B, 2, T, 8] present_v) {
        y, present_k, present_v = com.microsoft.GroupQueryAttention <num_heads = 4, kv_num_heads = 2>
            (q, k, v, past_k, past_v, lengths, total) }"""
)
STANDARD = """<ir_version: 10, opset_import: ["": 23]>
    g (float[B, 4, 1, 8] q, float[B, 4, 1, 8] k, float[B, 4, 1, 8] v, float[B, 4, P, 8] past_k,
       float[B, 4, P, 8] past_v)
    => (float[B, 4, 1, 8] y, float[B, 4, T, 8] present_k, float[B, 4, T, 8] present_v) {
        y, present_k, present_v = Attention (q, k, v, , past_k, past_v) }"""
IN_PARTS = (
    HEAD
    + """
    g (float[B, 4, 1, 8] q, float[B, 4, 1, 8] k, float[B, 4, 1, 8] v, float[B, 4, P, 8] past_k,
       float[B, 4, P, 8] past_v)
    => (float[B, 4, 1, 8] y, float[B, 4, T, 8] present_k, float[B, 4, T, 8] present_v)
    <float scale = {0.35}> {
        present_k = Concat <axis = 2> (past_k, k)
        present_v = Concat <axis = 2> (past_v, v)
        turned = Transpose <perm = [0, 1, 3, 2]> (present_k)
        product = MatMul (q, turned)
        scores = Mul (product, scale)
        weights = Softmax <axis = -1> (scores)
        y = MatMul (weights, present_v) }"""
)
DECODERS = {"multi-head": MULTI_HEAD, "grouped": GROUPED, "standard": STANDARD, "in parts": IN_PARTS}
IMAGES = (
    HEAD
    + """
    g (float[N, 3, H, W] x, float[5, 3, 3, 3] w) => (float[N, C, 1, 1] y, float[M] flat) <int64[1] all = {-1}> {
        folded = Conv <strides = [2, 2], pads = [1, 1, 1, 1], kernel_shape = [3, 3]> (x, w)
        half = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (folded)
        y = GlobalAveragePool (half)
        flat = Reshape (half, all) }"""
)
ROWS = (
    HEAD
    + """
    g (float[N, K] x, float[K, 8] w) => (float[N, 8] y) { h = MatMul(x, w) y = Softmax(h) }"""
)
PICKED = (
    HEAD
    + """
    g (float[N, 4] x, int64[M] index) => (float[M, 4] y) {
        h = Add(x, x) p = Gather <axis = 0> (h, index) y = Tanh(p) }"""
)


def compare(found: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> None:
    for own, other in zip(found, expected, strict=True):
        assert own.shape == other.shape
        np.testing.assert_allclose(own, other, rtol=2e-5, atol=2e-5)


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[ProgramPlan]:
    """Return the plans that Python makes."""
    found, make = list[ProgramPlan](), ProgramPlan.__init__

    def noted(self: ProgramPlan, *arguments: object) -> None:
        found.append(self)
        make(self, *arguments)

    monkeypatch.setattr(ProgramPlan, "__init__", noted)
    return found


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[OpenSignatures]:
    """Return what takes signatures that were not run."""
    found, make = list[OpenSignatures](), OpenSignatures.__init__

    def noted(self: OpenSignatures, *arguments: object) -> None:
        found.append(self)
        make(self, *arguments)

    monkeypatch.setattr(OpenSignatures, "__init__", noted)
    return found


def decoded(session: object, batch: int, first: int, steps: int) -> Iterator[Sequence[np.ndarray]]:
    """Yield what each step of a loop gives that feeds its caches back."""
    rng = np.random.default_rng(batch)
    shapes = {each.name: each.shape for each in session.get_inputs()}
    feeds: dict[str, np.ndarray] = {}
    for name, shape in shapes.items():
        sizes = [{"B": batch, "P": first}.get(size, size) for size in shape]
        feeds[name] = rng.standard_normal(sizes).astype(np.float32)
    for step in range(first, first + steps):
        for name in ("q", "k", "v"):
            feeds[name] = rng.standard_normal(feeds[name].shape).astype(np.float32)
        if "lengths" in shapes:
            feeds["lengths"], feeds["total"] = np.full(batch, step, np.int32), np.array([step + 1], np.int32)
        found = session.run(None, feeds)
        feeds["past_k"], feeds["past_v"] = found[1:]
        yield found


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", DECODERS)
def test_caches_that_grow_are_planned_by_python_a_few_times(name: str, threads: int, plans: list[ProgramPlan]) -> None:
    session, peer = session_of(DECODERS[name], threads), peer_of(DECODERS[name])
    for batch, first in ((1, 1), (3, 5)):
        for own, other in zip(decoded(session, batch, first, 60), decoded(peer, batch, first, 60), strict=True):
            compare(own, other)
    assert OPEN_AFTER <= len(plans) <= OPEN_AFTER + 2
    plans.clear()
    for own, other in zip(decoded(session, 1, 300, 20), decoded(peer, 1, 300, 20), strict=True):
        compare(own, other)
    assert len(plans) <= 3 * threads, "much more memory, or work for more threads, than before"


def test_a_cache_that_is_bound_as_past_and_present_grows_where_it_lies(plans: list[ProgramPlan]) -> None:
    session, peer = session_of(GROUPED), peer_of(GROUPED)
    rng = np.random.default_rng(0)
    caches = {name: np.zeros((1, 2, 40, 8), np.float32) for name in ("past_k", "past_v")}
    own = {name: ort.OrtValue.ortvalue_from_numpy(array.copy()) for name, array in caches.items()}
    binding = session.io_binding()
    for step in range(30):
        feeds = {name: rng.standard_normal((1, 1, size)).astype(np.float32) for name, size in zip("qkv", (32, 16, 16))}
        feeds |= {"lengths": np.array([step], np.int32), "total": np.array([step + 1], np.int32)}
        for name, array in feeds.items():
            binding.bind_cpu_input(name, array)
        binding.bind_output("y")
        for part in "kv":
            binding.bind_ortvalue_input(f"past_{part}", own[f"past_{part}"])
            binding.bind_ortvalue_output(f"present_{part}", own[f"past_{part}"])
        session.run_with_iobinding(binding)
        expected = peer.run(None, {**feeds, **caches})
        caches["past_k"], caches["past_v"] = expected[1:]
        compare([binding.get_outputs()[0].numpy()], expected[:1])
        for part in "kv":
            compare([own[f"past_{part}"].numpy()[:, :, : step + 1]], [caches[f"past_{part}"][:, :, : step + 1]])
    assert len(plans) <= OPEN_AFTER + 2


@pytest.mark.parametrize("threads", [1, 2])
def test_images_of_any_size_give_what_onnxruntime_gives(threads: int, plans: list[ProgramPlan]) -> None:
    session, peer, rng = session_of(IMAGES, threads), peer_of(IMAGES), np.random.default_rng(1)
    weights = rng.standard_normal((5, 3, 3, 3)).astype(np.float32)
    sizes = [
        (1, 8, 9),
        (2, 7, 30),
        (1, 64, 65),
        (3, 33, 4),
        (1, 12, 12),
        (2, 40, 9),
        (1, 97, 80),
        (4, 5, 6),
        (2, 50, 50),
    ]
    for batch, height, width in sizes * 2:
        feeds = {"x": rng.standard_normal((batch, 3, height, width)).astype(np.float32), "w": weights}
        compare(session.run(None, feeds), peer.run(None, feeds))
    assert len(plans) < len(sizes)


def test_signatures_in_turn_are_planned_once_each(opened: list[OpenSignatures]) -> None:
    session, w = session_of(ROWS), np.eye(4, 8, dtype=np.float32)
    feeds = [{"x": np.full((size, 4), size, np.float32), "w": w} for size in range(1, 7)]
    for _ in range(5):
        for each in feeds:
            np.testing.assert_allclose(session.run(None, each)[0].sum(axis=1), 1, rtol=1e-6)
    (only,) = opened
    assert int(only._words[Open.CLOCK]) >= 18
    used = [number for number in range(int(only._words[Open.TABLE_COUNT])) if word_of(only, number, Entry.STAMP)]
    assert 3 <= len(used) <= 6, "a table serves its signature again"


def word_of(each: OpenSignatures, number: int, word: Entry) -> int:
    """Return a word of a table."""
    table = ctypes.c_int64.from_address(int(each._words[Open.TABLES]) + 8 * number).value
    return ctypes.c_int64.from_address(table + 8 * int(word)).value


def test_empty_and_odd_feeds_give_results_or_the_precise_error() -> None:
    session, w = session_of(ROWS), np.eye(4, 8, dtype=np.float32)
    for size in range(1, 8):
        session.run(None, {"x": np.ones((size, 4), np.float32), "w": w})
    assert session.run(None, {"x": np.ones((0, 4), np.float32), "w": w})[0].shape == (0, 8)
    with pytest.raises(InvalidArgument, match=r"[Rr]ank"):
        session.run(None, {"x": np.ones((2, 4, 1), np.float32), "w": w})
    with pytest.raises(ort.errors.OrtError):
        session.run(None, {"x": np.ones((9, 5), np.float32), "w": w})  # K is 5 and 4
    with pytest.raises(InvalidArgument):
        session.run(None, {"x": np.ones((9, 4), np.float32), "w": np.ones((4, 9), np.float32)})
    order = np.asfortranarray(np.arange(44, dtype=np.float32).reshape(11, 4))
    compare(session.run(None, {"x": order, "w": w}), peer_of(ROWS).run(None, {"x": order, "w": w}))
    assert session.run(None, {"x": np.ones((10, 4), np.float32), "w": w})[0].shape == (10, 8)


@pytest.mark.parametrize("total", [-1, 0, 3, 50])
def test_a_total_that_is_less_than_the_rows_or_more_gives_what_an_ordinary_run_gives(total: int) -> None:
    session, fresh = session_of(GROUPED), session_of(GROUPED)
    feeds: Mapping[str, np.ndarray] = {}
    for _ in decoded(session, 1, 4, 8):
        pass
    rng = np.random.default_rng(2)
    feeds = {
        each.name: rng.standard_normal([{"B": 1, "P": 7}.get(size, size) for size in each.shape]).astype(np.float32)
        for each in session.get_inputs()[:5]
    }
    feeds |= {"lengths": np.array([2], np.int32), "total": np.array([total], np.int32)}
    assert outcome(session, feeds) == outcome(fresh, feeds)


def outcome(session: ort.InferenceSession, feeds: Mapping[str, np.ndarray]) -> object:
    try:
        found = session.run(None, feeds)
    except ort.errors.OrtError as error:
        return type(error), str(error)
    return [each.shape for each in found], found[0].tobytes()


def test_data_out_of_bounds_of_a_new_size_are_the_ordinary_error() -> None:
    session, x = session_of(PICKED), np.ones((5, 4), np.float32)
    for count in range(1, 7):
        session.run(None, {"x": x, "index": np.zeros(count, np.int64)})
    with pytest.raises(ort.errors.OrtError, match="out of"):
        session.run(None, {"x": x, "index": np.full(9, 5)})
    assert session.run(None, {"x": x, "index": np.full(8, 4)})[0].shape == (8, 4)


def test_a_limit_of_the_session_holds_for_sizes_that_were_never_run(opened: list[OpenSignatures]) -> None:
    session, w = session_of(ROWS, limit=100_000), np.eye(4, 8, dtype=np.float32)
    for size in range(1, 9):
        session.run(None, {"x": np.ones((size, 4), np.float32), "w": w})
    with pytest.raises(AllocationLimitExceeded):
        session.run(None, {"x": np.ones((50_000, 4), np.float32), "w": w})
    assert not opened, "nothing but signatures that were run is known where there is a limit"


def test_half_of_the_memory_is_the_most_that_a_size_which_was_never_run_takes(
    monkeypatch: pytest.MonkeyPatch, opened: list[OpenSignatures], plans: list[ProgramPlan]
) -> None:
    monkeypatch.setattr(open_records, "usable_memory", lambda: 2 * (1 << 16))
    session, w = session_of(ROWS), np.eye(4, 8, dtype=np.float32)
    for size in range(1, 9):
        session.run(None, {"x": np.ones((size, 4), np.float32), "w": w})
    (only,) = opened
    assert only.most_nbytes == 1 << 16
    before = len(plans)
    session.run(None, {"x": np.ones((1 << 13, 4), np.float32), "w": w})
    assert len(plans) == before + 1, "the ordinary run asks the guard"


def test_memory_for_a_large_size_is_given_back_when_small_ones_follow(opened: list[OpenSignatures]) -> None:
    text = (
        HEAD
        + """
        g (float[N, M] x) => (float[N, M] y)
        {h = Softmax(x) z = Transpose <perm = [1, 0]> (h) k = Softmax(z) y = Transpose <perm = [1, 0]> (k)}"""
    )
    session = session_of(text)
    sizes = [(size, 40) for size in range(1, 7)] + [(300, 4_000), (301, 4_000), (302, 4_000)]
    for size in sizes:
        session.run(None, {"x": np.ones(size, np.float32)})
    (only,) = opened
    assert int(only._words[Open.CAPACITY]) >= 4 * 300 * 4_000
    session.run(None, {"x": np.ones((9, 41), np.float32)})
    assert int(only._words[Open.CAPACITY]) <= KEPT_NBYTES
    for size in range(400, 420):
        session.run(None, {"x": np.ones((size, 4_000), np.float32)})
    assert int(only._words[Open.CAPACITY]) <= 1.25 * 4 * 4 * 420 * 4_000, "no more than a quarter above the need"


def test_memory_of_large_outputs_that_were_dropped_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from ort_core.cpu.program import output_memory

    made, block = list[int](), output_memory._Block.__init__

    def noted(self: object, nbytes: int) -> None:
        made.append(nbytes)
        block(self, nbytes)

    monkeypatch.setattr(output_memory._Block, "__init__", noted)
    session = session_of(HEAD + "g (float[N, 1024] x) => (float[N, 1024] y) { h = Neg(x) y = Abs(h) }")
    for size in range(1_000, 1_040):
        (found,) = session.run(None, {"x": np.full((size, 1024), -2, np.float32)})
        assert (found == 2).all()
        del found
    assert len(made) <= 4, "one more where a size is a sixteenth larger"


def test_threads_share_steps_of_any_size_and_give_the_same(plans: list[ProgramPlan]) -> None:
    session, peer, rng = session_of(ROWS, threads=3), peer_of(ROWS), np.random.default_rng(3)
    w = rng.standard_normal((64, 8)).astype(np.float32)
    sizes = [3, 40, 500, 6_000, 7_000, 5, 900, 12_000, 13_000, 41, 800, 2, 60_000, 61_000]
    for size in sizes * 2:
        feeds = {"x": rng.standard_normal((size, 64)).astype(np.float32), "w": w}
        compare(session.run(None, feeds), peer.run(None, feeds))
    assert len(plans) < len(sizes)


def test_an_order_is_for_work_of_the_same_magnitude(opened: list[OpenSignatures]) -> None:
    session, w = session_of(ROWS, threads=2), np.ones((64, 8), np.float32)
    for size in (6_000, 6_001, 6_002, 6_003, 6_004, 6_005, 7_000):
        session.run(None, {"x": np.ones((size, 64), np.float32), "w": w})
    (only,) = opened
    assert only._words[Open.ORDER_COUNT] == 1
    session.run(None, {"x": np.ones((20_000, 64), np.float32), "w": w})
    assert only._words[Open.ORDER_COUNT] == 2
    order = only._program.record.order
    work = np.array([SERIAL_WORK - 1, SERIAL_WORK, 100_000, 1 << 40][: len(order.reads)], np.int64)
    least, most = order.alike(work, 2)
    assert ((least <= work) & (work <= most)).all()


def test_runs_of_several_threads_with_sizes_of_their_own_do_not_mix() -> None:
    session, w = session_of(ROWS), np.random.default_rng(4).standard_normal((16, 8)).astype(np.float32)
    peer = peer_of(ROWS)

    def turns(seed: int) -> None:
        chosen = random.Random(seed)
        for _ in range(120):
            x = np.random.default_rng(chosen.randrange(1000)).standard_normal((chosen.randrange(1, 300), 16))
            feeds = {"x": x.astype(np.float32), "w": w}
            compare(session.run(None, feeds), peer.run(None, feeds))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(turns, range(4)))


def test_a_run_within_the_call_that_makes_an_output_goes_the_ordinary_way(monkeypatch: pytest.MonkeyPatch) -> None:
    session = session_of(HEAD + "g (float[N, 1024] x) => (float[N, 1024] y) { h = Neg(x) y = Abs(h) }")
    inner, lease = list[np.ndarray](), open_records._leased

    def within(*arguments: object) -> object:
        if not inner:
            inner.append(np.empty(0))
            inner[:] = session.run(None, {"x": np.full((7, 1024), 3, np.float32)})
        return lease(*arguments)

    monkeypatch.setattr(open_records, "_leased", within)
    for size in range(500, 508):
        (found,) = session.run(None, {"x": np.full((size, 1024), -2, np.float32)})
        assert (found == 2).all()
    assert (inner[0] == 3).all()


def test_declared_sizes_that_are_wrong_are_warned_of_at_every_size(caplog: pytest.LogCaptureFixture) -> None:
    session = session_of(HEAD + "g (float[N, 3] x) => (float[2, 3] y) { h = Relu(x) y = Neg(h) }")
    with caplog.at_level(logging.WARNING):
        for size in range(1, 9):
            session.run(None, {"x": np.ones((size, 3), np.float32)})
    assert sum("does not match actual shape" in each.message for each in caplog.records) == 7


def test_a_session_that_is_dropped_gives_its_memory_back(opened: list[OpenSignatures]) -> None:
    session, w = session_of(ROWS), np.eye(4, 8, dtype=np.float32)
    for size in range(1, 9):
        session.run(None, {"x": np.ones((size, 4), np.float32), "w": w})
    kept = weakref.ref(opened.pop())
    del session
    gc.collect()
    assert kept() is None


def evaluated(state: SizeWordsState, shape: Sequence[int]) -> list[int]:
    """Return all registers, or raise ``ArithmeticError`` where native code gives up."""
    words = state.finished()
    found = words.registers.tolist()
    for number, (operation, a, b) in enumerate(words.rows.tolist()):
        found[number] = apply(Operation(operation), a, b, found, shape)
    return found


def apply(operation: Operation, a: int, b: int, found: Sequence[int], shape: Sequence[int]) -> int:
    if operation is Operation.SIZE:
        return shape[b]
    x, y = found[a], found[b]
    if operation in (Operation.MUST_EQUAL, Operation.MUST_NOT_BE_NEGATIVE):
        if x != y if operation is Operation.MUST_EQUAL else x < 0:
            raise ArithmeticError(operation.name)
        return 0
    plain = {
        Operation.ADD: int.__add__, Operation.MULTIPLY: int.__mul__, Operation.FLOOR_DIVIDE: int.__floordiv__,
        Operation.MODULO: int.__mod__, Operation.MAXIMUM: max, Operation.MINIMUM: min,
        Operation.BROADCAST: lambda left, right: right if left == 1 else left,
    }  # fmt: skip
    return int(plain[operation](x, y))


def random_size(chosen: random.Random, atoms: Sequence[SymbolicDim], depth: int) -> SymbolicDim | int:
    if depth == 0 or chosen.random() < 0.2:
        return chosen.choice([*atoms, chosen.randrange(-4, 9)])
    left, right = random_size(chosen, atoms, depth - 1), random_size(chosen, atoms, depth - 1)
    combine = chosen.choice([
        lambda: left + right, lambda: left * right, lambda: left - right, lambda: left // chosen.choice((2, 3, -3)),
        lambda: left % chosen.choice((2, 5)), lambda: maximum(left, right), lambda: minimum(left, right),
        lambda: broadcast(left, right),
    ])  # fmt: skip
    found = combine()
    return left if found is None else found


@pytest.mark.parametrize("seed", range(40))
def test_rows_say_what_sizes_are(seed: int) -> None:
    chosen = random.Random(seed)
    atoms = [SymbolicDim.named(name) for name in "abc"]
    bindings = [Binding("a", 0, 0), Binding("b", 0, 1, -1, atoms[0] + 3), Binding("c", 0, 2, 1, atoms[1] * 2 - 5)]
    sizes = [random_size(chosen, atoms, 3) for _ in range(12)]
    state = SizeWordsState(lambda index, axis: (Operation.SIZE, index, axis))
    state.bind(bindings)
    registers = state.evaluated(SizeProgram(sizes))
    places = state.places(registers)
    for _ in range(20):
        shape = [chosen.randrange(0, 30) for _ in range(3)]
        values: dict[str, int] = {}
        for binding in bindings:
            values[binding.atom] = binding.solve(shape[binding.axis], values)
        found = evaluated(state, shape)
        assert [found[place] for place in places] == [evaluate(size, values) for size in sizes]


def test_sizes_that_must_be_equal_or_positive_are_asked() -> None:
    state = SizeWordsState(lambda index, axis: (Operation.SIZE, index, axis))
    state.must_equal(state.axis(0, 0), state.axis(0, 1))
    state.must_not_be_negative(state.operated(Operation.ADD, state.axis(0, 0), state.constant(-3)))
    evaluated(state, [4, 4])
    for shape in ([4, 5], [2, 2]):
        with pytest.raises(ArithmeticError):
            evaluated(state, shape)


def test_a_number_of_more_than_64_bits_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    session = session_of(ROWS)
    w = np.eye(4, 8, dtype=np.float32)
    program = next(step.program for step in session._loaded.prepared.plan.steps[0].step.compiled._steps)
    monkeypatch.setattr(SizeWordsState, "constant", raise_overflow)
    assert isinstance(open_program(program, [0, 1]), Rejection)
    for size in range(1, 8):
        assert session.run(None, {"x": np.ones((size, 4), np.float32), "w": w})[0].shape == (size, 8)


def raise_overflow(self: object, value: int) -> int:
    raise OverflowError(f"{value} needs more than 64 bits")
