"""onnxruntime's module of this name."""

from ort_core.lazy_names import lazy_names
from ort_quantization.models.prepare import quant_pre_process

__all__ = ["quant_pre_process"]


__getattr__, _ = lazy_names(  # what programs import from here, as onnxruntime's module imports it
    __name__,
    {
        "ort_quantization.onnx_model": (
            "ONNXModel",
        ),
        "ort_quantization.quant_utils": (
            "add_pre_process_metadata", "save_and_reload_model_with_shape_infer",
        ),
    },
)  # fmt: skip
