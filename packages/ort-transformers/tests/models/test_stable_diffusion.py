"""A pipeline of Stable Diffusion is fused model by model, and the rest of its folder goes along."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper
from tiny_models import assert_close, onnxruntime_results

import ort_core
from ort_transformers.models.stable_diffusion import optimize_pipeline
from ort_transformers.models.stable_diffusion.ort_optimizer import OrtStableDiffusionOptimizer

BLOCK = """<ir_version: 10, opset_import: ["": 18]> block (float[n, 8, h, w] x) => (float[n, 8, h, w] y)
<float[8, 8, 3, 3] weight, float[8, 1, 1] scale, float[8, 1, 1] bias, int64[3] parts = {0, 4, -1},
 float[4] ones = {1, 1, 1, 1}, float[4] zeros = {0, 0, 0, 0}>
{
  z = Conv<pads: ints = [1, 1, 1, 1]>(x, weight)
  sizes = Shape(z)
  groups = Reshape(z, parts)
  normal = InstanceNormalization<epsilon: float = 0.00001>(groups, ones, zeros)
  back = Reshape(normal, sizes)
  scaled = Mul(back, scale)
  moved = Add(scaled, bias)
  gate = Sigmoid(moved)
  y = Mul(moved, gate)
}"""
TEXT = """<ir_version: 10, opset_import: ["": 18]> text (float[n, t, 8] x) => (float[n, t, 8] y)
<float[8, 8] weight, float[8] scale, float[8] bias, float quick = {1.702}>
{
  normal = LayerNormalization<axis: int = -1>(x, scale, bias)
  z = MatMul(normal, weight)
  less = Mul(z, quick)
  gate = Sigmoid(less)
  y = Mul(z, gate)
}"""
PICTURE = np.random.default_rng(7).standard_normal((2, 8, 6, 6)).astype(np.float32)
WORDS = np.random.default_rng(8).standard_normal((2, 5, 8)).astype(np.float32)


def save(text: str, path: Path) -> None:
    """Save a model whose inner values without a maker are drawn."""
    model = onnx.parser.parse_model(text)
    rng = np.random.default_rng(len(text))
    for each in model.graph.value_info:
        sizes = [dim.dim_value for dim in each.type.tensor_type.shape.dim]
        weight = rng.standard_normal(sizes).astype(np.float32) / 3
        model.graph.initializer.append(numpy_helper.from_array(weight, each.name))
    del model.graph.value_info[:]
    path.parent.mkdir(parents=True)
    onnx.save(model, path)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Return the folder of a pipeline without ``vae_encoder``."""
    folder = tmp_path / "pipeline"
    save(TEXT, folder / "text_encoder" / "model.onnx")
    for name in ("unet", "vae_decoder"):
        save(BLOCK, folder / name / "model.onnx")
    (folder / "unet" / "config.json").write_text("{}", encoding="utf-8")
    (folder / "model_index.json").write_text('{"_class_name": "OnnxStableDiffusionPipeline"}', encoding="utf-8")
    (folder / "scheduler").mkdir()
    (folder / "scheduler" / "scheduler_config.json").write_text("{}", encoding="utf-8")
    return folder


def run(path: Path, feed: np.ndarray) -> np.ndarray:
    session = ort_core.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    kind = np.float16 if session.get_inputs()[0].type == "tensor(float16)" else np.float32
    return np.asarray(session.run(None, {"x": feed.astype(kind)})[0])


@pytest.mark.parametrize("options", [[], ["--float16"], ["--inspect"]], ids=str)
def test_models_are_fused_with_the_same_results_and_the_folder_is_whole(source, tmp_path, options, caplog):
    target = tmp_path / "out"
    with caplog.at_level("WARNING"):
        counts = optimize_pipeline.main(["-i", str(source), "-o", str(target), *options])
    assert "vae_encoder" in caplog.text, "what is missing is named"
    assert counts["text_encoder"]["QuickGelu"] == 1
    for name in ("unet", "vae_decoder"):  # operators for GPUs, as onnxruntime's script writes them
        assert counts[name]["GroupNorm"] == 1
        assert counts[name]["NhwcConv"] == int("--inspect" not in options), "a session turns it back"
    files = {str(each.relative_to(target)) for each in target.rglob("*") if each.is_file()}
    others = {"model_index.json", "unet/config.json", "scheduler/scheduler_config.json"}
    assert files == others | {f"{name}/model.onnx" for name in ("text_encoder", "unet", "vae_decoder")}
    for name, feed in (("text_encoder", WORDS), ("unet", PICTURE), ("vae_decoder", PICTURE)):
        (wanted,) = onnxruntime_results(source / name / "model.onnx", {"x": feed})
        found = run(target / name / "model.onnx", feed)
        assert found.dtype == (np.float16 if "--float16" in options else np.float32)
        if "--float16" in options:
            np.testing.assert_allclose(found, wanted, atol=float(np.finfo(np.float16).eps) * 8 * np.abs(wanted).max())
        else:
            assert_close(found, wanted, "approximate")


def test_operators_stay_in_float32_where_it_is_asked(source, tmp_path):
    target = tmp_path / "out"
    optimize_pipeline.main(["-i", str(source), "-o", str(target), "--float16", "--force_fp32_ops", "unet:GroupNorm"])
    for name, count in (("unet", 2), ("vae_decoder", 0)):
        nodes = onnx.load(target / name / "model.onnx").graph.node
        assert sum(each.op_type == "Cast" for each in nodes) == count
    for wrong in ("QuickGelu", "unet:quickGelu", "net:QuickGelu", "unet:"):
        with pytest.raises(ValueError, match="unet:Attention"):
            optimize_pipeline.main(["-i", str(source), "-o", str(target), "--float16", "--force_fp32_ops", wrong])


def test_a_file_that_is_there_stays_unless_it_is_to_be_overwritten(source, tmp_path, caplog):
    target = tmp_path / "out"
    given = ["-i", str(source), "-o", str(target)]
    optimize_pipeline.main(given)
    assert optimize_pipeline.main(given) == {}
    assert "is left as it is" in caplog.text
    assert set(optimize_pipeline.main([*given, "--overwrite", "-e"])) == {"text_encoder", "unet", "vae_decoder"}
    assert set(optimize_pipeline.main([*given, "--overwrite"])) == {"text_encoder", "unet", "vae_decoder"}


@pytest.mark.parametrize(
    ("folders", "kind"),
    [(["unet"], "sd"), (["unet", "text_encoder_2"], "sdxl"), (["transformer", "text_encoder_2"], "flux"),
     (["transformer", "text_encoder_2", "text_encoder_3"], "sd3")],
)  # fmt: skip
def test_pipelines_are_known_by_their_folders(tmp_path, folders, kind):
    for each in folders:
        (tmp_path / each).mkdir()
    assert optimize_pipeline.pipeline_type_of(tmp_path) == kind


def test_the_decoder_of_sdxl_stays_in_float32(source, tmp_path):
    save(TEXT, source / "text_encoder_2" / "model.onnx")
    optimize_pipeline.main(["-i", str(source), "-o", str(tmp_path / "out"), "--float16"])
    kinds = {
        name: onnx.load(tmp_path / "out" / name / "model.onnx").graph.input[0].type.tensor_type.elem_type
        for name in ("unet", "vae_decoder", "text_encoder_2")
    }
    assert kinds == {
        "unet": TensorProto.FLOAT16, "vae_decoder": TensorProto.FLOAT, "text_encoder_2": TensorProto.FLOAT16,
    }  # fmt: skip


@pytest.mark.parametrize("wide", [[], ["--bfloat16"]], ids=str)
def test_norms_of_flux_stay_wide_in_float16(source, tmp_path, wide):
    for name in ("transformer", "text_encoder_2"):
        save(TEXT, source / name / "model.onnx")
    target = tmp_path / "out"
    counts = optimize_pipeline.main(["-i", str(source), "-o", str(target), "--float16", *wide])
    assert set(counts) == {"text_encoder", "text_encoder_2", "transformer", "vae_decoder"}, "Flux has no UNet"
    graph = onnx.load(target / "transformer" / "model.onnx").graph
    (norm,) = (each for each in graph.node if each.op_type == "LayerNormalization")
    (cast,) = (each for each in graph.node if norm.input[0] in each.output)
    kind = TensorProto.BFLOAT16 if wide else TensorProto.FLOAT
    assert (cast.op_type, cast.attribute[0].i) == ("Cast", kind)
    (wanted,) = onnxruntime_results(source / "transformer" / "model.onnx", {"x": WORDS})
    most = 0.05 if wide else 0.005
    np.testing.assert_allclose(run(target / "transformer" / "model.onnx", WORDS), wanted, atol=most)


def test_folders_that_are_no_pipelines_are_refused(source, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(FileNotFoundError, match="optimum-cli"):
        optimize_pipeline.main(["-i", str(empty), "-o", str(tmp_path / "out")])
    with pytest.raises(ValueError, match="another one"):
        optimize_pipeline.main(["-i", str(source), "-o", str(source), "--overwrite"])
    assert (source / "unet" / "model.onnx").is_file()
    (source / "model_index.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"model_index\.json"):
        optimize_pipeline.main(["-i", str(source), "-o", str(tmp_path / "out")])


@pytest.mark.parametrize("by_session", [False, True])
def test_one_model_is_fused_by_the_optimizer_of_its_type(source, tmp_path, by_session):
    path, target = source / "unet" / "model.onnx", tmp_path / "unet.onnx"
    OrtStableDiffusionOptimizer("unet").optimize(
        str(path), str(target), float16=False, optimize_by_ort=by_session, keep_outputs=["y"]
    )
    convolution = "Conv" if by_session else "NhwcConv"  # a session turns it back
    assert {"GroupNorm", convolution} <= {each.op_type for each in onnx.load(target).graph.node}
    assert_close(run(target, PICTURE), onnxruntime_results(path, {"x": PICTURE})[0], "approximate")
    with pytest.raises(ValueError, match="vae"):
        OrtStableDiffusionOptimizer("bert")
