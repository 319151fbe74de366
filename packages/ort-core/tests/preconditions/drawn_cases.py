"""Valid cases of one operator out of random graphs: they know operators of com.microsoft that nobody recorded."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
from node_cases import NEWEST_OPSET, NodeCase
from onnx import NodeProto, numpy_helper

sys.path.insert(0, str(Path(__file__).parents[1]))

from random_graphs.cases import Case, case_of_seed
from random_graphs.custom_operators import FORMULAS, KERNELS
from random_graphs.family import Family
from random_graphs.triples import NoTruth, Triple, exact_feed
from random_graphs.truth import Interpreter
from random_graphs.writer import GraphWriter, Refused

FIRST_SEED = 1_300_000_000
SEEDS_OF_A_FAMILY = 4
NOT_INFERRED = frozenset({"ReduceSumInteger"})  # operators whose results onnxruntime cannot type by itself
IS_RANDOM = ("Bernoulli", "BitmaskDropout", "Dropout", "Multinomial", "Random", "Sampling")


def drawn_cases(count: int, first: int = FIRST_SEED) -> Iterator[NodeCase]:
    """Yield the nodes of some random graphs with the arrays that they read."""
    for seed in range(first, first + count):
        case = case_of_seed(seed)
        if case is None or "special values" in case.flags:
            continue
        try:
            values = _values(case)
        except NoTruth:
            continue
        versions = {each.domain: each.version for each in case.model.opset_import}
        for node in case.model.graph.node:
            if not _is_plain(node) or any(not _is_array(values[name]) for name in node.input if name):
                continue
            inputs = tuple(values[name].native() if name else None for name in node.input)
            outputs = tuple((name, _declared(node, values.get(name))) for name in node.output)
            opset = min(versions[node.domain], NEWEST_OPSET)
            yield NodeCase(f"seed {seed}", node.op_type, node.domain, opset, tuple(node.attribute), inputs, outputs)


def _declared(node: NodeProto, value: Triple | None) -> onnx.TypeProto:
    if value is None or node.op_type not in NOT_INFERRED:
        return onnx.TypeProto()
    return onnx.helper.make_tensor_type_proto(onnx.helper.np_dtype_to_tensor_dtype(value.native().dtype), None)


def _values(case: Case) -> dict[str, Triple]:
    run = Interpreter(case.opset, {**KERNELS, **FORMULAS})
    return dict(run.values(case.model.graph, {name: exact_feed(value) for name, value in case.feeds[0].items()}))


def _is_plain(node: NodeProto) -> bool:
    has_body = any(attribute.HasField("g") for attribute in node.attribute)
    return not (has_body or node.domain.startswith("test.") or node.op_type.startswith(IS_RANDOM))


def _is_array(value: Triple) -> bool:
    return isinstance(value.native(), np.ndarray)


def cases_of_family(family: Family, domain: str) -> Iterator[NodeCase]:
    """Yield the nodes of a domain that a family adds to graphs of its own, of one assignment of sizes each."""
    for seed in range(SEEDS_OF_A_FAMILY):
        writer = replace(GraphWriter.of_seed(seed), opset=NEWEST_OPSET, assignments=1, zero_share=0.0, half=None)
        try:
            family.step(writer)
        except (Refused, IndexError, ValueError):  # the family found nothing that fits it
            continue
        yield from _nodes_of(writer, f"{family.name} {seed}", domain)


def _nodes_of(writer: GraphWriter, name: str, domain: str) -> Iterator[NodeCase]:
    arrays = {value.name: value.samples[0].native() for value in (*writer.inputs, *writer.values)}
    arrays |= {tensor.name: numpy_helper.to_array(tensor) for tensor in writer.initializers}
    for node in writer.nodes:
        inputs = tuple(arrays.get(each) if each else None for each in node.input)
        is_known = all(
            isinstance(array, np.ndarray) or not each for each, array in zip(node.input, inputs, strict=True)
        )
        if node.domain == domain and _is_plain(node) and is_known:
            outputs = tuple((each, onnx.TypeProto()) for each in node.output)
            yield NodeCase(name, node.op_type, domain, 1, tuple(node.attribute), inputs, outputs)
