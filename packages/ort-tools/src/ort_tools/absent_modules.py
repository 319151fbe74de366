"""Modules of onnxruntime.tools that this package leaves out: why, and what to use in their place.

Under the drop-in an installed onnxruntime's own are taken; these reasons are for where there is none.
"""

from __future__ import annotations

_MOBILE = (
    "it compares a model with lists of what onnxruntime's NNAPI and CoreML providers took when it was built; "
    "`ort explain --as-if-available --provider CoreMLExecutionProvider MODEL` tells node by node what ort-ep-coreml "
    "takes, and why it leaves the others"
)
_QNN = "it prepares models for onnxruntime's QNN provider, which there is none of here"
_REASONS = {
    "check_onnx_model_mobile_usability": _MOBILE,
    "mobile_helpers": _MOBILE,
    "qnn": _QNN,
    "ort_format_model": (
        "it is made of onnxruntime's flatbuffers classes; ort_core loads files in ORT format, and "
        "ort_format_model.write_ort_format and create_config_from_models write them and the list of operators"
    ),
    "fpa_intb_tune": "it tunes CUDA kernels of onnxruntime; ort-ep-cuda tunes its own when a model is loaded",
    "pytorch_export_helpers": "it flattens arguments for torch.onnx.export, which takes nested ones by itself",
}


def reason_of(name: str) -> str | None:
    """Return why a module below ``onnxruntime.tools`` is left out, ``None`` where no such module is known."""
    return _REASONS.get(name.partition(".")[0])
