"""Program: a claim as TensorRT's parser gets it: an ONNX model whose large weights stay where they are."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from ort_core.plugin import GraphView
from ort_core.plugin.ir import Constant, DataType, Graph, Node, Value, border_of
from ort_ep_tensorrt.lowering.legalization import Changes, Legalized, legalize

IN_PLACE_NBYTES = 1024  # smaller constants (axes, shapes, scales) stay in the model, where the parser looks at values
INLINE_NBYTES = 1 << 26  # a question about a group that failed may copy this much
LARGE_NBYTES = INLINE_NBYTES >> 8  # of a constant that becomes an input where all together are more
_IN_PLACE = frozenset({DataType.FLOAT, DataType.FLOAT16, DataType.BFLOAT16, DataType.INT8, DataType.INT32})
AS_IT_IS = Changes()


@dataclass(frozen=True, slots=True)
class Program:
    """A claim in ONNX form.

    Attributes:
        content: the model; weights that are named below have no data in it.
        weights: arrays by initializer, contiguous; the parser and the builder read them in place.
        inputs: the names of the claim's inputs.
        outputs: the names of its outputs.
        places: for each node of the model the place in the claim of the node that it stands for.
        kept: why nodes stay in float32, by place, where a narrow type was asked for.
    """

    content: bytes
    weights: Mapping[str, np.ndarray]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    places: tuple[int, ...] = ()
    kept: Mapping[int, str] = field(default_factory=dict)

    def digests(self) -> tuple[bytes, ...]:
        """Return a digest of each weight, its name included: values decide what is built."""
        return tuple(
            name.encode() + hashlib.sha256(array.reshape(-1).view(np.uint8).data).digest()
            for name, array in self.weights.items()
        )


def program_of(view: GraphView, nodes: Iterable[Node], changes: Changes = AS_IT_IS) -> Program:
    """Return the program of some nodes of a graph.

    Raises:
        LoweringRefusal: a node cannot be said in TensorRT's words.
    """
    nodes = tuple(nodes)
    border = border_of(nodes)
    shared: set[str] = set()
    weights: dict[str, np.ndarray] = {}
    found: list[Legalized] = []

    def change(graph: Graph) -> None:
        found.append(legalize(graph, view.context, changes))
        for value, constant in _constants_read(graph).items():
            if constant.dtype not in _IN_PLACE or constant.nbytes < IN_PLACE_NBYTES:
                continue
            weights[value.name] = np.ascontiguousarray(constant.array())
            shared.add(value.name)

    content = view.to_onnx(nodes, weights="external", weight_names=shared, legalize=change)
    names = tuple(value.name for value in border.inputs), tuple(value.name for value in border.outputs)
    return Program(content, weights, *names, found[0].places, found[0].kept)


def question_of(view: GraphView, nodes: Iterable[Node], changes: Changes = AS_IT_IS) -> bytes:
    """Return a model of some nodes to ask about, without reading any weight in place: ``supports_model_v2`` cannot.

    Raises:
        LoweringRefusal: a node cannot be said in TensorRT's words.
    """

    def change(graph: Graph) -> None:
        legalize(graph, view.context, changes)  # some nodes are rewritten with the values of their weights
        constants = _constants_read(graph)
        if sum(constant.nbytes for constant in constants.values()) <= INLINE_NBYTES:
            return
        for value in (each for each, constant in constants.items() if constant.nbytes >= LARGE_NBYTES):
            graph.remove_initializer(value)
            graph.add_input(value)

    return view.to_onnx(nodes, legalize=change)


def _constants_read(graph: Graph) -> dict[Value, Constant]:
    """Return the constants of a changed copy; those whose readers were rewritten are removed."""
    found: dict[Value, Constant] = {}
    for value in graph.initializers:
        constant = graph.fixed_constant(value)
        if constant is None:
            continue
        if value.use_count:
            found[value] = constant
        else:
            graph.remove_initializer(value)
    return found
