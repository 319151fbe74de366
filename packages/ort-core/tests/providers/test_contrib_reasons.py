"""Every operator of com.microsoft that runs by a numpy kernel has a reason that names it and its types."""

from __future__ import annotations

import re

import onnx
import pytest
from onnx import helper

import ort_core as ort
from ort_core.kernels.reference_registry import reference_kernels
from ort_core.ops.contrib_schemas import contrib_schemas
from ort_core.ops.schema import AttributeKind, OpSchema, Parameter, ParameterOption
from ort_core.partitioning.report import NodePlacement

MS = "com.microsoft"
PREFERRED = {"tensor(float)": 0, "tensor(int64)": 1, "tensor(int32)": 2}
VALUES = {AttributeKind.INT: 1, AttributeKind.FLOAT: 1.0, AttributeKind.STRING: "x", AttributeKind.INTS: [1]}
SPECIAL = {("MatMulBnb4", "block_size"): 64}
ANOTHER_FORM = {
    "QLinearConcat": "inputs by threes",
    "EPContext": "a compiled model",
    "SparseToDenseMatMul": "sparse inputs",
}
A_REASON = re.compile(r"(?P<operator>\w+) of (?P<types>[a-z]\w*(?:(?:, | and )[a-z]\w*)*)(?:: | is | are | with )\w")


def _type_of(schema: OpSchema, parameter: Parameter) -> str:
    allowed = schema.type_constraints.get(parameter.type_text, frozenset({parameter.type_text}))
    return min(allowed, key=lambda text: (PREFERRED.get(text, len(PREFERRED)), text))


def _needed(parameters: tuple[Parameter, ...]) -> tuple[Parameter, ...]:
    last = max((n for n, each in enumerate(parameters) if each.option is not ParameterOption.OPTIONAL), default=-1)
    return parameters[: last + 1]


def _node(schema: OpSchema) -> tuple[onnx.NodeProto, list[onnx.ValueInfoProto]]:
    """Return a node with all inputs that are not optional behind the last needed one, of unknown shapes."""
    inputs = []
    for number, parameter in enumerate(_needed(schema.inputs)):
        text = _type_of(schema, parameter).removeprefix("tensor(").removesuffix(")")
        dtype = getattr(onnx.TensorProto, text.upper())
        inputs.append(helper.make_value_info(f"{schema.op_type}_{number}", helper.make_tensor_type_proto(dtype, None)))
    outputs = [f"{schema.op_type}_out_{number}" for number in range(len(_needed(schema.outputs)) or 1)]
    given = {
        name: SPECIAL.get((schema.op_type, name), VALUES[each.kind])
        for name, each in schema.attributes.items()
        if each.is_required
    }
    names = [each.name for each in inputs]
    return helper.make_node(schema.op_type, names, outputs, schema.op_type, domain=MS, **given), inputs


def _schemas() -> dict[str, OpSchema]:
    """Return the newest schema of each operator that has a numpy kernel and needs no body."""
    found = {each.op_type: each for each in contrib_schemas() if each.domain == MS}
    kernels = reference_kernels()
    return {
        name: schema
        for name, schema in found.items()
        if kernels.find(MS, name, schema.since_version)
        and name not in ANOTHER_FORM
        and not any(each.is_required and each.kind is AttributeKind.GRAPH for each in schema.attributes.values())
    }


@pytest.fixture(scope="module")
def placements() -> dict[str, NodePlacement]:
    """Where one node of each operator runs; they have nothing in common but the session."""
    built = [_node(schema) for schema in _schemas().values()]
    outputs = [onnx.ValueInfoProto(name=name) for node, _ in built for name in node.output]
    graph = helper.make_graph([node for node, _ in built], "all", [each for _, own in built for each in own], outputs)
    imports = [helper.make_opsetid("", 21), helper.make_opsetid(MS, 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return {each.name: each for each in session.explain().nodes}


def test_there_are_nodes_of_all_operators(placements: dict[str, NodePlacement]) -> None:
    assert len(placements) > 110
    assert set(placements) == set(_schemas())


@pytest.mark.parametrize("name", _schemas())
def test_a_numpy_kernel_is_told_with_its_operator_and_types(name: str, placements: dict[str, NodePlacement]) -> None:
    told = placements[name].execution
    assert told is not None
    if told.how != "native":
        said = A_REASON.match(told.reason)
        assert said, told.reason
        assert said["operator"] == name


def test_sizes_in_reasons_are_written_as_in_models() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
    g (float[B, S, H] x, float[H, W] w, float[W] c) => (float[B, S, V] z) {
        [heads] z = com.microsoft.Attention <num_heads = 2> (x, w, c)
    }"""
    session = ort.InferenceSession(
        onnx.parser.parse_model(text).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    told = {each.name: str(each.execution) for each in session.explain().nodes}
    assert "how many columns the weights have is not known: W is not a number" in told["heads"]
