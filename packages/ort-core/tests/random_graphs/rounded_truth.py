"""The truth of a graph whose session may round any float32 to bfloat16, as ``precision=bfloat16`` lets products do.

Every float32 value then has a window of that rounding. That is more than products alone take, and holds whatever a
session makes products of. What cannot be told within it has no truth here, nor has what is made of it; all other
outputs are judged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from random_graphs.cases import Case
from random_graphs.custom_operators import FORMULAS, KERNELS
from random_graphs.element_types import ROUNDED_F32
from random_graphs.triples import NoTruth, Triple, exact, exact_feed
from random_graphs.truth import Interpreter, array_of
from random_graphs.writer import reads


def rounded_truths(case: Case) -> list[list[Triple | None]]:
    """Return the outputs under each assignment, ``None`` for those that the window leaves open."""
    run = Interpreter(case.opset, {**KERNELS, **FORMULAS}, ROUNDED_F32)
    found = []
    for feeds in case.feeds:
        values = _values(run, case, {name: run.given(exact_feed(value)) for name, value in feeds.items()})
        found.append([values.get(output.name) for output in case.model.graph.output])
    return found


def _values(run: Interpreter, case: Case, feeds: Mapping[str, Triple]) -> Mapping[str, Triple]:
    graph, values = case.model.graph, dict(feeds)
    for tensor in graph.initializer:
        values.setdefault(tensor.name, run.given(exact(array_of(tensor))))
    unknown: set[str] = set()
    for node in graph.node:
        outputs: Sequence[Triple] = ()
        if unknown.isdisjoint(reads(node)):
            try:
                outputs = run.node(node, [values[name] if name else None for name in node.input], values)
            except NoTruth:
                outputs = ()
        values.update({name: value for name, value in zip(node.output, outputs, strict=False) if name})
        unknown.update(name for name in node.output if name and name not in values)
    return values
