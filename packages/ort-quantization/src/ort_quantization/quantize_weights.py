"""``quantize_weights``: weights of products in few bits, in the way that loses least for its size.

Rounding costs most in the products that give the results, as that with the vocabulary of a language model does, and
they are few: they keep 8 bits. The others get float zero points (HQQ), in blocks of 32, unless another method is
asked for. What each costs a trained model stands in the guide.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from pathlib import Path

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto

from ort_core.model_graphs import reads_in_order
from ort_quantization.calibration.activation_capture import Providers
from ort_quantization.calibration.calibration_data import CalibrationDataReader
from ort_quantization.errors import InvalidCalibration, InvalidQuantization
from ort_quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
from ort_quantization.models.gemm_as_matmul import constant_products
from ort_quantization.models.model_files import read_model, refuse_unwritable
from ort_quantization.models.streamed_model import StreamedModel
from ort_quantization.models.tensor_folder import TensorFolder
from ort_quantization.weight_only.matmul_nbits_configs import (
    AWQWeightOnlyQuantConfig,
    DefaultWeightOnlyQuantConfig,
    GPTQWeightOnlyQuantConfig,
    HQQWeightOnlyQuantConfig,
    KQuantWeightOnlyQuantConfig,
    RTNWeightOnlyQuantConfig,
    WeightOnlyQuantConfig,
)

log = logging.getLogger(__name__)

_PLAIN: dict[str, Callable[[int, int], WeightOnlyQuantConfig]] = {
    "hqq": lambda bits, block_size: HQQWeightOnlyQuantConfig(block_size, bits),
    "default": lambda bits, block_size: DefaultWeightOnlyQuantConfig(block_size, bits=bits),
    "rtn": lambda bits, block_size: RTNWeightOnlyQuantConfig(),
    "k_quant": lambda bits, block_size: KQuantWeightOnlyQuantConfig(),
}
_BY_DATA: dict[str, Callable[[CalibrationDataReader], WeightOnlyQuantConfig]] = {
    "gptq": lambda reader: GPTQWeightOnlyQuantConfig(reader, mse=True, real_zero_points=True),
    "awq": AWQWeightOnlyQuantConfig,
}
METHODS = (*_PLAIN, *_BY_DATA)


def quantize_weights(
    model_input: str | Path | ModelProto,
    model_output: str | Path,
    bits: int = 4,
    *,
    method: str = "hqq",
    block_size: int = 32,
    last_bits: int = 8,
    calibration_data_reader: CalibrationDataReader | None = None,
    nodes_to_exclude: Iterable[str] = (),
    use_external_data_format: bool = False,
    providers: Providers | None = None,
) -> None:
    """Write a model whose constant weights of products have few bits (MatMulNBits); activations stay in float.

    Products are MatMul nodes with a constant weight, also a transposed one, and Gemm nodes without factors, which
    become MatMul and Add.

    Args:
        model_input: the float model, or its file; large files are read weight by weight.
        model_output: the file to write.
        bits: 2, 4 or 8.
        method: ``hqq``, ``default``, ``rtn``, ``k_quant``, or, with data, ``gptq`` or ``awq``.
        block_size: rows that share a scale.
        last_bits: of the products that no other product follows; ``bits`` where that is more.
        calibration_data_reader: the inputs of runs, for ``gptq`` and ``awq``.
        nodes_to_exclude: names of nodes that stay as they are.
        use_external_data_format: large tensors get a file of their own, as they must in models above 2 GB.
        providers: that run the model for ``gptq`` and ``awq``; the default ones by default.

    Raises:
        NoSuchFile: there is no such model.
        InvalidQuantization: a setting is unknown.
        InvalidCalibration: the method needs data and there is none, or nothing follows from it.
    """
    refuse_unwritable(model_output)
    nodes_to_exclude = list(nodes_to_exclude)
    config = _config(method, bits, block_size, calibration_data_reader)
    source = read_model(model_input)[0] if isinstance(model_input, ModelProto) else model_input  # theirs is kept
    quantizer = MatMulNBitsQuantizer(
        source, bits, block_size, nodes_to_exclude=nodes_to_exclude, algo_config=config, providers=providers
    )
    assert isinstance(quantizer.model, StreamedModel)  # so it is made
    folder = quantizer.model.folder
    if folder and method not in _BY_DATA:  # those run the model, which does not look for weights that were set aside
        folder = TensorFolder(folder, Path(model_output).parent)
    constant_products(quantizer.model.streamed.graph, folder, frozenset(nodes_to_exclude))
    quantizer.model.folder = folder
    last = _last_products(quantizer.model.streamed.graph)
    _name(last, quantizer.model.streamed.graph)
    if last_bits > bits:
        config.customized_weight_config = {node.name: {"bits": last_bits} for node in last}
        log.info("%s: %d bits", ", ".join(node.name for node in last), last_bits)
    quantizer.process()
    quantizer.model.save_model_to_file(model_output, use_external_data_format)


def _config(method: str, bits: int, block_size: int, reader: CalibrationDataReader | None) -> WeightOnlyQuantConfig:
    if method in _PLAIN:
        return _PLAIN[method](bits, block_size)
    if method not in _BY_DATA:
        raise InvalidQuantization(f"{method!r} is no method; known: {', '.join(METHODS)}")
    if reader is None:
        raise InvalidCalibration(f"{method} needs data: the model's inputs, run after run")
    return _BY_DATA[method](reader)


def _last_products(graph: GraphProto) -> list[NodeProto]:
    """Return the MatMul nodes of constant weights whose results reach no other such node, nor a body of a node.

    Args:
        graph: its nodes in order.
    """
    constant = {tensor.name for tensor in graph.initializer}
    followed: set[str] = set()
    found = []
    for node in reversed(graph.node):
        is_product = node.op_type == "MatMul" and node.domain in ("", "ai.onnx") and node.input[1] in constant
        has_body = any(each.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS) for each in node.attribute)
        is_followed = has_body or not followed.isdisjoint(node.output)
        if is_product and not is_followed:
            found.append(node)
        if is_product or is_followed:
            followed.update(reads_in_order(node))
    return found[::-1]


def _name(nodes: Iterable[NodeProto], graph: GraphProto) -> None:
    """Give nodes without a name one that no node has: settings are by name."""
    taken = {node.name for node in graph.node}
    for node in nodes:
        name, count = node.name or f"{node.output[0]}_MatMul", 0
        while not node.name and name in taken:
            count += 1
            name = f"{node.output[0]}_MatMul_{count}"
        node.name = name
        taken.add(name)
