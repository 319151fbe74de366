"""Modules of onnxruntime.transformers that this package leaves out: why, and what to use in their place.

Under the drop-in an installed onnxruntime's own are taken, and run on this project's sessions; these reasons are for
where there is none.
"""

from __future__ import annotations

_PATTERNS = (
    "the fusions of ort-core are passes, not classes over one exporter's nodes: call optimizer.optimize_model, or "
    "derive from fusion_base.Fusion for one of your own"
)
_MEASURES = "it downloads models of the hub and times them, most on GPUs; use bert_perf_test, profiler or `ort bench`"
_INSIDE = "it is a part of onnxruntime's own conversion, which has other parts here; use convert_to_onnx beside it"
_EXPORTS = (
    "it exports one architecture by TorchScript. Export by optimum-onnx or torch.onnx.export, then call "
    "optimizer.optimize_model with the model's type"
)
_REASONS = {  # the longest name that fits counts
    "benchmark": (
        "it downloads models of the hub and times them by torch, TorchScript and TensorFlow, too; export a model, then "
        "use bert_perf_test, profiler or `ort bench`"
    ),
    "convert_tf_models_to_pytorch": "it downloads checkpoints of the hub, to write them as torch's",
    "huggingface_models": "it is the list of names on the hub that `benchmark` times",
    "large_model_exporter": (
        "it exports a decoder of the hub that is spread over GPUs; `ort genai build` writes decoders without torch, "
        "one weight at a time"
    ),
    "models": _EXPORTS,
    "models.bart": (
        "it imports modules that onnxruntime's own wheel lacks. Export by optimum-onnx, then call "
        "optimizer.optimize_model with the type bart"
    ),
    "models.bert": "it scores a model on a data set of the hub; run the model, and score its answers with `evaluate`",
    "models.gpt2": _INSIDE,
    "models.gpt2.benchmark_gpt2": _MEASURES,
    "models.llama": _INSIDE,
    "models.llama.benchmark": _MEASURES,
    "models.llama.benchmark_all": _MEASURES,
    "models.llama.benchmark_e2e": _MEASURES,
    "models.longformer": (
        "it writes LongformerAttention, of which CUDA alone has a kernel. Export by optimum-onnx or torch.onnx.export, "
        "then call optimizer.optimize_model"
    ),
    "models.phi2": "it runs Phi-2 on CUDA; `ort genai build` writes Phi's decoders, and `ort genai` runs them",
    "models.sam2": _INSIDE,
    "models.sam2.benchmark_sam2": _MEASURES,
    "models.sam2.nvtx_helper": "it marks stages for CUDA's profilers; use profiler, or `ort profile`",
    "models.sam2.sam2_demo": (
        "it draws masks on a picture of the authors' repository; give a picture of your own to SAM2ImageOnnxPredictor "
        "of models.sam2.sam2_image_onnx_predictor"
    ),
    "models.stable_diffusion": (
        "it runs pipelines by CUDA and TensorRT. Fuse a pipeline of optimum by models.stable_diffusion."
        "optimize_pipeline, and run it by optimum's ORTDiffusionPipeline"
    ),
    "models.whisper": _INSIDE,
    "models.whisper.benchmark": _MEASURES,
    "models.whisper.benchmark_all": _MEASURES,
    "onnx_exporter": "it exports models of the hub for `benchmark`; export by optimum-onnx or torch.onnx.export",
}


def reason_of(name: str) -> str | None:
    """Return why a module below ``onnxruntime.transformers`` is left out, ``None`` where no such module is known."""
    if name.startswith("fusion_"):
        return _PATTERNS
    parts = name.split(".")
    beginnings = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next((_REASONS[each] for each in beginnings if each in _REASONS), None)
