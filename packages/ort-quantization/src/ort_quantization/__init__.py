"""Quantization of ONNX models: onnxruntime's functions, names and files, over the doors of ort-core."""

from typing import TYPE_CHECKING

from ort_core.lazy_names import lazy_names

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
    from ort_quantization.calibration.calibration_tables import write_calibration_table
    from ort_quantization.models.prepare import quant_pre_process
    from ort_quantization.qdq_quantizer import QDQQuantizer
    from ort_quantization.quantize import (
        DynamicQuantConfig,
        StaticQuantConfig,
        get_qdq_config,
        quantize,
        quantize_dynamic,
        quantize_static,
    )
    from ort_quantization.quantized_types import QuantFormat, QuantizationMode, QuantType

__all__ = [
    "CalibraterBase", "CalibrationDataReader", "CalibrationMethod", "DynamicQuantConfig", "MinMaxCalibrater",
    "QDQQuantizer", "QuantFormat", "QuantType", "QuantizationMode", "StaticQuantConfig", "TensorData", "TensorsData",
    "__version__", "create_calibrator", "get_qdq_config", "load_tensors_data", "quant_pre_process", "quantize",
    "quantize_dynamic", "quantize_static", "save_tensors_data", "write_calibration_table",
]  # fmt: skip

__getattr__, __dir__ = lazy_names(  # a program that needs one name does not import every quantizer
    __name__,
    {
        "ort_quantization.calibrate": (
            "CalibraterBase", "CalibrationDataReader", "CalibrationMethod", "MinMaxCalibrater", "TensorData",
            "TensorsData", "create_calibrator", "load_tensors_data", "save_tensors_data",
        ),
        "ort_quantization.calibration.calibration_tables": ("write_calibration_table",),
        "ort_quantization.models.prepare": ("quant_pre_process",),
        "ort_quantization.qdq_quantizer": ("QDQQuantizer",),
        "ort_quantization.quantize": (
            "DynamicQuantConfig", "StaticQuantConfig", "get_qdq_config", "quantize", "quantize_dynamic",
            "quantize_static",
        ),
        "ort_quantization.quantized_types": ("QuantFormat", "QuantizationMode", "QuantType"),
    },
)  # fmt: skip
