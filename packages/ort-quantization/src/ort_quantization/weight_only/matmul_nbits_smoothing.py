"""Operands divided by channel: in the gain of the normalization or Mul that makes them, else by a Mul of its own."""

from __future__ import annotations

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from ort_core.model_graphs import graphs_of
from ort_quantization.models.model_files import read_tensor
from ort_quantization.weight_only.matmul_nbits_nodes import TakenNames

_GAINS = {  # operators whose inputs of these places are multiplied into the last axis of their first output
    "LayerNormalization": (1, 2), "SimplifiedLayerNormalization": (1,), "RMSNormalization": (1,),
    "SkipLayerNormalization": (2, 3), "SkipSimplifiedLayerNormalization": (2,),
}  # fmt: skip


class Smoothing:
    """Divides values of the main graph of a model by factors for each channel.

    Args:
        model: changed.
        folder: where its external data lies.
        names: of the model.
    """

    def __init__(self, model: ModelProto, folder: str, names: TakenNames) -> None:
        self._graph, self._folder, self._names = model.graph, folder, names
        self._readers: dict[str, int] = {}
        for graph in graphs_of(model.graph):
            for name in [*(name for node in graph.node for name in node.input), *(each.name for each in graph.output)]:
                self._readers[name] = self._readers.get(name, 0) + 1
        self._tensors = {each.name: each for each in model.graph.initializer}
        self._maker = {name: node for node in model.graph.node for name in node.output[:1]}

    def divide(self, operand: str, readers: int, factors: np.ndarray, kind: int) -> tuple[str, NodeProto | None]:
        """Divide a value for some of its readers.

        Args:
            operand: the value.
            readers: how many nodes read it so.
            factors: positive (K,).
            kind: element type of the value.

        Returns:
            The name that these read from now on, and the node that makes it, ``None`` where none is needed.
        """
        maker = self._maker.get(operand)
        if maker is not None and self._readers[operand] == readers and self._fold(maker, 1 / factors):
            return operand, None
        name = self._names.new(operand + "_smoothed")
        factor = self._names.new(operand + "_smoothing")
        self._graph.initializer.append(_tensor(1 / factors, kind, factor))
        return name, helper.make_node("Mul", [operand, factor], [name])

    def _fold(self, maker: NodeProto, factors: np.ndarray) -> bool:
        """Multiply the gains of a node; return whether it has any that nobody else reads."""
        places = self._gain_places(maker)
        if not places:
            return False
        gains = [self._tensors.get(maker.input[place]) for place in places]
        if any(gain is None or not _is_gain(gain, len(factors)) for gain in gains):
            return False
        for place, gain in zip(places, gains, strict=True):
            assert gain is not None  # asked above
            value = numpy_helper.to_array(read_tensor(gain, self._folder)).astype(np.float32) * factors
            name = self._names.new(gain.name + "_smoothed")
            self._graph.initializer.append(_tensor(value, gain.data_type, name))
            maker.input[place] = name
        return True

    def _gain_places(self, maker: NodeProto) -> list[int]:
        if maker.op_type == "Mul":
            return [place for place in (0, 1) if maker.input[place] in self._tensors][:1]
        if any(each.name == "axis" and each.i != -1 for each in maker.attribute):
            return []
        return [place for place in _GAINS.get(maker.op_type, ()) if place < len(maker.input) and maker.input[place]]


def _is_gain(tensor: TensorProto, channels: int) -> bool:
    shape = list(tensor.dims)
    floats = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)
    return (
        bool(shape) and shape[-1] == channels and all(each == 1 for each in shape[:-1]) and tensor.data_type in floats
    )


def _tensor(value: np.ndarray, kind: int, name: str) -> TensorProto:
    return numpy_helper.from_array(value.astype(helper.tensor_dtype_to_np_dtype(kind)), name)
