"""Reduces a case that shows a difference: fewer outputs, nodes and assignments of sizes, and smaller sizes.

A node is dropped by making its outputs inputs, fed with their true values; what nobody reads goes with it. A step is
kept where the same engine still shows a difference of the same kind.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from onnx import GraphProto, ModelProto, NodeProto, ValueInfoProto, helper

from random_graphs.cases import Case
from random_graphs.custom_operators import FORMULAS, KERNELS
from random_graphs.engines import BY_NAME, Engine
from random_graphs.judging import Difference, judge
from random_graphs.smaller_sizes import smaller_sizes
from random_graphs.triples import NoTruth, Triple, exact_feed
from random_graphs.truth import Interpreter
from random_graphs.writer import reads

_COMPARED = 120  # letters of a message
Shows = Callable[[Case], Difference | None]


def shows_like(found: Difference, engine: Engine | None = None) -> Shows:
    """Return what tells whether a case shows a difference of the same engine and kind; of an error, in like words."""
    chosen = engine or BY_NAME[found.engine]
    before = [] if found.engine != "recalled" else [BY_NAME["cpu"]]

    def shows(case: Case) -> Difference | None:
        try:
            outcome = judge(case, [*before, chosen])
        except (NoTruth, KeyError, ValueError):
            return None
        return next((d for d in outcome.differences if _is_alike(d, found)), None)

    return shows


def _is_alike(one: Difference, other: Difference) -> bool:
    if (one.engine, one.kind) != (other.engine, other.kind):
        return False
    return "error" not in one.kind or _words(one.text) == _words(other.text)


def _words(text: str) -> str:
    """Return a message without what changes from graph to graph: quoted names, numbers, names that hold numbers."""
    return re.sub(r"'[^']*'|\w*[0-9]\w*|[^A-Za-z]+", " ", text)[:_COMPARED]


def minimized(case: Case, found: Difference, limit_s: float, shows: Shows | None = None) -> tuple[Case, Difference]:
    """Return the least case found within a time, and the difference that it shows."""
    shows = shows or shows_like(found)
    ends = time.monotonic() + limit_s
    improved = True
    while improved and time.monotonic() < ends:
        improved = False
        for smaller in _smaller(case):
            if time.monotonic() > ends:
                break
            difference = shows(smaller)
            if difference is not None:
                case, found, improved = smaller, difference, True
                break
    return case, found


def _smaller(case: Case) -> Iterator[Case]:
    """Yield smaller cases, those that save most first."""
    if len(case.feeds) > 1:
        yield from (replace(case, feeds=[feeds]) for feeds in case.feeds)
    outputs = list(case.model.graph.output)
    if len(outputs) > 1:
        for output in outputs:
            yield _with_graph(case, case.model.graph.node, [output.name])
    nodes = list(case.model.graph.node)
    single = _Values.of(case)
    if single is not None:
        for node in nodes[:-1]:  # an earlier end: what the first wrong value needs
            for name in node.output:
                if name and single.is_tensor(name):
                    yield _with_graph(case, nodes, [name], single)
        for count in (len(nodes) // 2, len(nodes) // 4):
            if count > 1:
                yield from _without(case, nodes, nodes[:count], single)
        for node in nodes:
            yield from _without(case, nodes, [node], single)
    yield from smaller_sizes(case)


@dataclass(frozen=True)
class _Values:
    """Every value of a case under each assignment."""

    samples: Sequence[Mapping[str, Triple]]

    @classmethod
    def of(cls, case: Case) -> _Values | None:
        run = Interpreter(case.opset, {**KERNELS, **FORMULAS})
        samples = []
        try:
            for feeds in case.feeds:
                values = {name: exact_feed(array) for name, array in feeds.items()}
                samples.append(run.values(case.model.graph, values))
        except NoTruth:
            return None
        return cls(samples)

    def is_tensor(self, name: str) -> bool:
        return all(name in each and each[name].is_tensor and each[name].dtype for each in self.samples)


def _without(case: Case, nodes: Sequence[NodeProto], dropped: Sequence[NodeProto], values: _Values) -> Iterator[Case]:
    gone = {name for node in dropped for name in node.output if name}
    kept = [node for node in nodes if node not in dropped]
    if not kept or not all(values.is_tensor(name) for name in gone):
        return
    outputs = [output.name for output in case.model.graph.output if output.name not in gone]
    if outputs:
        yield _with_graph(case, kept, outputs, values)


def _with_graph(case: Case, nodes: Sequence[NodeProto], outputs: Sequence[str], values: _Values | None = None) -> Case:
    """Return a case of some nodes; what they read and nobody makes becomes an input with its true value."""
    needed, kept = set(outputs), []
    for node in reversed(list(nodes)):
        if needed & set(node.output):
            kept.append(node)
            needed |= set(reads(node))
    kept.reverse()
    made = {name for node in kept for name in node.output}
    graph = case.model.graph
    initializers = [tensor for tensor in graph.initializer if tensor.name in needed]
    inputs = [each for each in graph.input if each.name in needed]
    known = made | {t.name for t in initializers} | {i.name for i in inputs}
    feeds = [{i.name: given[i.name] for i in inputs if i.name in given} for given in case.feeds]
    if values is not None:
        for name in sorted(needed - known):
            if values.is_tensor(name):
                inputs.append(_input(name, values))
                feeds = [{**f, name: v[name].native()} for f, v in zip(feeds, values.samples, strict=True)]
    declared = {each.name: each for each in graph.output}
    ends = [declared[name] if name in declared else _open(name, values) for name in outputs]
    smaller = helper.make_graph(kept, graph.name, inputs, ends, initializers)
    return replace(case, model=_model(case.model, smaller), feeds=feeds)


def _input(name: str, values: _Values) -> ValueInfoProto:
    first = values.samples[0][name]
    shapes = [each[name].truth.shape for each in values.samples]
    shape = [sizes[0] if len(set(sizes)) == 1 else None for sizes in zip(*shapes, strict=True)]
    assert first.dtype is not None
    return helper.make_tensor_value_info(name, first.dtype.onnx, shape)


def _open(name: str, values: _Values | None) -> ValueInfoProto:
    assert values is not None
    dtype = values.samples[0][name].dtype
    assert dtype is not None
    return helper.make_tensor_value_info(name, dtype.onnx, None)


def _model(model: ModelProto, graph: GraphProto) -> ModelProto:
    return helper.make_model(graph, opset_imports=list(model.opset_import), ir_version=model.ir_version)
