"""Caches in blocks: graphs that fit, equal texts whoever runs, and who waits when the blocks are used up."""

from __future__ import annotations

import logging
import time

import numpy as np
import onnx
import pytest
from genai_built import built
from onnx import helper

import ort_genai as og
from ort_genai.builder.precision_names import Precision
from ort_genai.paging.block_pool import BLOCK_ROWS, BlockPool, OutOfBlocks
from ort_genai.paging.paged_graph import DecoderNames, NotPaged, paged_graph
from ort_genai.paging.paged_inputs import WANTED
from ort_genai.paging.paged_states import PagedState, blocks_of

Options = og.GenerationOptions
RANDOM = np.random.default_rng(5)
PROMPTS = [RANDOM.integers(3, 250, length).tolist() for length in (3, 40, 70, 1, 25, 66)]
FAMILIES = ("llama", "qwen3", "gemma3", "gpt2", "smollm3_windows")


@pytest.fixture(scope="module")
def model():
    return og.Model(built())


def tokens_of(request):
    return [piece.token for piece in request]


def texts(model, prompts, count, **limits):
    """Return tokens of texts that run together, and what the engine counted."""
    with og.AsyncEngine(model, og.EngineOptions(**limits)) as engine:
        asked = [engine.submit(prompt, Options(max_tokens=count, min_tokens=count)) for prompt in prompts]
        found = [tokens_of(request) for request in asked]
        wait_until_idle(engine)
        return found, engine


def wait_until_idle(engine):
    """Wait until nobody runs: the engine's thread puts the last token before it lets go of the row."""
    for _ in range(2000):
        if engine.is_idle:
            return
        time.sleep(0.005)
    raise AssertionError("the engine still runs")


def test_runs_of_sizes_that_came_before_keep_no_logits(model):
    _, engine = texts(model, PROMPTS, 9, max_batch=3)
    bound = engine._room._runs._bound
    assert len(bound) > 3
    caches = len(model.decoder.caches)
    assert all(len(each.binding.get_outputs()) == caches for each in bound.values()), "caches alone"


def state_of(model, **limits):
    return PagedState(model.decoder.paged.new_runs(model.decoder, **limits))


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_those_of_caches_in_one_piece(family):
    decoder = og.Model(built(family)).decoder
    states = [decoder.new_state(), PagedState(decoder.paged.new_runs(decoder))]
    found = [[], []]
    for state, kept in zip(states, found, strict=True):
        kept += [state.read(state.add_row(), np.array(prompt[:33])) for prompt in PROMPTS[:4]]
        random = np.random.default_rng(1)
        kept += [state.step(random.integers(3, 250, 4)) for _ in range(6)]
        state.rewind(1, 20)
        state.drop_row(0)
        kept.append(state.step(random.integers(3, 250, 3)))
        kept.append(state.read_all(2, random.integers(3, 250, 5)))
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-4 * np.abs(one).max())
        np.testing.assert_array_equal(other.argmax(-1), one.argmax(-1))


def test_a_decoding_step_and_the_reading_of_a_prompt_are_one_run(model):
    alone, joined, prompt = state_of(model), state_of(model), state_of(model)
    for state in (alone, joined):
        for each in PROMPTS[:3]:
            state.read(state.add_row(), np.array(each))
    other = PagedState(joined._runs)
    other.add_row()
    rows, last = joined.step_beside(np.array([5, 6, 7]), other, np.array(PROMPTS[5]))
    np.testing.assert_allclose(rows, alone.step(np.array([5, 6, 7])), atol=1e-4)
    np.testing.assert_allclose(last, prompt.read(prompt.add_row(), np.array(PROMPTS[5])), atol=1e-4)
    assert joined.take_row(other, 0) == 3
    assert (joined.lengths[3], other.lengths) == (66, [])


def test_texts_are_those_of_caches_in_one_piece(model):
    wanted, _ = texts(model, PROMPTS, 30, uses_blocks=False)
    found, engine = texts(model, PROMPTS, 30)
    assert found == wanted
    assert engine._room.pool.held_by_rows == 0
    assert engine.current_counts().steps < 6 * 30


@pytest.mark.parametrize("precision", [Precision.FP32, Precision.INT4])
def test_who_has_no_block_waits_and_gets_the_same_text(precision, monkeypatch):
    for module in ("block_pool", "paged_states"):
        monkeypatch.setattr(f"ort_genai.paging.{module}.BLOCK_ROWS", 8)
    model, prompts = og.Model(built(precision=precision)), [each[:30] for each in PROMPTS]
    wanted = [texts(model, [prompt], 40, prefix_bytes=0)[0][0] for prompt in prompts]
    block = state_of(model).nbytes_for(1, 8)
    for kept in (0, 3):
        found, engine = texts(model, prompts, 40, cache_bytes=12 * block, prefix_bytes=kept * block)
        assert found == wanted
        assert engine.current_counts().paused > 0, "blocks were enough for all"
        assert engine.current_counts().requests == len(prompts)
        pool = engine._room.pool
        assert pool.held_by_rows == 0
        assert pool.held <= kept
        assert len(pool.arrays[0]) <= 12 + kept, "limits of bytes hold"


def test_who_fits_alone_is_never_refused_for_others(model):
    row = state_of(model).nbytes_for(1, BLOCK_ROWS)
    prompts = [prompt * 2 for prompt in PROMPTS[:4]]
    wanted = [texts(model, [prompt], 127 - len(prompt), prefix_bytes=0)[0][0] for prompt in prompts[:2]]
    with og.AsyncEngine(model, og.EngineOptions(cache_bytes=2 * row)) as engine:
        asked = [engine.submit(p, Options(max_tokens=127 - len(p), min_tokens=127 - len(p))) for p in prompts[:2]]
        assert [tokens_of(request) for request in asked] == wanted


def test_requests_join_by_what_they_read_and_not_by_what_they_may_write(model):
    row = state_of(model).nbytes_for(1, BLOCK_ROWS)
    limits = {"cache_bytes": 8 * row, "prefix_bytes": 0}
    steps = []
    for uses_blocks in (True, False):
        with og.AsyncEngine(model, og.EngineOptions(uses_blocks=uses_blocks, **limits)) as engine:
            stop = Options(max_tokens=100, logit_bias=dict.fromkeys(model.decoder.end_tokens, -100.0), stop=("\0",))
            asked = [engine.submit([5 + place] * 4, stop) for place in range(4)]
            while engine.current_counts().tokens < 100:
                time.sleep(0.002)
            steps.append(engine.current_counts().steps / engine.current_counts().tokens)
            for request in asked:
                request.cancel()
                list(request)
    assert steps[0] < 0.75 * steps[1], "four run together in blocks; in one piece there is room for two"


def test_cancelled_requests_give_their_blocks_back(model):
    with og.AsyncEngine(model, og.EngineOptions(prefix_bytes=0)) as engine:
        asked = [engine.submit(prompt, Options(max_tokens=120 - len(prompt))) for prompt in PROMPTS]
        next(iter(asked[0]))
        for request in asked:
            request.cancel()
            list(request)
        wait_until_idle(engine)
        assert engine._room.pool.held == 0
        assert tokens_of(engine.submit(PROMPTS[0], Options(max_tokens=3)))


def test_a_shared_beginning_lies_in_memory_once(model):
    common = RANDOM.integers(3, 250, BLOCK_ROWS + 10).tolist()
    prompts = [[*common, *RANDOM.integers(3, 250, 20).tolist()] for _ in range(4)]
    wanted = [texts(model, [prompt], 6, prefix_bytes=0)[0][0] for prompt in prompts]
    with og.AsyncEngine(model) as engine:
        assert [tokens_of(engine.submit(prompt, Options(max_tokens=6))) for prompt in prompts] == wanted
        assert engine.current_counts().cached_tokens == 3 * len(common)
        pool = engine._room.pool
        assert pool.held == 1 + len(prompts), "one block that all share, and the rest of each"


def test_a_beginning_that_ends_within_a_block_needs_no_further_one(model):
    block = model.decoder.cache_bytes(BLOCK_ROWS)
    first = np.random.default_rng(3).integers(3, 250, 100).tolist()
    second, options = [*first[:80], *first[:20]], og.GenerationOptions(max_tokens=5)
    with og.AsyncEngine(model, og.EngineOptions(cache_bytes=2 * block, prefix_bytes=0)) as engine:
        expected = tokens_of(engine.submit(second, options))
    with og.AsyncEngine(model, og.EngineOptions(cache_bytes=2 * block, prefix_bytes=8 * block)) as engine:
        tokens_of(engine.submit(first, options))
        request = engine.submit(second, options)
        assert tokens_of(request) == expected
        assert BLOCK_ROWS < request.finished.cached_tokens <= 80


def test_a_row_that_goes_back_into_what_is_kept_leaves_it_as_it_is(model):
    state = state_of(model)
    prompt = np.array(PROMPTS[1])
    state.read(state.add_row(), prompt)
    kept = state.export_row(0)
    state.rewind(0, 30)
    state.read(0, np.array([9] * 20))
    state.import_row(kept.shortened(40))
    fresh = state_of(model)
    fresh.read(fresh.add_row(), prompt)
    np.testing.assert_allclose(state.step(np.array([7, 8]))[1], fresh.step(np.array([8]))[0], atol=1e-4)
    kept.release()
    state.reorder(np.array([1, 1]))
    found = state.step(np.array([4, 4]))
    np.testing.assert_array_equal(found[0], found[1])
    for _ in range(2):
        state.drop_row(0)
    assert state.pool.held == 0


def test_a_pool_gives_no_more_than_it_has():
    asked = []
    pool = BlockPool([(2, 4, np.dtype(np.float32))] * 2, row_nbytes=3 * 4096, kept_nbytes=4096)
    assert pool.block_nbytes == 2 * BLOCK_ROWS * 2 * 4 * 4
    pool.give_up = lambda: asked.append(1) or False
    taken = [pool.take() for _ in range(3)]
    assert sorted(taken) == [0, 1, 2]
    with pytest.raises(OutOfBlocks):
        pool.take()
    assert not asked, "rows may hold three, whatever is kept"
    pool.hold(taken[:1], is_kept=True)
    pool.release(taken)
    assert (pool.held_by_rows, pool.held, pool.left_for_rows) == (0, 1, 3)
    assert taken[0] not in [pool.take() for _ in range(3)]
    assert blocks_of(BLOCK_ROWS + 1) == 2


def test_a_pool_gives_memory_back_and_blocks_keep_what_they_have():
    pool = BlockPool([(1, 2, np.dtype(np.float32))])
    taken = [pool.take() for _ in range(200)]
    for block in taken:
        for array in pool.arrays:
            array[pool.places[block]] = block
    assert len(pool.arrays[0]) == 256
    kept = taken[150:200:10]
    pool.hold(kept, is_kept=True)
    pool.release(taken)
    assert len(pool.arrays[0]) == 10, "five blocks need no more"
    assert all((pool.arrays[0][pool.places[block]] == block).all() for block in kept)
    again = [pool.take() for _ in range(60)]
    assert not set(again) & set(kept)
    assert len(set(pool.places[[*kept, *again]].tolist())) == 65
    assert all((pool.arrays[0][pool.places[block]] == block).all() for block in kept)
    pool.release(again)
    pool.release(kept, is_kept=True)
    assert (len(pool.arrays[0]), pool.held) == (10, 0)


def test_memory_goes_back_when_long_texts_are_gone(model, monkeypatch):
    for module in ("block_pool", "paged_states"):
        monkeypatch.setattr(f"ort_genai.paging.{module}.BLOCK_ROWS", 4)
    wanted, _ = texts(model, PROMPTS, 50, uses_blocks=False)
    with og.AsyncEngine(model, og.EngineOptions(prefix_bytes=0)) as engine:
        for _ in range(2):
            asked = [engine.submit(prompt, Options(max_tokens=50, min_tokens=50)) for prompt in PROMPTS]
            assert [tokens_of(request) for request in asked] == wanted
            wait_until_idle(engine)
            assert len(engine._room.pool.arrays[0]) == 8
            assert engine._room.pool.version > 4, "it was larger before"


def test_a_block_of_several_beginnings_counts_once(model):
    common = RANDOM.integers(3, 250, BLOCK_ROWS).tolist()
    block = state_of(model).nbytes_for(1, 1)
    with og.AsyncEngine(model, og.EngineOptions(prefix_bytes=4 * block)) as engine:
        for place in range(5):
            tokens_of(engine.submit([*common, *[5 + place] * 20], Options(max_tokens=2)))
            assert engine._prefixes.nbytes == min(2 + place, 4) * block
        wait_until_idle(engine)
        assert engine._room.pool.held == 4, "the block that all share, and one of each of the last three"
        assert engine.current_counts().cached_tokens == 4 * BLOCK_ROWS


def graph_of(folder):
    return onnx.load(folder / "model.onnx", load_external_data=False)


def names_of(model):
    decoder = model.decoder
    caches = tuple((each.past, each.present) for each in decoder.caches)
    return DecoderNames(decoder.tokens, decoder.positions, decoder.mask, decoder.logits, caches)


def changed(graph, op_type, **attributes):
    node = next(each for each in graph.node if each.op_type == op_type)
    node.attribute.extend(helper.make_attribute(name, value) for name, value in attributes.items())
    return node


def with_bias(graph):
    node = changed(graph, "GroupQueryAttention")
    node.input.extend([""] * (10 - len(node.input)))
    node.input.append("bias")


def with_mask(graph):
    graph.node.insert(0, helper.make_node("Cast", ["attention_mask"], ["seen"], to=1))
    graph.node.insert(1, helper.make_node("ReduceMax", ["seen"], ["most"], keepdims=0))
    _behind_tokens(graph, "Mul", ["most"])


def _behind_tokens(graph, op_type, more=(), **attributes):
    """Put a node behind the lookup of tokens."""
    place, embedded = next((i, each) for i, each in enumerate(graph.node) if "input_ids" in each.input)
    name = embedded.output[0]
    embedded.output[0] = "before"
    graph.node.insert(place + 1, helper.make_node(op_type, ["before", *more], [name], **attributes))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (with_bias, "a bias"),
        (lambda graph: changed(graph, "GroupQueryAttention", smooth_softmax=1), "smooth_softmax = 1"),
        (lambda graph: _behind_tokens(graph, "CumSum", ["axis"]), "CumSum, which may mix tokens"),
        (lambda graph: _behind_tokens(graph, "Softmax", axis=1), "another axis than the last"),
        (lambda graph: _behind_tokens(graph, "MatMul", ["before"]), "tokens are multiplied with tokens"),
        (lambda graph: _behind_tokens(graph, "FusedMatMul", ["x"], domain="com.microsoft", transA=1), "columns of"),
        (with_mask, "its mask is read for more than lengths"),
        (lambda graph: graph.node.append(helper.make_node("Abs", ["present.0.key"], ["x"])), "else reads its caches"),
    ],
    ids=["bias", "smooth", "sum", "softmax", "products", "turned product", "mask", "caches"],
)  # fmt: skip
def test_a_graph_that_does_not_fit_says_why(model, change, reason):
    made = graph_of(built())
    change(made.graph)
    with pytest.raises(NotPaged, match=reason):
        paged_graph(made, names_of(model))


def test_the_rows_of_a_fused_head_are_left_out_before_it(model):
    made = graph_of(built())
    head = next(each for each in made.graph.node if "logits" in each.output)
    assert head.op_type == "MatMul"
    head.op_type, head.domain = "FusedMatMul", "com.microsoft"
    head.attribute.append(helper.make_attribute("transB", 1))
    found = paged_graph(made, names_of(model)).graph.node
    product = next(each for each in found if "logits" in each.output)
    gather = next(each for each in found if product.input[0] in each.output)
    assert (product.op_type, gather.op_type, gather.input[1]) == ("FusedMatMul", "Gather", WANTED)


def test_a_model_that_does_not_fit_runs_in_one_piece_and_the_log_says_so_once(caplog):
    folder = built(family="llama3")
    config = og.Config(folder)
    config.overlay('{"search": {"past_present_share_buffer": false}}')
    with caplog.at_level(logging.INFO, "ort_genai"):
        model = og.Model(config)
        found = [texts(model, PROMPTS[:2], 5)[0] for _ in range(2)]
    assert found[0] == found[1] == texts(og.Model(folder), PROMPTS[:2], 5)[0]
    said = [each.message for each in caplog.records if "caches lie in one piece" in each.message]
    assert len(said) == 1
    assert said[0].endswith("not in blocks: genai_config.json has search.past_present_share_buffer = false")


def test_memory_of_many_blocks_lies_together_and_keeps_what_was_written(monkeypatch):
    monkeypatch.setattr("ort_genai.paging.block_pool._TOGETHER_NBYTES", 40_000)
    pool = BlockPool([(2, 8, np.dtype(np.float32)), (2, 8, np.dtype(np.int8)), (3, 5, np.dtype(np.float16))])
    random, held, written = np.random.default_rng(2), [], {}
    for turn in range(60):
        held.append(pool.take())
        for place, array in enumerate(pool.arrays):
            written[held[-1], place] = random.integers(-9, 9, array.shape[1:]).astype(array.dtype)
            array[pool.places[held[-1]]] = written[held[-1], place]
        if turn % 7 == 6:
            pool.release([held.pop(int(random.integers(len(held))))])
    pool.release(held[10:])
    for block in held[:10]:
        for place, array in enumerate(pool.arrays):
            np.testing.assert_array_equal(array[pool.places[block]], written[block, place])
            assert array.flags.c_contiguous
            assert array.flags.writeable
            assert array.ctypes.data % 64 == 0 or len(array) <= 16
    fresh = [pool.take() for _ in range(200)]
    assert len({int(pool.places[block]) for block in held[:10] + fresh}) == 210
