"""An optimized model as bytes that refer to the constants of the model it was made from.

Layout: three little-endian 64-bit lengths, a JSON head (types, opsets, functions kept), a GraphProto, and, aligned,
the data of new constants. Types are kept exactly (see ``ir.type_data``); a constant that the original model has is
its number there, and the order of its axes where it was transposed. What comes back shares the original's constants
and maps the new ones in place.
"""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Iterator, Sequence

import numpy as np
import onnx
from google.protobuf.message import DecodeError

from ort_core.ir.constants import Constant
from ort_core.ir.graph import Graph
from ort_core.ir.model import Model
from ort_core.ir.nodes import Node
from ort_core.ir.structure import graphs_and_bodies, replace_constants
from ort_core.ir.type_data import type_from_data, type_to_data
from ort_core.ir.types import DataType, ValueType
from ort_core.ir.values import Value
from ort_core.onnx_io.external_data import ExternalFiles
from ort_core.onnx_io.load import load_graph
from ort_core.onnx_io.save import graph_to_proto
from ort_core.onnx_io.tensor_proto import save_constant, to_bytes

_HEAD = struct.Struct("<QQQ")
_ALIGNMENT = 64
_MIN_DERIVED_NBYTES = 1024  # smaller constants lie in the GraphProto
_BODY = "ort_core.body"  # an attribute that no operator has
_ORIGINAL, _DERIVED = (
    "original:",
    "derived",
)  # original:3 is the third constant, original:3:1,0 it with its axes swapped


def encode_optimized(model: Model, originals: Sequence[Constant]) -> tuple[bytes | memoryview, ...]:
    """Return an optimized model as bytes, in parts to be joined; data of large constants is not copied.

    Raises:
        OrtError: a constant cannot be read.
    """
    blob = _Blob(originals)
    proto = graph_to_proto(model.graph, blob, with_types=False)
    _attach_bodies(model.graph, proto, blob)
    types: dict[ValueType | None, int] = {}
    numbers = [types.setdefault(value.type, len(types)) for value in _typed_values(model.graph)]
    head = json.dumps(
        {
            "ir_version": model.ir_version,
            "opset_imports": model.opset_imports,
            "functions": [list(key) for key in model.functions],
            "types": [type_to_data(value_type) for value_type in types],
            "type_of": numbers,
            "opsets": [[i, node.opset] for i, node in enumerate(_nodes(model.graph)) if node.opset is not None],
        }
    ).encode()
    content = proto.SerializeToString()
    start = _HEAD.pack(len(head), len(content), blob.nbytes) + head + content
    return (start + bytes(-len(start) % _ALIGNMENT), *blob.parts)


def decode_optimized(content: memoryview, model: Model, originals: Sequence[Constant]) -> Model:
    """Return the optimized model; whatever it keeps of the loaded ``model`` it shares with it.

    Raises:
        ValueError, KeyError, TypeError, IndexError, OrtError: the content is not what ``encode_optimized`` gave.
    """
    if len(content) < _HEAD.size:
        raise ValueError(f"{len(content)} bytes hold no optimized model")
    head_nbytes, graph_nbytes, derived_nbytes = _HEAD.unpack_from(content)
    graph_at = _HEAD.size + head_nbytes
    derived_at = -(-(graph_at + graph_nbytes) // _ALIGNMENT) * _ALIGNMENT
    if derived_at + derived_nbytes != len(content):
        raise ValueError(f"the lengths add up to {derived_at + derived_nbytes}, found {len(content)} bytes")
    head = json.loads(bytes(content[_HEAD.size : graph_at]))
    try:
        proto = onnx.GraphProto.FromString(bytes(content[graph_at : graph_at + graph_nbytes]))
    except DecodeError as error:
        raise ValueError("the graph is not a protobuf message") from error
    locations = {place.value for tensor in _tensors(proto) for place in tensor.external_data[:1]}
    files = {location: memoryview(b"") for location in locations} | {_DERIVED: content[derived_at:]}
    graph = load_graph(proto, ExternalFiles(None, files))
    functions = {tuple(key): model.functions[tuple(key)] for key in head["functions"]}
    found = Model(
        graph, dict(head["opset_imports"]), functions, int(head["ir_version"]), model.producer_name,
        model.producer_version, model.domain, model.model_version, model.doc, dict(model.metadata),
    )  # fmt: skip
    _restore(found, head, originals)
    return found


class _Blob:
    """Takes the data of new constants while a graph is saved; those of the original model become their number."""

    def __init__(self, originals: Sequence[Constant]) -> None:
        self.parts: list[bytes | memoryview] = []
        self.nbytes = 0
        self._numbers = {id(constant): number for number, constant in enumerate(originals)}
        self._places: dict[int, tuple[Constant, int, int]] = {}
        self._addresses = {_address(c): number for number, c in enumerate(originals) if c.is_loaded and c.size}
        self._originals = originals

    def save(self, constant: Constant, name: str) -> onnx.TensorProto:
        number = self._numbers.get(id(constant))
        if constant.dtype is DataType.STRING or (number is None and constant.nbytes < _MIN_DERIVED_NBYTES):
            return save_constant(constant, name)  # text cannot lie in external data
        proto = onnx.TensorProto(name=name, data_type=int(constant.dtype), dims=constant.shape)
        proto.data_location = onnx.TensorProto.EXTERNAL
        reference = f"{_ORIGINAL}{number}" if number is not None else self._find_transposed(constant)
        if reference is not None:
            proto.external_data.add(key="location", value=reference)
            return proto
        offset, length = self._place(constant)
        for key, value in (("location", _DERIVED), ("offset", str(offset)), ("length", str(length))):
            proto.external_data.add(key=key, value=value)
        return proto

    def _find_transposed(self, constant: Constant) -> str | None:
        number = self._addresses.get(_address(constant)) if constant.size else None
        if number is None:
            return None
        original, array = self._originals[number].array(), constant.array()
        memory_order = sorted(range(array.ndim), key=lambda axis: (-array.strides[axis], axis))
        axes = [memory_order.index(axis) for axis in range(array.ndim)]
        if original.ndim != array.ndim or original.dtype != array.dtype or constant.dtype is DataType.STRING:
            return None
        view = original.transpose(axes)
        is_same = view.shape == array.shape and view.strides == array.strides
        return f"{_ORIGINAL}{number}:{','.join(map(str, axes))}" if is_same else None

    def _place(self, constant: Constant) -> tuple[int, int]:
        if id(constant) not in self._places:
            data = _stored(constant)
            self._places[id(constant)] = (constant, self.nbytes, len(data))
            padding = bytes(-len(data) % _ALIGNMENT)
            self.parts.extend((data, padding))
            self.nbytes += len(data) + len(padding)
        return self._places[id(constant)][1:]


def _address(constant: Constant) -> int:
    return constant.array().__array_interface__["data"][0]


def _original(location: str, originals: Sequence[Constant]) -> Constant:
    number, _, axes_text = location.removeprefix(_ORIGINAL).partition(":")
    original = originals[int(number)]
    if not axes_text:
        return original
    axes = [int(axis) for axis in axes_text.split(",")]
    shape = tuple(original.shape[axis] for axis in axes)
    return Constant(original.dtype, shape, lambda: original.array().transpose(axes))


def _tensors(proto: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from proto.initializer
    for node in proto.node:
        for attribute in node.attribute:
            for nested in _nested(attribute):
                yield from _tensors(nested)


def _nested(attribute: onnx.AttributeProto) -> list[onnx.GraphProto]:
    return ([attribute.g] if attribute.HasField("g") else []) + list(attribute.graphs)


def _stored(constant: Constant) -> bytes | memoryview:
    array = constant.array()
    if constant.dtype.bits < 8 or sys.byteorder == "big" or not array.flags.c_contiguous:
        return to_bytes(array, constant.dtype)
    return array.reshape(-1).view(np.uint8).data


def _typed_values(graph: Graph) -> Iterator[Value]:
    """Yield the values whose types are kept, in an order that loading does not change."""
    for each in graphs_and_bodies(graph):
        yield from each.inputs
        for node in each:
            yield from node.present_outputs()


def _nodes(graph: Graph) -> Iterator[Node]:
    return (node for each in graphs_and_bodies(graph) for node in each)


def _attach_bodies(graph: Graph, proto: onnx.GraphProto, blob: _Blob) -> None:
    """Put the body of each fused node into an attribute behind its others: there it is found in the same order."""
    for node, node_proto in zip(graph, proto.node, strict=True):
        if node.has_graphs:
            nested = [each for attribute in node_proto.attribute for each in _nested(attribute)]
            for inner, inner_proto in zip(node.subgraphs(), nested, strict=True):
                _attach_bodies(inner, inner_proto, blob)
        if node.body is not None:
            attribute = node_proto.attribute.add(name=_BODY, type=onnx.AttributeProto.GRAPH)
            attribute.g.CopyFrom(graph_to_proto(node.body, blob, with_types=False))
            _attach_bodies(node.body, attribute.g, blob)


def _restore(model: Model, head: dict, originals: Sequence[Constant]) -> None:
    replacements: dict[int, Constant] = {}
    for graph in graphs_and_bodies(model.graph):
        for value in graph.initializers:
            where = value.constant.location if value.constant is not None else None
            if where is not None and where.startswith(_ORIGINAL):
                replacements[id(value.constant)] = _original(where, originals)
    replace_constants(Model(model.graph, {}), replacements)
    types = [type_from_data(data) for data in head["types"]]
    for value, number in zip(_typed_values(model.graph), head["type_of"], strict=True):
        value.type = types[number]
    opsets = dict(head["opsets"])
    nodes = tuple(_nodes(model.graph))
    for number, node in enumerate(nodes):
        node.opset = opsets.get(number)
        attribute = node.attributes.pop(_BODY, None)
        if attribute is not None:
            node.body = attribute.graphs()[0]
            node.body.owner = None
