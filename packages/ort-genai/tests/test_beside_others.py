"""Texts do not depend on what runs beside them: with caches of each type, levels of accuracy and numbers of threads."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
from genai_built import built

import ort_genai as og
from ort_genai.builder.build import BuildOptions, build
from ort_genai.builder.precision_names import CacheType, Precision

SOURCE = "qwen3"
SPREAD = {None: 0.002, CacheType.FP16: 0.01, CacheType.BF16: 0.06, CacheType.INT8: 0.15}  # of the logits' spread


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("beside")


def opened(root, level, caches, threads):
    """Return a model of 4 bits."""
    folder = root / f"{level}-{caches}"
    if not folder.exists():
        options = BuildOptions(Precision.INT4, accuracy_level=level, caches=caches)
        build(built(SOURCE).parent / f"{SOURCE}-source", folder, options)
    config = og.Config(folder)
    config.overlay(json.dumps({"model": {"decoder": {"session_options": {"intra_op_num_threads": threads}}}}))
    return og.Model(config)


def requests(seed):
    """Return prompts, some with a common beginning, and how many tokens each is to have."""
    draws = random.Random(seed)
    start = [draws.randrange(280) for _ in range(40)]
    found = []
    for _ in range(7):
        own = [draws.randrange(280) for _ in range(draws.choice((1, 2, 15, 16, 17, 18, 40, 70)))]
        found.append(([*start, *own] if draws.random() < 0.4 else own, draws.randint(1, 9)))
    return found


def texts_of(engine, asked, together):
    """Return the tokens of each request."""

    def begun(prompt, count):
        return engine.submit(prompt, og.GenerationOptions(max_tokens=count, min_tokens=count, seed=5, temperature=0.8))

    def read(request):
        return [piece.token for piece in request if isinstance(piece, og.Piece)]

    if together:
        return [read(each) for each in [begun(*each) for each in asked]]
    return [read(begun(*each)) for each in asked]


@pytest.mark.parametrize(
    ("level", "caches"), [(0, CacheType.FP16), (1, None), (2, CacheType.BF16), (4, CacheType.INT8)]
)
def test_texts_are_those_that_each_request_has_alone(root, level, caches):
    """With a seed they are the same by any number of threads, beside any rows, in blocks or in one piece."""
    asked, alone = requests(level * 7 + 1), None
    for threads in (1, 2, 3):
        model = opened(root, level, caches, threads)
        for together in (False, True):
            with og.AsyncEngine(model, og.EngineOptions(max_batch=8)) as engine:
                found = texts_of(engine, asked, together)
            alone = found if alone is None else alone
            assert found == alone, (threads, together)
        assert [len(each) for each in alone] == [count for _, count in asked]


@pytest.mark.parametrize("caches", SPREAD)
@pytest.mark.parametrize("level", range(5))
def test_logits_are_near_those_of_floats(root, level, caches):
    plain, model = opened(root, 0, None, 1), opened(root, level, caches, 2)
    tokens = np.array(requests(3)[0][0] * 2, np.int64)[:90]
    states = []
    for each in (plain, model):
        state = each.decoder.new_state()
        state.add_row()
        states.append(state.read_all(0, tokens))
    want, found = states
    bound = SPREAD[caches] + (0.1 if level == 4 else 0.01)
    assert np.abs(found - want).max() < bound * np.ptp(want)
    parts = {None: 4, CacheType.FP16: 2, CacheType.BF16: 2, CacheType.INT8: 1}
    sizes = sum(each.heads * each.size for each in model.decoder.caches)
    assert model.decoder.cache_bytes(100) == 100 * sizes * parts[caches]
    state = model.decoder.new_state(256)
    state.add_row()
    state.read(0, tokens)
    held = sum(each.nbytes for each in {id(array): array for array in state._arrays}.values())
    assert held == state.nbytes_for(1, len(tokens) + 1)
    if model.decoder.paged is not None:
        assert model.decoder.paged.new_runs(model.decoder).pool.block_nbytes == model.decoder.cache_bytes(64)
