"""The door of packages that want the types of a model's values: an ONNX model in, the same with every type known.

Sessions infer for themselves; this writes what inference found into a copy of the file's own form, where all else
stays as it was. A size that nobody named gets a name (``unk__0``, ``unk__1``, …), equal ones the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ort_core.environment import default_environment
from ort_core.ir.dims import Call, KnownDim, SymbolicDim
from ort_core.ir.rejection import Rejection
from ort_core.ir.traversal import graphs_of
from ort_core.ir.types import DataType, MapType, OptionalType, SequenceType, SparseTensorType, TensorType, ValueType
from ort_core.onnx_io.load import load_model
from ort_core.onnx_io.read_proto import read_proto
from ort_core.onnx_io.type_proto import save_type
from ort_core.ops.inference_report import InferenceReport, NoteKind
from ort_core.ops.merge_types import substitute_type
from ort_core.ops.shape_inference import InputShape, infer_types
from ort_core.ops.unknown_dims import UNKNOWN_PREFIX

if TYPE_CHECKING:
    import onnx

    from ort_core.ir.graph import Graph
    from ort_core.ir.model import Model
    from ort_core.ir.nodes import Node
    from ort_core.ops.schema import OpSchema

_NAMED = "unk__"
_MAX_ROUNDS = 1000  # of guesses: each round lets at least one more unknown node pass


@dataclass(frozen=True, slots=True)
class TypedProto:
    """A model with the types of its values, and in sentences what contradicts itself or is unknown."""

    model: onnx.ModelProto
    problems: tuple[str, ...]
    unknown_operators: tuple[str, ...]


def infer_proto(
    source: str | os.PathLike | bytes | onnx.ModelProto,
    *,
    folder: str | os.PathLike | None = None,
    input_shapes: Mapping[str, InputShape] | None = None,
    merges_sizes: bool = False,
    guesses_ranks: bool = False,
    trusts_sizes: bool = True,
) -> TypedProto:
    """Write into a model the type of every value that something is known of, those inside of bodies included.

    Args:
        source: a path, the bytes of a model, or a ``ModelProto`` (not changed). External data need not be there: then
            nothing is known of what it says.
        folder: where external data lies; by default the folder of the path.
        input_shapes: shapes of graph inputs that are known beyond what the model declares, by input name.
        merges_sizes: take two named sizes that broadcast against each other for one size.
        guesses_ranks: take the first result of an operator that nobody knows to be of the type of its first input,
            with sizes of its own.
        trusts_sizes: whether sizes that the model declares of values inside are facts.

    Returns:
        The model with ``value_info``, and with the types of outputs. What contradicts itself is told, not raised.

    Raises:
        OrtError: the model cannot be loaded.
    """
    environment = default_environment()
    proto, found = read_proto(source)
    base = folder if folder is not None else None if found is None else found.parent
    model = load_model(proto, folder=base, given=_outside(proto) if base is None else ())
    environment.operators.adopt(model)

    def infer() -> InferenceReport:
        return infer_types(
            model,
            environment.schemas,
            environment.inference_rules,
            input_shapes=input_shapes,
            trusts_sizes=trusts_sizes,
        )

    report = infer()
    if guesses_ranks:
        report = _guess(model, report, infer)
    types = {value: value.type for graph in graphs_of(model.graph) for value in _values(graph) if value.type}
    replaced = _merged_sizes(types.values()) if merges_sizes else {}
    replaced |= _plain_names({value: substitute_type(each, replaced) for value, each in types.items()}.values())
    copy = type(proto)()
    copy.CopyFrom(proto)
    _write(copy.graph, model.graph, replaced)
    gaps = report.of_kind(NoteKind.GAP)
    others = (note.message for note in report.notes if note.kind is not NoteKind.GAP)
    unknown = dict.fromkeys(f"{note.node.domain}::{note.node.op_type}" for note in gaps if note.node is not None)
    return TypedProto(copy, tuple(others), tuple(unknown))


def find_operator(domain: str, op_type: str, opset: int) -> OpSchema | None:
    """Return the schema of an operator in an operator set, those of com.microsoft and of plugins included."""
    found = default_environment().schemas.find(domain, op_type, opset)
    return None if isinstance(found, Rejection) else found


def _outside(proto: onnx.ModelProto) -> Collection[str]:
    """Return the names of tensors whose data lies in other files."""

    def of_graph(graph: onnx.GraphProto) -> Iterator[str]:
        for tensor in graph.initializer:
            if tensor.external_data:
                yield tensor.name
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.t.external_data:
                    yield attribute.t.name
                for inner in (attribute.g, *attribute.graphs):
                    yield from of_graph(inner)

    return frozenset(of_graph(proto.graph))


def _values(graph: Graph) -> Iterator:
    yield from graph.inputs
    for node in graph:
        yield from node.present_outputs()


# ---- guesses


def _guess(model: Model, report: InferenceReport, infer: Callable[[], InferenceReport]) -> InferenceReport:
    """Give unknown operators' first results the type of their first inputs, as long as there are such."""
    guessed: set[Node] = set()
    for _ in range(_MAX_ROUNDS):
        waiting = [note.node for note in report.of_kind(NoteKind.GAP) if note.node is not None]
        new = [node for node in waiting if node not in guessed and _guess_node(node)]
        if not new:
            break
        guessed.update(new)
        report = infer()
    return report


def _guess_node(node: Node) -> bool:
    first, result = node.input(0), next(node.present_outputs(), None)
    if first is None or result is None or not isinstance(first.type, TensorType) or first.type.shape is None:
        return False
    known = result.type
    if isinstance(known, TensorType) and known.shape is not None:
        return False
    dtype = known.dtype if isinstance(known, TensorType) else first.type.dtype
    result.type = TensorType(dtype, (None,) * len(first.type.shape))
    return True


# ---- sizes


def _dims(value_type: ValueType | None) -> Iterator[SymbolicDim]:
    if isinstance(value_type, (TensorType, SparseTensorType)):
        yield from (dim for dim in value_type.shape or () if isinstance(dim, SymbolicDim))
    elif isinstance(value_type, (SequenceType, OptionalType)):
        yield from _dims(value_type.element)
    elif isinstance(value_type, MapType):
        yield from _dims(value_type.value)


def _merged_sizes(types: Collection[ValueType | None]) -> dict[str, KnownDim]:
    """Return which named size stands for which, where two broadcast against each other."""
    replaced: dict[str, KnownDim] = {}
    for value_type in types:
        for dim in _dims(value_type):
            for call in _broadcasts(dim):
                _merge(call, replaced)
    return replaced


def _broadcasts(dim: SymbolicDim) -> Iterator[Call]:
    for monomial, _ in dim.terms:
        for atom, _ in monomial:
            if isinstance(atom, Call):
                for argument in atom.arguments:
                    if isinstance(argument, SymbolicDim):
                        yield from _broadcasts(argument)
                if atom.function == "broadcast":
                    yield atom


def _merge(call: Call, replaced: dict[str, KnownDim]) -> None:
    sizes = {each: None for a in call.arguments if isinstance(each := _replaced(a, replaced), SymbolicDim)}
    keeper = min(sizes, key=_preference, default=None)
    for size in sizes:
        if keeper is None or size == keeper or size.name is None or size.name in keeper.symbols():
            continue
        update: dict[str, KnownDim] = {size.name: keeper}
        for name, dim in replaced.items():
            replaced[name] = _replaced(dim, update)
        replaced |= update


def _replaced(dim: KnownDim, replaced: Mapping[str, KnownDim]) -> KnownDim:
    return dim.substitute(replaced) if isinstance(dim, SymbolicDim) else dim


def _preference(dim: SymbolicDim) -> tuple[bool, bool, str]:
    """An expression before names, for it cannot be replaced; a name of the model before one made up."""
    return dim.name is not None, any(name.startswith(UNKNOWN_PREFIX) for name in dim.symbols()), str(dim)


def _plain_names(types: Collection[ValueType | None]) -> dict[str, KnownDim]:
    """Return names for sizes that nobody named, in the order in which they occur."""
    names: dict[str, None] = {}
    for value_type in types:
        for dim in _dims(value_type):
            names |= dict.fromkeys(sorted(dim.symbols()))
    unnamed = [name for name in names if name.startswith(UNKNOWN_PREFIX)]
    free = (f"{_NAMED}{number}" for number in range(len(names) + len(unnamed)) if f"{_NAMED}{number}" not in names)
    return {name: SymbolicDim.named(free_name) for name, free_name in zip(unnamed, free, strict=False)}


# ---- writing


def _write(proto: onnx.GraphProto, graph: Graph, replaced: dict[str, KnownDim]) -> None:
    types = {value.name: value.type for node in graph for value in node.present_outputs() if value.type}
    shown = {each.name for each in (*proto.input, *proto.output)} | {each.name for each in proto.initializer}
    for entry, value in zip(proto.input, graph.inputs, strict=False):  # those of bodies often have no type
        if value.type and value.name == entry.name and not entry.type.WhichOneof("value"):
            entry.type.CopyFrom(_proto_type(value.type, replaced))
    for entry in proto.output:
        if entry.name in types:
            entry.type.CopyFrom(_proto_type(types[entry.name], replaced))
    stated = {entry.name: entry for entry in proto.value_info}
    for name, value_type in types.items():
        if name not in shown:
            entry = stated[name] if name in stated else proto.value_info.add(name=name)
            entry.type.CopyFrom(_proto_type(value_type, replaced))
    bodies = dict(_bodies(graph))
    for node in proto.node:
        for attribute in node.attribute:
            inner = [attribute.g] if attribute.HasField("g") else list(attribute.graphs)
            for place, each in enumerate(inner):
                body = bodies.get((_first(node.output), attribute.name, place))
                if body is not None:
                    _write(each, body, replaced)


def _proto_type(value_type: ValueType, replaced: dict[str, KnownDim]) -> onnx.TypeProto:
    proto = save_type(substitute_type(value_type, replaced))
    if isinstance(value_type, TensorType) and value_type.dtype is DataType.UNDEFINED:
        proto.ClearField("tensor_type")
    return proto


def _bodies(graph: Graph) -> Iterator[tuple[tuple[str, str, int], Graph]]:
    """Return the graphs within a graph by the first result of their node, the attribute and the place in it."""
    for node in graph:
        first = _first("" if value is None else value.name for value in node.outputs)
        for attribute in node.attributes.values():
            for place, body in enumerate(attribute.graphs()):
                yield (first, attribute.name, place), body


def _first(names: Collection[str] | Iterator[str]) -> str:
    return next((name for name in names if name), "")
