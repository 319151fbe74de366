"""The same graph written otherwise: what a converter may choose, and what no operator sees.

Initializers become typed fields, ``Constant`` nodes in each of their forms, sparse tensors, or inputs with a default.
Bodies of one node share the names of their values; nodes have no names, values odd ones; the graph holds an initializer
that nobody reads, and nodes of which no output has a name. What is left out at the end of a node's inputs and outputs
stands there as an empty name.

What becomes of a tensor follows from the seed and its name alone, so that a minimized case keeps it.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, SparseTensorProto, TensorProto, helper, numpy_helper

from random_graphs.element_types import of_array
from random_graphs.into_functions import has_functions
from random_graphs.triples import NoTruth
from random_graphs.truth import array_of

if TYPE_CHECKING:
    from random_graphs.cases import Case, Feeds

SHARE = 0.25  # of all graphs
DEFAULTS_SHARE = 0.06
Message = TypeVar("Message", NodeProto, TensorProto)
_CONTROL_FLOW = frozenset(["If", "Loop", "Scan"])  # searches know values of their bodies by name
ODD_NAMES = ("/model/layer.0/", "é ", "名前:", "%s{}", "a\\b\n", "-", "x" * 300)  # in front of names
_COUNTED = ("BatchNormalization",)  # its inference counts outputs, those without names as well
_OPTIONAL = onnx.defs.OpSchema.FormalParameterOption.Optional
_SPARSE_SINCE, _LISTS_SINCE = 11, 12  # opsets of Constant with sparse_value, and with value_ints and its like
_LONGEST = 2_000  # elements that are written as fields, or as coordinates
_FIELDS: Mapping[int, tuple[str, type]] = {
    TensorProto.FLOAT: ("float_data", np.float32), TensorProto.DOUBLE: ("double_data", np.float64),
    TensorProto.INT64: ("int64_data", np.int64), TensorProto.UINT64: ("uint64_data", np.uint64),
    TensorProto.UINT32: ("uint64_data", np.uint32), TensorProto.INT32: ("int32_data", np.int32),
    TensorProto.INT16: ("int32_data", np.int16), TensorProto.INT8: ("int32_data", np.int8),
    TensorProto.UINT16: ("int32_data", np.uint16), TensorProto.UINT8: ("int32_data", np.uint8),
    TensorProto.BOOL: ("int32_data", np.uint8), TensorProto.FLOAT16: ("int32_data", np.uint16),
    TensorProto.BFLOAT16: ("int32_data", np.uint16), TensorProto.FLOAT8E4M3FN: ("int32_data", np.uint8),
    TensorProto.FLOAT8E5M2: ("int32_data", np.uint8),
}  # fmt: skip
_SPARSE = frozenset([TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT64, TensorProto.INT32, TensorProto.INT8])


def is_written_otherwise(seed: int) -> bool:
    """Return whether a seed's graph is given to engines in another writing."""
    return random.Random(seed ^ 0x0DD).random() < SHARE


def written_otherwise(model: ModelProto, seed: int) -> ModelProto:
    """Return an equal model that is written otherwise."""
    found = ModelProto()
    found.CopyFrom(model)
    opset = next(each.version for each in model.opset_import if each.domain == "")
    _write_tensors(found.graph, seed, opset if has_functions(seed) else None, opset)
    chooser = random.Random(seed ^ 0xABC)
    if chooser.random() < 0.5:
        _share_names(found.graph)
    if chooser.random() < 0.5:
        for node in found.graph.node:
            node.name = ""
    if chooser.random() < 0.3:
        found.graph.initializer.append(numpy_helper.from_array(np.arange(5, dtype=np.float32), "nobody reads this"))
    if chooser.random() < 0.3:
        _give_odd_names(found.graph, chooser.choice(ODD_NAMES))
    if chooser.random() < 0.2:
        _repeat_without_names(found.graph, chooser)
    if chooser.random() < 0.4:
        _name_what_is_left_out(found.graph, opset, chooser)
    found.graph.doc_string = "written otherwise"
    return found


def with_defaults(case: Case) -> Case:
    """Return the case, of a share of seeds with initializers as inputs, given in some assignments and not in others.

    A float given in place of its default has other numbers. Where these have no truth, the case stays as it is.
    """
    chooser = random.Random(case.seed ^ 0xDEF)
    if chooser.random() >= DEFAULTS_SHARE or not case.model.graph.initializer:
        return case
    taken = {each.name for each in (*case.model.graph.input, *case.model.graph.output)}
    can = [tensor for tensor in case.model.graph.initializer if tensor.name not in taken]
    chosen = chooser.sample(can, min(len(can), chooser.randint(1, 2)))
    if not chosen:
        return case
    model = ModelProto()
    model.CopyFrom(case.model)
    for tensor in chosen:
        model.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))
    feeds: list[Feeds] = []
    for given in (*case.feeds, case.feeds[0]):
        more = {tensor.name: _changed(array_of(tensor), chooser) for tensor in chosen if chooser.random() < 0.5}
        feeds.append({**given, **more})
    changed = replace(case, model=model, feeds=feeds, flags=(*case.flags, "inputs with defaults"))
    try:
        changed.truths()
    except NoTruth:
        return case
    return changed


def _changed(array: np.ndarray, chooser: random.Random) -> np.ndarray:
    dtype = of_array(array)
    if dtype is None or not dtype.is_float or chooser.random() < 0.5:
        return array.copy()
    return np.asarray(array[..., ::-1] * array.dtype.type(0.5) if array.ndim else array * array.dtype.type(0.5)).astype(
        array.dtype
    )


def _write_tensors(graph: GraphProto, seed: int, opset: int | None, opset_within: int) -> None:
    """Write the tensors of a graph and of its bodies; ``opset`` limits the forms of ``Constant`` where it is given."""
    fixed = {each.name for each in (*graph.input, *graph.output)}
    kept, sparse, constants = [], [], []
    for tensor in graph.initializer:
        chooser = random.Random(f"{seed} {tensor.name}")
        form = chooser.choice(("as it is", "fields", "node", "sparse"))
        if form == "node" and tensor.name not in fixed:
            constants.append(_constant(tensor, chooser, opset))
        elif form == "sparse" and tensor.name not in fixed and _can_be_sparse(tensor):
            sparse.append(_sparse(tensor, chooser))
        else:
            kept.append(_with_fields(tensor) if form == "fields" else tensor)
    nodes = [*constants, *graph.node]
    for node in nodes:
        for body in _bodies(node):
            _write_tensors(body, seed, opset_within, opset_within)
    copies = [_copied(each) for each in nodes]
    del graph.node[:]
    graph.node.extend(copies)
    initializers = [_copied(each) for each in kept]
    del graph.initializer[:]
    graph.initializer.extend(initializers)
    graph.sparse_initializer.extend(sparse)


def _copied(message: Message) -> Message:
    copy = type(message)()
    copy.CopyFrom(message)
    return copy


def _with_fields(tensor: TensorProto) -> TensorProto:
    """Return a tensor whose numbers stand in the typed field of its type."""
    array = array_of(tensor)
    if tensor.data_type not in _FIELDS or array.size > _LONGEST:
        return tensor
    field, bits = _FIELDS[tensor.data_type]
    found = TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
    getattr(found, field).extend(np.ascontiguousarray(array).reshape(-1).view(bits).tolist())
    return found


def _constant(tensor: TensorProto, chooser: random.Random, opset: int | None) -> NodeProto:
    """Return a ``Constant`` with a tensor, or one of the forms for numbers, lists and text.

    Engines take each form in every opset in a graph itself; in bodies and functions onnxruntime wants the opset's.
    """
    array = array_of(tensor)
    letters = {TensorProto.FLOAT: "float", TensorProto.INT64: "int", TensorProto.STRING: "string"}
    node = helper.make_node("Constant", [], [tensor.name])
    is_new = opset is None or opset >= _LISTS_SINCE
    if is_new and array.ndim < 2 and 0 < array.size < _LONGEST and tensor.data_type in letters:
        name = f"value_{letters[tensor.data_type]}" + ("s" if array.ndim else "")
        node.attribute.append(helper.make_attribute(name, array.tolist()))
        return node
    if (opset is None or opset >= _SPARSE_SINCE) and chooser.random() < 0.3 and _can_be_sparse(tensor):
        node.attribute.add(name="sparse_value", type=AttributeProto.SPARSE_TENSOR).sparse_tensor.CopyFrom(
            _sparse(tensor, chooser)
        )
        return node
    node.attribute.append(helper.make_attribute("value", tensor))
    return node


def _can_be_sparse(tensor: TensorProto) -> bool:
    array = array_of(tensor)
    return tensor.data_type in _SPARSE and array.ndim > 0 and 0 < array.size < _LONGEST and bool(array.any())


def _sparse(tensor: TensorProto, chooser: random.Random) -> SparseTensorProto:
    """Return the numbers other than 0, and the zeros with a sign, by places in the flat tensor or on each axis."""
    array = array_of(tensor)
    flat = array.reshape(-1)
    places = np.flatnonzero((flat != 0) | np.signbit(flat.astype(np.float64)))
    values = numpy_helper.from_array(flat[places], tensor.name)
    coordinates = places if chooser.random() < 0.5 else np.stack(np.unravel_index(places, array.shape), axis=1)
    indices = numpy_helper.from_array(coordinates.astype(np.int64), f"{tensor.name}_places")
    return helper.make_sparse_tensor(values, indices, list(array.shape))


def _give_odd_names(graph: GraphProto, odd: str) -> None:
    """Rename the values that no input or output of the graph is, those of bodies as well."""
    kept = {each.name for each in (*graph.input, *graph.output)}
    own = [*(each.name for each in graph.initializer), *(each.values.name for each in graph.sparse_initializer)]
    own += [name for node in graph.node for name in node.output if name]
    _take_names(graph, {name: odd + name for name in own if name not in kept})


def _repeat_without_names(graph: GraphProto, chooser: random.Random) -> None:
    """Write some nodes once more, without names for their outputs."""
    for node in chooser.sample(list(graph.node), min(len(graph.node), 3)):
        again = _copied(node)
        again.name = ""
        again.output[:] = [""] * len(node.output)
        graph.node.append(again)


def _name_what_is_left_out(graph: GraphProto, opset: int, chooser: random.Random) -> None:
    """Give nodes of ONNX's operators empty names for optional inputs and outputs behind their last ones."""
    for node in graph.node:
        for body in _bodies(node):
            _name_what_is_left_out(body, opset, chooser)
        if node.domain or not onnx.defs.has(node.op_type, opset):
            continue
        schema = onnx.defs.get_schema(node.op_type, opset)
        ends = [(node.input, schema.inputs), (node.output, schema.outputs)]
        for names, formals in ends[:1] if node.op_type in _COUNTED else ends:
            left_out = [formal.option == _OPTIONAL for formal in formals[len(names) :]]
            while left_out and left_out.pop(0) and chooser.random() < 0.6:
                names.append("")


def _take_names(graph: GraphProto, names: Mapping[str, str]) -> None:
    for each in (*graph.input, *graph.initializer, *graph.output):
        each.name = names.get(each.name, each.name)
    for sparse in graph.sparse_initializer:
        sparse.values.name = names.get(sparse.values.name, sparse.values.name)
    for node in graph.node:
        for body in _bodies(node):
            _take_names(body, names)
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]


def _share_names(graph: GraphProto) -> None:
    """Give the values of bodies of one node the same names; no body within has the names of one around it."""
    for number, node in enumerate(graph.node):
        for body in _bodies(node) if node.op_type in _CONTROL_FLOW else ():
            _rename(body, f"{number}", {})


def _rename(body: GraphProto, prefix: str, outer: Mapping[str, str]) -> None:
    own = [*(each.name for each in body.input), *(each.name for each in body.initializer)]
    own += [each.values.name for each in body.sparse_initializer]
    own += [name for node in body.node for name in node.output if name]
    names = {**outer, **{name: f"of {prefix}/{place}" for place, name in enumerate(dict.fromkeys(own))}}
    for each in (*body.input, *body.initializer, *body.output):
        each.name = names.get(each.name, each.name)
    for sparse in body.sparse_initializer:
        sparse.values.name = names.get(sparse.values.name, sparse.values.name)
    for number, node in enumerate(body.node):
        for inner in _bodies(node):
            _rename(inner, f"{prefix}.{number}", names)
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]


def _bodies(node: NodeProto) -> Iterable[GraphProto]:
    return [attribute.g for attribute in node.attribute if attribute.HasField("g")]
