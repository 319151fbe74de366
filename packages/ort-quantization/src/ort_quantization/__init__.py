"""Quantization of ONNX models: onnxruntime's functions, names and files, over the doors of ort-core."""

from typing import TYPE_CHECKING

from ort_core.late_names import late_names

__version__ = "0.1.0"

if TYPE_CHECKING:
    from ort_quantization.calibrate import (
        CalibraterBase,
        CalibrationDataReader,
        CalibrationMethod,
        MinMaxCalibrater,
        TensorData,
        TensorsData,
        create_calibrator,
        load_tensors_data,
        save_tensors_data,
    )
    from ort_quantization.quantize_dynamically import quantize_dynamic
    from ort_quantization.quantized_types import QuantFormat, QuantizationMode, QuantType

__all__ = [
    "CalibraterBase",
    "CalibrationDataReader",
    "CalibrationMethod",
    "MinMaxCalibrater",
    "QuantFormat",
    "QuantType",
    "QuantizationMode",
    "TensorData",
    "TensorsData",
    "__version__",
    "create_calibrator",
    "load_tensors_data",
    "quantize_dynamic",
    "save_tensors_data",
]

__getattr__, __dir__ = late_names(  # a program that needs one name does not import every quantizer
    __name__,
    {
        "ort_quantization.quantize_dynamically": ("quantize_dynamic",),
        "ort_quantization.quantized_types": ("QuantFormat", "QuantType", "QuantizationMode"),
        "ort_quantization.calibrate": (
            "CalibraterBase",
            "CalibrationDataReader",
            "CalibrationMethod",
            "MinMaxCalibrater",
            "TensorData",
            "TensorsData",
            "create_calibrator",
            "load_tensors_data",
            "save_tensors_data",
        ),
    },
)
