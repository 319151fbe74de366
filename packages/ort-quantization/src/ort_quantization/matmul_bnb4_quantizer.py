"""``MatMulBnb4Quantizer``: constant weights of MatMul in the 4-bit floats of bitsandbytes, as in onnxruntime.

Also a command: ``python -m ort_quantization.matmul_bnb4_quantizer``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper

from ort_core.cli.interrupts import run_program
from ort_core.errors import OrtError
from ort_core.lazy_names import lazy_names
from ort_core.plugin.kernels import quantize_matmul_bnb4
from ort_quantization.arguments.given_arguments import refuse_single_names
from ort_quantization.errors import InvalidQuantization
from ort_quantization.models.model_checks import checked
from ort_quantization.models.model_files import opset_of, read_model
from ort_quantization.models.streamed_model import StreamedModel
from ort_quantization.models.tensor_folder import TensorFolder
from ort_quantization.onnx_model import ONNXModel
from ort_quantization.quantized_types import QuantFormat
from ort_quantization.weight_only.matmul_nbits_data import matrix_of
from ort_quantization.weight_only.matmul_nbits_nodes import TakenNames, add_tensor
from ort_quantization.weight_only.matmul_nbits_opset import raise_versions
from ort_quantization.weight_only.matmul_nbits_settings import Settings
from ort_quantization.weight_only.matmul_nbits_sites import Site, find_sites, replace_nodes

__all__ = ["MatMulBnb4Quantizer"]


class MatMulBnb4Quantizer:
    """Quantizes the constant weights of a model's MatMul nodes to 4-bit floats.

    Args:
        model: changed in place, as onnxruntime's class does; or the path of a file, which is not.
        quant_type: ``FP4`` or ``NF4``.
        block_size: values of the transposed weight that share a scale: 16, 32, 64, 128 or 256.
        nodes_to_exclude: names of nodes that stay as they are.

    Attributes:
        model: an ``ONNXModel``; quantized behind ``process()``.

    Raises:
        InvalidQuantization: there is no such type or size of blocks.
        NoSuchFile: there is no such model.
    """

    FP4 = 0
    """Floats of one sign, two exponent bits and one fraction bit."""
    NF4 = 1
    """Sixteen quantiles of the normal distribution."""

    def __init__(
        self,
        model: ModelProto | str | Path,
        quant_type: int,
        block_size: int,
        nodes_to_exclude: Iterable[str] | None = None,
    ) -> None:
        if quant_type not in (self.FP4, self.NF4):
            raise InvalidQuantization(f"quant_type {quant_type}; expected 0 (FP4) or 1 (NF4)")
        if block_size not in (16, 32, 64, 128, 256):
            raise InvalidQuantization(f"a block of {block_size} values; expected 16, 32, 64, 128 or 256")
        refuse_single_names(nodes_to_exclude=nodes_to_exclude)
        proto, folder = (model, "") if isinstance(model, ModelProto) else read_model(model)
        checked(proto.graph)
        self.model: ONNXModel = StreamedModel(proto, folder)
        self.quant_type = quant_type
        self.block_size = block_size
        self.nodes_to_exclude = set(nodes_to_exclude or ())

    def bnb4_block_quant(self, fpweight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return packed numbers and the largest magnitude of each block of a weight (K, N)."""
        if fpweight.ndim != 2:
            raise InvalidQuantization(f"a weight of shape {fpweight.shape}; expected a matrix")
        rows, columns = fpweight.shape
        packed = np.zeros((rows * columns + 1) // 2, np.uint8)
        largest = np.zeros(-(-rows * columns // self.block_size), fpweight.dtype)
        turned = np.ascontiguousarray(fpweight.T)
        quantize_matmul_bnb4(packed, turned, largest, self.block_size, self.quant_type, columns, rows)
        return packed, largest

    def process(self) -> None:
        """Quantize the model.

        Raises:
            InvalidQuantization: a weight has values that are no finite numbers.
        """
        model = self.model
        proto, folder = (
            (model.streamed, model.folder) if isinstance(model, StreamedModel) else (model.model, model.folder)
        )
        if folder and not isinstance(folder, TensorFolder):  # of a model in files: what is made lies in one, too
            folder = TensorFolder(folder)
        raise_versions(proto, has_linear=False, has_rows=False, least_bits=4)
        settings = Settings("bnb4", QuantFormat.QOperator, 4, self.block_size, True)
        sites = find_sites(proto.graph, self._is_chosen, lambda _: settings, opset_of(proto))
        names, stored = TakenNames(proto), dict[tuple[int, str], tuple[str, ...]]()
        replaced = {}
        for site in sites:
            if len(site.tensor.dims) != 2 or site.tensor.data_type == TensorProto.BFLOAT16:
                continue  # MatMulBnb4 has no leading axes, and scales of float32 or float16
            key = id(site.owner), site.tensor.name
            if key not in stored:
                stored[key] = self._store(site, folder, names)
            replaced[id(site.node)] = [self._node(site, stored[key])]
        replace_nodes(proto.graph, replaced)
        ONNXModel(proto, folder).clean_initializers()
        self.model = StreamedModel(proto, folder)

    def _is_chosen(self, node: NodeProto) -> bool:
        return node.op_type == "MatMul" and node.name not in self.nodes_to_exclude

    def _store(self, site: Site, folder: str, names: TakenNames) -> tuple[str, ...]:
        packed, largest = self.bnb4_block_quant(matrix_of(site, folder))
        name = site.tensor.name
        return (
            add_tensor(site.owner, names.new(f"{name}_Bnb4"), packed, folder),
            add_tensor(site.owner, names.new(f"{name}_absmax"), largest, folder),
        )

    def _node(self, site: Site, tensors: tuple[str, ...]) -> NodeProto:
        node, (rows, columns) = site.node, site.shape
        return helper.make_node(
            "MatMulBnb4", [node.input[0], *tensors], [node.output[0]], node.name + "_Bnb4" if node.name else "",
            domain="com.microsoft", K=rows, N=columns, block_size=self.block_size, quant_type=self.quant_type,
        )  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Quantize a file into another one; the options are those of onnxruntime's command."""
    parser = argparse.ArgumentParser(description="Quantize constant weights of MatMul to 4-bit floats.")
    add = parser.add_argument
    add("--input_model", required=True, help="file of the model")
    add("--output_model", required=True, help="file to write; large tensors go into a file beside it")
    add("--quant_type", type=int, default=1, choices=[0, 1], help="0: FP4, 1: NF4")
    add("--block_size", type=int, default=64, help="values that share a scale; bitsandbytes has 64")
    add("-v", "--verbose", action="store_true", help="taken for onnxruntime's sake")
    add("--nodes_to_exclude", nargs="+", default=[], help="nodes that stay as they are")
    asked = parser.parse_args(arguments)
    if Path(asked.output_model).exists():
        sys.exit(f"error: file {asked.output_model} already exists")
    try:
        quantizer = MatMulBnb4Quantizer(asked.input_model, asked.quant_type, asked.block_size, asked.nodes_to_exclude)
        quantizer.process()
        quantizer.model.save_model_to_file(asked.output_model, True)
    except OrtError as error:
        sys.exit(f"error: {error}")


__getattr__, _ = lazy_names(  # what programs import from here, as onnxruntime's module imports it
    __name__,
    {
        "ort_quantization.quant_utils": (
            "attribute_to_kwarg",
        ),
    },
)  # fmt: skip


if __name__ == "__main__":
    run_program(main)
