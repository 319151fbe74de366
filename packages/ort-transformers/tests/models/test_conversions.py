"""Conversions of transformers' models: files by onnxruntime's names, with torch's results in both engines."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from tiny_models import REASON, assert_close, onnxruntime_results, save_tiny, shapes_of

import ort_core

torch = pytest.importorskip("torch", reason=REASON)
pytest.importorskip("transformers", reason=REASON)
pytestmark = [
    pytest.mark.filterwarnings("default"),  # torch and transformers warn of one another
    pytest.mark.usefixtures("_quiet"),
]


@pytest.fixture
def _quiet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let a command write its tables into a folder of the test, and set up no log of its own."""
    monkeypatch.chdir(tmp_path)
    for name in ("gpt2", "t5", "whisper", "llama"):
        module = importlib.import_module(f"ort_transformers.models.{name}.convert_to_onnx")
        monkeypatch.setattr(module, "setup_logger", lambda verbose: None)
    module = importlib.import_module("ort_transformers.convert_generation")
    monkeypatch.setattr(module, "setup_logger", lambda verbose: None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tiny")


@pytest.fixture(scope="module")
def gpt2(folder: Path) -> str:
    return save_tiny("gpt2", folder)


@pytest.fixture(scope="module")
def t5(folder: Path) -> str:
    return save_tiny("t5", folder)


@pytest.fixture(scope="module")
def mt5(folder: Path) -> str:
    return save_tiny("mt5", folder)


@pytest.fixture(scope="module")
def whisper(folder: Path) -> str:
    return save_tiny("whisper", folder)


@pytest.fixture(scope="module")
def llama(folder: Path) -> str:
    return save_tiny("llama", folder)


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_gpt2_has_its_file_with_caches_and_a_row_of_results(gpt2, tmp_path, precision):
    convert = importlib.import_module("ort_transformers.models.gpt2.convert_to_onnx")
    given = ["-m", gpt2, "--output", str(tmp_path / "out"), "-o", "-p", precision, "-t", "6", "-r", "2"]
    row = convert.main(given, csv_filename=str(tmp_path / "rows.csv"))
    assert row["diff_pass_rate"] == 1.0
    assert (tmp_path / "rows.csv").read_text().count("\n") == 2
    name = "tiny-gpt2_past_fp32.onnx" if precision == "fp32" else "tiny-gpt2_past_int8/tiny-gpt2_past_int8.onnx"
    graph = onnx.load(tmp_path / "out" / name).graph
    cache = [2, "batch_size", 2, "past_seq_len", 8]
    assert shapes_of(graph.input) == {
        "input_ids": ["batch_size", "seq_len"], "position_ids": ["batch_size", "seq_len"],
        "attention_mask": ["batch_size", "total_seq_len"], "past_0": cache, "past_1": cache,
    }  # fmt: skip
    assert [each.name for each in graph.output] == ["logits", "present_0", "present_1"]
    kinds = [node.op_type for node in graph.node]
    assert (kinds.count("MultiHeadAttention"), kinds.count("Softmax")) == (2, 0)


@pytest.mark.parametrize("model_class", ["GPT2LMHeadModel", "GPT2LMHeadModel_NoPadding", "GPT2Model"])
def test_gpt2_gives_torchs_numbers_for_other_sizes_than_those_of_the_export(gpt2, tmp_path, model_class):
    helper = importlib.import_module("ort_transformers.models.gpt2.gpt2_helper")
    kind, first, padded = helper.MODEL_CLASSES[model_class]
    model = kind.from_pretrained(gpt2).eval()
    raw, fused = str(tmp_path / "raw.onnx"), str(tmp_path / "fused.onnx")
    gpt2_helper = helper.Gpt2Helper
    gpt2_helper.export_onnx(model, "cpu", raw, has_position_ids=padded, has_attention_mask=padded)
    gpt2_helper.optimize_onnx(raw, fused, False, 2, 16)
    assert onnx.load(raw).graph.output[0].name == first
    for batch, past, length in ((1, 0, 1), (3, 0, 5), (1, 4, 1), (3, 2, 3)):
        inputs = gpt2_helper.get_dummy_inputs(batch, past, length, 2, 16, 2, 51, "cpu", False, padded, padded)
        wanted, caches = gpt2_helper.pytorch_inference(model, inputs)
        for path in (raw, fused):
            session = ort_core.InferenceSession(path, providers=["CPUExecutionProvider"])
            for found in (
                gpt2_helper.onnxruntime_inference(session, inputs), onnxruntime_results(path, helper.feeds_of(inputs)),
            ):  # fmt: skip
                for one, other in zip(found, (wanted, *caches), strict=True):
                    assert_close(one, other.numpy(), "approximate")


@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize("kind", ["t5", "mt5"])
def test_t5_has_two_files_with_torchs_results(kind, older, tmp_path, request, caplog):
    convert = importlib.import_module("ort_transformers.models.t5.convert_to_onnx")
    source = request.getfixturevalue(kind)
    with caplog.at_level("WARNING", "ort_transformers"):
        paths = convert.export_onnx_models(
            source, None, str(tmp_path), optimize_onnx=True, model_type=kind, encoder_decoder_init=older
        )
    assert "not close" not in caplog.text
    first = "encoder_decoder_init" if older else "encoder"
    assert [Path(each).name for each in paths] == [f"tiny-{kind}_{each}_fp32.onnx" for each in (first, "decoder")]
    decoder = onnx.load(paths[1]).graph
    cross = ["batch_size", 2, "encode_sequence_length", 8]
    assert shapes_of(decoder.input)["past_key_cross_1"] == cross
    assert shapes_of(decoder.input)["past_value_self_0"] == ["batch_size", 2, "past_decode_sequence_length", 8]
    assert shapes_of(onnx.load(paths[0]).graph.output)["present_key_cross_0"] == cross


# BeamSearch divides a finished sentence's score by its whole length, transformers by that of what was generated: they
# may prefer other ones, so that sentences of beams may not end here before they are full.
FULL = ["--min_length", "20"]
SEARCHES: dict[str, tuple[str, list[str]]] = {
    "gpt2 in beams": ("gpt2", FULL),
    "gpt2 in one body": ("gpt2", [*FULL, "-dsgd", "--no_repeat_ngram_size", "2", "--length_penalty", "2"]),
    "gpt2 with scores": (
        "gpt2",
        ["--output_sequences_scores", "--output_token_scores", "--num_return_sequences", "2", "--vocab_mask",
         "--custom_attention_mask", "--early_stopping", *FULL],
    ),
    "gpt2 greedy": ("gpt2", ["--num_beams", "1"]),
    "gpt2 sampling the best": ("gpt2", ["--num_beams", "1", "--top_p", "0.005"]),
    "t5": ("t5", []),
    "t5 older form": ("t5", ["--encoder_decoder_init", "--repetition_penalty", "1.5", "-s"]),
    "mt5": ("mt5", ["--vocab_mask", "-i"]),
}  # fmt: skip


@pytest.mark.parametrize("name", SEARCHES)
def test_a_graph_generates_what_transformers_generates_in_both_engines(name, tmp_path, request):
    generation = importlib.import_module("ort_transformers.convert_generation")
    comparison = importlib.import_module("ort_transformers.generation.generation_comparison")
    kind, options = SEARCHES[name]
    path = str(tmp_path / "search.onnx")
    given = [
        "-m",
        request.getfixturevalue(kind),
        "--model_type",
        kind,
        "--output",
        path,
        "--max_length",
        "20",
        *options,
    ]
    result = generation.main(given)
    assert result is not None
    assert result["parity"] is True
    args = generation.parse_arguments(given)
    tokens = generation.tokens_of(args)
    prompts = comparison.made_up_prompts(tokens["vocab_size"], tokens["pad_token_id"], tokens["eos_token_id"])
    feeds = comparison.search_inputs(args, prompts, tokens["vocab_size"], tokens["pad_token_id"])
    session = comparison.create_ort_session(path, False, False)
    names = {each.name for each in session.get_inputs()}
    found = session.run(None, {name: each for name, each in feeds.items() if name in names})
    for one, other in zip(found, onnxruntime_results(path, feeds), strict=True):
        if "--num_beams" in options:  # onnxruntime leaves what comes behind the ends of all sentences as it finds it
            ends = np.cumsum(one == tokens["eos_token_id"], axis=1) > 0
            one, other = np.where(ends, 0, one), np.where(ends, 0, other)
        assert_close(one, other, "approximate")


def test_whisper_in_one_file_writes_torchs_tokens(whisper, tmp_path):
    convert = importlib.import_module("ort_transformers.models.whisper.convert_to_onnx")
    options = ["-o", "-v", "-f", "--output_sequence_scores"]
    assert convert.main(["-m", whisper, "--output", str(tmp_path / "out"), "--cache_dir", str(tmp_path), *options]) == 0
    path = tmp_path / "out" / "tiny-whisper_beamsearch.onnx"
    assert [each.name for each in (tmp_path / "out").iterdir()] == [path.name]
    one = np.ones(1, np.int32)
    feeds = {
        "input_features": np.random.default_rng(0).standard_normal((2, 8, 24)).astype(np.float32),
        "max_length": one * 15, "min_length": one * 0, "num_beams": one * 3, "num_return_sequences": one * 2,
        "length_penalty": one.astype(np.float32), "repetition_penalty": one.astype(np.float32),
        "vocab_mask": np.ones(60, np.int32), "decoder_input_ids": np.array([[3, 5], [3, 7]], np.int32),
    }  # fmt: skip
    found = ort_core.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, feeds)
    for one_engine, other in zip(found, onnxruntime_results(path, feeds), strict=True):
        assert_close(one_engine, other, "approximate")


@pytest.mark.parametrize("options", [[], ["--separate_encoder_and_decoder_init"], ["-p", "int4"]], ids=str)
def test_whispers_parts_have_the_files_that_generators_read(whisper, tmp_path, options, caplog):
    convert = importlib.import_module("ort_transformers.models.whisper.convert_to_onnx")
    given = ["-m", whisper, "--output", str(tmp_path), "--cache_dir", str(tmp_path), "--no_beam_search_op", "-o"]
    with caplog.at_level("WARNING", "ort_transformers"):
        convert.main([*given, *options])
    assert "not close" not in caplog.text
    names = {each.name for each in tmp_path.iterdir()}
    precision = "int4" if "int4" in options else "fp32"
    parts = ("encoder", "decoder", "decoder_init") if len(options) == 1 else ("encoder", "decoder")
    assert {f"tiny-whisper_{part}_{precision}.onnx" for part in parts} <= names
    assert ("genai_config.json" in names) is (len(options) != 1)
    decoder = onnx.load(tmp_path / f"tiny-whisper_decoder_{precision}.onnx", load_external_data=False).graph
    caches = [each.name for each in decoder.input if each.name.startswith("past")]
    assert caches[:4] == ["past_key_self_0", "past_value_self_0", "past_key_cross_0", "past_value_cross_0"]


# onnxruntime's GroupQueryAttention takes several tokens beside a past for one sentence only
SHARED = ((2, 1, 4), (1, 1, 4), (1, 3, 2))


@pytest.mark.parametrize(
    ("options", "forms"),
    [
        ([], ["decoder_merged"]),
        (["--no_merged"], ["decoder", "decoder_with_past"]),
        (["--use_gqa"], ["decoder_merged"]),
    ],
    ids=str,
)
def test_llama_has_torchs_results_in_both_engines(llama, tmp_path, options, forms, monkeypatch):
    convert = importlib.import_module("ort_transformers.models.llama.convert_to_onnx")
    given = ["-m", "tiny/tiny-llama", "-i", llama, "-o", str(tmp_path), *options]
    found: dict[str, float] = convert.main(given)
    assert [Path(each).name for each in found] == [f"rank_0_tiny-llama_{each}_model_fp32_opt.onnx" for each in forms]
    assert max(found.values()) < convert._CLOSE
    modules = importlib.import_module("ort_transformers.models.llama.llama_modules")
    transformers = importlib.import_module("transformers")
    model = modules.LlamaWithPast(transformers.AutoModelForCausalLM.from_pretrained(llama).eval())
    monkeypatch.setattr(convert, "ort_core", importlib.import_module("onnxruntime"))
    for path, form in zip(found, forms, strict=True):
        kinds = [node.op_type for node in onnx.load(path, load_external_data=False).graph.node]
        if "--use_gqa" in options:
            assert kinds.count("GroupQueryAttention") == 2
        cases = SHARED if "--use_gqa" in options else convert._CASES
        assert convert.largest_difference_of(model, path, form, cases=cases) < convert._CLOSE


@pytest.mark.parametrize(
    ("options", "precision", "most"),
    [
        (["--use_gqa"], "int4", 0.2),
        (["--no_merged", "-q", "blockwise", "--block_size", "16"], "int4", 0.2),
        (["--int4_accuracy_level", "4", "--bits", "8"], "int4", 0.02),
        (["-q", "quantize_dynamic", "--quantize_per_channel", "--quantize_embedding_layer"], "int8", 0.05),
        ([], "fp16", 0.005),
    ],
    ids=str,
)
def test_llama_of_fewer_bits_is_near_torch_in_both_engines(llama, tmp_path, options, precision, most, monkeypatch):
    convert = importlib.import_module("ort_transformers.models.llama.convert_to_onnx")
    found: dict[str, float] = convert.main(
        ["-m", "tiny-llama", "-i", llama, "-o", str(tmp_path), "-p", precision, *options]
    )
    forms = ["decoder", "decoder_with_past"] if "--no_merged" in options else ["decoder_merged"]
    assert [Path(each).name for each in found] == [f"rank_0_tiny-llama_{each}_model_{precision}.onnx" for each in forms]
    assert max(found.values()) < most, "of logits whose size is near 1"
    modules = importlib.import_module("ort_transformers.models.llama.llama_modules")
    transformers = importlib.import_module("transformers")
    model = modules.LlamaWithPast(transformers.AutoModelForCausalLM.from_pretrained(llama).eval())
    monkeypatch.setattr(convert, "ort_core", importlib.import_module("onnxruntime"))
    for path, form in zip(found, forms, strict=True):
        kinds = [node.op_type for node in onnx.load(path, load_external_data=False).graph.node]
        assert kinds.count("MatMulNBits") == (15 if precision == "int4" else 0), "seven of each layer, and the head"
        cases = SHARED if "--use_gqa" in options else convert._CASES
        assert convert.largest_difference_of(model, path, form, cases=cases) < most


def test_phi_has_a_file_for_each_form_with_torchs_results(folder, tmp_path, monkeypatch):
    source = save_tiny("phi", folder)
    convert = importlib.import_module("ort_transformers.models.phi2.convert_to_onnx")
    limits = {"fp32_cpu": 1e-4, "int4_cpu": 0.2, "fp16_gpu": 0.005, "fp16_gpu_sm8x": 0.005}
    given = ["--model", source, "--output_dir", str(tmp_path), *(f"--{name}" for name in limits)]
    found: dict[str, float] = convert.main(given)
    assert [Path(each).name for each in found] == [f"phi2_decoder_{name}.onnx" for name in limits]
    operators = {
        name: [node.op_type for node in onnx.load(path, load_external_data=False).graph.node]
        for name, path in zip(limits, found, strict=True)
    }
    for (name, most), difference in zip(limits.items(), found.values(), strict=True):
        assert difference < most, name
        wanted = "GroupQueryAttention" if name.endswith("sm8x") else "MultiHeadAttention"
        assert operators[name].count(wanted) == 2, name
        assert operators[name].count("MatMulNBits") == (13 if name.startswith("int4") else 0), (
            "six a layer, and the head"
        )
    model = convert.ConvertPhi2ToONNX("cpu", source).get_phi2_torch_model()
    llama = importlib.import_module("ort_transformers.models.llama.convert_to_onnx")
    monkeypatch.setattr(llama, "ort_core", importlib.import_module("onnxruntime"))
    for (name, most), path in zip(limits.items(), found, strict=True):
        cases = SHARED if name.endswith("sm8x") else llama._CASES
        assert llama.largest_difference_of(model, path, "decoder_merged", cases=cases) < most, name


def refused(module: str, argv: list[str]) -> str:
    with pytest.raises((ValueError, NotImplementedError)) as caught:
        importlib.import_module(f"ort_transformers.{module}").main(argv)
    return str(caught.value)


REFUSED: list[tuple[str, list[str], str]] = [
    ("models.gpt2.convert_to_onnx", ["-m", "x", "-p", "int8"], "--optimize_onnx"),
    ("models.gpt2.convert_to_onnx", ["-m", "x", "-o", "-p", "fp16"], "--use_gpu"),
    ("models.t5.convert_to_onnx", ["-m", "x", "-p", "fp16"], "--use_gpu"),
    ("models.whisper.convert_to_onnx", ["-m", "x", "--separate_encoder_and_decoder_init"], "--no_beam_search_op"),
    ("models.llama.convert_to_onnx", ["-m", "x", "-p", "int8"], "quantize_dynamic"),
    ("models.llama.convert_to_onnx", ["-m", "x", "-d"], "--use_dynamo_export"),
    ("models.phi2.convert_to_onnx", [], "--fp32_cpu"),
    ("models.phi2.convert_to_onnx", ["--fp16_vllm"], "--fp16_gpu_sm8x"),
    ("models.phi2.convert_to_onnx", ["--fp16_gpu_sm8x", "--use_cuda_graph"], "CUDA"),
    ("models.phi2.convert_to_onnx", ["--fp32_cpu", "--run_example"], "ort genai"),
    ("convert_generation", ["-m", "x", "--output", "y", "--past_present_share_buffer"], "CUDA"),
    ("convert_generation", ["-m", "x", "--output", "y", "--model_type", "t5", "--decoder_onnx", "z"], "z"),
]


@pytest.mark.parametrize(("module", "argv", "word"), REFUSED, ids=lambda each: str(each)[:40])
def test_what_cannot_be_had_is_refused_with_the_option_that_says_it(module, argv, word):
    assert word in refused(module, argv)


def test_options_are_an_ordinary_namespace(gpt2):
    generation = importlib.import_module("ort_transformers.convert_generation")
    args: Any = generation.parse_arguments(["-m", gpt2, "--output", "y"])
    assert isinstance(args, argparse.Namespace)
    assert generation.tokens_of(args) == {"eos_token_id": 50, "vocab_size": 51, "pad_token_id": 50}


def test_a_session_keeps_its_inputs_and_outputs_in_tensors_of_torch():
    helper = importlib.import_module("ort_transformers.io_binding_helper")
    text = """<ir_version: 10, opset_import: ["": 18]> g (float[n, 2] x, float[m] past) => (float[n, 2] y, float[m] now)
      <float[2] w = {2, 3}, float[1] one = {1}> { y = Mul(x, w) now = Add(past, one) }"""
    session = ort_core.InferenceSession(onnx.parser.parse_model(text).SerializeToString())
    bound = helper.CudaSession(session, "cpu")
    bound.set_buffer_sharing("past", "now")
    bound.allocate_buffers({"x": (3, 2), "y": (3, 2), "past": (4,), "now": (4,)})
    cache = torch.zeros(4)
    for step in (1, 2):
        x = torch.full((3, 2), float(step))
        outputs = bound.infer({"x": x, "past": cache})
        assert torch.equal(outputs["y"], x * torch.tensor([2.0, 3.0]))
        assert torch.equal(cache, torch.full((4,), float(step))), "the cache is written in place"
    with pytest.raises(ValueError, match="CUDA provider"):
        helper.CudaSession(session, "cpu", enable_cuda_graph=True)
    with pytest.raises(ValueError, match="contiguous"):
        bound.infer({"x": torch.zeros(2, 3).T})


def test_a_manager_of_bindings_gives_buffers_of_the_shapes_asked_for():
    helper = importlib.import_module("ort_transformers.io_binding_helper")
    text = """<ir_version: 10, opset_import: ["": 18]> g (float[n, 2] x) => (float[n, 2] y)
      <float[2] w = {2, 3}> { y = Mul(x, w) }"""
    session = ort_core.InferenceSession(onnx.parser.parse_model(text).SerializeToString())
    manager = helper.GpuBindingManager(session, "cpu")
    for rows in (3, 5, 3):
        binding = manager.get_binding({"x": (rows, 2), "y": (rows, 2)})
        x = torch.arange(2.0 * rows).reshape(rows, 2)
        assert torch.equal(binding.infer({"x": x})["y"], x * torch.tensor([2.0, 3.0]))
    assert binding.last_run_gpu_graph_id == -1
    with pytest.raises(ValueError, match="CUDA provider"):
        manager.get_binding({"x": (1, 2), "y": (1, 2)}, use_cuda_graph=True)


def test_bindings_of_a_performance_test_read_and_write_tensors_of_torch():
    perf = importlib.import_module("ort_transformers.bert_perf_test")
    text = "g (int64[n] x) => (int64[n] y) { y = Add(x, x) }"
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 18]> {text}')
    session = ort_core.InferenceSession(model.SerializeToString())
    inputs, outputs = {"x": np.arange(4)}, {"y": np.zeros(4, np.int64)}
    tensors, results = perf.create_input_output_tensors(inputs, outputs, "cpu")
    session.run_with_iobinding(perf.create_io_binding(session, tensors, results))
    assert results["y"].tolist() == [0, 2, 4, 6]
