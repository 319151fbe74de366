"""Files in ORT format: onnxruntime's FlatBuffers form of a model, read into the same ModelProto as an .onnx file.

The numbers of fields are those of the published schema (versions 4 to 6 of the format). What such a file has beyond a
model is not needed: edges follow from names, and the optimizations that it holds back are made anew here.
"""

from __future__ import annotations

from typing import Any, cast

import onnx

from ort_core.errors import InvalidGraph, InvalidProtobuf, NotImplemented
from ort_core.onnx_io.flatbuffer import Buffer, Table

IDENTIFIER = b"ORTM"
_MAX_DEPTH = 64  # graphs within graphs, types within types: exporters nest a handful
_FUSED = 1  # the kind of a node that a provider compiled, whose graph the file does not hold
_SIZE, _NAME = 1, 2  # the kinds of a dimension
_TENSOR_TYPE, _SEQUENCE_TYPE, _MAP_TYPE = 1, 2, 3
_A = onnx.AttributeProto


def is_ort_format(content: bytes | memoryview) -> bool:
    """Return whether bytes are a file in ORT format."""
    return bytes(content[4:8]) == IDENTIFIER


def read_ort_format(content: bytes | memoryview) -> onnx.ModelProto:
    """Return the model of a file in ORT format.

    Raises:
        InvalidProtobuf: the bytes are no such file, or only a part of one.
        InvalidGraph: graphs or types are nested deeper than any exporter nests them.
        NotImplemented: a node was compiled by a provider, or weights lie in another file.
    """
    model = Buffer(content).root().table(1)
    graph = None if model is None else model.table(7)
    if model is None or graph is None:
        raise InvalidProtobuf("No graph was found in the file of ORT format.")
    proto = onnx.ModelProto(ir_version=model.integer(0, "i64"), model_version=model.integer(5, "i64"))
    for entry in model.tables(1):
        proto.opset_import.add(domain=_text(entry, 0), version=entry.integer(1, "i64"))
    proto.producer_name, proto.producer_version = _text(model, 2), _text(model, 3)
    proto.domain, proto.doc_string = _text(model, 4), _text(model, 6)
    for entry in model.tables(9):
        proto.metadata_props.add(key=_text(entry, 0), value=_text(entry, 1))
    _read_graph(graph, proto.graph, 0)
    proto.graph.doc_string = _text(model, 8)
    return proto


def _text(table: Table, field: int) -> str:
    return _decoded(table.string(field))


def _decoded(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise InvalidProtobuf(f"the file of ORT format has a text that is not UTF-8: {error}") from error


def _texts(table: Table, field: int) -> list[str]:
    return [_decoded(each) for each in table.strings(field)]


def _check_depth(depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise InvalidGraph(f"graphs or types are nested more than {_MAX_DEPTH} deep")


def _read_graph(graph: Table, proto: onnx.GraphProto, depth: int) -> None:
    _check_depth(depth)
    proto.name = "graph"  # the format keeps no name
    types = {_text(value, 0): value for value in graph.tables(1)}
    inputs, outputs = _texts(graph, 5), _texts(graph, 6)
    for names, target in ((inputs, proto.input), (outputs, proto.output)):
        for name in names:
            _read_value(name, types.get(name), target.add())
    for name in types.keys() - {"", *inputs, *outputs}:
        _read_value(name, types[name], proto.value_info.add())
    for tensor in graph.tables(0):
        _read_tensor(tensor, proto.initializer.add())
    for sparse in graph.tables(7):
        _read_sparse(sparse, proto.sparse_initializer.add())
    for node in graph.tables(2):
        _read_node(node, proto.node.add(), depth)


def _read_value(name: str, value: Table | None, proto: onnx.ValueInfoProto) -> None:
    proto.name = name
    if value is None:
        return
    proto.doc_string = _text(value, 1)
    _read_type(value.table(2), proto.type, 0)


def _read_type(found: Table | None, proto: onnx.TypeProto, depth: int) -> None:
    _check_depth(depth)
    if found is None:
        return
    proto.denotation = _text(found, 0)
    kind, value = found.integer(1, "u8"), found.table(2)
    if value is None:
        return
    if kind == _TENSOR_TYPE:
        proto.tensor_type.elem_type = value.integer(0)
        shape = value.table(1)
        if shape is not None:
            proto.tensor_type.shape.SetInParent()
            for dim in shape.tables(0):
                _read_dim(dim, proto.tensor_type.shape.dim.add())
    elif kind == _SEQUENCE_TYPE:
        proto.sequence_type.SetInParent()
        _read_type(value.table(0), proto.sequence_type.elem_type, depth + 1)
    elif kind == _MAP_TYPE:
        proto.map_type.key_type = value.integer(0)
        _read_type(value.table(1), proto.map_type.value_type, depth + 1)


def _read_dim(dim: Table, proto: onnx.TensorShapeProto.Dimension) -> None:
    proto.denotation = _text(dim, 1)
    value = dim.table(0)
    if value is None:
        return
    if value.integer(0, "i8") == _SIZE:
        proto.dim_value = value.integer(1, "i64")
    elif value.integer(0, "i8") == _NAME:
        proto.dim_param = _text(value, 2)


def _read_node(node: Table, proto: onnx.NodeProto, depth: int) -> None:
    proto.name, proto.doc_string, proto.domain, proto.op_type = (_text(node, field) for field in (0, 1, 2, 5))
    if node.integer(6) == _FUSED:
        raise NotImplemented(
            f"node {proto.name!r} was compiled by {_text(node, 7)!r}, and the file does not hold its graph; "
            "load the .onnx file that it was made from"
        )
    proto.input.extend(_texts(node, 8))
    proto.output.extend(_texts(node, 9))
    for attribute in node.tables(10):
        _read_attribute(attribute, proto.attribute.add(), depth)


def _read_attribute(found: Table, proto: onnx.AttributeProto, depth: int) -> None:
    proto.name, proto.doc_string = _text(found, 0), _text(found, 1)
    kind = found.integer(2)
    if kind == _A.FLOAT:
        proto.f = found.number(3, "f32")
    elif kind == _A.INT:
        proto.i = found.integer(4, "i64")
    elif kind == _A.STRING:
        proto.s = found.string(5)
    elif kind == _A.TENSOR:
        _read_tensor(_needed(found.table(6), proto), proto.t)
    elif kind == _A.GRAPH:
        _read_graph(_needed(found.table(7), proto), proto.g, depth + 1)
    elif kind == _A.FLOATS:
        proto.floats.extend(found.array(8, "<f4").tolist())
    elif kind == _A.INTS:
        proto.ints.extend(found.array(9, "<i8").tolist())
    elif kind == _A.STRINGS:
        proto.strings.extend(found.strings(10))
    elif kind == _A.TENSORS:
        for tensor in found.tables(11):
            _read_tensor(tensor, proto.tensors.add())
    elif kind == _A.GRAPHS:
        for graph in found.tables(12):
            _read_graph(graph, proto.graphs.add(), depth + 1)
    else:
        raise NotImplemented(f"attribute {proto.name!r} has the kind {kind}, which files of ORT format do not hold")
    proto.type = cast(Any, kind)  # Any: an enumeration in the stub, an integer in fact


def _needed(table: Table | None, proto: onnx.AttributeProto) -> Table:
    if table is None:
        raise InvalidProtobuf(f"attribute {proto.name!r} has no value")
    return table


def _read_tensor(tensor: Table, proto: onnx.TensorProto) -> None:
    proto.name, proto.doc_string = _text(tensor, 0), _text(tensor, 1)
    proto.dims.extend(tensor.array(2, "<i8").tolist())
    proto.data_type = tensor.integer(3)
    if tensor.integer(6, "i64", -1) >= 0:
        raise NotImplemented(f"the weights {proto.name!r} lie in another file, as training keeps them")
    if proto.data_type == onnx.TensorProto.STRING:
        proto.string_data.extend(tensor.strings(5))
    else:
        proto.raw_data = tensor.array(4, "u1").tobytes()


def _read_sparse(sparse: Table, proto: onnx.SparseTensorProto) -> None:
    for field, target in ((0, proto.values), (1, proto.indices)):
        tensor = sparse.table(field)
        if tensor is not None:
            _read_tensor(tensor, target)
    proto.dims.extend(sparse.array(2, "<i8").tolist())
