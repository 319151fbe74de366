"""load_model(): from a path, bytes, a file object or a ModelProto to a ``Model``, with every reference checked."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

import onnx

from ort_core.collecting import paused_collection
from ort_core.errors import (
    Fail,
    InvalidArgument,
    InvalidGraph,
    MalformedGraph,
    UndefinedInput,
)
from ort_core.ir.graph import Graph
from ort_core.ir.model import Function, FunctionKey, Model
from ort_core.onnx_io.denotations import fix_denoted_sizes
from ort_core.onnx_io.external_data import ExternalFiles
from ort_core.onnx_io.graph_loader import GraphLoader, function_key, read_imports, read_metadata
from ort_core.onnx_io.ignored_attributes import drop_ignored_attributes
from ort_core.onnx_io.opset_limits import check_opsets
from ort_core.onnx_io.read_proto import ProtoSource, read_proto
from ort_core.onnx_io.shadowed_functions import without_shadowed
from ort_core.onnx_io.utf8 import check_text

log = logging.getLogger(__name__)

_NO_SIZES: Mapping[str, int] = {}
BLOCKED_DOMAIN = "com.microsoft.nchwc"
MAX_IR_VERSION = 14


@paused_collection()
def load_model(
    source: ProtoSource,
    *,
    folder: str | os.PathLike | None = None,
    linked_folder: str | os.PathLike | None = None,
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
        linked_folder: with ``folder``, where a model's file lies that stands there as a link; of a path, it is found.
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
    linked = _linked_folder(found) if folder is None else None if linked_folder is None else Path(linked_folder)
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
    imports = read_imports(proto.opset_import, "the model")
    if not imports and proto.ir_version >= 3:
        raise MalformedGraph("Missing opset in the model. All ModelProtos MUST have at least one entry that specifies "
                           "which version of the ONNX OperatorSet is being imported.")  # fmt: skip
    imports.setdefault("", 1)
    check_opsets(imports, released_only=released_opsets_only)
    check_text(proto.producer_name, proto.producer_version, proto.domain, proto.doc_string)
    loader = GraphLoader(files)
    functions: dict[FunctionKey, Function] = {}
    broken: dict[FunctionKey, InvalidGraph] = {}
    for function_proto in proto.functions:
        key = function_key(function_proto)
        if key in functions or key in broken:
            raise InvalidGraph(f"function {key[0]}::{key[1]} is defined twice")
        try:
            functions[key] = loader.function(function_proto)
        except (MalformedGraph, UndefinedInput) as error:
            broken[key] = error
    if functions:
        functions = without_shadowed(functions, imports)
    graph = loader.graph(proto.graph, {}, 0)
    if broken:
        _check_not_called(broken, [graph, *(function.graph for function in functions.values())])
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
        proto.model_version, proto.doc_string, read_metadata(proto.metadata_props), tuple(notes),
    )  # fmt: skip


def load_graph(proto: onnx.GraphProto, files: ExternalFiles | None = None) -> Graph:
    """Build a graph by itself from a GraphProto. Raises as ``load_model``."""
    return GraphLoader(files).graph(proto, {}, 0)


def check_inputs_have_types(graph: Graph) -> None:
    """Refuse a graph that sessions cannot feed. Raises ``MalformedGraph``."""
    for value in graph.inputs:
        if value.type is None:
            raise MalformedGraph(
                f"This is an invalid model. Model input ({value.name}) does not have type information. "
                "Declare the element type of each of the model's inputs."
            )


def _check_no_references(graph: Graph) -> None:
    from ort_core.ir.traversal import walk

    for node in walk(graph):
        for attribute in node.attributes.values():
            if attribute.reference is not None:
                raise InvalidGraph(
                    f"{node.describe()}: attribute {attribute.name!r} refers to attribute {attribute.reference!r} of a "
                    "function, but the node stands in no function"
                )


def _check_not_called(broken: Mapping[FunctionKey, InvalidGraph], graphs: Iterable[Graph]) -> None:
    """Raise what is wrong with a function that a node calls; one that none calls is left out, as by onnxruntime."""
    from ort_core.ir.traversal import walk

    called = {(node.domain, node.op_type, node.overload) for graph in graphs for node in walk(graph)}
    for key, error in broken.items():
        if key in called:
            raise error
        log.warning("the model's function %s::%s is left out: no node calls it, and it is broken: %s", *key[:2], error)


def _check_no_recursion(functions: Mapping[FunctionKey, Function]) -> None:
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
