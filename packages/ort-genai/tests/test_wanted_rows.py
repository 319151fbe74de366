"""A prompt computes the logits of its last tokens alone, and nobody sees it: numbers are those of all of them."""

from __future__ import annotations

import gc
import json
import logging
import weakref

import numpy as np
import onnx
import onnxruntime
import pytest
from genai_built import built
from onnx import TensorProto, helper

import ort_core
import ort_genai as og
from ort_genai.builder.precision_names import Precision
from ort_genai.decoder import _refuse_sessions
from ort_genai.graph_wiring import find_wiring, wiring_of
from ort_genai.paging.paged_inputs import WANTED
from ort_genai.prompt_parts import FEW_ROWS
from ort_genai.wanted_rows import NotGathered, with_wanted_rows

ROWS = FEW_ROWS + 1
TOKENS = ("inputs_embeds", "input_ids")
PROMPT = np.random.default_rng(7).integers(3, 250, 60)


def rewired(model: onnx.ModelProto) -> bytes:
    content = model.SerializeToString()
    return with_wanted_rows(content, wiring_of(content), TOKENS, "logits")


def graph_of(folder):
    return onnx.load(folder / "model.onnx", load_external_data=False)


def model_of(folder, *, gathers=True, **overlay):
    """Return a model; without gathering its graph gives all logits, as it did before."""
    config = og.Config(folder)
    if not overlay.get("is_shared", True):
        config.overlay('{"search": {"past_present_share_buffer": false}}')
    model = og.Model(config)
    if not gathers:
        model.decoder.give_all()
    assert model.decoder.gathers
    return model


def begun(model, tokens=PROMPT, **options):
    params = og.GeneratorParams(model)
    params.set_search_options(**{"max_length": 120, "do_sample": False, **options})
    generator = og.Generator(model, params)
    generator.append_tokens(np.asarray(tokens, np.int32))
    return generator


def plain_logits(folder, tokens):
    """Return logits of all tokens, of the file as it is."""
    session = og.Model(folder).decoder.open_like((folder / "model.onnx").read_bytes())
    feeds = {"input_ids": np.array([tokens])}
    for each in session.get_inputs():
        if len(each.shape) == 4:
            feeds[each.name] = np.zeros((1, each.shape[1], 0, each.shape[3]), np.float32)
        elif each.name != "input_ids":
            feeds[each.name] = np.arange(len(tokens))[None] if "pos" in each.name else np.ones((1, len(tokens)), int)
    return session.run(["logits"], feeds)[0]


# ------------------------------------------------------------ the graph


@pytest.mark.parametrize("family", ["llama", "gemma2", "granite"])
def test_bytes_are_changed_as_the_library_onnx_would_change_them(family):
    model = graph_of(built(family))
    before = model.SerializeToString()
    found = onnx.load_from_string(with_wanted_rows(before, wiring_of(before), TOKENS, "logits"))
    place = next(i for i, each in enumerate(model.graph.node) if "lm_head" in each.name and "MatMul" in each.op_type)
    head = model.graph.node[place]
    source, head.input[0] = head.input[0], "logits/wanted"
    gather = helper.make_node("Gather", [source, WANTED], ["logits/wanted"], name="logits/wanted/Gather", axis=1)
    model.graph.node.insert(place, gather)
    model.graph.input.append(helper.make_tensor_value_info(WANTED, TensorProto.INT64, ["wanted"]))
    (logits,) = [each for each in model.graph.output if each.name == "logits"]
    logits.type.tensor_type.shape.dim[1].dim_param = "wanted"
    behind = {name for node in model.graph.node[place:] for name in node.output} - {"logits/wanted"}
    kept = [each for each in model.graph.value_info if each.name not in behind]
    del model.graph.value_info[:]
    model.graph.value_info.extend(kept)
    assert found == model


@pytest.mark.parametrize("family", ["llama", "gemma2", "granite", "phi3"])
def test_onnxruntime_runs_the_changed_graph_and_gives_the_wanted_rows(family, tmp_path):
    folder = built(family)
    model = onnx.load(folder / "model.onnx")  # with its weights
    (tmp_path / "model.onnx").write_bytes(rewired(model))
    feeds = {"input_ids": PROMPT[None, :9], "attention_mask": np.ones((1, 9), np.int64)}
    whole = onnxruntime.InferenceSession(folder / "model.onnx")
    for each in whole.get_inputs():
        if each.name.startswith("past"):
            feeds[each.name] = np.zeros((1, each.shape[1], 0, each.shape[3]), np.float32)
        elif each.name == "position_ids":
            feeds[each.name] = np.arange(9)[None]
    wanted = np.array([8, 2, 3])
    (expected,) = whole.run(["logits"], feeds)
    (found,) = onnxruntime.InferenceSession(tmp_path / "model.onnx").run(["logits"], {**feeds, WANTED: wanted})
    np.testing.assert_allclose(found, expected[:, wanted], rtol=1e-5, atol=1e-5)


def head_graph(*nodes, outputs=(), sizes=("batch", "sequence", 6), tokens=("batch", "sequence")):
    """Return a model of a lookup, and nodes behind it that give logits."""
    table, weight = (np.zeros(shape, np.float32) for shape in ((9, 4), (4, 6)))
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "input_ids"], ["hidden"]), *nodes],
        "decoder",
        [helper.make_tensor_value_info("input_ids", TensorProto.INT64, tokens)],
        [
            helper.make_tensor_value_info("logits", TensorProto.FLOAT, sizes),
            *(helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs),
        ],
        [onnx.numpy_helper.from_array(table, "table"), onnx.numpy_helper.from_array(weight, "weight"),
         onnx.numpy_helper.from_array(np.ones(6, np.float32), "bias")],
    )  # fmt: skip
    return helper.make_model(graph)


def node(op_type, inputs, output, **attributes):
    return helper.make_node(op_type, inputs.split(), [output], **attributes)


HEAD = node("MatMul", "hidden weight", "logits")
BODY = helper.make_graph([], "body", [], [helper.make_tensor_value_info("hidden", TensorProto.FLOAT, None)])


@pytest.mark.parametrize(
    "nodes",
    [
        [HEAD],
        [node("MatMul", "hidden weight", "a"), node("Add", "a bias", "b"), node("Tanh", "b", "logits")],
        [node("Transpose", "weight", "t"), node("Transpose", "t", "u"), node("MatMul", "hidden u", "logits")],
        [HEAD, node("Identity", "hidden", "hidden_states")],
    ],
    ids=["product", "tail", "turned weights", "vectors"],
)
def test_heads_whose_rows_may_be_left_out_get_a_gather(nodes):
    found = onnx.load_from_string(rewired(head_graph(*nodes)))
    onnx.checker.check_model(found)
    assert [each.op_type for each in found.graph.node].count("Gather") == 2


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (lambda: head_graph(node("MatMul", "hidden weight", "a"), node("Softmax", "a", "logits", axis=1)), "not those"),
        (lambda: head_graph(node("MatMul", "hidden hidden", "logits")), "not those of a product"),
        (lambda: head_graph(node("MatMul", "weight hidden", "logits")), "not those of a product"),
        (lambda: head_graph(node("MatMul", "hidden weight", "a"), node("Mul", "a a", "logits")), "not those"),
        (lambda: head_graph(node("MatMul", "hidden weight", "a"), node("Abs", "a", "more"),
                            node("Tanh", "a", "logits")), "something else reads"),
        (lambda: head_graph(node("MatMul", "hidden weight", "a"), node("Tanh", "a", "logits"), outputs=["a"]),
         "something else reads"),
        (lambda: head_graph(HEAD, node("ArgMax", "logits", "best")), "something else reads"),
        (lambda: head_graph(HEAD, sizes=("batch", 1, 6)), "not as many as there are"),
        (lambda: head_graph(HEAD, sizes=("batch", "one", 6)), "not as many as there are"),
        (lambda: head_graph(HEAD, sizes=("batch", None, 6), tokens=("batch", None)), "not as many as there are"),
        (lambda: head_graph(HEAD, helper.make_node("If", ["c"], ["x"], then_branch=BODY, else_branch=BODY)), "a body"),
        (lambda: head_graph(HEAD, node("Abs", "logits/wanted", "x")), "of its own"),
    ],
    ids=["softmax", "squares", "turned", "two", "reader", "output", "choice", "last", "other", "none", "body", "name"],
)  # fmt: skip
def test_a_head_that_does_not_fit_says_why(made, reason):
    with pytest.raises(NotGathered, match=reason):
        rewired(made())


def test_a_graph_that_does_not_fit_gives_all_logits_and_the_log_says_so(tmp_path, caplog):
    folder = built("llama3")
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    model = graph_of(folder)
    model.graph.node.append(helper.make_node("ArgMax", ["logits"], ["best"], axis=-1))
    model.graph.output.append(helper.make_tensor_value_info("best", TensorProto.INT64, None))
    onnx.save(model, tmp_path / "model.onnx")
    with caplog.at_level(logging.INFO, "ort_genai"):
        other = og.Model(tmp_path)
    assert "logits of all of its tokens" in caplog.text
    assert "something else reads what its head gives" in caplog.text
    assert not other.decoder.gathers
    found, expected = begun(other), begun(model_of(folder))
    assert found._state.last_logits.shape[1] == len(PROMPT)
    np.testing.assert_array_equal(found.get_logits(), expected.get_logits())


@pytest.mark.parametrize(
    ("overlay", "reason"),
    [
        ({"ep.context_enable": "0"}, "writes a compiled model"),
        ({"provider_options": [{"cuda": {}}]}, "for processors alone"),
    ],
    ids=["compiled", "provider"],
)
def test_sessions_of_another_kind_have_the_graph_of_the_file(overlay, reason):
    config = og.Config(built())
    config.overlay(json.dumps({"model": {"decoder": {"session_options": overlay}}}))
    with pytest.raises(NotGathered, match=reason):
        _refuse_sessions(config)


FLAT_SHAPES = [
    helper.make_node("Shape", ["input_ids"], ["ids"]),
    helper.make_node("Concat", ["ids", "columns"], ["three"], axis=0),
]


def flat_graph(*nodes, sizes=("batch", "sequence", 6), tokens=("batch", "sequence"), behind=FLAT_SHAPES):
    """Return a model of a lookup whose rows lie in one matrix before ``nodes`` give logits of them."""
    rng = np.random.default_rng(3)
    weights = {
        "table": rng.standard_normal((9, 4)).astype(np.float32),
        "weight": rng.standard_normal((4, 6)).astype(np.float32),
        "turned": rng.standard_normal((6, 4)).astype(np.float32),
        "bias": rng.standard_normal(6).astype(np.float32),
        "flat": np.array([-1, 4]),
        "columns": np.array([6]),
    }
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "input_ids"], ["hidden"]),
         helper.make_node("Reshape", ["hidden", "flat"], ["rows"]), *behind, *nodes],
        "decoder",
        [helper.make_tensor_value_info("input_ids", TensorProto.INT64, tokens)],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, sizes)],
        [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()],
    )  # fmt: skip
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def fused(inputs, output, **attributes):
    return node("FusedMatMul", inputs, output, domain="com.microsoft", **attributes)


@pytest.mark.parametrize(
    "nodes",
    [
        [node("Gemm", "rows weight bias", "a"), node("Reshape", "a three", "logits")],
        [node("Gemm", "rows turned bias", "a", transB=1, alpha=0.5), node("Reshape", "a three", "logits")],
        [node("MatMul", "rows weight", "a"), node("Add", "a bias", "b"), node("Reshape", "b three", "logits")],
        [node("Gemm", "rows weight", "a"), node("Reshape", "a three", "b"), node("Tanh", "b", "logits")],
        [fused("hidden turned", "logits", transB=1, alpha=2.0)],
    ],
    ids=["matrix", "turned weights", "product", "tail", "fused"],
)
@pytest.mark.parametrize("library", [onnxruntime, ort_core], ids=["onnxruntime", "ort_core"])
def test_heads_that_multiply_one_matrix_give_the_wanted_rows(nodes, library):
    model = flat_graph(*nodes)
    changed = rewired(model)
    onnx.checker.check_model(onnx.load_from_string(changed), full_check=True)
    ids, wanted = np.random.default_rng(1).integers(0, 9, (3, 7)), np.array([6, 0, 2])
    (expected,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"input_ids": ids})
    session = library.InferenceSession(changed, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"input_ids": ids, WANTED: wanted})
    np.testing.assert_allclose(found, expected[:, wanted], rtol=1e-5, atol=1e-5)
    (one,) = session.run(None, {"input_ids": ids[:1], WANTED: wanted[:1]})
    np.testing.assert_allclose(one, expected[:1, wanted[:1]], rtol=1e-5, atol=1e-5)


def test_rows_of_vectors_that_are_fed_are_found_in_one_matrix():
    model = flat_graph(node("Gemm", "rows weight bias", "a"), node("Reshape", "a three", "logits"), behind=[
        node("Shape", "input_ids", "ids"), node("Slice", "ids zero two", "both"),
        helper.make_node("Concat", ["both", "columns"], ["three"], axis=0),
    ])  # fmt: skip
    del model.graph.node[0]
    model.graph.node[0].input[0] = "input_ids"
    vectors = helper.make_tensor_value_info("input_ids", TensorProto.FLOAT, ["batch", "sequence", 4])
    model.graph.input[0].CopyFrom(vectors)
    for name, number in (("zero", 0), ("two", 2)):
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([number]), name))
    x, wanted = np.random.default_rng(1).standard_normal((2, 5, 4)).astype(np.float32), np.array([4, 1])
    (expected,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"input_ids": x})
    (found,) = onnxruntime.InferenceSession(rewired(model)).run(None, {"input_ids": x, WANTED: wanted})
    np.testing.assert_allclose(found, expected[:, wanted], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("nodes", "sizes", "reason"),
    [
        ([node("Gemm", "rows weight", "a", transA=1), node("Reshape", "a three", "logits")], None, "not those of a"),
        ([fused("hidden weight", "logits", transA=1)], None, "not those of a product"),
        ([fused("hidden weight", "logits", transBatchA=1)], None, "not those of a product"),
        ([node("Gemm", "rows weight", "logits")], None, "not those of a product"),
        ([node("Gemm", "rows weight", "a"), node("Reshape", "a three", "b"), node("Reshape", "b three", "logits")],
         None, "not those of a product"),
        ([node("Gemm", "rows weight", "a"), node("Reshape", "a three", "logits")], ("batch", "sequence", 3), "6 col"),
        ([node("Gemm", "rows weight", "a"), node("Reshape", "a three", "logits")], ("other", "sequence", 6), "6 col"),
        ([node("Gemm", "rows weight", "a"), node("Shape", "a", "s"), node("Reshape", "a three", "logits")], None,
         "something else reads"),
        ([node("Gemm", "rows weight", "a"), node("Reshape", "flat a", "logits")], None, "not those of a product"),
        ([node("Gemm", "rows weight turned", "a"), node("Reshape", "a three", "logits")], None, "not those of a"),
    ],
    ids=["turned", "turned rows", "turned batch", "matrix", "twice", "columns", "batch", "reader", "shape", "addend"],
)  # fmt: skip
def test_a_head_of_one_matrix_that_does_not_fit_says_why(nodes, sizes, reason):
    with pytest.raises(NotGathered, match=reason):
        rewired(flat_graph(*nodes, **({} if sizes is None else {"sizes": sizes})))


# ------------------------------------------------------------ what users see


@pytest.mark.parametrize("is_shared", [True, False], ids=["shared", "appended"])
@pytest.mark.parametrize(
    ("family", "precision"),
    [("llama", Precision.FP32), ("gemma2", Precision.FP32), ("llama", Precision.INT4), ("llama", Precision.BF16)],
)
@pytest.mark.parametrize("count", [1, 2, FEW_ROWS, ROWS, ROWS + 1, 60])
def test_logits_are_bit_for_bit_those_of_a_run_that_gives_all(family, precision, count, is_shared):
    folder, found = built(family, precision), []
    for gathers in (True, False):
        generator = begun(model_of(folder, gathers=gathers, is_shared=is_shared), PROMPT[:count])
        rows = generator._state.last_logits.shape[1]
        assert rows == (min(count, ROWS) if gathers else count)
        whole, told = generator.get_output("logits"), generator.get_logits()
        assert whole.shape == (1, count, generator._decoder.vocab_size)
        np.testing.assert_array_equal(whole[:, -1].astype(np.float32), told[:, 0])
        for _ in range(6):
            generator.generate_next_token()
        found.append((whole, told, generator.get_output("logits"), generator.get_sequence(0)))
    for mine, theirs in zip(*found, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_all_logits_are_those_of_the_file_as_it_is():
    folder = built()
    np.testing.assert_array_equal(begun(model_of(folder)).get_output("logits"), plain_logits(folder, PROMPT))


def test_asking_for_all_logits_changes_nothing_that_follows():
    folder = built(precision=Precision.INT4)
    asking, other = begun(model_of(folder)), begun(model_of(folder))
    caches = asking.get_output("present.0.key")
    asking.get_output("logits")
    np.testing.assert_array_equal(asking.get_output("present.0.key"), caches)
    assert asking.get_input("input_ids").shape == (1, len(PROMPT))
    for each in (asking, other):
        for _ in range(10):
            each.generate_next_token()
        each.append_tokens(PROMPT[:30].astype(np.int32))
    np.testing.assert_array_equal(asking.get_logits(), other.get_logits())
    np.testing.assert_array_equal(asking.get_output("present.1.value"), other.get_output("present.1.value"))
    np.testing.assert_array_equal(asking.get_output("logits"), other.get_output("logits"))


def test_who_asks_once_gets_all_logits_of_later_prompts_in_one_run():
    model = model_of(built())
    assert begun(model)._state.last_logits.shape[1] == ROWS
    begun(model).get_output("logits")
    assert begun(model)._state.last_logits.shape[1] == len(PROMPT)


@pytest.mark.parametrize("is_shared", [True, False], ids=["shared", "appended"])
def test_all_logits_are_told_behind_what_was_rewound_or_told_to_end(is_shared):
    folder = built()
    expected = begun(model_of(folder, gathers=False)).get_output("logits")
    ended = begun(model_of(folder, is_shared=is_shared))
    ended.set_runtime_option("terminate_session", "1")
    np.testing.assert_array_equal(ended.get_output("logits"), expected)
    rewound = begun(model_of(folder, is_shared=is_shared))
    rewound.rewind_to(20)
    np.testing.assert_array_equal(rewound.get_output("logits"), expected)
    rewound.append_tokens(PROMPT[20:].astype(np.int32))
    other = begun(model_of(folder, is_shared=is_shared))
    np.testing.assert_allclose(rewound.get_logits(), other.get_logits(), rtol=1e-4, atol=1e-4)


def test_beams_and_batches_get_the_logits_of_their_last_row():
    folder, rows = built(), np.stack([PROMPT[:30], PROMPT[30:]])
    for options in ({"batch_size": 2}, {"batch_size": 2, "num_beams": 2}):
        found, expected = (begun(model_of(folder, gathers=each), rows, **options) for each in (True, False))
        for generator in (found, expected):
            generator.generate_next_token()  # beams are put in order; the rows were not read yet
        np.testing.assert_array_equal(found.get_output("logits"), expected.get_output("logits"))
        for generator in (found, expected):
            while not generator.is_done():
                generator.generate_next_token()
        for row in range(2):
            np.testing.assert_array_equal(found.get_sequence(row), expected.get_sequence(row))


def test_a_run_that_failed_leaves_no_logits_of_the_one_before_it():
    generator = begun(model_of(built()), max_length=128)
    generator.set_runtime_option("terminate_session", "1")
    with pytest.raises(RuntimeError):
        generator.append_tokens(np.resize(PROMPT, 60).astype(np.int32))
    with pytest.raises(RuntimeError, match="was not found"):
        generator.get_output("logits")


@pytest.mark.parametrize("is_shared", [True, False], ids=["shared", "appended"])
def test_caches_go_with_their_generator(is_shared):
    generator = begun(model_of(built(), is_shared=is_shared))
    state = weakref.ref(generator._state)
    gc.disable()
    try:
        del generator
        assert state() is None, "caches are large, and nothing is to wait for the collector"
    finally:
        gc.enable()


def test_a_session_that_was_let_go_of_gathers_when_it_is_opened_again():
    model = model_of(built())
    before = begun(model).get_logits()
    model.decoder.release_session()
    again = begun(model)
    assert again._state.last_logits.shape[1] == ROWS
    np.testing.assert_array_equal(again.get_logits(), before)


def test_a_graph_with_large_weights_within_is_not_looked_at(tmp_path):
    with (tmp_path / "model.onnx").open("wb") as file:
        file.truncate((64 << 20) + 1)
    assert find_wiring(tmp_path / "model.onnx") is None


def test_a_graph_with_weights_within_stays_as_it_is():
    model = head_graph(HEAD)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros(17 << 20, np.uint8), "more"))
    with pytest.raises(NotGathered, match="17 MB, with weights within"):
        rewired(model)


def test_a_folder_of_links_gathers_too_and_runs_over_blocks(tmp_path):
    folder, blobs, links = built("granite"), tmp_path / "blobs", tmp_path / "snapshots" / "one"
    blobs.mkdir()
    links.mkdir(parents=True)
    for number, file in enumerate(folder.iterdir()):
        (blobs / str(number)).write_bytes(file.read_bytes())
        try:
            (links / file.name).symlink_to(f"../../blobs/{number}")
        except OSError as error:
            pytest.skip(f"this system allows no symbolic links: {error}")
    model = model_of(links)
    np.testing.assert_array_equal(begun(model).get_logits(), begun(model_of(folder)).get_logits())
    assert model.decoder.paged is not None
