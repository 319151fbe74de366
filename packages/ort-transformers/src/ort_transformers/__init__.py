"""Fusions of transformers' exports: onnxruntime.transformers' functions and names, over the doors of ort-core."""

from typing import TYPE_CHECKING

from ort_core.lazy_names import lazy_names

__version__ = "0.1.0"

if TYPE_CHECKING:
    from ort_transformers.fusing.fusion_report import FusionReport
    from ort_transformers.fusing.fusions import fuse_model
    from ort_transformers.fusion_options import AttentionMaskFormat, AttentionOpType, FusionOptions
    from ort_transformers.onnx_model import OnnxModel
    from ort_transformers.optimizer import (
        get_fusion_statistics,
        optimize_by_fusion,
        optimize_by_onnxruntime,
        optimize_model,
    )

__all__ = [
    "AttentionMaskFormat", "AttentionOpType", "FusionOptions", "FusionReport", "OnnxModel", "__version__", "fuse_model",
    "get_fusion_statistics", "optimize_by_fusion", "optimize_by_onnxruntime", "optimize_model",
]  # fmt: skip

__getattr__, __dir__ = lazy_names(  # a program that needs one name does not import everything
    __name__,
    {
        "ort_transformers.fusing.fusion_report": ("FusionReport",),
        "ort_transformers.fusing.fusions": ("fuse_model",),
        "ort_transformers.fusion_options": ("AttentionMaskFormat", "AttentionOpType", "FusionOptions"),
        "ort_transformers.onnx_model": ("OnnxModel",),
        "ort_transformers.optimizer": (
            "get_fusion_statistics", "optimize_by_fusion", "optimize_by_onnxruntime", "optimize_model",
        ),
    },
)  # fmt: skip
