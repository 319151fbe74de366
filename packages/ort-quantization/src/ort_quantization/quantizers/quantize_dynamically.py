"""``quantize_dynamic``: weights quantized in the file, activations while the model runs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from onnx import ModelProto, TensorProto

from ort_core.model_graphs import graphs_of
from ort_quantization.arguments.advice import (
    advise_on_choices,
    advise_on_convolutions,
    advise_preparation,
    advise_without_change,
    count_operators,
)
from ort_quantization.arguments.given_arguments import options_of, refuse_single_names
from ort_quantization.errors import InvalidQuantization
from ort_quantization.models.model_checks import free_names
from ort_quantization.models.model_files import read_with_shapes, refuse_unwritable, with_opset_for
from ort_quantization.models.tensor_folder import TensorFolder
from ort_quantization.onnx_model import ONNXModel
from ort_quantization.onnx_quantizer import ONNXQuantizer
from ort_quantization.quantized_types import QuantizationMode, QuantType, tensor_type_of
from ort_quantization.registry import IntegerOpsRegistry

_WEIGHTS = (TensorProto.INT8, TensorProto.UINT8)  # what MatMulInteger and ConvInteger multiply


def quantize_dynamic(
    model_input: str | Path | ModelProto,
    model_output: str | Path,
    op_types_to_quantize: Iterable[str] | None = None,
    per_channel: bool = False,
    reduce_range: bool = False,
    weight_type: QuantType | int = QuantType.QInt8,
    nodes_to_quantize: Iterable[str] | None = None,
    nodes_to_exclude: Iterable[str] | None = None,
    use_external_data_format: bool = False,
    extra_options: dict[str, Any] | None = None,  # Any: as many types as keys
) -> None:
    """Quantize the weights of a model, and write it so that activations are quantized, to uint8, while it runs.

    Args:
        model_input: a model, or its file; neither is changed.
        model_output: the file to write.
        op_types_to_quantize: operators; all of ``IntegerOpsRegistry`` by default.
        per_channel: weights get a scale for each channel, where their operator allows it.
        reduce_range: weights get one bit less, for processors that add products of bytes in 16 bits.
        weight_type: of weights: ``QInt8`` or ``QUInt8``.
        nodes_to_quantize: names of the only nodes to quantize; all by default.
        nodes_to_exclude: names of nodes that stay as they are.
        use_external_data_format: large tensors get a file of their own, as they must in models above 2 GB.
        extra_options: ``MatMulConstBOnly`` (default true), ``EnableSubgraph``, ``ForceQuantizeNoInputCheck``,
            ``WeightSymmetric``, ``ActivationSymmetric``, ``MinimumRealRange``, ``TensorQuantOverrides``,
            ``DefaultTensorType``; each as in onnxruntime.

    Raises:
        NoSuchFile: there is no such model.
        InvalidQuantization: the model or an option cannot be quantized so.
    """
    refuse_single_names(
        op_types_to_quantize=op_types_to_quantize,
        nodes_to_quantize=nodes_to_quantize,
        nodes_to_exclude=nodes_to_exclude,
    )
    options = options_of(extra_options)
    if tensor_type_of(weight_type) not in _WEIGHTS:
        raise InvalidQuantization(
            f"quantize_dynamic writes weights of 8 bits, QInt8 or QUInt8; found {weight_type}. MatMulNBitsQuantizer "
            "writes weights of 2, 4 and 8 bits beside activations in float"
        )
    refuse_unwritable(model_output)
    model, folder = read_with_shapes(model_input)
    advise_preparation(model)
    advise_on_choices(model, nodes_to_quantize, nodes_to_exclude)
    before, chosen = count_operators(model), list(op_types_to_quantize or IntegerOpsRegistry)
    advise_on_convolutions(before, chosen)
    types = {tensor_type_of(weight_type)}
    if "Gather" in chosen and _gathers_halves(model):
        types.add(TensorProto.FLOAT16)
    model = with_opset_for(model, folder, types)
    free_names(model.graph)
    held = TensorFolder(folder, Path(model_output).parent) if folder else ""
    quantizer = ONNXQuantizer(
        ONNXModel(model, held), per_channel, reduce_range, QuantizationMode.IntegerOps, False, weight_type,
        QuantType.QUInt8, None, nodes_to_quantize, nodes_to_exclude, chosen,
        {"MatMulConstBOnly": True, **options},
    )  # fmt: skip
    advise_without_change(before, quantizer.quantize_model(), chosen)
    quantizer.model.save_model_to_file(model_output, use_external_data_format)


def _gathers_halves(model: ModelProto) -> bool:
    """Return whether some Gather reads a table of float16, whose numbers DequantizeLinear gives from opset 19 on."""
    graphs = list(graphs_of(model.graph))
    halves = {each.name for graph in graphs for each in graph.initializer if each.data_type == TensorProto.FLOAT16}
    return any(node.op_type == "Gather" and node.input[0] in halves for graph in graphs for node in graph.node)
