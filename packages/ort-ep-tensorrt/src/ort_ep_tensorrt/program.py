"""Program: a claim as TensorRT's parser gets it: an ONNX model whose large weights stay where they are."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from ort_core.plugin import CompileRequest, GraphView
from ort_core.plugin.ir import DataType, Model, Node, border_of

IN_PLACE_NBYTES = 1024  # smaller constants (axes, shapes, scales) stay in the model, where the parser looks at values
INLINE_NBYTES = 1 << 26  # a question about a group that failed may copy this much
_IN_PLACE = frozenset({DataType.FLOAT, DataType.FLOAT16, DataType.BFLOAT16, DataType.INT8, DataType.INT32})


@dataclass(frozen=True, slots=True)
class Program:
    """A claim in ONNX form.

    Attributes:
        content: the model; weights that are named below have no data in it.
        weights: arrays by initializer, contiguous; the parser and the builder read them in place.
        inputs: the names of the claim's inputs.
        outputs: the names of its outputs.
    """

    content: bytes
    weights: Mapping[str, np.ndarray]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def digests(self) -> tuple[bytes, ...]:
        """Return a digest of each weight, its name included: values decide what is built."""
        return tuple(
            name.encode() + hashlib.sha256(array.reshape(-1).view(np.uint8).data).digest()
            for name, array in self.weights.items()
        )


def program_of(view: GraphView, nodes: Iterable[Node]) -> Program:
    """Return the program of some nodes of a graph."""
    nodes = tuple(nodes)
    border = border_of(nodes)
    constants = {v.name: c for v in border.constants if (c := view.constant(v)) is not None}
    shared = {n: c for n, c in constants.items() if c.dtype in _IN_PLACE and c.nbytes >= IN_PLACE_NBYTES}
    content = view.to_onnx(nodes, weights="external", weight_names=frozenset(shared))
    weights = {name: np.ascontiguousarray(constant.array()) for name, constant in shared.items()}
    return Program(content, weights, tuple(v.name for v in border.inputs), tuple(v.name for v in border.outputs))


def program_of_request(request: CompileRequest) -> Program:
    """Return the program of a partition that is to be compiled."""
    context = request.context
    model = Model(request.graph, dict(context.opset_imports), dict(context.functions))
    view = GraphView(model, request.graph, tuple(request.graph), context)
    return program_of(view, view.nodes)


def question_of(view: GraphView, nodes: Iterable[Node]) -> bytes:
    """Return a model of some nodes to ask about, without reading any weight in place: ``supports_model_v2`` cannot."""
    nodes = tuple(nodes)
    constants = (view.constant(value) for value in border_of(nodes).constants)
    total = sum(constant.nbytes for constant in constants if constant is not None)
    if total <= INLINE_NBYTES:
        return view.to_onnx(nodes)
    large = {v.name for v in border_of(nodes).constants if (c := view.constant(v)) is not None and _is_large(c.nbytes)}
    return view.to_onnx(nodes, weights="inputs", weight_names=large)


def _is_large(nbytes: int) -> bool:
    return nbytes >= INLINE_NBYTES >> 8
