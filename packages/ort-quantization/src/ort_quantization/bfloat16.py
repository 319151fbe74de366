"""``convert_float_to_bfloat16``: a model in bfloat16, with the range of float32 and 8 significant bits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from onnx import ModelProto, TensorProto

from ort_quantization.float16 import DEFAULT_OP_BLOCK_LIST, converted

CAST_OPSET = 13
"""The first opset in which most operators, Cast among them, take bfloat16."""

__all__ = ["convert_float_to_bfloat16"]


def convert_float_to_bfloat16(
    model: ModelProto | str | Path,
    keep_io_types: bool | Sequence[str] = False,
    disable_shape_infer: bool = False,
    op_block_list: Iterable[str] | None = None,
    node_block_list: Iterable[str] | None = None,
    force_bf16_initializers: bool = False,
) -> ModelProto:
    """Return a model in bfloat16; operators that ONNX has in no bfloat16 stay float32, as blocked ones do.

    Args:
        model: as of ``convert_float_to_float16``.
        keep_io_types: likewise.
        disable_shape_infer: likewise.
        op_block_list: likewise.
        node_block_list: likewise.
        force_bf16_initializers: convert weights that only blocked nodes read, too.

    Raises:
        InvalidQuantization: the model is none.
        NoSuchFile: there is no such model.
    """
    operators = DEFAULT_OP_BLOCK_LIST if op_block_list is None else op_block_list
    return converted(
        model, TensorProto.BFLOAT16, TensorProto.FLOAT, (0.0, 0.0), keep_io_types, disable_shape_infer, set(operators),
        set(node_block_list or ()), force_bf16_initializers, {}, CAST_OPSET,
    )  # fmt: skip
