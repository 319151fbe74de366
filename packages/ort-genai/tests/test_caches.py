"""Caches of half floats and of integers: a half and a quarter of the memory, answers near those of float caches."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from genai_built import built
from genai_tiny_models import PROMPTS

import ort_genai as og
from ort_genai.builder.build import BuildOptions, build
from ort_genai.builder.cache_types import write_with_caches
from ort_genai.builder.precision_names import CacheType, Precision
from ort_genai.errors import InvalidModelFolder

PARTS = {CacheType.FP16: 2, CacheType.BF16: 2, CacheType.INT8: 4}  # of float32's bytes
NEAR = {CacheType.FP16: 0.002, CacheType.BF16: 0.02, CacheType.INT8: 0.03}  # of the logits' spread


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("caches")
    for kind in PARTS:
        write_with_caches(built("llama"), root / kind, kind)
    return root


def step_logits(folder, prompt, tokens):
    """Return the logits (tokens, vocabulary) of tokens behind a prompt, one step each, and the model."""
    model = og.Model(folder)
    state = model.decoder.new_state()
    state.add_row()
    state.read(0, np.array(prompt, np.int64))
    return np.concatenate([state.step(np.array([token])) for token in tokens]), model


@pytest.mark.parametrize("kind", list(PARTS))
def test_smaller_caches_give_nearly_the_same_logits_natively(folders, kind):
    tokens = PROMPTS[2]
    for prompt in PROMPTS:
        want, plain = step_logits(built("llama"), prompt, tokens)
        found, model = step_logits(folders / kind, prompt, tokens)
        assert np.abs(found - want).max() < NEAR[kind] * np.ptp(want)
    assert model.decoder.cache_bytes(100) * PARTS[kind] == plain.decoder.cache_bytes(100)
    assert "numpy" not in str(model.decoder.session.explain())


@pytest.mark.parametrize("kind", list(PARTS))
def test_rows_of_a_batch_are_read_as_alone_behind_rewinding_and_import(folders, kind):
    model = og.Model(folders / kind)
    alone = [step_logits(folders / kind, prompt, [9, 8])[0][-1] for prompt in PROMPTS]
    state = model.decoder.new_state()
    for row, prompt in enumerate(PROMPTS):
        state.add_row()
        state.read(row, np.array([*prompt, 77], np.int64))
        state.rewind(row, len(prompt))
    kept = state.export_row(0)
    state.drop_row(0)  # the last row stands in its place
    state.import_row(kept)
    state.step(np.full(3, 9))
    found = state.step(np.full(3, 8))
    # prompts were read with a token more, which may sum in another order, and change the last bit that a cache keeps
    bounds = [NEAR[kind] * np.ptp(each) for each in alone]
    for row, place in enumerate((2, 1, 0)):
        np.testing.assert_allclose(found[row], alone[place], atol=bounds[place])


def test_integers_in_caches_are_read_by_onnxruntime_as_here(folders):
    file = folders / CacheType.INT8 / "model.onnx"
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    tokens = np.array([PROMPTS[2]], np.int64)
    feeds = {each.name: np.zeros((1, each.shape[1], 0, each.shape[3]), np.int8) for each in session.get_inputs()[2:]}
    feeds |= {"input_ids": tokens, "attention_mask": np.ones_like(tokens)}
    want, *presents = session.run(None, feeds)
    assert presents[0].dtype == np.int8
    model = og.Model(folders / CacheType.INT8)
    state = model.decoder.new_state()
    state.add_row()
    np.testing.assert_allclose(state.read_all(0, tokens[0]), want[0], atol=1e-4)


def test_build_writes_such_caches_and_an_engine_runs_them(tmp_path, folders):
    source = built("qwen3").parent / "qwen3-source"
    build(source, tmp_path / "out", BuildOptions(precision=Precision.FP32, caches=CacheType.INT8))
    model = og.Model(tmp_path / "out")
    assert {each.dtype for each in model.decoder.caches} == {np.dtype(np.int8)}
    with og.AsyncEngine(model) as engine:
        asked = [engine.submit(prompt, og.GenerationOptions(max_tokens=6)) for prompt in PROMPTS]
        together = [[piece.token for piece in request if isinstance(piece, og.Piece)] for request in asked]
        again = [
            [piece.token for piece in engine.submit(prompt, og.GenerationOptions(max_tokens=6))
             if isinstance(piece, og.Piece)]
            for prompt in PROMPTS
        ]  # fmt: skip
    assert together == again


def test_what_cannot_be_changed_is_refused(tmp_path, folders):
    with pytest.raises(InvalidModelFolder, match="another type"):
        write_with_caches(folders / CacheType.INT8, tmp_path / "again", CacheType.FP16)
    with pytest.raises(InvalidModelFolder, match="is there already"):
        write_with_caches(built("llama"), folders / CacheType.INT8, CacheType.FP16)
    with pytest.raises(InvalidModelFolder, match="is not a folder"):
        write_with_caches(tmp_path / "none", tmp_path / "out", CacheType.FP16)
    assert sorted(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", list(PARTS))
def test_a_prompt_gives_the_same_logits_however_it_is_cut(folders, kind):
    """Keys and values of a step are rounded before they are attended, as later steps find them."""
    model, prompt = og.Model(folders / kind), np.array(PROMPTS[2], np.int64)
    found = []
    for cuts in ((), (1,), (5, 11), tuple(range(1, len(prompt)))):
        state = model.decoder.new_state()
        state.add_row()
        for part in np.split(prompt, cuts):
            last = state.read(0, part)
        found.append(last)
    for each in found[1:]:
        np.testing.assert_allclose(each, found[0], atol=1e-4)
