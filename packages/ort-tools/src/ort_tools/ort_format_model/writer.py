"""write_ort_format(): a model as a file in ORT format, onnxruntime's FlatBuffers form, which its small builds read.

The numbers of fields are those of the published schema (version 6 of the format). The reader resolves nothing: every
value needs its type, every node the version of its operator and its edges. Small builds have no schemas: the file tells
which inputs and outputs share each named type of an operator. Constant nodes become initializers. Tables are written
from the leaves up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import flatbuffers
import numpy as np
from onnx import (
    AttributeProto,
    GraphProto,
    ModelProto,
    NodeProto,
    SparseTensorProto,
    TensorProto,
    TensorShapeProto,
    TypeProto,
    ValueInfoProto,
    helper,
    numpy_helper,
)

from ort_core.errors import NotImplemented as OrtNotImplemented
from ort_core.model_graphs import drop_idle_nodes, without_functions
from ort_core.model_types import find_operator, infer_proto
from ort_core.plugin.ops import OpSchema
from ort_tools.onnx_model_utils import iterate_graph_per_graph_func
from ort_tools.opsets.conversion import bodies_of, convert_opset, opset_of
from ort_tools.opsets.node_view import constant_tensor

_VERSION, _IDENTIFIER = "6", b"ORTM"
_TENSOR_TYPE, _SEQUENCE_TYPE, _MAP_TYPE = 1, 2, 3
_SIZE, _NAME = 1, 2
_A = AttributeProto
Field = tuple[str, int]


def write_ort_format(model: ModelProto) -> bytes:
    """Return a model in ORT format.

    Args:
        model: with its weights inside; functions are inlined, in the operator set of the model, and types are inferred.

    Raises:
        NotImplemented: it has a kind of attribute or type that the format does not hold, or a function that cannot be
            inlined.
        OpsetRefusal: a function of another operator set has no form in that of the model.
        OrtError: it cannot be loaded.
    """
    inlined = ModelProto()
    inlined.CopyFrom(_inlined(model) if model.functions else model)
    drop_idle_nodes(inlined.graph)
    typed = infer_proto(inlined).model
    iterate_graph_per_graph_func(typed.graph, _constants_become_initializers)
    return _Writer(typed).file()


def _inlined(model: ModelProto) -> ModelProto:
    version = opset_of(model.opset_import)
    return without_functions(model if version is None else convert_opset(model, version))


def _constants_become_initializers(graph: GraphProto) -> None:
    for node in [each for each in graph.node if each.op_type == "Constant" and each.domain in ("", "ai.onnx")]:
        tensor = constant_tensor(node)
        if tensor is not None:
            graph.initializer.add().CopyFrom(tensor)
            graph.initializer[-1].name = node.output[0]
            graph.node.remove(node)


class _Writer:
    def __init__(self, model: ModelProto) -> None:
        self._model = model
        self._builder = flatbuffers.Builder(1 << 16)
        self._texts: dict[str, int] = {}
        self._opsets = {"" if e.domain == "ai.onnx" else e.domain: int(e.version) for e in model.opset_import}
        self._used: dict[str, OpSchema] = {}

    def file(self) -> bytes:
        """Return the whole file."""
        model = self._model
        graph = self._graph(model.graph, {})
        opsets = [self._table(2, [("o", 0, self._text(d)), ("i64", 1, v)]) for d, v in self._opsets.items()]
        entries = [
            self._table(2, [("o", 0, self._text(each.key)), ("o", 1, self._text(each.value))])
            for each in model.metadata_props
        ]
        root = self._table(
            10,
            [
                ("i64", 0, model.ir_version), ("o", 1, self._vector(opsets)), ("o", 2, self._text(model.producer_name)),
                ("o", 3, self._text(model.producer_version)), ("o", 4, self._text(model.domain)),
                ("i64", 5, model.model_version), ("o", 6, self._text(model.doc_string)), ("o", 7, graph),
                ("o", 8, self._text(model.graph.doc_string)), ("o", 9, self._vector(entries) if entries else 0),
            ],
        )  # fmt: skip
        version, types = self._text(_VERSION), self._named_types()
        session = self._table(4, [("o", 0, version), ("o", 1, root), ("o", 3, types)])
        self._builder.Finish(session, file_identifier=_IDENTIFIER)
        return bytes(self._builder.Output())

    # ---- FlatBuffers

    def _text(self, text: str) -> int:
        if text not in self._texts:
            self._texts[text] = self._builder.CreateString(text)
        return self._texts[text]

    def _vector(self, offsets: Sequence[int]) -> int:
        self._builder.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            self._builder.PrependUOffsetTRelative(offset)
        return int(self._builder.EndVector())

    def _texts_of(self, texts: Iterable[str]) -> int:
        return self._vector([self._text(each) for each in texts])

    def _numbers(self, values: Sequence[int] | Sequence[float], dtype: str) -> int:
        return int(self._builder.CreateNumpyVector(np.asarray(values, dtype)))

    def _table(self, count: int, fields: Iterable[tuple[str, int, object]]) -> int:
        """Write a table; ``o`` is an offset, 0 for none, others are kinds of numbers."""
        builder = self._builder
        put: dict[str, Callable[[int, object, int], None]] = {
            "o": builder.PrependUOffsetTRelativeSlot, "i8": builder.PrependInt8Slot, "u8": builder.PrependUint8Slot,
            "i32": builder.PrependInt32Slot, "u32": builder.PrependUint32Slot, "i64": builder.PrependInt64Slot,
            "f32": builder.PrependFloat32Slot,
        }  # fmt: skip
        builder.StartObject(count)
        for kind, place, value in fields:
            put[kind](place, value, 0)
        return int(builder.EndObject())

    # ---- values

    def _value(self, name: str, found: TypeProto | None) -> int:
        shown = 0 if found is None or found.WhichOneof("value") is None else self._type(found)
        return self._table(3, [("o", 0, self._text(name)), ("o", 1, self._text("")), ("o", 2, shown)])

    def _type(self, found: TypeProto) -> int:
        kind = found.WhichOneof("value")
        if kind == "tensor_type":
            shape = self._shape(found.tensor_type.shape) if found.tensor_type.HasField("shape") else 0
            number = _TENSOR_TYPE
            value = self._table(2, [("i32", 0, found.tensor_type.elem_type), ("o", 1, shape)])
        elif kind == "sequence_type":
            number, inner = _SEQUENCE_TYPE, self._type(found.sequence_type.elem_type)
            value = self._table(1, [("o", 0, inner)])
        elif kind == "map_type":
            number, inner = _MAP_TYPE, self._type(found.map_type.value_type)
            value = self._table(2, [("i32", 0, found.map_type.key_type), ("o", 1, inner)])
        else:
            raise OrtNotImplemented(f"files in ORT format hold no values of the kind {kind}")
        denotation = self._text(found.denotation)
        return self._table(3, [("o", 0, denotation), ("u8", 1, number), ("o", 2, value)])

    def _shape(self, shape: TensorShapeProto) -> int:
        dims = []
        for dim in shape.dim:
            kind = dim.WhichOneof("value")
            number = _SIZE if kind == "dim_value" else _NAME if kind == "dim_param" and dim.dim_param else 0
            name = self._text(dim.dim_param) if number == _NAME else 0
            size = dim.dim_value if number == _SIZE else 0
            value = self._table(3, [("i8", 0, number), ("i64", 1, size), ("o", 2, name)])
            denotation = self._text(dim.denotation)
            dims.append(self._table(2, [("o", 0, value), ("o", 1, denotation)]))
        vector = self._vector(dims)
        return self._table(1, [("o", 0, vector)])

    def _tensor(self, tensor: TensorProto, name: str | None = None) -> int:
        fields: list[tuple[str, int, object]] = [
            ("o", 0, self._text(tensor.name if name is None else name)), ("o", 1, self._text(tensor.doc_string)),
            ("o", 2, self._numbers(tensor.dims, "<i8")), ("i32", 3, tensor.data_type),
        ]  # fmt: skip
        if tensor.data_type == TensorProto.STRING:
            fields.append(("o", 5, self._texts_of(each.decode() for each in tensor.string_data)))
        else:
            raw = tensor.raw_data if tensor.HasField("raw_data") else _raw(tensor)
            fields.append(("o", 4, self._builder.CreateByteVector(raw)))
        builder = self._builder
        builder.StartObject(7)
        for kind, place, value in fields:
            slot = builder.PrependUOffsetTRelativeSlot if kind == "o" else builder.PrependInt32Slot
            slot(place, value, 0)
        builder.PrependInt64Slot(6, -1, -1)  # no data elsewhere, which is the default
        return int(builder.EndObject())

    def _sparse(self, sparse: SparseTensorProto) -> int:
        values, indices = self._tensor(sparse.values), self._tensor(sparse.indices)
        return self._table(3, [("o", 0, values), ("o", 1, indices), ("o", 2, self._numbers(sparse.dims, "<i8"))])

    # ---- graphs

    def _graph(self, graph: GraphProto, outer: dict[str, TypeProto]) -> int:
        types = {**outer, **_types_of(graph)}
        names = dict.fromkeys(_names_in(graph))
        values = [self._value(name, types.get(name)) for name in names]
        nodes = [self._node(node, place, types) for place, node in enumerate(graph.node)]
        edges = self._edges(graph)
        return self._table(
            9,
            [
                ("o", 0, self._vector([self._tensor(each) for each in graph.initializer])),
                ("o", 1, self._vector(values)), ("o", 2, self._vector(nodes)), ("u32", 3, len(graph.node)),
                ("o", 4, edges), ("o", 5, self._texts_of(each.name for each in graph.input)),
                ("o", 6, self._texts_of(each.name for each in graph.output)),
                ("o", 7, self._vector([self._sparse(each) for each in graph.sparse_initializer])),
            ],
        )  # fmt: skip

    def _node(self, node: NodeProto, place: int, types: dict[str, TypeProto]) -> int:
        attributes = self._vector([self._attribute(each, types) for each in node.attribute])
        counts, version = self._input_counts(node), self._since_version(node)
        captured = dict.fromkeys(
            name for each in node.attribute for body in bodies_of(each) for name in _captured(body)
        )
        domain = "" if node.domain == "ai.onnx" else node.domain
        return self._table(
            13,
            [
                ("o", 0, self._text(node.name)), ("o", 1, self._text(node.doc_string)), ("o", 2, self._text(domain)),
                ("i32", 3, version), ("u32", 4, place), ("o", 5, self._text(node.op_type)), ("i32", 6, 0),
                ("o", 7, self._text("")), ("o", 8, self._texts_of(node.input)), ("o", 9, self._texts_of(node.output)),
                ("o", 10, attributes), ("o", 11, self._numbers(counts, "<i4")), ("o", 12, self._texts_of(captured)),
            ],
        )  # fmt: skip

    def _schema(self, node: NodeProto) -> OpSchema | None:
        domain = "" if node.domain == "ai.onnx" else node.domain
        return find_operator(domain, node.op_type, self._opsets.get(domain, 1))

    def _since_version(self, node: NodeProto) -> int:
        schema = self._schema(node)
        if schema is None:
            return self._opsets.get(node.domain, 1)
        self._used[f"{schema.domain}:{schema.op_type}:{schema.since_version}"] = schema
        return schema.since_version

    def _input_counts(self, node: NodeProto) -> list[int]:
        """Return how many inputs each formal parameter takes: one, but for a variadic last one."""
        schema = self._schema(node)
        count = len(node.input)
        if schema is None or not schema.inputs or count < len(schema.inputs):
            return [1] * count
        return [1] * (len(schema.inputs) - 1) + [count - len(schema.inputs) + 1]

    def _named_types(self) -> int:
        """Write which inputs and outputs of each operator in use have each of its named types."""
        entries = []
        for name, schema in sorted(self._used.items()):
            places: dict[str, list[tuple[int, int]]] = {}
            for is_output, parameters in enumerate((schema.inputs, schema.outputs)):
                for place, each in enumerate(parameters):
                    is_named = each.type_text in schema.type_constraints
                    places.setdefault(each.type_text if is_named else each.name, []).append((is_output, place))
            types = []
            for key, found in sorted(places.items()):
                ends = self._vector([self._table(2, [("i8", 0, kind), ("u32", 1, place)]) for kind, place in found])
                types.append(self._table(2, [("o", 0, self._text(key)), ("o", 1, ends)]))
            entries.append(self._table(2, [("o", 0, self._text(name)), ("o", 1, self._vector(types))]))
        vector = self._vector(entries)
        return self._table(1, [("o", 0, vector)])

    def _attribute(self, found: AttributeProto, types: dict[str, TypeProto]) -> int:
        value: tuple[str, int, object]
        if found.type == _A.FLOAT:
            value = ("f32", 3, found.f)
        elif found.type == _A.INT:
            value = ("i64", 4, found.i)
        elif found.type == _A.STRING:
            value = ("o", 5, self._builder.CreateString(found.s))
        elif found.type == _A.TENSOR:
            value = ("o", 6, self._tensor(found.t))
        elif found.type == _A.GRAPH:
            value = ("o", 7, self._graph(found.g, types))
        elif found.type == _A.FLOATS:
            value = ("o", 8, self._numbers(found.floats, "<f4"))
        elif found.type == _A.INTS:
            value = ("o", 9, self._numbers(found.ints, "<i8"))
        elif found.type == _A.STRINGS:
            value = ("o", 10, self._vector([self._builder.CreateString(each) for each in found.strings]))
        elif found.type == _A.TENSORS:
            value = ("o", 11, self._vector([self._tensor(each) for each in found.tensors]))
        else:
            kind = _A.AttributeType.Name(found.type)
            raise OrtNotImplemented(f"files in ORT format hold no attributes of the kind {kind}, as {found.name!r} is")
        name, doc = self._text(found.name), self._text(found.doc_string)
        return self._table(13, [("o", 0, name), ("o", 1, doc), ("i32", 2, found.type), value])

    def _edges(self, graph: GraphProto) -> int:
        makers = {
            name: (place, number)
            for place, node in enumerate(graph.node)
            for number, name in enumerate(node.output)
            if name
        }
        before: list[list[tuple[int, int, int]]] = [[] for _ in graph.node]
        behind: list[list[tuple[int, int, int]]] = [[] for _ in graph.node]
        for place, node in enumerate(graph.node):
            captured = dict.fromkeys(name for a in node.attribute for body in bodies_of(a) for name in _captured(body))
            for number, name in enumerate((*node.input, *captured)):
                if name in makers:
                    maker, output = makers[name]
                    before[place].append((maker, output, number))
                    behind[maker].append((place, output, number))
        tables = []
        for place in range(len(graph.node)):
            first, second = self._edge_ends(before[place]), self._edge_ends(behind[place])
            tables.append(self._table(3, [("u32", 0, place), ("o", 1, first), ("o", 2, second)]))
        return self._vector(tables)

    def _edge_ends(self, edges: list[tuple[int, int, int]]) -> int:
        builder = self._builder
        builder.StartVector(12, len(edges), 4)
        for node, output, number in reversed(edges):
            builder.Prep(4, 12)
            builder.PrependInt32(number)
            builder.PrependInt32(output)
            builder.PrependUint32(node)
        return int(builder.EndVector())


def _raw(tensor: TensorProto) -> bytes:
    made = numpy_helper.from_array(numpy_helper.to_array(tensor))
    return bytes(made.raw_data)


def _types_of(graph: GraphProto) -> dict[str, TypeProto]:
    stated: Iterable[ValueInfoProto] = (*graph.input, *graph.value_info, *graph.output)
    found = {each.name: each.type for each in stated}
    for tensor in graph.initializer:
        found[tensor.name] = helper.make_tensor_type_proto(tensor.data_type, list(tensor.dims))
    return found


def _names_in(graph: GraphProto) -> Iterable[str]:
    """Yield the values that a graph and its nodes name, those of graphs around it included."""
    yield from (each.name for each in (*graph.input, *graph.initializer, *graph.output))
    yield from (each.values.name for each in graph.sparse_initializer)
    for node in graph.node:
        yield from (*node.input, *node.output)
        for attribute in node.attribute:
            for body in bodies_of(attribute):
                yield from _captured(body)


def _captured(graph: GraphProto) -> list[str]:
    """Return the values that a graph takes from the graphs around it, in the order of their first reader."""
    made = {each.name for each in (*graph.input, *graph.initializer)} | {
        s.values.name for s in graph.sparse_initializer
    }
    found: dict[str, None] = {}
    for node in graph.node:
        inner = [name for each in node.attribute for body in bodies_of(each) for name in _captured(body)]
        found |= dict.fromkeys(name for name in (*node.input, *inner) if name and name not in made)
        made |= set(node.output)
    found |= dict.fromkeys(each.name for each in graph.output if each.name not in made)
    return list(found)
