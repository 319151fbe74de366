"""Modules of onnxruntime.transformers that this package leaves out: why, and what to use in their place.

Under the drop-in an installed onnxruntime's own are taken, and run on this project's sessions; these reasons are for
where there is none.
"""

from __future__ import annotations

_PATTERNS = (
    "the fusions of ort-core are passes, not classes over one exporter's nodes: call optimizer.optimize_model, or "
    "derive from fusion_base.Fusion for one of your own"
)
_REASONS = {
    "benchmark": (
        "it downloads models of the hub and times them by torch, TorchScript and TensorFlow, too; export a model, then "
        "use bert_perf_test, profiler or `ort bench`"
    ),
    "convert_generation": (
        "it wraps decoders into BeamSearch and Sampling nodes; ort-genai generates with the decoder as it is: "
        "`ort genai build`, then ort_genai.Generator with num_beams or sampling options"
    ),
    "convert_tf_models_to_pytorch": "it downloads checkpoints of the hub, to write them as torch's",
    "huggingface_models": "it is the list of names on the hub that `benchmark` times",
    "large_model_exporter": (
        "it exports a decoder of the hub that is spread over GPUs; `ort genai build` writes decoders without torch, "
        "one weight at a time"
    ),
    "models": (
        "its scripts export models of the hub by torch and TorchScript, for one kind of GPU. Export by optimum-onnx or "
        "torch.onnx.export, then call optimizer.optimize_model: text models with the model's type, the parts of "
        "diffusers' pipelines with unet, vae, clip or mmdit; `ort genai build` writes folders for text generation"
    ),
    "onnx_exporter": "it exports models of the hub for `benchmark`; export by optimum-onnx or torch.onnx.export",
    "past_helper": "it names the caches of the exports in models/t5 and models/whisper, which are left out, too",
}


def reason_of(name: str) -> str | None:
    """Return why a module below ``onnxruntime.transformers`` is left out, ``None`` where no such module is known."""
    first = name.partition(".")[0]
    return _PATTERNS if first.startswith("fusion_") else _REASONS.get(first)
