"""Writes the pytest file of a difference: the least graph as builder code, its numbers, its truth."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    NodeProto,
    OperatorSetIdProto,
    SparseTensorProto,
    TensorProto,
    ValueInfoProto,
    helper,
)

from random_graphs.cases import Case
from random_graphs.engines import BY_NAME
from random_graphs.judging import Difference
from random_graphs.triples import allowed
from random_graphs.truth import array_of

LITERAL = 24  # elements that are written out; more stand as base64

HEAD = '''"""Written by the minimizer of random graphs from seed {seed}: {found}"""

import base64

import ml_dtypes  # noqa: F401 - gives numpy the names of narrow types
import numpy as np
from onnx import ValueInfoProto, helper, numpy_helper  # noqa: F401 - which of them depends on the model

import ort_core as ort


def array(text, dtype, shape):
    return np.frombuffer(base64.b64decode(text), np.dtype(dtype)).reshape(shape)


def tensor(name, value):
    return numpy_helper.from_array(value, name)


def of_call(node, name, kind, formal):
    """Give a node of a function an attribute that each call of the function gives."""
    node.attribute.add(name=name, type=kind, ref_attr_name=formal)
    return node


'''
TEST = """
FEEDS = [
{feeds}]
EXPECTED = [  # by float64, each with the distance that roundings explain
{expected}]


def test_seed_{seed}_{operators}():
    options = ort.SessionOptions()
    options.intra_op_num_threads = {threads}
    options.graph_optimization_level = ort.GraphOptimizationLevel.{level}
    content = model().SerializeToString()
    session = ort.InferenceSession(content, options, providers=[{provider!r}])
    for feeds, expected in zip(FEEDS, EXPECTED, strict=True):
        for _ in range(3):  # planned, learned, then by one native call
            for found, (value, distance) in zip(session.run(None, feeds), expected, strict=True):
                assert (found.dtype, found.shape) == (value.dtype, value.shape)
                wide, right = found.astype(np.float64), value.astype(np.float64)
                other = (wide != right) & ~(np.isnan(wide) & np.isnan(right))
                gap = np.abs(wide[other] - right[other])
                np.testing.assert_array_less(gap, np.broadcast_to(distance, wide.shape)[other])
"""


def written(case: Case, found: Difference, folder: Path) -> Path:
    """Write the test of a case that shows a difference, and return its path.

    The case has numbers only: one with text is written by hand.
    """
    operators = "_".join(sorted({node.op_type.lower() for node in case.model.graph.node})[:4])
    engine = BY_NAME.get(found.engine, BY_NAME["cpu"])
    served = case.served
    functions = "".join(f"        {_function(each)},\n" for each in served.functions)
    model = (
        f"def model():\n    graph = {_graph(served.graph, 1)}\n    functions = [\n{functions}    ]\n"
        f"    return helper.make_model(graph, opset_imports=[{_opsets(served.opset_import)}], "
        f"ir_version={served.ir_version}, functions=functions)\n"
    )
    feeds = "".join(f"    {{{', '.join(f'{k!r}: {_feed(v)}' for k, v in each.items())}}},\n" for each in case.feeds)
    expected = "".join(f"    [{', '.join(_expected(v) for v in each)}],\n" for each in case.truths())
    test = TEST.format(
        feeds=feeds, expected=expected, seed=case.seed, operators=operators, threads=engine.threads, level=engine.level,
        provider=engine.provider,
    )  # fmt: skip
    path = folder / f"test_seed_{case.seed}.py"
    shown = found.text.replace("\n", " ").replace('"', "'").replace("\\", "/")[:200]
    head = HEAD.replace("{seed}", str(case.seed)).replace("{found}", f"{found.engine}, {found.kind}: {shown}")
    path.write_text(head + model + test)
    return path


def _expected(value: Any) -> str:
    distance = allowed(value) * 1.01 if value.dtype.is_float else np.full(value.truth.shape, 0.5)
    return f"({_array(np.asarray(value.native()))}, {_array(distance)})"


def _feed(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_array, value))}]"
    return repr(value) if isinstance(value, dict) else _array(value)


def _array(value: np.ndarray) -> str:
    shape = tuple(int(size) for size in value.shape)
    if value.size <= LITERAL and value.dtype.kind in "bif" and np.isfinite(value.astype(np.float64)).all():
        return f"np.array({value.tolist()!r}, {value.dtype.name!r}).reshape({shape})"
    text = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
    return f"array({text!r}, {value.dtype.name!r}, {shape})"


def _graph(graph: GraphProto, depth: int) -> str:
    pad, end = "    " * (depth + 1), "    " * depth
    nodes = "".join(f"{pad}    {_node(node, depth + 2)},\n" for node in graph.node)
    tensors = "".join(f"{pad}    {_tensor(each)},\n" for each in graph.initializer)
    sparse = "".join(f"{pad}    {_sparse(each)},\n" for each in graph.sparse_initializer)
    rest = f"{pad}sparse_initializer=[\n{sparse}{pad}],\n" if sparse else ""
    return (
        f"helper.make_graph(\n{pad}[\n{nodes}{pad}],\n{pad}{graph.name!r},\n{pad}{_infos(graph.input)},\n"
        f"{pad}{_infos(graph.output)},\n{pad}[\n{tensors}{pad}],\n{rest}{end})"
    )


def _tensor(tensor: TensorProto) -> str:
    return f"tensor({tensor.name!r}, {_array(array_of(tensor))})"


def _sparse(tensor: SparseTensorProto) -> str:
    return f"helper.make_sparse_tensor({_tensor(tensor.values)}, {_tensor(tensor.indices)}, {list(tensor.dims)!r})"


def _opsets(opsets: Sequence[OperatorSetIdProto]) -> str:
    return ", ".join(f"helper.make_opsetid({each.domain!r}, {each.version})" for each in opsets)


def _function(function: FunctionProto) -> str:
    nodes = "".join(f"                {_node(node, 4)},\n" for node in function.node)
    return (
        f"helper.make_function(\n            {function.domain!r}, {function.name!r}, {list(function.input)!r},\n"
        f"            {list(function.output)!r},\n            [\n{nodes}            ],\n"
        f"            [{_opsets(function.opset_import)}], {list(function.attribute)!r},\n        )"
    )


def _infos(infos: Sequence[ValueInfoProto]) -> str:
    return f"[{', '.join(_info(each) for each in infos)}]"


def _info(info: ValueInfoProto) -> str:
    if not info.type.HasField("tensor_type"):
        return f"ValueInfoProto.FromString({info.SerializeToString()!r})"
    kind = info.type.tensor_type
    shape: list[int | str | None] | None = None
    if kind.HasField("shape"):
        shape = [d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in kind.shape.dim]
    return f"helper.make_tensor_value_info({info.name!r}, {kind.elem_type}, {shape!r})"


def _node(node: NodeProto, depth: int) -> str:
    own = [each for each in node.attribute if not each.ref_attr_name]
    given = "".join(f", {each.name}={_attribute(each, depth)}" for each in own)
    domain = f", domain={node.domain!r}" if node.domain else ""
    places = f"{list(node.input)!r}, {list(node.output)!r}"
    text = f"helper.make_node({node.op_type!r}, {places}, name={node.name!r}{domain}{given})"
    for each in node.attribute:
        if each.ref_attr_name:
            text = f"of_call({text}, {each.name!r}, {each.type}, {each.ref_attr_name!r})"
    return text


def _attribute(attribute: AttributeProto, depth: int) -> str:
    if attribute.type == AttributeProto.GRAPH:
        return _graph(attribute.g, depth)
    if attribute.type == AttributeProto.TENSOR:
        return f"tensor('value', {_array(array_of(attribute.t))})"
    value = helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return repr(value.decode())
    if attribute.type in (AttributeProto.INTS, AttributeProto.FLOATS):
        return repr(list(value))
    if attribute.type == AttributeProto.STRINGS:
        return repr([each.decode() for each in value])
    return repr(value)
