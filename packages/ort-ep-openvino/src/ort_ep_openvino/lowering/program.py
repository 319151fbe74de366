"""Program: a claim as OpenVINO's ONNX frontend gets it, its large weights beside it and shared, not copied."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from ort_core.plugin import CompileRequest, GraphView
from ort_core.plugin.ir import Constant, DataType, Node, Value, border_of
from ort_ep_openvino.lowering.legalization import legalize

_PERIOD = 100  # of made-up numbers: all of int8
INLINE_NBYTES = 4096  # smaller constants stay in the model: shapes and axes must be there when the frontend reads it
_SHARED = frozenset({DataType.FLOAT, DataType.FLOAT16, DataType.INT8, DataType.UINT8})


@dataclass(frozen=True, slots=True)
class Program:
    """A serialized ONNX model whose inputs are those of the claim, then its weights.

    Attributes:
        content: the model.
        constants: what the inputs hold that are weights, by name.
        inputs: the names of the claim's inputs.
    """

    content: bytes
    constants: Mapping[str, Constant]
    inputs: tuple[str, ...]

    @property
    def weights_nbytes(self) -> int:
        """Bytes of all weights."""
        return sum(constant.nbytes for constant in self.constants.values())

    def weights(self) -> dict[str, np.ndarray]:
        """Return the contiguous arrays of the weights; those that are views in another order are copied."""
        return {name: np.ascontiguousarray(constant.array()) for name, constant in self.constants.items()}

    def shuffled_weights(self) -> dict[str, np.ndarray]:
        """Return arrays like the weights, to ask whether a device takes the model: no number matters for that.

        None is copied: the elements of one that lies transposed in memory come in the order of memory. None that was
        not read yet is read: it is computed or comes from a file.
        """
        return {name: _placeholder(constant) for name, constant in self.constants.items()}


def program_of(view: GraphView, nodes: Iterable[Node]) -> Program:
    """Return the program of some nodes of a graph."""
    nodes = tuple(nodes)
    border = border_of(nodes)
    shared = _shared_among(view, border.constants)
    content = view.to_onnx(nodes, weights="inputs", weight_names=frozenset(shared), legalize=legalize)
    return Program(content, shared, tuple(value.name for value in border.inputs))


def program_of_request(request: CompileRequest) -> Program:
    """Return the program of a partition that is to be compiled."""
    graph = request.graph
    shared = _shared_among(request.view(), graph.initializers)
    content = request.to_onnx(weights="inputs", weight_names=frozenset(shared), legalize=legalize)
    return Program(content, shared, tuple(value.name for value in graph.inputs))


def _shared_among(view: GraphView, values: Iterable[Value]) -> dict[str, Constant]:
    """Return the constants that are large enough to be handed over beside the model."""
    constants = {value.name: constant for value in values if (constant := view.constant(value)) is not None}
    return {n: c for n, c in constants.items() if c.dtype in _SHARED and c.nbytes >= INLINE_NBYTES}


def _placeholder(constant: Constant) -> np.ndarray:
    """Return numbers of a constant's type and shape: its own in some order, or others that are not all alike."""
    if constant.is_loaded:
        return _as_it_lies(constant.array())
    return np.resize(np.arange(1, _PERIOD, dtype=constant.dtype.numpy), constant.shape)


def _as_it_lies(array: np.ndarray) -> np.ndarray:
    """Return an array's elements in the order of memory, in its shape; a copy only where they lie apart."""
    return array.ravel(order="K").reshape(array.shape)
