"""``quant_pre_process``: what makes a model easier to quantize: shapes and types of all values, nothing left to fold.

The shapes are those that ort-core infers, symbols and operators of com.microsoft included; what it folds and fuses are
standard operators into standard operators. A model that it does not load, as for an operator of somebody's own, gets
the shapes that ONNX infers.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import onnx
from onnx import ModelProto

import ort_core
from ort_core.errors import OrtError
from ort_quantization.errors import InvalidQuantization
from ort_quantization.models.model_files import (
    EXTERNAL_FROM,
    FILE_LIMIT,
    INFERRED,
    PREPARED,
    Source,
    TensorFile,
    converted_to,
    is_external,
    mark,
    opset_of,
    read_model,
    refuse_unwritable,
    with_shapes,
    write_model,
)
from ort_quantization.models.node_order import put_in_order

log = logging.getLogger(__name__)

_FIRST_OPSET = 11  # of quantized models: older ones are converted
_WEIGHTS = "weights"


def quant_pre_process(
    input_model: str | Path | ModelProto | None = None,
    output_model_path: str | Path | None = None,
    skip_optimization: bool = False,
    skip_onnx_shape: bool = False,
    skip_symbolic_shape: bool = False,
    auto_merge: bool = False,
    int_max: int = 2**31 - 1,
    guess_output_rank: bool = False,
    verbose: int = 0,
    save_as_external_data: bool = False,
    all_tensors_to_one_file: bool = False,
    external_data_location: str | None = None,
    external_data_size_threshold: int = EXTERNAL_FROM,
    **deprecated_kwargs: object,
) -> None:
    """Prepare a model for quantization: shapes, then folding and fusion of standard operators, then shapes again.

    Args:
        input_model: a model, or its file; neither is changed.
        output_model_path: the file to write.
        skip_optimization: nothing is folded or fused.
        skip_onnx_shape: ONNX's own inference does not run.
        skip_symbolic_shape: without ``skip_optimization`` of no effect: the optimizer infers shapes, too.
        auto_merge: onnxruntime's; of no effect here: sizes that conflict are left unknown.
        int_max: onnxruntime's; of no effect here.
        guess_output_rank: onnxruntime's; of no effect here.
        verbose: onnxruntime's; of no effect here: what is done is logged.
        save_as_external_data: large tensors get a file of their own beside the model.
        all_tensors_to_one_file: onnxruntime's; of no effect here: they always do.
        external_data_location: the name of that file; ``NAME.data`` by default.
        external_data_size_threshold: bytes from which on a tensor is large.
        deprecated_kwargs: ``input_model_path``, the former name of ``input_model``.

    Raises:
        InvalidQuantization: a path is missing, or the model cannot be brought to opset 11.
    """
    source = input_model if input_model is not None else deprecated_kwargs.pop("input_model_path", None)
    if source is None or output_model_path is None:
        raise InvalidQuantization("quant_pre_process needs an input model and the path of the model to write")
    refuse_unwritable(output_model_path)
    model, folder = read_model(cast("Source", source))  # which refuses what is none
    model = _in_quantizable_opset(model)
    with tempfile.TemporaryDirectory(prefix="ort.quantization.") as scratch:
        if not (skip_optimization and skip_symbolic_shape):
            model, folder = as_loaded(model, folder, Path(scratch), is_optimized=not skip_optimization)
        if not skip_onnx_shape:
            model = with_shapes(model, folder)
            for place in reversed(range(len(model.metadata_props))):
                if model.metadata_props[place].key == INFERRED[0]:
                    del model.metadata_props[place]
        mark(model, PREPARED)
        put_in_order(model.graph, is_deep=False)
        has_files = save_as_external_data or any(is_external(tensor) for tensor in model.graph.initializer)
        place_of_tensors = TensorFile(external_data_location, external_data_size_threshold)
        write_model(model, folder, output_model_path, has_files, place_of_tensors)


def _in_quantizable_opset(model: ModelProto) -> ModelProto:
    return model if opset_of(model) >= _FIRST_OPSET else converted_to(model, _FIRST_OPSET)


def as_loaded(
    model: ModelProto, folder: str, scratch: Path, is_optimized: bool, without: Sequence[str] = ()
) -> tuple[ModelProto, str]:
    """Return a model as ort-core's optimizer leaves it, with its shapes; as it was where it is refused.

    Args:
        model: the model.
        folder: of its external data.
        scratch: an empty folder, in which the external data of the model that is returned may lie.
        is_optimized: constants are folded, and standard operators fused.
        without: passes that do not run.
    """
    source, target = scratch / "model.onnx", scratch / "prepared.onnx"
    held = ModelProto()
    held.CopyFrom(model)
    has_files = any(is_external(tensor) for tensor in model.graph.initializer)
    write_model(held, folder, source, has_files)
    levels = ort_core.GraphOptimizationLevel
    options = ort_core.SessionOptions()
    options.graph_optimization_level = levels.ORT_ENABLE_BASIC if is_optimized else levels.ORT_DISABLE_ALL
    options.optimized_model_filepath = str(target)
    if has_files or model.ByteSize() > FILE_LIMIT:
        options.add_session_config_entry("session.optimized_model_external_initializers_file_name", _WEIGHTS)
    try:
        # Nothing runs: the provider that compiles nothing loads fastest
        ort_core.InferenceSession(
            str(source), options, providers=["ReferenceExecutionProvider"], disabled_optimizers=list(without)
        )
    except OrtError as error:
        log.warning("ort-core does not load the model, which keeps its nodes and gets ONNX's shapes: %s", error)
        return model, folder
    prepared = onnx.load(target, load_external_data=False)
    for entry in model.metadata_props:
        mark(prepared, (entry.key, entry.value))
    return prepared, str(scratch)
