"""The versions that blocks need: opset 21 for DequantizeLinear, file format 10 for 4 bits; 25 and 13 for 2 bits."""

from __future__ import annotations

import logging

from onnx import ModelProto, TensorProto, helper

from ort_quantization.errors import InvalidQuantization
from ort_quantization.models import model_files
from ort_quantization.models.model_files import opset_of

log = logging.getLogger(__name__)

BLOCKS_OPSET, FOUR_BITS_IR = 21, 10
TWO_BITS_OPSET, TWO_BITS_IR = 25, 13
_KEPT = 1024  # bytes: smaller tensors are shown to ONNX's converter


def raise_versions(model: ModelProto, has_linear: bool, has_rows: bool, least_bits: int) -> ModelProto:
    """Return a model in versions in which its weights can be written; the model given is changed.

    Args:
        model: whose weights are quantized.
        has_linear: whether they become inputs of DequantizeLinear.
        has_rows: whether those of Gather are quantized, too.
        least_bits: of any weight.

    Raises:
        InvalidQuantization: ONNX cannot convert it to the opset that is needed.
    """
    needed, ir_version = (TWO_BITS_OPSET, TWO_BITS_IR) if least_bits == 2 else (BLOCKS_OPSET, FOUR_BITS_IR)
    if has_linear and opset_of(model) < needed:
        what = "2 bits" if least_bits == 2 else "blocks"
        log.warning(
            "DequantizeLinear has %s from opset %d on: the model is converted from %d", what, needed, opset_of(model)
        )
        model = converted_to(model, needed, "quant_format QDQ; QOperator works in the model's own opset")
    if has_linear and least_bits == 2:
        log.warning("onnxruntime 1.32 gives wrong results for DequantizeLinear of 2 bits unless its fusions are off")
    if (has_linear or has_rows) and model.ir_version < (ir_version if has_linear else FOUR_BITS_IR):
        model.ir_version = ir_version if has_linear else FOUR_BITS_IR
    if not any(each.domain == "com.microsoft" for each in model.opset_import) and not has_linear:
        model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return model


def converted_to(model: ModelProto, opset: int, reason: str) -> ModelProto:
    """Return a model in another opset, converted while its large floats stand aside: they may lie in files.

    Args:
        model: is changed.
        opset: of ONNX's own operators.
        reason: what needs it, for the message.

    Raises:
        InvalidQuantization: ONNX cannot convert it.
    """
    aside = [each for each in model.graph.initializer if _stands_aside(each)]
    try:
        converted = model_files.converted_without(model, aside, opset)
    except InvalidQuantization as error:
        raise InvalidQuantization(f"{error}. It is needed for {reason}") from error
    for each in model.metadata_props:
        if each.key not in {other.key for other in converted.metadata_props}:
            converted.metadata_props.add(key=each.key, value=each.value)
    return converted


def _stands_aside(tensor: TensorProto) -> bool:
    is_float = tensor.data_type in (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)
    return is_float and (tensor.data_location == TensorProto.EXTERNAL or tensor.ByteSize() > _KEPT)
