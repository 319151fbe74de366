"""Nothing in a model may end inference with anything but a note or an InvalidGraph."""

from __future__ import annotations

import random

import numpy as np
import pytest

from ort_core.ir.attributes import Attribute, AttributeKind
from ort_core.ir.constants import Constant
from ort_core.ir.dims import SymbolicDim
from ort_core.ir.graph import Graph
from ort_core.ir.model import Model
from ort_core.ir.nodes import Node
from ort_core.ir.types import DataType, MapType, OptionalType, SequenceType, Shape, TensorType
from ort_core.ir.values import Value
from ort_core.ops.schema import OpSchema
from ort_core.ops.shape_inference import infer_types
from ort_core.ops.value_range import ValueRanges

OPSETS = (1, 6, 7, 9, 10, 11, 13, 18, 20, 25, 28)
NUMBERS = (-5, -2, -1, 0, 1, 2, 3, 7, 100, 2**40, -(2**63), 2**63 - 1)
TEXTS = ("", "SAME_UPPER", "VALID", "none", "ij,jk->ik", "...i,i...->", "i->k", "bidirectional", "not_larger", "csa")
DTYPES = (DataType.FLOAT, DataType.INT64, DataType.INT32, DataType.STRING, DataType.UINT8, DataType.BOOL)


class Hostile:
    """Random nodes with random inputs and attributes."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def shape(self) -> Shape | None:
        n = SymbolicDim.named("n")
        sizes = (0, 1, 2, 3, 5, 10**12, 2**62, None, n, n + 1, SymbolicDim.named("m"))
        if self.random.random() < 0.1:
            return None
        return tuple(self.random.choice(sizes) for _ in range(self.random.choice((0, 1, 2, 3, 4, 4, 5, 6))))

    def array(self) -> np.ndarray:
        if self.random.random() < 0.7:
            shape = self.random.choice(((), (1,), (2,), (4,), (8,), (0,), (2, 2)))
            return np.array([self.random.choice(NUMBERS) for _ in range(int(np.prod(shape)))], np.int64).reshape(shape)
        choices = (0.0, 1.0, 0.5, -1.0, np.nan, np.inf, 1e30)
        return np.array([self.random.choice(choices) for _ in range(self.random.choice((1, 2, 4)))], np.float32)

    def input(self, graph: Graph) -> Value | None:
        kind = self.random.random()
        if kind < 0.1:
            return None
        if kind < 0.5:
            return graph.new_constant(self.array())
        tensor = TensorType(self.random.choice(DTYPES), self.shape())
        odd = (SequenceType(tensor), OptionalType(tensor), MapType(DataType.INT64, TensorType(DataType.FLOAT)), None)
        value = Value(graph.fresh_name("x"), tensor if kind < 0.95 else self.random.choice(odd))
        graph.add_input(value)
        return value

    def attribute(self, name: str, kind: AttributeKind) -> Attribute | None:
        if self.random.random() < 0.05:
            kind = self.random.choice((AttributeKind.INT, AttributeKind.INTS, AttributeKind.STRING))
        numbers = tuple(self.random.choice(NUMBERS) for _ in range(self.random.choice((0, 1, 2, 4, 4, 3))))
        values: dict[AttributeKind, object] = {
            AttributeKind.INT: self.random.choice(NUMBERS),
            AttributeKind.FLOAT: self.random.choice((0.0, -1.0, float("nan"))),
            AttributeKind.STRING: self.random.choice(TEXTS),
            AttributeKind.INTS: numbers,
            AttributeKind.FLOATS: tuple(map(float, numbers)),
            AttributeKind.STRINGS: tuple(map(str, numbers)),
            AttributeKind.TENSOR: Constant.of(self.array()),
            AttributeKind.GRAPH: self.body() if kind is AttributeKind.GRAPH else None,
            AttributeKind.TYPE_PROTO: TensorType(DataType.FLOAT, self.shape()),
        }
        return Attribute(name, kind, values[kind]) if values.get(kind) is not None else None

    def body(self) -> Graph:
        graph = Graph("body")
        for _ in range(self.random.randint(0, 4)):
            graph.add_input(Value(graph.fresh_name("b"), TensorType(DataType.FLOAT, self.shape())))
        if graph.inputs:
            chosen = [self.random.choice(graph.inputs) for _ in range(2)]
            graph.append(Node("Concat", chosen, [Value(graph.fresh_name("o"))], {"axis": 0}))
            graph.set_outputs([self.random.choice(graph.inputs) for _ in range(self.random.randint(0, 4))])
        return graph

    def model(self, schema: OpSchema, opset: int) -> Model:
        graph = Graph("hostile")
        most = 6 if schema.max_inputs is None else schema.max_inputs + 1
        inputs = [self.input(graph) for _ in range(self.random.randint(0, min(most, 9)))]
        attributes = [self.attribute(a.name, a.kind) for a in schema.attributes.values() if self.random.random() < 0.5]
        outputs = [Value(f"y{i}") for i in range(self.random.randint(1, 4))]
        node = Node(schema.op_type, inputs, outputs, [a for a in attributes if a], domain=schema.domain, name="n")
        graph.append(node)
        graph.append(Node("Shape", [node.output], [Value("z")]))
        return Model(graph, {"": 20, schema.domain: opset})


@pytest.mark.parametrize("seed", range(4))
def test_random_hostile_nodes_give_notes_and_possible_shapes(schemas, rules, seed):
    hostile = Hostile(seed)
    operators = [(d, o, v) for d, o in rules.operators() for v in (OPSETS if not d else (1, 3))]
    for _ in range(1500):
        domain, op_type, opset = hostile.random.choice(operators)
        schema = schemas.find(domain, op_type, opset)
        if not schema:
            continue
        model = hostile.model(schema, opset)
        report = infer_types(model, schemas, rules)
        ranges = ValueRanges(report.values)
        for value in (v for node in model.graph for v in node.present_outputs()):
            shape = value.shape or ()
            assert all(isinstance(d, SymbolicDim) or 0 <= d < 2**63 for d in shape), (op_type, opset, shape)
            ranges.value_range(value)


def test_bodies_nested_deep_with_growing_state_end_in_time(schemas, rules):
    graph = Graph("inner")
    state = Value("s0", TensorType(DataType.FLOAT))
    for name, value_type in (("i0", TensorType(DataType.INT64, ())), ("c0", TensorType(DataType.BOOL, ()))):
        graph.add_input(Value(name, value_type))
    graph.add_input(state)
    grown = graph.append(Node("Concat", [state, state], [Value("g0")], {"axis": 0})).output
    graph.set_outputs([graph.inputs[1], grown])
    for level in range(1, 30):
        outer = Graph(f"level{level}")
        for name, value_type in (("i", TensorType(DataType.INT64, ())), ("c", TensorType(DataType.BOOL, ()))):
            outer.add_input(Value(f"{name}{level}", value_type))
        inner_state = Value(f"s{level}", TensorType(DataType.FLOAT))
        outer.add_input(inner_state)
        node = outer.append(Node("Loop", [None, outer.inputs[1], inner_state], [Value(f"l{level}")], {"body": graph}))
        grown = outer.append(Node("Concat", [node.output, node.output], [Value(f"g{level}")], {"axis": 0})).output
        outer.set_outputs([outer.inputs[1], grown])
        graph = outer
    main = Graph(
        "main", inputs=[Value("c", TensorType(DataType.BOOL, ())), Value("x", TensorType(DataType.FLOAT, (2,)))]
    )
    main.append(Node("Loop", [None, *main.inputs], [Value("y")], {"body": graph}))
    report = infer_types(Model(main, {"": 18}), schemas, rules)
    assert len(report.notes) < 100
