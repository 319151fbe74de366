"""load_model(): from a path, bytes, a file object or a ModelProto to a ``Model``, with every reference checked."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError

from ort_core.collecting import paused_collection
from ort_core.errors import (
    Fail,
    InvalidArgument,
    InvalidGraph,
    InvalidProtobuf,
    InvalidType,
    MalformedGraph,
    NoSuchFile,
    UndefinedInput,
)
from ort_core.ir.attributes import Attribute, AttributeKind, SparseConstant
from ort_core.ir.constants import Constant
from ort_core.ir.graph import Graph
from ort_core.ir.model import Function, Model
from ort_core.ir.nodes import Node
from ort_core.ir.traversal import is_topologically_sorted, topological_order
from ort_core.ir.types import Shape, SparseTensorType, TensorType
from ort_core.ir.values import Value
from ort_core.onnx_io.denotations import fix_denoted_sizes
from ort_core.onnx_io.external_data import ExternalFiles
from ort_core.onnx_io.ignored_attributes import drop_ignored_attributes
from ort_core.onnx_io.opset_limits import check_opsets
from ort_core.onnx_io.ort_format import is_ort_format, read_ort_format
from ort_core.onnx_io.shadowed_functions import without_shadowed
from ort_core.onnx_io.tensor_proto import load_constant, load_sparse
from ort_core.onnx_io.type_proto import load_type
from ort_core.onnx_io.utf8 import check_text
from ort_core.ops.flag_attributes import normalize_flags

log = logging.getLogger(__name__)

ModelSource = str | bytes | bytearray | memoryview | os.PathLike | IO[bytes] | onnx.ModelProto

_NO_SIZES: Mapping[str, int] = {}
BLOCKED_DOMAIN = "com.microsoft.nchwc"
MAX_IR_VERSION = 14
_MAX_VERSION = 2**31 - 1  # of an operator set: onnx's own look-up takes 32 bits
MAX_NESTING = 64  # graphs within graphs; exporters nest a handful, and Python's own stack is the limit far above


@paused_collection()
def load_model(
    source: ModelSource,
    *,
    folder: str | os.PathLike | None = None,
    in_memory_files: Mapping[str, memoryview] | None = None,
    given: Collection[str] = (),
    released_opsets_only: bool = True,
    denoted_sizes: Mapping[str, int] = _NO_SIZES,
    named_sizes: Mapping[str, int] = _NO_SIZES,
) -> Model:
    """Load a model.

    Args:
        source: a path, the bytes of a model, a binary file object, or a ``ModelProto`` (not kept, not changed).
        folder: where external data lies; by default the folder of the path, for other sources nowhere.
        in_memory_files: contents of external files by the names that the model uses.
        given: names of initializers whose data the caller puts into the model loaded: their files need not be there.
        released_opsets_only: refuse a model that imports a newer operator set than is known; else that is a warning.
        denoted_sizes: sizes of inputs' dimensions by their denotations, which the model loaded does not keep.
        named_sizes: sizes by name, which the caller applies; they must not contradict the denoted ones.

    Raises:
        NoSuchFile: the path does not exist.
        InvalidProtobuf: the bytes are no ONNX protobuf.
        InvalidGraph: the model breaks a rule of ONNX.
        Fail: external data may not or cannot be read, or an operator set is too new.
        InvalidArgument: a denoted size contradicts the model, or a named one.
    """
    proto, found = read_proto(source)
    base = Path(folder) if folder is not None else None if found is None else found.parent
    linked = None if folder is not None else _linked_folder(found)
    files = ExternalFiles(base, dict(in_memory_files or {}), linked, given)
    model = model_from_proto(proto, files, released_opsets_only=released_opsets_only)
    if denoted_sizes:
        fix_denoted_sizes(model.graph, proto.graph, denoted_sizes, named_sizes)
    return model


def _linked_folder(path: Path | None) -> Path | None:
    """Return the folder of the file that a model's path leads to, if the path is a link."""
    return path.resolve().parent if path is not None and path.is_symlink() else None


def model_from_proto(
    proto: onnx.ModelProto, files: ExternalFiles | None = None, *, released_opsets_only: bool = True
) -> Model:
    """Build a model from a ModelProto. Raises as ``load_model``."""
    if not proto.HasField("graph"):
        raise InvalidArgument("No graph was found in the protobuf.")
    if proto.ir_version > MAX_IR_VERSION:
        raise Fail(
            f"Unsupported model IR version: {proto.ir_version}, max supported IR version: {MAX_IR_VERSION}. "
            "Install a newer ort-core, or save the model with an older IR version."
        )
    imports = _imports(proto.opset_import, "the model")
    if not imports and proto.ir_version >= 3:
        raise MalformedGraph("Missing opset in the model. All ModelProtos MUST have at least one entry that specifies "
                           "which version of the ONNX OperatorSet is being imported.")  # fmt: skip
    imports.setdefault("", 1)
    check_opsets(imports, released_only=released_opsets_only)
    check_text(proto.producer_name, proto.producer_version, proto.domain, proto.doc_string)
    loader = _GraphLoader(files)
    functions = {}
    for function_proto in proto.functions:
        function = loader.function(function_proto)
        if function.key in functions:
            raise InvalidGraph(f"function {function.domain}::{function.name} is defined twice")
        functions[function.key] = function
    if functions:
        functions = without_shadowed(functions, imports)
    graph = loader.graph(proto.graph, {}, 0)
    drop_ignored_attributes(graph, imports)
    for function in functions.values():
        drop_ignored_attributes(function.graph, {**imports, **function.opset_imports})
    notes = []
    if BLOCKED_DOMAIN in loader.domains:
        from ort_core.onnx_io.plain_layout import restore_plain_layout  # few files need it

        notes.append(restore_plain_layout(graph, imports))
    _check_no_recursion(functions)
    _check_no_references(graph)
    return Model(
        graph, imports, functions, proto.ir_version, proto.producer_name, proto.producer_version, proto.domain,
        proto.model_version, proto.doc_string, _metadata(proto.metadata_props), tuple(notes),
    )  # fmt: skip


def load_graph(proto: onnx.GraphProto, files: ExternalFiles | None = None) -> Graph:
    """Build a graph by itself from a GraphProto. Raises as ``load_model``."""
    return _GraphLoader(files).graph(proto, {}, 0)


def read_proto(source: ModelSource) -> tuple[onnx.ModelProto, Path | None]:
    """Return a model's protobuf, and the file that it was read from. Raises as ``load_model``."""
    if isinstance(source, onnx.ModelProto):
        return source, None
    if isinstance(source, (bytes, bytearray, memoryview)):
        return _parse(bytes(source), "the given bytes"), None
    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        try:
            if not path.is_file():
                raise NoSuchFile(f"Load model from {path} failed:Load model {path} failed. File doesn't exist")
            content = path.read_bytes()
        except (OSError, ValueError) as error:
            if isinstance(error, NoSuchFile):
                raise
            raise Fail(f"Load model from {str(source)!r} failed: {error}") from error
        return _parse(content, str(path)), path
    if hasattr(source, "read"):
        name = getattr(source, "name", None)
        path_of_file = Path(name) if isinstance(name, str) and os.path.exists(name) else None
        content = source.read()
        if not isinstance(content, bytes):
            raise InvalidType("a model's file object must be opened in binary mode ('rb')")
        return _parse(content, repr(source)), path_of_file
    raise InvalidType(f"Unable to load from type '{type(source)}'")


def _parse(content: bytes, origin: str) -> onnx.ModelProto:
    if not content:
        raise InvalidArgument(f"Load model from {origin} failed: No graph was found in the protobuf.")
    if is_ort_format(content):
        return read_ort_format(content)
    try:
        return onnx.ModelProto.FromString(content)
    except (DecodeError, RecursionError) as error:
        raise InvalidProtobuf(
            f"Load model from {origin} failed:Protobuf parsing failed. {_what_else(content)}"
        ) from error


_OTHER_FORMATS = (
    (0, b"version https://git-lfs", "It is a pointer of Git LFS: run `git lfs pull` for the model itself."),
    (0, b"PK\x03\x04", "It is a zip archive: unpack it, or, if PyTorch wrote it, export the model with torch.onnx."),
    (0, b"\x89HDF", "It is an HDF5 file, as Keras writes: convert the model to ONNX."),
    (0, b"\x1f\x8b", "It is compressed by gzip: unpack it."),
    (
        0,
        b"GGUF",
        "It is a GGUF file of a language model: the guide to these says how to build a model from it.",
    ),
    (8, b'{"', "It is a safetensors file, which holds weights without a graph: export the model to ONNX."),
    (0, b"\x80\x02", "It is a pickle, as older versions of PyTorch write: export the model with torch.onnx."),
    (4, b"TFL3", "It is a TensorFlow Lite model: convert it to ONNX."),
    (0, b"<", "It is a text such as a web page: the download gave something else than the model."),
    (0, b"{", "It is a text such as JSON, not a model in ONNX's binary form."),
)  # what stands where a model was named, by its first bytes


def _what_else(content: bytes) -> str:
    """Say what bytes are that are no model, as far as their beginning tells."""
    found = next((text for start, sign, text in _OTHER_FORMATS if content[start:].startswith(sign)), None)
    return found or f"Its {len(content):,} bytes are no ONNX model, or only a part of one."


def _metadata(entries: Iterable[onnx.StringStringEntryProto]) -> dict[str, str]:
    pairs = {entry.key: entry.value for entry in entries}
    check_text(*pairs, *pairs.values())
    return pairs


def _imports(entries: object, what: str) -> dict[str, int]:
    imports: dict[str, int] = {}
    for entry in entries:  # type: ignore[attr-defined]  # a repeated protobuf field has no useful static type
        check_text(entry.domain)
        domain = "" if entry.domain == "ai.onnx" else entry.domain
        if not 1 <= entry.version <= _MAX_VERSION:
            raise InvalidGraph(f"{what} imports version {entry.version} of domain {domain or 'ai.onnx'!r}")
        if imports.get(domain, entry.version) != entry.version:
            log.warning(
                "%s imports versions %d and %d of domain %r; the last one holds",
                what, imports[domain], entry.version, domain or "ai.onnx",
            )  # fmt: skip
        imports[domain] = entry.version
    return imports


class _GraphLoader:
    """Builds graphs from protos; ``scope`` maps the names visible at a point to their values."""

    def __init__(self, files: ExternalFiles | None) -> None:
        self._files = files
        self.domains: set[str] = set()  # of the nodes seen so far

    def graph(self, proto: onnx.GraphProto, scope: Mapping[str, Value], depth: int) -> Graph:
        if depth > MAX_NESTING:
            raise InvalidGraph(f"graphs are nested more than {MAX_NESTING} deep at {proto.name!r}")
        infos = (*proto.input, *proto.output, *proto.value_info)
        check_text(proto.name, proto.doc_string, *(info.name for info in infos), *(info.doc_string for info in infos))
        graph = Graph(proto.name)
        graph.doc = proto.doc_string
        graph.metadata = _metadata(proto.metadata_props)
        names: dict[str, Value] = {}
        for info in proto.input:
            value = Value(info.name, load_type(info.type, info.name))
            value.doc = info.doc_string
            self._define(names, value, f"graph {proto.name!r}", scope)
            graph.add_input(value)
        self._initializers(proto, graph, names, scope)
        types = {info.name: info for info in (*proto.value_info, *proto.output)}
        visible = _ChainedScope(names, scope)
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
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        return Function(
            domain, proto.name, proto.overload, graph, tuple(proto.attribute), defaults,
            _imports(proto.opset_import, what), proto.doc_string, _metadata(proto.metadata_props),
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
        made: list[tuple[onnx.NodeProto, list[Value | None]]] = []
        for proto in protos:  # type: ignore[attr-defined]  # a repeated protobuf field has no useful static type
            made.append((proto, self._outputs(proto, names, types)))
        for proto, outputs in made:
            graph.append(self._node(proto, outputs, visible, depth))
        if not is_topologically_sorted(graph):
            try:
                graph.reorder(topological_order(graph))
            except ValueError as error:
                raise MalformedGraph(
                    f"This is an invalid model. Error: the graph is not acyclic. Graph {graph.name!r}: {error}"
                ) from error

    def _outputs(
        self, proto: onnx.NodeProto, names: dict[str, Value], types: Mapping[str, onnx.ValueInfoProto]
    ) -> list[Value | None]:
        outputs: list[Value | None] = []
        texts = (proto.name, proto.op_type, proto.domain, proto.overload, proto.doc_string)
        check_text(*texts, *proto.input, *proto.output)
        for name in proto.output:
            if not name:
                outputs.append(None)
                continue
            info = types.get(name)
            value = Value(name, load_type(info.type, name) if info is not None else None)
            self._define(names, value, f"node {proto.name!r} ({proto.op_type})", {})
            outputs.append(value)
        return outputs

    def _node(
        self, proto: onnx.NodeProto, outputs: list[Value | None], visible: Mapping[str, Value], depth: int
    ) -> Node:
        inputs: list[Value | None] = []
        for name in proto.input:
            value = visible.get(name) if name else None
            if name and value is None:
                raise UndefinedInput(
                    f"Invalid model. Node input '{name}' is not a graph input, initializer, or output of a previous "
                    f"node. The node is {proto.name!r} ({proto.op_type})."
                )
            inputs.append(value)
        if not proto.op_type:
            raise InvalidGraph(f"node {proto.name!r} names no operator")
        self.domains.add(proto.domain)
        attributes: dict[str, Attribute] = {}
        for attribute_proto in proto.attribute:
            attribute = self._attribute(attribute_proto, visible, depth)
            if attribute.name in attributes:
                raise InvalidGraph(f"node {proto.name!r} ({proto.op_type}) has attribute {attribute.name!r} twice")
            attributes[attribute.name] = attribute
        normalize_flags(proto.domain, proto.op_type, attributes)
        node = Node(
            proto.op_type, inputs, outputs, attributes.values(), name=proto.name, overload=proto.overload,
            domain="" if proto.domain == "ai.onnx" else proto.domain,
        )  # fmt: skip
        node.doc = proto.doc_string
        node.metadata = _metadata(proto.metadata_props)
        return node

    def _attribute(self, proto: onnx.AttributeProto, visible: Mapping[str, Value], depth: int) -> Attribute:
        check_text(proto.name, proto.ref_attr_name)
        try:
            kind = AttributeKind(proto.type)
        except ValueError as error:
            raise InvalidGraph(f"attribute {proto.name!r} has the unknown kind {proto.type}") from error
        if kind is AttributeKind.UNDEFINED:
            kind = _guess_kind(proto)
        if proto.ref_attr_name:
            return Attribute(proto.name, kind, None, proto.ref_attr_name)
        return Attribute(proto.name, kind, self._attribute_value(proto, kind, visible, depth))

    def _attribute_value(
        self, proto: onnx.AttributeProto, kind: AttributeKind, visible: Mapping[str, Value], depth: int
    ) -> object:
        plain = _PLAIN.get(kind)
        if plain is not None:
            return plain(proto)
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


class _ChainedScope(dict):
    """Names of this graph over the names of the enclosing ones."""

    def __init__(self, inner: dict[str, Value], outer: Mapping[str, Value]) -> None:
        super().__init__()
        self._inner, self._outer = inner, outer

    def get(self, name: str, default: Value | None = None) -> Value | None:  # type: ignore[override]  # narrower on purpose
        found = self._inner.get(name)
        return found if found is not None else self._outer.get(name, default)


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


def check_inputs_have_types(graph: Graph) -> None:
    """Refuse a graph that sessions cannot feed. Raises ``MalformedGraph``."""
    for value in graph.inputs:
        if value.type is None:
            raise MalformedGraph(
                f"This is an invalid model. Model input ({value.name}) does not have type information. "
                "Declare the element type of each of the model's inputs."
            )


def _may_be(declared: Shape, found: Sequence[int]) -> bool:
    """Return whether a declared shape leaves room for a shape: open and named sizes do."""
    return len(declared) == len(found) and all(
        not isinstance(dim, int) or dim == size for dim, size in zip(declared, found, strict=True)
    )


def _densify(constant: SparseConstant) -> Callable[[], np.ndarray]:
    from ort_core.tensors.sparse import SparseArray

    return lambda: SparseArray(constant.values.array(), constant.indices.array(), constant.shape).dense()


def _check_no_references(graph: Graph) -> None:
    from ort_core.ir.traversal import walk

    for node in walk(graph):
        for attribute in node.attributes.values():
            if attribute.reference is not None:
                raise InvalidGraph(
                    f"{node.describe()}: attribute {attribute.name!r} refers to attribute {attribute.reference!r} of a "
                    "function, but the node stands in no function"
                )


def _check_no_recursion(functions: Mapping[tuple[str, str, str], Function]) -> None:
    from ort_core.ir.traversal import walk

    calls = {
        key: {(n.domain, n.op_type, n.overload) for n in walk(f.graph)} & functions.keys()
        for key, f in functions.items()
    }
    while calls:
        leaves = {key for key, called in calls.items() if not called}
        if not leaves:
            domain, name, _ = next(iter(calls))
            raise InvalidGraph(f"function {domain}::{name} calls itself, directly or through others")
        calls = {key: called - leaves for key, called in calls.items() if key not in leaves}
