"""Conversion to float16: the functions of ``ort_core.quantization.float16``, under onnxruntime's other name."""

from ort_core.lazy_names import lazy_names

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "ort_core.quantization.float16": (
            "ALWAYS_FLOAT_INPUTS",
            "DEFAULT_OP_BLOCK_LIST",
            "convert_float_to_float16",
            "convert_np_to_float16",
            "convert_tensor_float_to_float16",
            "float_to_float16_max_diff",
            "make_value_info_from_tensor",
        ),
    },
)
