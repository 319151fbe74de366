"""Models in which each layer has a scheme of its own.

int8      QuantizeLinear and DequantizeLinear around a layer, a scale for each channel of weights
dynamic   weights in int8, activations while the model runs
int4      weights in blocks of 4 bits (products of matrices)
bfloat16, float16   the layer computes in them, between casts
float32   as it was
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onnx import ModelProto

from ort_quantization.bfloat16 import convert_float_to_bfloat16
from ort_quantization.calibration.tensor_ranges import TensorsData
from ort_quantization.errors import InvalidQuantization
from ort_quantization.float16 import convert_float_to_float16
from ort_quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
from ort_quantization.models.model_files import with_shapes
from ort_quantization.models.node_order import put_in_order
from ort_quantization.onnx_model import ONNXModel
from ort_quantization.onnx_quantizer import ONNXQuantizer
from ort_quantization.qdq_quantizer import QDQQuantizer
from ort_quantization.quantized_types import QuantizationMode, QuantType
from ort_quantization.registry import IntegerOpsRegistry
from ort_quantization.targets.target_layers import FOLLOWING, WEIGHTED, Layer, name_nodes

FLOAT = "float32"
SCHEMES = ("int8", "dynamic", "int4", "bfloat16", "float16")
_BLOCK_SIZE = 32
_SPARED = "spared"  # a domain for the time that nodes are not to be looked at
_PRODUCTS = {"MatMulConstBOnly": True}


def suits(layer: Layer, scheme: str) -> str:
    """Return why a layer cannot have a scheme; nothing where it can."""
    if scheme == "int4" and not layer.is_product:
        return f"only products with a matrix are stored in blocks of 4 bits, this is a {layer.op_type}"
    if scheme == "dynamic" and layer.op_type not in IntegerOpsRegistry:
        return f"a {layer.op_type} is not quantized while the model runs"
    return ""


def assigned(
    model: ModelProto, layers: Sequence[Layer], assignment: Mapping[str, str], ranges: TensorsData
) -> ModelProto:
    """Return a model whose layers have schemes by their names; the others stay as they are.

    Args:
        model: with shapes, and with names for all nodes; it is not changed.
        layers: of the model.
        assignment: schemes by layers' names.
        ranges: of all values, as calibration found them.

    Raises:
        InvalidQuantization: there is no such scheme.
    """
    unknown = sorted(set(assignment.values()) - {*SCHEMES, FLOAT})
    if unknown:
        raise InvalidQuantization(f"{unknown[0]!r} is no scheme; known: {', '.join((*SCHEMES, FLOAT))}")
    found = ModelProto()
    found.CopyFrom(model)
    by_scheme: dict[str, list[Layer]] = {}
    for layer in layers:
        by_scheme.setdefault(assignment.get(layer.name, FLOAT), []).append(layer)
    if by_scheme.get("dynamic"):
        found = _dynamic(found, by_scheme["dynamic"])
        if by_scheme.get("int8"):
            _rename_new(model, found)
    if by_scheme.get("int8"):
        found = _static(found, by_scheme["int8"], ranges)
    if by_scheme.get("int4"):
        chosen = {layer.name for layer in by_scheme["int4"]}
        quantizer = MatMulNBitsQuantizer(
            found, block_size=_BLOCK_SIZE, accuracy_level=4,
            nodes_to_exclude=[node.name for node in found.graph.node if node.name not in chosen],
        )  # fmt: skip
        quantizer.process()
        found = quantizer.model.model
    for scheme, convert in (("bfloat16", convert_float_to_bfloat16), ("float16", convert_float_to_float16)):
        if by_scheme.get(scheme):
            name_nodes(found)  # what quantized a layer may have left some without
            inside = {name for layer in by_scheme[scheme] for name in layer.nodes}
            blocked = [node.name for node in found.graph.node if node.name not in inside]
            found = convert(with_shapes(found), keep_io_types=True, node_block_list=blocked)
    return found


def _static(model: ModelProto, layers: Sequence[Layer], ranges: TensorsData) -> ModelProto:
    nodes = [name for layer in layers for name in layer.followers]
    quantizer = QDQQuantizer(
        ONNXModel(model, ""), True, False, QuantType.QInt8, QuantType.QUInt8, ranges, nodes, [],
        [*WEIGHTED, *FOLLOWING], dict(_PRODUCTS),
    )  # fmt: skip
    quantizer.quantize_model()
    put_in_order(quantizer.model.model.graph, is_deep=False)  # the next scheme goes by the order of nodes
    return quantizer.model.model


def _dynamic(model: ModelProto, layers: Sequence[Layer]) -> ModelProto:
    for node in model.graph.node:  # the quantizer writes every Gemm as a product and a sum
        if node.op_type == "Gemm":
            node.domain, node.op_type = _SPARED, _SPARED
    model.opset_import.add(domain=_SPARED, version=1)
    quantizer = ONNXQuantizer(
        ONNXModel(model, ""), True, False, QuantizationMode.IntegerOps, False, QuantType.QInt8, QuantType.QUInt8,
        None, [layer.name for layer in layers], [], list(IntegerOpsRegistry), dict(_PRODUCTS),
    )  # fmt: skip
    quantizer.quantize_model()
    put_in_order(quantizer.model.model.graph, is_deep=False)  # the next scheme goes by the order of nodes
    found = quantizer.model.model
    for node in found.graph.node:
        if node.domain == _SPARED:
            node.domain, node.op_type = "", "Gemm"
    kept = [each for each in found.opset_import if each.domain != _SPARED]
    del found.opset_import[:]
    found.opset_import.extend(kept)
    return found


def _rename_new(before: ModelProto, model: ModelProto) -> None:
    """Give other names to what a scheme added: another one may call its own so, ``NAME_scale`` for instance."""
    known = {name for node in before.graph.node for name in (node.name, *node.output)}
    known |= {each.name for each in (*before.graph.initializer, *before.graph.input)}
    added = {name for node in model.graph.node for name in (node.name, *node.output)}
    added |= {each.name for each in model.graph.initializer}
    renamed = {name: f"{name}_dynamic" for name in added - known if name}
    for node in model.graph.node:
        node.name = renamed.get(node.name, node.name)
        for ends in (node.input, node.output):
            for place, name in enumerate(ends):
                ends[place] = renamed.get(name, name)
    for each in (*model.graph.initializer, *model.graph.value_info):
        each.name = renamed.get(each.name, each.name)
