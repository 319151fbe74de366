"""GraphLoader: from a GraphProto or a FunctionProto to a graph whose names all lead to values."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from ort_core.errors import InvalidGraph, MalformedGraph, UndefinedInput
from ort_core.ir.attributes import Attribute, AttributeKind, SparseConstant
from ort_core.ir.constants import Constant
from ort_core.ir.graph import Graph
from ort_core.ir.model import Function, FunctionKey
from ort_core.ir.nodes import Node
from ort_core.ir.traversal import is_topologically_sorted, topological_order
from ort_core.ir.types import Shape, SparseTensorType, TensorType
from ort_core.ir.values import Value
from ort_core.onnx_io.external_data import ExternalFiles
from ort_core.onnx_io.tensor_proto import load_constant, load_sparse
from ort_core.onnx_io.type_proto import load_type
from ort_core.onnx_io.utf8 import check_text
from ort_core.ops.attribute_spellings import normalize_spellings
from ort_core.ops.flag_attributes import normalize_flags

log = logging.getLogger(__name__)

_MAX_VERSION = 2**31 - 1  # of an operator set: onnx's own look-up takes 32 bits
MAX_NESTING = 64  # graphs within graphs; exporters nest a handful, and Python's own stack is the limit far above


class GraphLoader:
    """Builds graphs from protos; ``scope`` maps the names visible at a point to their values."""

    def __init__(self, files: ExternalFiles | None) -> None:
        self._files = files
        self.domains: set[str] = set()  # of the nodes seen so far

    def graph(self, proto: onnx.GraphProto, scope: Mapping[str, Value], depth: int) -> Graph:
        """Return the graph; ``scope`` are the values around it, ``depth`` counts the graphs that it lies in."""
        if depth > MAX_NESTING:
            raise InvalidGraph(f"graphs are nested more than {MAX_NESTING} deep at {proto.name!r}")
        infos = (*proto.input, *proto.output, *proto.value_info)
        check_text(proto.name, proto.doc_string, *(info.name for info in infos), *(info.doc_string for info in infos))
        graph = Graph(proto.name)
        graph.doc = proto.doc_string
        graph.metadata = read_metadata(proto.metadata_props)
        names: dict[str, Value] = {}
        for info in proto.input:
            value = Value(info.name, load_type(info.type, info.name))
            value.doc = info.doc_string
            self._define(names, value, f"graph {proto.name!r}", scope)
            graph.add_input(value)
        self._initializers(proto, graph, names, scope)
        types = {info.name: info for info in (*proto.value_info, *proto.output)}
        visible = _ChainedScope(names, scope) if depth else names
        self._nodes(proto.node, graph, names, visible, types, depth)
        for info in proto.output:
            found = visible.get(info.name)
            if found is None:
                raise MalformedGraph(f"graph {proto.name!r} returns {info.name!r}, which no node produces")
            if found.type is None:
                found.type = load_type(info.type, info.name)
            graph.add_output(found)
        return graph

    def function(self, proto: onnx.FunctionProto) -> Function:
        """Return the function with its body as a graph."""
        texts = (proto.domain, proto.name, proto.overload, proto.doc_string)
        check_text(*texts, *proto.input, *proto.output, *proto.attribute, *(info.name for info in proto.value_info))
        what = f"function {proto.domain}::{proto.name}"
        graph = Graph(proto.name)
        names: dict[str, Value] = {}
        for name in proto.input:
            value = Value(name)
            self._define(names, value, what, {})
            graph.add_input(value)
        types = {info.name: info for info in proto.value_info}
        self._nodes(proto.node, graph, names, names, types, 0)
        for name in proto.output:
            if name not in names:
                raise InvalidGraph(f"{what} returns {name!r}, which no node in it produces")
            graph.add_output(names[name])
        defaults = {a.name: self._attribute(a, names, 0) for a in proto.attribute_proto}
        return Function(
            *function_key(proto), graph, tuple(proto.attribute), defaults,
            read_imports(proto.opset_import, what), proto.doc_string, read_metadata(proto.metadata_props),
        )  # fmt: skip

    def _initializers(
        self, proto: onnx.GraphProto, graph: Graph, names: dict[str, Value], scope: Mapping[str, Value]
    ) -> None:
        for tensor in proto.initializer:
            check_text(tensor.name)
            if not tensor.name:
                raise InvalidGraph(f"graph {proto.name!r} has an initializer without a name")
            self._initializer(graph, names, scope, tensor.name, load_constant(tensor, self._files))
        for sparse in proto.sparse_initializer:
            name = sparse.values.name
            check_text(name)
            if not name:
                raise InvalidGraph(f"graph {proto.name!r} has a sparse initializer without a name")
            constant = load_sparse(sparse)
            dense = Constant(constant.dtype, constant.shape, _densify(constant))
            self._initializer(graph, names, scope, name, dense)

    def _initializer(
        self, graph: Graph, names: dict[str, Value], scope: Mapping[str, Value], name: str, constant: Constant
    ) -> None:
        value = names.get(name)
        if value is None:
            self._define(names, Value(name, constant=constant), f"graph {graph.name!r}", scope)
            graph.add_initializer(names[name])
            return
        if value.constant is not None:
            log.warning(
                "Duplicate initializer (dense, sparse or ConstantNode): %r in graph %r: the model uses the last one. "
                "Please fix the model: give each initializer a name of its own.",
                name, graph.name,
            )  # fmt: skip
        if value.is_graph_input:
            self._check_default(value, constant)
            value.constant = constant
        else:
            value = names[name] = Value(name, constant=constant)
        graph.add_initializer(value)

    def _check_default(self, value: Value, constant: Constant) -> None:
        declared = value.type
        dtype = declared.dtype if isinstance(declared, (TensorType, SparseTensorType)) else None
        if declared is not None and dtype != constant.dtype:
            raise MalformedGraph(
                f"Type Error: input {value.name!r} is declared as {declared}, its initializer is "
                f"tensor({constant.dtype.text})"
            )
        shape = declared.shape if isinstance(declared, TensorType) else None
        if shape is not None and not _may_be(shape, constant.shape):
            raise MalformedGraph(
                f"Type Error: Shape of initializer {value.name} does not match. Input {value.name!r} is declared as "
                f"{declared}, its initializer has the shape {list(constant.shape)}"
            )

    def _nodes(
        self,
        protos: object,
        graph: Graph,
        names: dict[str, Value],
        visible: Mapping[str, Value],
        types: Mapping[str, onnx.ValueInfoProto],
        depth: int,
    ) -> None:
        made: list[tuple[_Texts, list[Value | None]]] = []
        for proto in protos:  # type: ignore[attr-defined]  # a repeated protobuf field has no useful static type
            texts = _Texts(proto)
            made.append((texts, self._outputs(texts, names, types)))
        for texts, outputs in made:
            graph.append(self._node(texts, outputs, visible, depth))
        if not is_topologically_sorted(graph):
            try:
                graph.reorder(topological_order(graph))
            except ValueError as error:
                raise MalformedGraph(
                    f"This is an invalid model. Error: the graph is not acyclic. Graph {graph.name!r}: {error}"
                ) from error

    def _outputs(
        self, texts: _Texts, names: dict[str, Value], types: Mapping[str, onnx.ValueInfoProto]
    ) -> list[Value | None]:
        outputs: list[Value | None] = []
        for name in texts.outputs:
            if not name:
                outputs.append(None)
                continue
            info = types.get(name)
            value = Value(name, load_type(info.type, name) if info is not None else None)
            if name in names:
                self._define(names, value, f"node {texts.name!r} ({texts.op_type})", {})  # refuses the second one
            names[name] = value
            outputs.append(value)
        return outputs

    def _node(self, texts: _Texts, outputs: list[Value | None], visible: Mapping[str, Value], depth: int) -> Node:
        proto, op_type, domain = texts.proto, texts.op_type, texts.domain
        inputs: list[Value | None] = []
        for name in texts.inputs:
            value = visible.get(name) if name else None
            if name and value is None:
                raise UndefinedInput(
                    f"Invalid model. Node input '{name}' is not a graph input, initializer, or output of a previous "
                    f"node. The node is {texts.name!r} ({op_type})."
                )
            inputs.append(value)
        if not op_type:
            raise InvalidGraph(f"node {texts.name!r} names no operator")
        self.domains.add(domain)
        attributes: dict[str, Attribute] = {}
        for attribute_proto in proto.attribute:
            attribute = self._attribute(attribute_proto, visible, depth)
            if attribute.name in attributes:
                raise InvalidGraph(f"node {texts.name!r} ({op_type}) has attribute {attribute.name!r} twice")
            attributes[attribute.name] = attribute
        if attributes:
            normalize_flags(domain, op_type, attributes)
            normalize_spellings(domain, op_type, attributes)
        node = Node(
            op_type, inputs, outputs, attributes.values(), name=texts.name, overload=texts.overload,
            domain="" if domain == "ai.onnx" else domain,
        )  # fmt: skip
        node.doc = texts.doc
        if proto.metadata_props:
            node.metadata = read_metadata(proto.metadata_props)
        return node

    def _attribute(self, proto: onnx.AttributeProto, visible: Mapping[str, Value], depth: int) -> Attribute:
        name, reference = proto.name, proto.ref_attr_name
        if type(name) is not str or type(reference) is not str:
            check_text(name, reference)  # forests have a dozen attributes for each tree
        kind = _KINDS.get(proto.type)
        if kind is None:
            raise InvalidGraph(f"attribute {name!r} has the unknown kind {proto.type}")
        if kind is AttributeKind.UNDEFINED:
            kind = _guess_kind(proto)
        if reference:
            return Attribute(name, kind, None, reference)
        plain = _PLAIN.get(kind)
        value = self._graph_or_data(proto, kind, visible, depth) if plain is None else plain(proto)
        return Attribute(name, kind, value)

    def _graph_or_data(
        self, proto: onnx.AttributeProto, kind: AttributeKind, visible: Mapping[str, Value], depth: int
    ) -> object:
        files = self._files
        if kind is AttributeKind.GRAPH:
            return self.graph(proto.g, visible, depth + 1)
        if kind is AttributeKind.GRAPHS:
            return tuple(self.graph(g, visible, depth + 1) for g in proto.graphs)
        if kind is AttributeKind.TENSOR:
            return load_constant(proto.t, files)
        if kind is AttributeKind.TENSORS:
            return tuple(load_constant(t, files) for t in proto.tensors)
        if kind is AttributeKind.SPARSE_TENSOR:
            return load_sparse(proto.sparse_tensor)
        if kind is AttributeKind.SPARSE_TENSORS:
            return tuple(load_sparse(t) for t in proto.sparse_tensors)
        if kind is AttributeKind.TYPE_PROTO:
            return load_type(proto.tp, proto.name)
        assert kind is AttributeKind.TYPE_PROTOS, kind
        return tuple(load_type(t, proto.name) for t in proto.type_protos)

    def _define(self, names: dict[str, Value], value: Value, where: str, scope: Mapping[str, Value]) -> None:
        if not value.name:
            raise InvalidGraph(f"{where} has an input without a name")
        if value.name in names:
            raise MalformedGraph(
                f"This is an invalid model. Error: Duplicate definition of name ({value.name}) by {where}."
            )
        names[value.name] = value


class _Texts:
    """The texts of a NodeProto, each read from it once: protobuf makes them anew each time that it is asked.

    Raises:
        InvalidProtobuf: one of them is not UTF-8.
    """

    __slots__ = ("doc", "domain", "inputs", "name", "op_type", "outputs", "overload", "proto")

    def __init__(self, proto: onnx.NodeProto) -> None:
        self.proto = proto
        self.name, self.op_type, self.domain = proto.name, proto.op_type, proto.domain
        self.overload, self.doc = proto.overload, proto.doc_string
        self.inputs, self.outputs = tuple(proto.input), tuple(proto.output)
        check_text(self.name, self.op_type, self.domain, self.overload, self.doc, *self.inputs, *self.outputs)


class _ChainedScope(dict):
    """Names of this graph over the names of the enclosing ones."""

    def __init__(self, inner: dict[str, Value], outer: Mapping[str, Value]) -> None:
        super().__init__()
        self._inner, self._outer = inner, outer

    def get(self, name: str, default: Value | None = None) -> Value | None:  # type: ignore[override]  # narrower on purpose
        found = self._inner.get(name)
        return found if found is not None else self._outer.get(name, default)


_KINDS: dict[int, AttributeKind] = {int(kind): kind for kind in AttributeKind}
_PLAIN: dict[AttributeKind, Callable[[onnx.AttributeProto], Any]] = {  # Any: what the kind says
    AttributeKind.FLOAT: lambda p: float(p.f),
    AttributeKind.INT: lambda p: int(p.i),
    AttributeKind.STRING: lambda p: p.s.decode("utf-8", "surrogateescape"),
    AttributeKind.FLOATS: lambda p: tuple(p.floats),
    AttributeKind.INTS: lambda p: tuple(p.ints),
    AttributeKind.STRINGS: lambda p: tuple(s.decode("utf-8", "surrogateescape") for s in p.strings),
}
_FIELD_KINDS = {
    "f": AttributeKind.FLOAT, "i": AttributeKind.INT, "s": AttributeKind.STRING, "t": AttributeKind.TENSOR,
    "g": AttributeKind.GRAPH, "floats": AttributeKind.FLOATS, "ints": AttributeKind.INTS,
    "strings": AttributeKind.STRINGS, "tensors": AttributeKind.TENSORS, "graphs": AttributeKind.GRAPHS,
}  # fmt: skip


def _guess_kind(proto: onnx.AttributeProto) -> AttributeKind:
    """Files older than IR version 2 do not say the kind of an attribute; the field that is set tells it."""
    for field, _ in proto.ListFields():
        if field.name in _FIELD_KINDS:
            return _FIELD_KINDS[field.name]
    raise InvalidGraph(f"attribute {proto.name!r} has neither a kind nor a value")


def _may_be(declared: Shape, found: Sequence[int]) -> bool:
    """Return whether a declared shape leaves room for a shape: open and named sizes do."""
    return len(declared) == len(found) and all(
        not isinstance(dim, int) or dim == size for dim, size in zip(declared, found, strict=True)
    )


def _densify(constant: SparseConstant) -> Callable[[], np.ndarray]:
    from ort_core.tensors.sparse import SparseArray

    return lambda: SparseArray(constant.values.array(), constant.indices.array(), constant.shape).dense()


def read_metadata(entries: Iterable[onnx.StringStringEntryProto]) -> dict[str, str]:
    """Return entries as a mapping; the last of a key counts."""
    pairs = {entry.key: entry.value for entry in entries}
    check_text(*pairs, *pairs.values())
    return pairs


def function_key(proto: onnx.FunctionProto) -> FunctionKey:
    """Return what nodes call a function by."""
    return "" if proto.domain == "ai.onnx" else proto.domain, proto.name, proto.overload


def read_imports(entries: object, what: str) -> dict[str, int]:
    """Return the version of each domain that a model or a function imports.

    Raises:
        InvalidGraph: a version is no version of an operator set.
    """
    imports: dict[str, int] = {}
    for entry in entries:  # type: ignore[attr-defined]  # a repeated protobuf field has no useful static type
        check_text(entry.domain)
        domain = "" if entry.domain == "ai.onnx" else entry.domain
        if not 1 <= entry.version <= _MAX_VERSION:
            raise InvalidGraph(f"{what} imports version {entry.version} of domain {domain or 'ai.onnx'!r}")
        if imports.get(domain, entry.version) != entry.version:
            log.warning(
                "%s imports versions %d and %d of domain %r; the last one is used",
                what, imports[domain], entry.version, domain or "ai.onnx",
            )  # fmt: skip
        imports[domain] = entry.version
    return imports
