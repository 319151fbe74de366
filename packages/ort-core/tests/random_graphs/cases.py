"""From a seed to a case: a model, its feeds under each assignment of sizes, and how results are told right.

The frame around the nodes is random, too: which values are outputs, names of sizes, sizes that are declared wrongly,
outputs named twice, inputs and initializers that are outputs.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onnx import GraphProto, ModelProto, ValueInfoProto, helper

from random_graphs import element_types as et
from random_graphs.custom_operators import FORMULAS, KERNELS
from random_graphs.growing import grow
from random_graphs.into_functions import has_functions, with_functions
from random_graphs.other_writings import is_written_otherwise, with_defaults, written_otherwise
from random_graphs.rewritten import FUSED, fused, rewritten
from random_graphs.special_values import with_scaled_numbers, with_special_values
from random_graphs.triples import Triple, exact, exact_feed
from random_graphs.truth import Interpreter, array_of
from random_graphs.writer import GraphWriter, Value, model_of, reads, typed

LENGTHS = (1, 2, 3, 3, 4, 5, 6, 8, 10, 14, 20)
Feeds = Mapping[str, Any]  # arrays, lists of them for sequences, dicts for maps


@dataclass(frozen=True)
class Case:
    """A model with feeds, and its truth for each of them."""

    seed: int
    model: ModelProto
    feeds: Sequence[Feeds]
    families: Sequence[str]
    flags: Sequence[str] = ()

    @property
    def opset(self) -> int:
        """The version of ONNX's own operators."""
        return next(each.version for each in self.model.opset_import if each.domain == "")

    @property
    def served(self) -> ModelProto:
        """The model as engines get it: fused, written otherwise, or with functions; the truth is that of all nodes."""
        if FUSED in self.flags:
            return fused(self.model)
        model = written_otherwise(self.model, self.seed) if is_written_otherwise(self.seed) else self.model
        return with_functions(model, self.seed) if has_functions(self.seed) else model

    def truths(self) -> list[list[Triple]]:
        """Return the outputs under each assignment.

        Raises:
            NoTruth: some node has none; a minimizer asks for graphs that no generator wrote.
        """
        run = Interpreter(self.opset, {**KERNELS, **FORMULAS})
        found = []
        for feeds in self.feeds:
            found.append(run.graph(self.model.graph, {name: exact_feed(value) for name, value in feeds.items()}))
        return found


def case_of_seed(seed: int) -> Case | None:
    """Return the case of a seed, ``None`` for the few seeds that grow nothing."""
    g = GraphWriter.of_seed(seed)
    for _ in range(g.choice((1, 1, 2, 2, 3))):
        g.input(et.F32 if not g.inputs and g.chance(0.7) else None)
    grow(g, g.choice(LENGTHS))
    if not g.nodes:
        return None
    flags: list[str] = []
    outputs = _outputs(g, flags)
    graph = _graph(g, outputs, flags)
    model = model_of(graph, g.opset)
    names = {each.name for each in graph.input}
    feeds = [{v.name: v.samples[k].native() for v in g.inputs if v.name in names} for k in range(g.assignments)]
    case = Case(seed, model, feeds, tuple(g.families), tuple(flags))
    return rewritten(with_defaults(with_special_values(with_scaled_numbers(case))))


def _outputs(g: GraphWriter, flags: list[str]) -> list[Value]:
    read = {name for node in g.nodes for name in reads(node)}
    made = {name for node in g.nodes for name in node.output}
    leaves = [v for v in g.values if v.name in made and v.name not in read]
    inner = [v for v in g.values if v.name in made and v.name in read]
    outputs = leaves if g.chance(0.6) or not leaves else g.random.sample(leaves, g.random.randint(1, len(leaves)))
    if inner and (g.chance(0.3) or not outputs):
        outputs = [*outputs, g.choice(inner)]
    if g.chance(0.03):
        flags.append("an input is an output")
        outputs = [*outputs, g.choice([each for each in g.inputs if each.is_tensor] or outputs)]
    if g.chance(0.03) and g.initializers:
        flags.append("an initializer is an output")
        outputs = [*outputs, _of_initializer(g)]
    return [*(outputs or [g.values[-1]]), *g.only_outputs]


def _of_initializer(g: GraphWriter) -> Value:
    tensor = g.choice(g.initializers)
    return Value(tensor.name, (exact(array_of(tensor)),) * g.assignments, tensor)


def _graph(g: GraphWriter, outputs: Sequence[Value], flags: list[str]) -> GraphProto:
    needed = {v.name for v in outputs}
    kept = []
    for node in reversed(g.nodes):
        if needed & set(node.output):
            kept.append(node)
            needed |= set(reads(node))
    kept.reverse()
    style = g.choice(("named", "named", "open", "fixed"))
    inputs = [_input(g, v, style) for v in g.inputs if v.name in needed]
    inputs = inputs or [_input(g, v, style) for v in g.inputs[:1]]
    wrong = g.chance(0.03)
    declared = [_output(g, v, wrong, flags) for v in outputs]
    initializers = [tensor for tensor in g.initializers if tensor.name in needed]
    return helper.make_graph(kept, f"seed{g.seed}", inputs, declared, initializers)


def _input(g: GraphWriter, value: Value, style: str) -> ValueInfoProto:
    return g.declared.get(value.name) or typed(value, _declared(g, value, style))


def _declared(g: GraphWriter, value: Value, style: str) -> list[int | str | None]:
    """Return a declared shape: the same size everywhere may stand as a number, or be left open.

    Of every third seed that leaves sizes open, all are: operands broadcast then as only a run knows.
    """
    shape: list[int | str | None] = []
    for axis in range(value.rank):
        sizes = [each[axis] for each in value.shapes]
        place = next((i for i, symbol in enumerate(g.symbols) if symbol == sizes), None)
        if len(set(sizes)) > 1:
            shape.append(f"S{place}" if style == "named" and place is not None else None)
        elif style == "open" and (g.seed % 3 == 0 or zlib.crc32(f"{value.name}.{axis}".encode()) % 2):
            shape.append(f"{value.name}_{axis}")
        else:
            shape.append(sizes[0])
    return shape


def _output(g: GraphWriter, value: Value, wrong: bool, flags: list[str]) -> ValueInfoProto:
    if value.name in g.declared:
        return g.declared[value.name]
    kind = g.random.random()
    if kind < 0.55 or value.tensor is not None:
        return typed(value)
    if wrong and value.rank:
        flags.append("a wrong size is declared")
        sizes: list[int | str | None] = [*value.shapes[0]]
        sizes[g.random.randrange(value.rank)] = g.choice((1, 2, 5))
        return typed(value, sizes)
    return typed(value, [None] * value.rank if kind < 0.8 else _declared(g, value, "named"))
