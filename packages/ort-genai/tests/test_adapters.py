"""LoRA weights go into a running generation, and out again."""

from __future__ import annotations

import itertools
import shutil

import numpy as np
import onnx
import pytest
from genai_built import built
from genai_generation_cases import A
from onnx import TensorProto, helper, numpy_helper
from starlette.testclient import TestClient

import ort_core
import ort_genai as og
from ort_genai.errors import InvalidGeneration
from ort_genai.server.app import ServerOptions, application


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model whose head has inputs for LoRA weights, empty where none are given."""
    folder = tmp_path_factory.mktemp("adapted") / "model"
    shutil.copytree(built(), folder)
    model = onnx.load(folder / "model.onnx")
    head = next(node for node in model.graph.node if node.output[0] == "logits")
    hidden, vocabulary = 64, 288
    for name, shape in (("lora_A", (hidden, 0)), ("lora_B", (0, vocabulary))):
        model.graph.initializer.append(numpy_helper.from_array(np.zeros(shape, np.float32), name))
        sizes = ["rank" if size == 0 else size for size in shape]
        model.graph.input.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, sizes))
    head.output[0] = "plain"
    model.graph.node.extend(
        [
            helper.make_node("MatMul", [head.input[0], "lora_A"], ["low"]),
            helper.make_node("MatMul", ["low", "lora_B"], ["added"]),
            helper.make_node("Add", ["plain", "added"], ["logits"]),
        ]
    )
    onnx.save(model, folder / "model.onnx")
    return folder


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Two adapter files."""
    found, random = [], np.random.default_rng(3)
    for number in range(2):
        made = ort_core.AdapterFormat()
        made.set_parameters(
            {
                name: ort_core.OrtValue.ortvalue_from_numpy(random.standard_normal(shape).astype(np.float32))
                for name, shape in (("lora_A", (64, 4)), ("lora_B", (4, 288)))
            }
        )
        path = tmp_path_factory.mktemp("files") / f"{number}.onnx_adapter"
        made.export_adapter(str(path))
        found.append(str(path))
    return found


def generated(model, adapters=None, names=()):
    params = og.GeneratorParams(model)
    params.set_search_options(max_length=len(A) + 9, do_sample=False)
    generator = og.Generator(model, params)
    for place in range(3):
        if place < len(names) and names[place]:
            generator.set_active_adapter(adapters, names[place])
        if place == 0:
            generator.append_tokens(np.array(A, np.int32))
        for _ in range(3):
            generator.generate_next_token()
    return generator.get_sequence(0)[len(A) :].tolist()


def test_an_adapter_changes_the_tokens_and_another_one_takes_over_in_between(folder, files):
    model = og.Model(folder)
    adapters = og.Adapters(model)
    for name, file in zip("ab", files, strict=True):
        adapters.load(file, name)
    plain = generated(og.Model(built()))
    assert generated(model) == plain
    first, second, both = (generated(model, adapters, names) for names in (("a",), ("b",), ("a", "b")))
    assert len({tuple(each) for each in (plain, first, second)}) == 3
    assert both[:3] == first[:3]
    assert both != first
    adapters.unload("a")
    with pytest.raises(InvalidGeneration, match="Adapter not found: a; loaded: b"):
        generated(model, adapters, ("a",))
    with pytest.raises(InvalidGeneration, match="already loaded"):
        adapters.load(files[0], "b")


def test_guesses_that_were_read_with_another_adapter_are_read_again(folder, files):
    model, found = og.Model(folder), []
    adapters = og.Adapters(model)
    for name, file in zip("ab", files, strict=True):
        adapters.load(file, name)
    for drafting in ({}, {"ngram_size": 1, "max_draft_tokens": 9, "ngram_chained_lookup": True}):
        params = og.GeneratorParams(model)
        params.set_search_options(max_length=120, repetition_penalty=0.1)  # what came before comes again
        params.set_speculative_options(**drafting)
        generator, names = og.Generator(model, params), itertools.cycle("ab")
        generator.append_tokens(np.array([1, 2, 3, 1, 2, 3, 1, 2, 3]))
        while not generator.is_done():
            if generator.token_count() % 3 == 0:
                generator.set_active_adapter(adapters, next(names))
            generator.generate_next_token()
        found.append((generator.get_sequence(0).tolist(), generator.get_logits()))
    assert found[0][0] == found[1][0]
    np.testing.assert_allclose(found[0][1], found[1][1], atol=1e-4)


def test_a_run_that_is_to_end_ends(folder):
    model = og.Model(folder)
    generator = og.Generator(model, og.GeneratorParams(model))
    generator.append_tokens(np.array(A, np.int32))
    generator.generate_next_token()
    generator.set_runtime_option("terminate_session", "1")
    with pytest.raises(ort_core.OrtError, match=r"(?i)terminate"):
        generator.generate_next_token()
    generator.set_runtime_option("terminate_session", "0")
    generator.generate_next_token()


def test_requests_of_one_engine_run_with_adapters_of_their_own(folder, files):
    model = og.Model(folder)
    adapters = og.Adapters(model)
    for name, file in zip("ab", files, strict=True):
        adapters.load(file, name)

    def options(name):
        return og.GenerationOptions(max_tokens=12, min_tokens=12, adapter=name)

    alone, prompt = {}, [*A, *A, *A, *A]
    for name in ("", "a", "b"):
        with og.AsyncEngine(model, adapters=adapters) as engine:
            alone[name] = [piece.token for piece in engine.submit(prompt, options(name))]
    assert len({tuple(each) for each in alone.values()}) == 3
    with og.AsyncEngine(model, adapters=adapters) as engine:
        names = ["a", "", "b", "b", "", "a", "b"]
        asked = [engine.submit(prompt, options(name)) for name in names]
        assert [[piece.token for piece in request] for request in asked] == [alone[name] for name in names]
        assert asked[3].finished.cached_tokens == len(prompt) - 17, (
            "what one adapter read, a second request goes on from"
        )
        with pytest.raises(InvalidGeneration, match="Adapter not found: c; loaded: a, b"):
            engine.submit(A, options("c"))


def test_requests_with_other_adapters_wait_for_blocks_and_get_their_texts(folder, files, monkeypatch):
    for module in ("block_pool", "paged_states"):
        monkeypatch.setattr(f"ort_genai.paging.{module}.BLOCK_ROWS", 8)
    model = og.Model(folder)
    adapters = og.Adapters(model)
    for name, file in zip("ab", files, strict=True):
        adapters.load(file, name)
    block = model.decoder.paged.new_runs(model.decoder).pool.block_nbytes
    limits = og.EngineOptions(cache_bytes=12 * block, prefix_bytes=0)

    def ask(engine, name):
        return engine.submit([*A, *A], og.GenerationOptions(max_tokens=60, min_tokens=60, adapter=name))

    alone = {}
    for name in ("", "a", "b"):
        with og.AsyncEngine(model, limits, adapters=adapters) as engine:
            alone[name] = [piece.token for piece in ask(engine, name)]
    with og.AsyncEngine(model, limits, adapters=adapters) as engine:
        names = ["a", "b", "", "b"]
        asked = [ask(engine, name) for name in names]
        assert [[piece.token for piece in request] for request in asked] == [alone[name] for name in names]
        assert [request.finished.error for request in asked] == [""] * 4
        assert engine.current_counts().paused > 0, "blocks were enough for all"


def test_a_server_has_adapters_as_models(folder, files):
    model = og.Model(folder)
    adapters = og.Adapters(model)
    adapters.load(files[0], "adapted")
    with (
        og.AsyncEngine(model, adapters=adapters) as engine,
        TestClient(application(engine, ServerOptions("base"))) as client,
    ):
        assert [each["id"] for each in client.get("/v1/models").json()["data"]] == ["base", "adapted"]
        assert client.get("/v1/models/adapted").json()["id"] == "adapted"
        texts = {}
        for name in ("base", "adapted"):
            body = {"model": name, "prompt": A, "max_tokens": 12, "temperature": 0}
            answer = client.post("/v1/completions", json=body).json()
            assert answer["model"] == name
            texts[name] = answer["choices"][0]["text"]
        assert texts["base"] != texts["adapted"]
        assert client.post("/v1/completions", json={"model": "other", "prompt": A}).status_code == 404


def tokens_of(engine, prompt, name):
    options = og.GenerationOptions(max_tokens=12, min_tokens=12, adapter=name)
    return [piece.token for piece in engine.submit(prompt, options)]


def test_other_weights_under_a_name_are_not_mixed_with_those_that_it_had(folder, files):
    model, prompt = og.Model(folder), [*A, *A, *A, *A]
    adapters = og.Adapters(model)
    alone = []
    for file in files:
        adapters.load(file, "a")
        with og.AsyncEngine(model, adapters=adapters) as engine:
            alone.append(tokens_of(engine, prompt, "a"))
        adapters.unload("a")
    assert alone[0] != alone[1]
    adapters.load(files[0], "a")
    with og.AsyncEngine(model, adapters=adapters) as engine:
        assert tokens_of(engine, prompt, "a") == alone[0]
        running = engine.submit(prompt, og.GenerationOptions(max_tokens=300, min_tokens=300, adapter="a"))
        pieces = iter(running)
        found = [next(pieces).token for _ in range(2)]  # it runs, and keeps what it began with
        adapters.unload("a")
        adapters.load(files[1], "a")
        assert tokens_of(engine, prompt, "a") == alone[1]
        found += [piece.token for piece in pieces]
    assert found[:12] == alone[0]


def test_an_adapter_that_is_unloaded_ends_nobody(folder, files):
    model = og.Model(folder)
    adapters = og.Adapters(model)
    adapters.load(files[0], "a")
    with og.AsyncEngine(model, adapters=adapters) as engine:
        expected, plain = tokens_of(engine, A, "a"), tokens_of(engine, A, "")
    with og.AsyncEngine(model, og.EngineOptions(max_batch=1), adapters=adapters) as engine:
        options = og.GenerationOptions(max_tokens=60, min_tokens=60)
        first = engine.submit(A, options)
        waiting = engine.submit(A, og.GenerationOptions(max_tokens=12, min_tokens=12, adapter="a"))
        adapters.unload("a")
        assert [piece.token for piece in first][:12] == plain
        assert [piece.token for piece in waiting] == expected
