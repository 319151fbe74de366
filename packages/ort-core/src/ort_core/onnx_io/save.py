"""save_model(): a ``Model`` back to ONNX, with large weights inside the file or beside it."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import onnx

from ort_core.errors import Fail
from ort_core.ir.attributes import GRAPH_KINDS, Attribute, AttributeKind
from ort_core.ir.constants import Constant
from ort_core.ir.graph import Graph
from ort_core.ir.model import Function, Model
from ort_core.ir.nodes import Node
from ort_core.ir.traversal import graphs_of
from ort_core.ir.types import DataType, ValueType
from ort_core.ir.values import Value
from ort_core.onnx_io.external_data import ExternalLocation
from ort_core.onnx_io.own_opsets import with_own_opsets
from ort_core.onnx_io.tensor_proto import save_constant, save_sparse, to_bytes
from ort_core.onnx_io.type_proto import save_type
from ort_core.whole_files import is_no_regular_file, replace_file, written_whole

MAX_PROTOBUF_NBYTES = (1 << 31) - 1
_STRUCTURE_NBYTES = 1 << 26  # left for nodes and names; the largest real graphs take a tenth of it
_ALIGNMENT = 64  # of each tensor in an external file: a cache line, so that mapped weights need no copy


class ConstantWriter(Protocol):
    """Decides where the data of an initializer goes."""

    def save(self, constant: Constant, name: str) -> onnx.TensorProto:
        """Return a TensorProto that holds the data or says where it is."""


def is_external(constant: Constant, threshold: int) -> bool:
    """Return whether a constant goes to a file for those of at least ``threshold`` bytes."""
    return constant.dtype is not DataType.STRING and constant.nbytes >= threshold


class ExternalWriter:
    """Writes large constants to one file beside the model and remembers where each lies.

    Args:
        file: where they go, from its start.
        name: of the file when it is in its place.
        threshold: in bytes; smaller ones stay in the model.
    """

    def __init__(self, file: BinaryIO, name: str, threshold: int) -> None:
        self._file = file
        self._name = name
        self._threshold = threshold

    def save(self, constant: Constant, name: str) -> onnx.TensorProto:
        """Return a TensorProto that refers to the file, or holds the data when it is small."""
        if not is_external(constant, self._threshold):
            return save_constant(constant, name)
        content = to_bytes(constant.array(), constant.dtype)
        offset = -(-self._file.tell() // _ALIGNMENT) * _ALIGNMENT
        self._file.seek(offset)
        self._file.write(content)
        return _referring(constant, name, ExternalLocation(self._name, offset, len(content)))


class LocationWriter:
    """Lets somebody else keep constants: a function says where each lies, or ``None`` for inside the model.

    Args:
        find: given a name and a constant other than of strings, returns where its data is.
    """

    def __init__(self, find: Callable[[str, Constant], ExternalLocation | None]) -> None:
        self._find = find

    def save(self, constant: Constant, name: str) -> onnx.TensorProto:
        """Return a TensorProto that refers to where the data is, or holds it."""
        where = None if constant.dtype is DataType.STRING else self._find(name, constant)
        return save_constant(constant, name) if where is None else _referring(constant, name, where)


def _referring(constant: Constant, name: str, where: ExternalLocation) -> onnx.TensorProto:
    proto = onnx.TensorProto(name=name, data_type=int(constant.dtype), dims=constant.shape)
    proto.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", where.location), ("offset", where.offset), ("length", where.length)):
        if value is not None:
            proto.external_data.add(key=key, value=str(value))
    return proto


class ReferenceWriter:
    """Leaves the data of some initializers out, for readers that are handed their memory.

    Args:
        names: which initializers.
    """

    LOCATION = "memory"  # what stands where the name of a file would

    def __init__(self, names: Collection[str]) -> None:
        self._names = names

    def save(self, constant: Constant, name: str) -> onnx.TensorProto:
        """Return a TensorProto that holds the data, or says that they are elsewhere."""
        if name not in self._names:
            return save_constant(constant, name)
        proto = onnx.TensorProto(name=name, data_type=int(constant.dtype), dims=constant.shape)
        proto.data_location = onnx.TensorProto.EXTERNAL
        proto.external_data.add(key="location", value=self.LOCATION)
        return proto


def save_model(
    model: Model,
    path: str | os.PathLike,
    *,
    external_file: str | None = None,
    external_threshold: int = 1024,
    writer: ConstantWriter | None = None,
) -> None:
    """Write a model to ``path``.

    Args:
        model: the model.
        path: the file to write; replaced only once the new one is complete.
        external_file: name of a file in the same folder for tensors of at least ``external_threshold`` bytes.
        external_threshold: in bytes.
        writer: decides where weights go that do not go to ``external_file``.

    Raises:
        Fail: the model is above protobuf's 2 GiB and no ``external_file`` was given, or the file cannot be written.
    """
    target = Path(path)
    try:
        if external_file is None or not any(is_external(each, external_threshold) for each in _constants(model)):
            replace_file(target, _serialize(model_to_proto(model, writer)))
        else:
            _save_both(model, target, target.parent / external_file, external_threshold)
    except OSError as error:
        raise Fail(f"cannot write the model to {str(target)!r}: {error}") from error


def _save_both(model: Model, target: Path, beside: Path, threshold: int) -> None:
    """Write a model and its weights.

    Neither takes its name before both are whole: the former model would read the new weights. The file that is
    replaced may be the one that weights are mapped from.
    """
    if is_no_regular_file(target) or is_no_regular_file(beside) or beside.resolve() == target.resolve():
        raise Fail(
            f"cannot write the model to {str(target)!r} with its weights in {str(beside)!r}: two files are needed, "
            "one for each"
        )
    with written_whole(target) as place, written_whole(beside) as place_beside:
        with place_beside.open("wb") as file:
            proto = model_to_proto(model, ExternalWriter(file, beside.name, threshold))
        place.write_bytes(_serialize(proto))


def needs_external_file(model: Model) -> bool:
    """Return whether the weights alone are near protobuf's 2 GiB."""
    return sum(each.nbytes for each in _constants(model)) > MAX_PROTOBUF_NBYTES - _STRUCTURE_NBYTES


def _constants(model: Model) -> Collection[Constant]:
    """Return the initializers' constants of a model's graphs, each once."""
    values = (value for graph in graphs_of(model.graph) for value in graph.initializers)
    return {id(value.constant): value.constant for value in values if value.constant is not None}.values()


def model_to_bytes(model: Model, referenced: Collection[str] = (), *, writer: ConstantWriter | None = None) -> bytes:
    """Return the serialized model, with all weights inside but those named, or as a writer decides.

    Raises:
        Fail: it is above 2 GiB.
    """
    return _serialize(model_to_proto(model, ReferenceWriter(referenced) if referenced else writer))


def model_to_proto(model: Model, writer: ConstantWriter | None = None) -> onnx.ModelProto:
    """Return the ModelProto of a model; a node with an opset of its own becomes a function's call."""
    model = with_own_opsets(model)
    proto = onnx.ModelProto(
        ir_version=model.ir_version, producer_name=model.producer_name, producer_version=model.producer_version,
        domain=model.domain, model_version=model.model_version, doc_string=model.doc,
    )  # fmt: skip
    for domain, version in model.opset_imports.items():
        proto.opset_import.add(domain=domain, version=version)
    for key, text in model.metadata.items():
        proto.metadata_props.add(key=key, value=text)
    proto.graph.CopyFrom(graph_to_proto(model.graph, writer))
    _name_apart(proto.graph)
    for function in model.functions.values():
        proto.functions.append(_function(function))
    return proto


def graph_to_proto(graph: Graph, writer: ConstantWriter | None = None, *, with_types: bool = True) -> onnx.GraphProto:
    """Return the GraphProto of a graph; values keep their names, and their types where they are wanted."""
    proto = onnx.GraphProto(name=graph.name or "graph", doc_string=graph.doc)
    for key, text in graph.metadata.items():
        proto.metadata_props.add(key=key, value=text)
    for value in graph.inputs:
        proto.input.append(_value_info(value, with_types))
    outputs = {id(value) for value in graph.outputs}
    for value in graph.outputs:
        proto.output.append(_value_info(value, with_types))
    for value in graph.initializers:
        assert value.constant is not None
        save = writer.save if writer is not None else save_constant
        proto.initializer.append(save(value.constant, value.name))
    for node in graph:
        _save_node(proto.node.add(), node, writer, with_types)
        for value in node.present_outputs() if with_types else ():
            if value.type is not None and id(value) not in outputs:
                proto.value_info.append(_value_info(value))
    return proto


def _name_apart(graph: onnx.GraphProto) -> None:
    """Give nodes of one name names of their own, for onnxruntime refuses others; unnamed ones stay so."""
    taken = Counter(node.name for node in graph.node if node.name)
    numbers: dict[str, Iterator[int]] = {}
    for node in graph.node:
        name = node.name
        if name in numbers:
            node.name = next(new for number in numbers[name] if (new := f"{name}_{number}") not in taken)
            taken[node.name] = 1
        elif taken[name] > 1:  # the first keeps it
            numbers[name] = itertools.count(1)
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                _name_apart(attribute.g)


def node_to_proto(node: Node) -> onnx.NodeProto:
    """Return the NodeProto of a node."""
    proto = onnx.NodeProto()
    _save_node(proto, node, None, True)
    return proto


def _save_node(proto: onnx.NodeProto, node: Node, writer: ConstantWriter | None, with_types: bool) -> None:
    proto.op_type = node.op_type
    for field, text in (("name", node.name), ("domain", node.domain), ("overload", node.overload)):
        if text:
            setattr(proto, field, text)
    if node.doc:
        proto.doc_string = node.doc
    proto.input.extend(_names(node.inputs))
    proto.output.extend(_names(node.outputs))
    for key, text in node.metadata.items():
        proto.metadata_props.add(key=key, value=text)
    for attribute in node.attributes.values():
        _save_attribute(proto.attribute.add(), attribute, writer, with_types)


def attribute_to_proto(
    attribute: Attribute, writer: ConstantWriter | None = None, with_types: bool = True
) -> onnx.AttributeProto:
    """Return the AttributeProto of an attribute."""
    proto = onnx.AttributeProto()
    _save_attribute(proto, attribute, writer, with_types)
    return proto


def _save_attribute(
    proto: onnx.AttributeProto, attribute: Attribute, writer: ConstantWriter | None, with_types: bool
) -> None:
    kind, value = attribute.kind, attribute.value
    proto.name, proto.type = attribute.name, int(kind)  # type: ignore[assignment]  # protobuf takes the number
    if attribute.reference is not None:
        proto.ref_attr_name = attribute.reference
        return
    field, convert = _FIELDS[kind]
    if kind in _SINGLE:
        setattr(proto, field, convert(value))
        return
    if kind in _NUMBERS:
        getattr(proto, field).extend(value)  # forests have half a million numbers
        return
    if kind in GRAPH_KINDS:
        converted: list[object] = [graph_to_proto(graph, writer, with_types=with_types) for graph in attribute.graphs()]
    else:
        converted = list(map(convert, value if isinstance(value, tuple) else (value,)))
    target = getattr(proto, field)
    if kind in _REPEATED:
        target.extend(converted)
    else:
        target.CopyFrom(converted[0])


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


_FIELDS: dict[AttributeKind, tuple[str, Callable[[Any], object]]] = {  # Any: what the kind says
    AttributeKind.FLOAT: ("f", float),
    AttributeKind.INT: ("i", int),
    AttributeKind.STRING: ("s", _encode),
    AttributeKind.TENSOR: ("t", lambda c: save_constant(c, "")),
    AttributeKind.GRAPH: ("g", graph_to_proto),
    AttributeKind.FLOATS: ("floats", float),
    AttributeKind.INTS: ("ints", int),
    AttributeKind.STRINGS: ("strings", _encode),
    AttributeKind.TENSORS: ("tensors", lambda c: save_constant(c, "")),
    AttributeKind.GRAPHS: ("graphs", graph_to_proto),
    AttributeKind.SPARSE_TENSOR: ("sparse_tensor", lambda c: save_sparse(c, "")),
    AttributeKind.SPARSE_TENSORS: ("sparse_tensors", lambda c: save_sparse(c, "")),
    AttributeKind.TYPE_PROTO: ("tp", save_type),
    AttributeKind.TYPE_PROTOS: ("type_protos", save_type),
}
_SINGLE = frozenset({AttributeKind.FLOAT, AttributeKind.INT, AttributeKind.STRING})  # held by the attribute itself
_NUMBERS = frozenset({AttributeKind.FLOATS, AttributeKind.INTS})
_REPEATED = frozenset(
    {AttributeKind.FLOATS, AttributeKind.INTS, AttributeKind.STRINGS, AttributeKind.TENSORS, AttributeKind.GRAPHS,
     AttributeKind.SPARSE_TENSORS, AttributeKind.TYPE_PROTOS}
)  # fmt: skip


def _function(function: Function) -> onnx.FunctionProto:
    graph = graph_to_proto(function.graph)
    proto = onnx.FunctionProto(
        domain=function.domain, name=function.name, overload=function.overload, doc_string=function.doc,
        input=_names(function.graph.inputs), output=_names(function.graph.outputs), attribute=function.attribute_names,
    )  # fmt: skip
    for value in function.graph.initializers:  # functions have no initializers: a Constant node says the same
        assert value.constant is not None
        constant = proto.node.add(op_type="Constant", output=[value.name])
        constant.attribute.append(attribute_to_proto(Attribute("value", AttributeKind.TENSOR, value.constant)))
    proto.node.extend(graph.node)
    proto.value_info.extend(graph.value_info)
    for attribute in function.attribute_defaults.values():
        proto.attribute_proto.append(attribute_to_proto(attribute))
    for domain, version in function.opset_imports.items():
        proto.opset_import.add(domain=domain, version=version)
    for key, text in function.metadata.items():
        proto.metadata_props.add(key=key, value=text)
    return proto


def _value_info(value: Value, with_type: bool = True) -> onnx.ValueInfoProto:
    proto = onnx.ValueInfoProto(name=value.name, doc_string=value.doc)
    value_type: ValueType | None = value.type if with_type else None
    if value_type is not None:
        proto.type.CopyFrom(save_type(value_type))
    return proto


def _names(values: tuple[Value | None, ...]) -> list[str]:
    return ["" if value is None else value.name for value in values]


def _serialize(proto: onnx.ModelProto) -> bytes:
    if proto.ByteSize() > MAX_PROTOBUF_NBYTES:
        raise Fail("the model is above protobuf's limit of 2 GiB; give external_file to keep its weights beside it")
    return proto.SerializeToString()
