"""``MatMulNBitsQuantizer``: constant weights of MatMul and Gather in 2, 4 or 8 bits, with onnxruntime's arguments.

A model that is given by its path is read without its external data: weights are read one at a time, and what stays as
is goes from file to file when the model is saved. As a command: ``python -m ort_quantization.matmul_nbits_quantizer``.
"""

from __future__ import annotations

import functools
import logging
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import ml_dtypes
import numpy as np
from onnx import ModelProto, NodeProto, TensorProto

from ort_core.cli.interrupts import run_program
from ort_core.lazy_names import lazy_names
from ort_quantization.arguments.given_arguments import refuse_single_names
from ort_quantization.calibration.activation_capture import Providers
from ort_quantization.calibration.body_capture import Operand
from ort_quantization.models.model_checks import checked
from ort_quantization.models.model_files import opset_of, read_model, read_tensor
from ort_quantization.models.streamed_model import StreamedModel
from ort_quantization.models.tensor_folder import TensorFolder
from ort_quantization.onnx_model import ONNXModel
from ort_quantization.quantized_types import QuantFormat
from ort_quantization.weight_only.matmul_nbits_blocks import LinearBlocks, Numbers, PackedBlocks
from ort_quantization.weight_only.matmul_nbits_configs import (
    AWQWeightOnlyQuantConfig,
    DefaultWeightOnlyQuantConfig,
    GPTQWeightOnlyQuantConfig,
    HQQWeightOnlyQuantConfig,
    KQuantWeightOnlyQuantConfig,
    NVAWQWeightOnlyQuantConfig,
    RTNWeightOnlyQuantConfig,
    WeightOnlyQuantConfig,
)
from ort_quantization.weight_only.matmul_nbits_data import (
    FoundState,
    in_layout,
    key_of,
    matrix_of,
    nearest,
    operand_of,
    quantized_by_data,
)
from ort_quantization.weight_only.matmul_nbits_gather import quantized_rows
from ort_quantization.weight_only.matmul_nbits_nodes import (
    StoredWeight,
    TakenNames,
    gather_node,
    product_nodes,
    store_linear,
    store_packed,
    store_rows,
    weight_array,
)
from ort_quantization.weight_only.matmul_nbits_opset import raise_versions
from ort_quantization.weight_only.matmul_nbits_rounding import (
    half_quadratic,
    k_quant,
    native_blocks,
    native_linear_blocks,
    round_to_nearest,
)
from ort_quantization.weight_only.matmul_nbits_settings import Settings, settings_of, settings_of_node
from ort_quantization.weight_only.matmul_nbits_sites import Site, find_sites, replace_nodes
from ort_quantization.weight_only.matmul_nbits_smoothing import Smoothing

__all__ = [
    "AWQWeightOnlyQuantConfig", "DefaultWeightOnlyQuantConfig", "GPTQWeightOnlyQuantConfig",
    "HQQWeightOnlyQuantConfig", "KQuantWeightOnlyQuantConfig", "MatMulNBitsQuantizer", "NVAWQWeightOnlyQuantConfig",
    "RTNWeightOnlyQuantConfig", "WeightOnlyQuantConfig",
]  # fmt: skip

log = logging.getLogger(__name__)

STATISTICS_NBYTES = 1 << 30  # of GPTQ and AWQ: what is held of operands at once
_DATA_METHODS = ("GPTQ", "nvidia_awq")


class MatMulNBitsQuantizer:
    """Quantizes the constant weights of a model's MatMul and Gather nodes.

    Args:
        model: changed in place, as onnxruntime's class does; or the path of a file, which is not.
        bits: 2, 4 or 8.
        block_size: rows that share a scale.
        is_symmetric: no zero points.
        accuracy_level: of MatMulNBits; 4 lets engines compute in int8.
        nodes_to_exclude: names of nodes that stay as they are.
        nodes_to_include: names of nodes that are quantized whatever their operator says.
        quant_format: ``QOperator`` (MatMulNBits, GatherBlockQuantized) or ``QDQ`` (DequantizeLinear before MatMul).
        op_types_to_quantize: operators; MatMul by default.
        quant_axes: pairs of an operator and the axis of its blocks; MatMul 0, Gather 1 by default.
        channel_wised_quantize: one block for a whole column (QDQ only).
        algo_config: a method and its settings; those of ``DefaultWeightOnlyQuantConfig`` come from the arguments above.
        providers: that run the model for methods that use data; the default ones by default.

    Attributes:
        model: an ``ONNXModel``; quantized behind ``process()``.

    Raises:
        InvalidQuantization: settings contradict each other.
        NoSuchFile: there is no such model.
    """

    def __init__(
        self,
        model: ModelProto | str | Path,
        bits: int = 4,
        block_size: int = 128,
        is_symmetric: bool = False,
        accuracy_level: int | None = None,
        nodes_to_exclude: Iterable[str] | None = None,
        nodes_to_include: Iterable[str] | None = None,
        quant_format: QuantFormat = QuantFormat.QOperator,
        op_types_to_quantize: Iterable[str] | None = None,
        quant_axes: Iterable[tuple[str, int]] | None = None,
        channel_wised_quantize: bool = False,
        algo_config: WeightOnlyQuantConfig | None = None,
        providers: Providers | None = None,
    ) -> None:
        refuse_single_names(
            nodes_to_exclude=nodes_to_exclude, nodes_to_include=nodes_to_include,
            op_types_to_quantize=op_types_to_quantize,
        )  # fmt: skip
        self.model_path = None if isinstance(model, ModelProto) else str(model)
        self.bits, self.block_size, self.is_symmetric = bits, block_size, is_symmetric
        self.accuracy_level = accuracy_level
        self.nodes_to_exclude = set(nodes_to_exclude or ())
        self.nodes_to_include = set(nodes_to_include) if nodes_to_include else None
        self.providers = providers
        self.algo_config = algo_config or DefaultWeightOnlyQuantConfig(
            block_size=block_size, is_symmetric=is_symmetric, accuracy_level=accuracy_level,
            quant_format=quant_format, op_types_to_quantize=op_types_to_quantize, quant_axes=quant_axes, bits=bits,
            channel_wised_quantize=channel_wised_quantize,
        )  # fmt: skip
        self._settings = settings_of(self.algo_config, bits, block_size, is_symmetric, accuracy_level)
        proto, folder = (model, "") if isinstance(model, ModelProto) else read_model(model)
        checked(proto.graph)
        self.model: ONNXModel = StreamedModel(proto, folder)

    def process(self) -> None:
        """Quantize the model.

        Raises:
            InvalidQuantization: a weight or the model cannot be quantized as asked.
            InvalidCalibration: the method needs data and there is none, or nothing follows from it.
        """
        proto, folder = self._whole(self.model)
        settings = self._settings
        has_gather = "Gather" in self.algo_config.op_types_to_quantize
        custom = (self.algo_config.customized_weight_config or {}).values()
        least_bits = min([settings.bits, *(int(each["bits"]) for each in custom if "bits" in each)])
        proto = raise_versions(proto, settings.is_linear, has_gather, least_bits)
        sites = find_sites(proto.graph, self._is_chosen, self._settings_of, opset_of(proto))
        products = [each for each in sites if each.node.op_type == "MatMul"]
        found = FoundState()
        if settings.algorithm in _DATA_METHODS and products:
            found = quantized_by_data(
                products, proto, folder, self.algo_config, self.providers, STATISTICS_NBYTES
            )  # fmt: skip
        if folder and not isinstance(folder, TensorFolder):  # of a model in files: what is made lies in one, too
            folder = TensorFolder(folder)
        replaced = _Replacement(proto, folder, self.algo_config, found).nodes(sites)
        replace_nodes(proto.graph, replaced)
        plain = ONNXModel(proto, folder)
        plain.clean_initializers()
        self.model = StreamedModel(proto, folder)
        if not replaced:
            kinds = " and ".join(self.algo_config.op_types_to_quantize)
            log.warning("no weight was quantized: the model has no chosen %s node with a constant matrix", kinds)
        log.info("%d of the chosen nodes were quantized", len(replaced))

    @staticmethod
    def _whole(model: ONNXModel) -> tuple[ModelProto, str]:
        return (model.streamed, model.folder) if isinstance(model, StreamedModel) else (model.model, model.folder)

    def _is_chosen(self, node: NodeProto) -> bool:
        if node.name in self.nodes_to_exclude:
            return False
        is_included = self.nodes_to_include is not None and node.name in self.nodes_to_include
        return is_included or node.op_type in self.algo_config.op_types_to_quantize

    def _settings_of(self, node: NodeProto) -> Settings:
        return settings_of_node(self._settings, self.algo_config.customized_weight_config, node.name)


class _Replacement:
    """Stores quantized weights in a model, shared ones once, and makes the nodes that read them."""

    def __init__(self, model: ModelProto, folder: str, config: WeightOnlyQuantConfig, found: FoundState) -> None:
        self._model, self._folder, self._config, self._found = model, folder, config, found
        self._by_data = found.numbers.keys
        self._names = TakenNames(model)
        self._smoothing = Smoothing(model, folder, self._names)
        self._stored: dict[tuple[object, ...], StoredWeight | tuple[str, ...]] = {}
        self._smoothed: dict[tuple[object, ...], str] = {}

    def nodes(self, sites: list[Site]) -> dict[int, list[NodeProto]]:
        """Return what stands for each site's node, by the node's number (``id``)."""
        readers = Counter(operand_of(site) for site in sites if key_of(site) in self._by_data)
        replaced = {}
        for site in sites:
            if site.node.op_type == "Gather":
                replaced[id(site.node)] = [self._gather(site)]
            else:
                before = self._smooth(site, readers)
                stored = self._product(site)
                replaced[id(site.node)] = before + product_nodes(site.node, stored, site.added_axes, self._names)
        return replaced

    def _smooth(self, site: Site, readers: Counter[Operand]) -> list[NodeProto]:
        """Let a node read its operand divided; return the node that divides it, before its graph's first reader."""
        operand = operand_of(site)
        divisors = self._found.divisors.get(operand)
        if divisors is None or key_of(site) not in self._by_data:
            return []
        before: list[NodeProto] = []
        in_graph = *operand, id(site.graph)  # a node inside a branch divides for that branch alone
        if operand not in self._smoothed and in_graph not in self._smoothed:
            is_main = site.source is self._model.graph
            count = readers[operand] if is_main else 0
            name, made = self._smoothing.divide(site.operand, count, divisors, site.tensor.data_type)
            self._smoothed[operand if made is None else in_graph] = name
            before = [made] if made is not None else []
        site.node.input[0] = self._smoothed.get(in_graph, self._smoothed.get(operand, ""))
        return before

    def _product(self, site: Site) -> StoredWeight:
        # onnxruntime turns pairs into MatMulNBits, and finds the weights of one in its own graph only
        holder = site.graph if site.settings.is_linear else site.owner
        operand = operand_of(site) if key_of(site) in self._by_data else None
        key = id(holder), id(site.owner), site.tensor.name, operand, site.settings
        if key not in self._stored:
            blocks = self._blocks(site)
            where = holder, site.tensor.name
            if isinstance(blocks, LinearBlocks):
                self._stored[key] = store_linear(*where, blocks, site.settings, self._names, self._folder)
            else:
                self._stored[key] = store_packed(*where, blocks, site.settings, self._names, self._folder)
        found = self._stored[key]
        assert isinstance(found, StoredWeight)  # keys of tables are shorter
        return found

    def _blocks(self, site: Site) -> PackedBlocks | LinearBlocks:
        """Return a weight's blocks in the layout that its operator reads; bfloat16 weights get scales of bfloat16."""
        blocks = self._found.numbers.find(key_of(site)) or _quantized(site, self._folder, self._config)
        if isinstance(blocks, Numbers):
            blocks = in_layout(blocks, site.settings)
        if site.tensor.data_type != TensorProto.BFLOAT16:
            return blocks
        scales = blocks.scales.astype(ml_dtypes.bfloat16)
        if isinstance(blocks, LinearBlocks):
            return LinearBlocks(blocks.data, scales, blocks.zero_points, blocks.bits, blocks.rows, blocks.block_size)
        points = blocks.zero_points
        if points is not None and points.dtype != np.uint8:
            points = points.astype(ml_dtypes.bfloat16)
        return PackedBlocks(blocks.data, scales, points, blocks.bits, blocks.rows)

    def _gather(self, site: Site) -> NodeProto:
        rank, settings = len(site.tensor.dims), site.settings
        axis = self._config.quant_axes.get("Gather", 1)
        axis = axis + rank if axis < 0 else axis
        key = (*key_of(site)[:2], settings, axis, "rows")
        if key not in self._stored:
            table = weight_array(read_tensor(site.tensor, self._folder))
            data, scales, points = quantized_rows(
                table, axis, settings.block_size, settings.is_symmetric, settings.bits
            )
            if site.tensor.data_type == TensorProto.BFLOAT16:
                scales = scales.astype(ml_dtypes.bfloat16)
            parts = data, scales, points
            self._stored[key] = store_rows(
                site.owner, site.tensor.name, parts, table.shape, self._names, settings.bits, self._folder
            )  # fmt: skip
        tensors = self._stored[key]
        assert isinstance(tensors, tuple)  # keys of products are shorter
        gather_axis = next((each.i for each in site.node.attribute if each.name == "axis"), 0)
        return gather_node(site.node, tensors, gather_axis, axis, settings)


def _quantized(site: Site, folder: str, config: WeightOnlyQuantConfig) -> Numbers | PackedBlocks | LinearBlocks:
    """Return a weight quantized by a method that looks at nothing else."""
    settings, weight = site.settings, matrix_of(site, folder)
    size = settings.block_of(len(weight))
    if settings.algorithm == "DEFAULT":
        if not settings.is_linear:
            return native_blocks(weight, settings.bits, size, settings.is_symmetric)
        if settings.bits in (2, 4):
            return native_linear_blocks(weight, settings.bits, size, settings.is_symmetric)
        return round_to_nearest(weight, settings.bits, size, settings.is_symmetric)
    if settings.algorithm == "HQQ":
        return half_quadratic(weight, settings.bits, size)
    if settings.algorithm == "k_quant":
        return k_quant(weight, settings.bits, size)
    if settings.algorithm == "RTN":
        ratio = getattr(config, "ratios", {}).get(site.tensor.name, 1.0)
        return round_to_nearest(weight, settings.bits, size, settings.is_symmetric, ratio)
    return nearest(weight, site)


__getattr__, _ = lazy_names(  # what programs import from here, as onnxruntime's module imports it
    __name__,
    {
        "ort_core.plugin.kernels": (
            "quantize_matmul_2bits", "quantize_matmul_4bits", "quantize_matmul_8bits", "quantize_qdq_matmul_4bits",
        ),
        "ort_quantization.calibration.calibration_data": (
            "CalibrationDataReader",
        ),
        "ort_quantization.quant_utils": (
            "attribute_to_kwarg",
        ),
    },
)  # fmt: skip


if __name__ == "__main__":
    from ort_quantization.weight_only.matmul_nbits_command import main

    run_program(functools.partial(main, MatMulNBitsQuantizer))
