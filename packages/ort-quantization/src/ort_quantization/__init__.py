"""Quantization of ONNX models: onnxruntime's functions, names and files, over the doors of ort-core."""

from typing import TYPE_CHECKING

from ort_core.late_names import late_names

__version__ = "0.1.0"

if TYPE_CHECKING:
    from ort_quantization.quantized_types import QuantFormat, QuantizationMode, QuantType

__all__ = ["QuantFormat", "QuantType", "QuantizationMode", "__version__"]

__getattr__, __dir__ = late_names(  # a program that needs one name does not import every quantizer
    __name__,
    {
        "ort_quantization.quantized_types": ("QuantFormat", "QuantType", "QuantizationMode"),
    },
)
