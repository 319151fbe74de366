"""SAM2's files have the results of transformers' model, in both engines, for other prompts than those of the export."""

from __future__ import annotations

import importlib
from pathlib import Path

import onnx
import pytest
from tiny_models import REASON, assert_close, onnxruntime_results, save_tiny_sam2, shapes_of

import ort_core

torch = pytest.importorskip("torch", reason=REASON)
transformers = pytest.importorskip("transformers", reason=REASON)
pytestmark = pytest.mark.filterwarnings("default")  # torch and transformers warn of one another

SIZE = 64


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_tiny_sam2(tmp_path_factory.mktemp("tiny"), SIZE)


def convert(folder: str, output: Path, *options: str) -> list[str]:
    module = importlib.import_module("ort_transformers.models.sam2.convert_to_onnx")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "setup_logger", lambda verbose: None)
        written: list[str] = module.main(["--sam2_dir", folder, "--output_dir", str(output), *options])
    return written


@pytest.mark.parametrize("several", [False, True])
def test_an_encoder_and_a_decoder_give_the_masks_of_the_whole_model(folder, tmp_path, several, caplog):
    options = ["--dynamic_batch_axes", "--optimize", *(["--multimask_output"] if several else [])]
    with caplog.at_level("WARNING", "ort_transformers"):
        written = convert(folder, tmp_path, *options)
    assert "not close" not in caplog.text
    end = "_multi" if several else ""
    names = ["image_encoder", f"image_decoder{end}", "image_encoder_fp32_cpu", f"image_decoder{end}_fp32_cpu"]
    assert [Path(each).stem for each in written] == [f"sam2_hiera_large_{each}" for each in names]
    model = transformers.Sam2Model.from_pretrained(folder).eval()
    torch.manual_seed(3)
    image, points = torch.randn(1, 3, SIZE, SIZE), torch.rand(1, 3, 2, 2) * SIZE
    labels = torch.tensor([[[1, 0], [0, 1], [1, -1]]])
    with torch.no_grad():
        wanted = model(image, input_points=points, input_labels=labels, multimask_output=several)
    prompts = {
        "point_coords": points[0].numpy(), "point_labels": labels[0].int().numpy(),
        "input_masks": torch.randn(3, 1, SIZE // 4, SIZE // 4).numpy(), "has_input_masks": torch.zeros(3).numpy(),
        "original_image_size": torch.tensor([40, 72]).int().numpy(),
    }  # fmt: skip
    features = [each.name for each in onnx.load(written[0]).graph.output]
    for encoder, decoder in (written[:2], written[2:]):
        for engine in (run, onnxruntime_results):
            encoded = dict(zip(features, engine(encoder, {"image": image.numpy()}), strict=True))
            masks, scores, low = engine(decoder, encoded | prompts)
            assert_close(low, wanted.pred_masks[0].clamp(-32, 32).numpy(), "approximate")
            assert_close(scores, wanted.iou_scores[0].numpy(), "approximate")
            assert masks.shape == (3, 3 if several else 1, 40, 72)
            assert masks.dtype == bool


def run(path, feeds):
    return ort_core.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, feeds)


def test_each_row_of_points_may_have_a_mask_of_its_own(folder, tmp_path):
    (path,) = convert(folder, tmp_path, "--components", "prompt_encoder")
    names = [each.name for each in onnx.load(path).graph.input]
    module = importlib.import_module("ort_transformers.models.sam2.prompt_encoder")
    encoder = module.SAM2PromptEncoder(transformers.Sam2Model.from_pretrained(folder))
    prompts = module.random_prompts(encoder, 2, 4)
    first, both, second = (
        run(path, {name: prompts[name].numpy() for name in names} | {"has_input_masks": torch.tensor(flags).numpy()})[1]
        for flags in ([1.0, 0.0], [1.0], [0.0])
    )
    assert_close(first[0], both[0], "exact")
    assert_close(first[1], second[1], "exact")


def test_all_parts_have_named_sizes(folder, tmp_path, caplog):
    parts = ["--components", "mask_decoder", "prompt_encoder", "--disable_dynamic_multimask_via_stability"]
    with caplog.at_level("WARNING", "ort_transformers"):
        written = convert(folder, tmp_path, *parts)
    assert "not close" not in caplog.text
    decoder, prompts = (onnx.load(each).graph for each in written)
    assert shapes_of(decoder.input)["sparse_embeddings"] == ["num_labels", "num_points+1", 16]
    assert shapes_of(decoder.output)["iou_predictions"] == ["num_labels", 1]
    assert shapes_of(prompts.input)["point_coords"] == ["num_labels", "num_points", 2]
    assert shapes_of(prompts.output)["image_pe"] == [1, 16, 4, 4]
    before = [Path(each).stat().st_mtime_ns for each in written]
    convert(folder, tmp_path, *parts)
    assert [Path(each).stat().st_mtime_ns for each in written] == before, "what is there is not written again"


def test_dynamo_gives_an_encoder_that_is_fused_alike(folder, tmp_path, caplog):
    pytest.importorskip("onnxscript", reason="torch's exporter by dynamo needs onnxscript")
    options = ["--components", "image_encoder", "--dynamic_batch_axes", "--optimize"]
    with caplog.at_level("WARNING", "ort_transformers"):
        written = [convert(folder, tmp_path / each, *options, *more) for each, more in (("a", []), ("b", ["--dynamo"]))]
    assert "not close" not in caplog.text
    graphs = [onnx.load(each[1]).graph for each in written]
    assert shapes_of(graphs[0].input) == shapes_of(graphs[1].input) == {"image": ["batch_size", 3, SIZE, SIZE]}
    assert shapes_of(graphs[0].output) == shapes_of(graphs[1].output)
    counts = [[node.op_type for node in graph.node].count("MultiHeadAttention") for graph in graphs]
    assert counts[0] == counts[1] > 0
