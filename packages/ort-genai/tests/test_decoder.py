"""What a decoder reads is the same however its caches lie, and a step runs the model by one native call."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from genai_built import built, built_wide
from onnx import TensorProto, helper

import ort_genai as og
from ort_genai import decoder_states
from ort_genai.appended_state import AppendedState
from ort_genai.decoder_states import SharedState
from ort_genai.graph_wiring import find_wiring
from ort_genai.mask_use import takes_lengths_alone
from ort_genai.row_inputs import RowInputs, stacked

A = [7, 101, 33, 250, 12]
FAMILIES = ("llama", "mistral", "gemma2", "gemma3", "phi3", "qwen3", "gpt2", "qwen3_moe")


def read(state, rows, steps):
    """Return logits of rows that are read one by one, then together, (steps, rows, vocabulary)."""
    found = []
    for row in rows:
        place = state.add_row()
        found.append(state.read(place, np.array(row, np.int64)))
    all_logits = [np.stack(found)]
    for _ in range(steps):
        all_logits.append(state.step(all_logits[-1].argmax(-1)).copy())
    return np.stack(all_logits)


@pytest.mark.parametrize("family", FAMILIES)
def test_caches_that_stay_give_what_caches_that_grow_give(family):
    decoder = og.Model(built(family)).decoder
    assert decoder.takes_long_masks
    assert decoder.shares_caches
    rows = [A, A * 3, [9]]
    found = read(SharedState(decoder), rows, 70)  # beyond the first 64 positions
    np.testing.assert_allclose(found, read(AppendedState(decoder), rows, 70), rtol=1e-4, atol=1e-4)


def test_steps_use_the_arrays_of_the_step_before_until_the_caches_grow():
    state = SharedState(og.Model(built()).decoder)
    state.add_row()
    state.read(0, np.array(A, np.int64))
    state.step(np.array([3]))
    feeds, cache = state.last_feeds, state.cache("present.0.key")
    state.step(np.array([4]))
    assert all(state.last_feeds[name] is array for name, array in feeds.items())
    assert np.shares_memory(state.cache("past_key_values.0.key"), cache)
    assert state.cache("present.0.key").shape[2] == 64
    for _ in range(64):
        state.step(np.array([5]))
    assert state.cache("present.0.key").shape[2] == 128


def test_caches_have_room_for_the_longest_row_alone_and_grow_once_for_a_prompt(monkeypatch):
    decoder = og.Model(built()).decoder
    prompt = np.resize(A, 100).astype(np.int64)
    grown: list[int] = []

    def capacity_of(longest: int | None) -> int:
        state = SharedState(decoder, longest)
        state.add_row()
        bind = state._bind
        monkeypatch.setattr(state, "_bind", lambda *run: (grown.append(state._capacity()), bind(*run))[1])
        state.read(0, prompt)
        found = state.step(np.array([3]))
        other = AppendedState(decoder)
        other.add_row()
        other.read(0, prompt)
        np.testing.assert_allclose(found, other.step(np.array([3])), rtol=1e-4, atol=1e-4)
        return state.cache("present.0.key").shape[2]

    assert capacity_of(None) == 128
    monkeypatch.setattr(decoder_states, "_STEP", 8)
    monkeypatch.setattr(decoder_states, "_CHUNK", 32)  # the prompt is read in four parts
    grown.clear()
    assert capacity_of(105) == 112
    assert set(grown) == {112}
    assert capacity_of(100) == 104  # further than it was said to go, as texts that are guessed do


def test_a_step_is_one_native_program():
    decoder = og.Model(built()).decoder
    placement = str(decoder.session.explain())
    assert "native" in placement
    assert "numpy" not in placement, placement


def test_memory_of_the_last_row_is_given_back():
    state = SharedState(og.Model(built()).decoder)
    for _ in range(2):
        state.add_row()
        state.read(len(state.lengths) - 1, np.array(A * 20, np.int64))
    state.drop_row(0)
    assert state.cache("present.0.key").nbytes
    state.drop_row(0)
    assert state.cache("present.0.key").nbytes == 0
    state.add_row()
    alone = SharedState(state._decoder)
    alone.add_row()
    np.testing.assert_array_equal(state.read(0, np.array(A)), alone.read(0, np.array(A)))


def test_what_memory_will_be_taken_is_what_is_taken():
    decoder = og.Model(built_wide()).decoder
    state = SharedState(decoder)
    for count in (3, 100, 700):
        state.add_row()
        state.read(len(state.lengths) - 1, np.arange(count) % 280)
        taken = sum(state._arrays[place].nbytes for place in range(len(state._arrays)))
        assert taken == state.nbytes_for(len(state.lengths), max(state.lengths))


@pytest.mark.parametrize("reader", ["Shape", "ReduceSum", "Mul", "If"])
def test_masks_that_are_read_otherwise_stay_as_long_as_what_was_read(reader, tmp_path):
    model = onnx.load(built() / "model.onnx", load_external_data=False)
    assert takes_lengths_alone(find_wiring(built() / "model.onnx"), "attention_mask")
    if reader == "Mul":
        model.graph.node.append(helper.make_node("Mul", ["attention_mask", "attention_mask"], ["more"]))
    elif reader == "If":  # as of rotations for long contexts: which body runs may depend on the length
        body = helper.make_graph([], "body", [], [])
        model.graph.node.append(helper.make_node("If", ["long"], [], then_branch=body, else_branch=body))
    else:
        model.graph.node.append(helper.make_node(reader, ["attention_mask"], ["more"]))
        model.graph.output.append(helper.make_tensor_value_info("more", TensorProto.INT64, None))
    onnx.save(model, tmp_path / "model.onnx")
    assert not takes_lengths_alone(find_wiring(tmp_path / "model.onnx"), "attention_mask")
    assert not takes_lengths_alone(find_wiring(model.SerializeToString()), "attention_mask")


def test_a_graph_that_cannot_be_read_is_taken_to_read_anything(tmp_path):
    (tmp_path / "model.ort").write_bytes(b"\xff" * 99)
    assert not takes_lengths_alone(find_wiring(tmp_path / "model.ort"), "attention_mask")


def test_an_input_without_axes_is_the_same_for_all_rows():
    rows = [RowInputs(further={"scale": np.float32(2.0), "row": np.full((1, 2), place)}) for place in range(3)]
    found = stacked(rows)
    assert found["scale"] == 2.0
    assert found["row"].tolist() == [[0, 0], [1, 1], [2, 2]]
