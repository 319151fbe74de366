"""``convert_file``: a float32 model in a file turned into one of float16 or bfloat16 in another, tensor by tensor.

``convert_float_to_float16`` returns a whole model, as onnxruntime's does; this function never holds one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path

from onnx import ModelProto, TensorProto

from ort_core.model_graphs import graphs_of
from ort_quantization.bfloat16 import CAST_OPSET
from ort_quantization.errors import InvalidQuantization
from ort_quantization.float16 import DEFAULT_OP_BLOCK_LIST, converted_in_files
from ort_quantization.half_floats.float16_tensors import LEAST, MOST
from ort_quantization.models.model_files import read_model, refuse_unwritable, write_model
from ort_quantization.models.tensor_folder import TensorFolder

log = logging.getLogger(__name__)

HALVES = {"float16": TensorProto.FLOAT16, "bfloat16": TensorProto.BFLOAT16}


def convert_file(
    model_input: str | Path | ModelProto,
    model_output: str | Path,
    half: str = "float16",
    *,
    keep_io_types: bool | Sequence[str] = False,
    op_block_list: Iterable[str] | None = None,
    node_block_list: Iterable[str] | None = None,
    force_half_initializers: bool = False,
    use_external_data_format: bool = False,
) -> None:
    """Write a model in half floats; tensors that lie in files are converted one at a time.

    Args:
        model_input: the float model, or its file, beside which external data is looked for.
        model_output: the file to write.
        half: ``float16`` or ``bfloat16``.
        keep_io_types: as of ``convert_float_to_float16``.
        op_block_list: likewise.
        node_block_list: likewise.
        force_half_initializers: convert weights that only blocked nodes read, too.
        use_external_data_format: large tensors get a file of their own, as they must in models above 2 GB.

    Raises:
        InvalidQuantization: the model is none, or ``half`` is unknown.
        NoSuchFile: there is no such model.
    """
    if half not in HALVES:
        raise InvalidQuantization(f"{half!r} is no half type; known: {', '.join(HALVES)}")
    refuse_unwritable(model_output)
    is_float16 = half == "float16"
    model, found = read_model(model_input)
    folder = TensorFolder(found, Path(model_output).parent)
    operators = DEFAULT_OP_BLOCK_LIST if op_block_list is None else op_block_list
    model = converted_in_files(
        model, folder, HALVES[half], TensorProto.FLOAT, (LEAST, MOST) if is_float16 else (0.0, 0.0), keep_io_types,
        False, set(operators), set(node_block_list or ()), force_half_initializers, {}, 0 if is_float16 else CAST_OPSET,
    )  # fmt: skip
    tensors = [tensor for graph in graphs_of(model.graph) for tensor in graph.initializer]
    if not any(each.data_type == HALVES[half] for each in tensors):
        log.warning("no weight was converted: the model has none of float32 that may become %s", half)
    write_model(model, folder, model_output, use_external_data_format)
