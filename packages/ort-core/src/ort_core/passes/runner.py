"""run_pipeline(): runs passes in order, again and again until none changes anything, checking them if asked."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from ort_core.errors import Fail, OrtError
from ort_core.frozen import frozen
from ort_core.interruptions import raise_interruption
from ort_core.ir.attributes import Attribute
from ort_core.ir.constants import Constant
from ort_core.ir.graph import Graph
from ort_core.ir.model import Model
from ort_core.ir.traversal import graphs_of
from ort_core.ir.verify import verify as verify_model
from ort_core.passes.base import Pass, PassContext, PassReport, count_nodes
from ort_core.passes.equivalence import EquivalenceCheck
from ort_core.settings import environment_value

MAX_ROUNDS = 10  # real models are done after 2 to 4; passes that undo each other would go on for ever


@frozen
class PipelineReport:
    """What a pipeline did: a report of each run of a pass, in order."""

    reports: tuple[PassReport, ...]
    num_rounds: int
    is_fixed_point: bool
    nodes_before: int
    nodes_after: int
    duration_ns: int

    @property
    def num_rewrites(self) -> int:
        """How many changes all passes made."""
        return sum(report.num_rewrites for report in self.reports)

    def counts(self) -> dict[str, int]:
        """Return the number of changes by pass, those without any left out."""
        totals: dict[str, int] = {}
        for report in self.reports:
            if report.num_rewrites:
                totals[report.name] = totals.get(report.name, 0) + report.num_rewrites
        return totals

    def __str__(self) -> str:
        lines = [str(report) for report in self.reports if report.has_changed]
        nodes = f"{self.nodes_before} -> {self.nodes_after} nodes"
        return "\n".join([*lines, f"{nodes}, {self.num_rounds} rounds, {self.duration_ns / 1e6:.1f} ms"])


@np.errstate(all="ignore")  # what a program has set for its own numbers does not end a pass over constants
def run_pipeline(
    passes: Sequence[Pass],
    context: PassContext,
    *,
    verify: bool = False,
    equivalence: EquivalenceCheck | None = None,
    max_rounds: int = MAX_ROUNDS,
    goes_on: Callable[[PassReport], bool] | None = None,
) -> PipelineReport:
    """Run passes over ``context.model`` until a whole round changes nothing.

    A pass that found nothing to change, at all or behind its own changes, runs again only when something has changed
    since; what was merely tidied up (``PassRecordState.tidied``) does not count.

    Args:
        passes: in the order in which they run; those that ``runs_once`` only in the first round.
        context: what they work on and with.
        verify: check the graph's invariants after each pass, and that each pass told the truth about whether it
            changed anything. For tests: costs more than the passes. ``ORT_VERIFY_PASSES`` asks for it everywhere.
        equivalence: evaluate the model before and after each pass that changed it, and compare.
        max_rounds: stop then even if something still changes.
        goes_on: called behind every pass; where it answers False, no further pass runs.

    Raises:
        Fail: a pass was caught in a lie, or changed a result.
        InvalidGraph: a pass broke an invariant.
    """
    start = time.perf_counter_ns()
    nodes_before = count_nodes(context.model)
    checker = _Checker(context, verify or bool(environment_value("ORT_VERIFY_PASSES")), equivalence)
    _infer_if_needed(context)
    reports: list[PassReport] = []
    in_vain: dict[int, int] = {}  # passes by their place: how many changes there were when they had nothing to do
    changes = 0
    num_rounds, is_fixed_point, is_stopped = 0, False, False
    while num_rounds < max_rounds and not is_fixed_point and not is_stopped:
        is_fixed_point = True
        for place, each in enumerate(passes):
            if (each.runs_once and num_rounds) or in_vain.get(place) == changes:
                continue
            report = checker.run(each)
            reports.append(report)
            if not report.has_opened:
                in_vain[place] = changes
            else:
                changes += 1
                is_fixed_point = is_fixed_point and each.runs_once
                is_current = not (each.needs_inference and _infer_if_needed(context))  # types are a change for it, too
                if report.is_exhausted and is_current:
                    in_vain[place] = changes
            is_stopped = goes_on is not None and not goes_on(report)
            if is_stopped:
                break
        num_rounds += 1
        if not is_fixed_point and _infer_if_needed(context):
            changes += 1
    return PipelineReport(
        tuple(reports), num_rounds, is_fixed_point and not is_stopped, nodes_before, count_nodes(context.model),
        time.perf_counter_ns() - start,
    )  # fmt: skip


class _Checker:
    """Runs single passes with the checks that were asked for."""

    def __init__(self, context: PassContext, verify: bool, equivalence: EquivalenceCheck | None) -> None:
        self._context = context
        self._verify = verify
        self._equivalence = equivalence
        self._outputs = equivalence.outputs_of(context.model) if equivalence is not None else ()

    def run(self, each: Pass) -> PassReport:
        """Run one pass and check it."""
        before = fingerprint(self._context.model) if self._verify else 0
        report = _run(each, self._context)
        if self._verify:
            self._check_truth(report, before)
            verify_model(self._context.model)
        if self._equivalence is not None and report.has_changed:
            outputs = self._equivalence.outputs_of(self._context.model)
            self._equivalence.compare(report.name, self._context.model, self._outputs, outputs)
        return report

    def _check_truth(self, report: PassReport, before: int) -> None:
        has_changed = fingerprint(self._context.model) != before
        if has_changed and not report.has_changed:
            raise Fail(f"pass {report.name} says that it changed nothing, but the model differs from what it was")
        if report.has_changed and not has_changed:
            raise Fail(f"pass {report.name} says that it made {report.counts}, but the model is as it was")


def _run(each: Pass, context: PassContext) -> PassReport:
    try:
        return each.run(context)
    except (OrtError, RecursionError, MemoryError):
        raise
    except Exception as error:  # the border to passes, users' own included: the error names the pass
        raise_interruption(error)
        raise Fail(
            f"pass {each.name} ({type(each).__module__}.{type(each).__qualname__}) failed: "
            f"{type(error).__name__}: {error}. Leave it out by disabled_optimizers=[{each.name!r}]."
        ) from error


def _infer_if_needed(context: PassContext) -> bool:
    """Bring types up to date where some are missing; return whether they were."""
    is_needed = context.values is None or _lacks_types(context.model)
    if is_needed:
        context.infer_types()
    return is_needed


def _lacks_types(model: Model) -> bool:
    for graph in graphs_of(model.graph):
        for node in graph.nodes:
            for value in node.outputs:
                if value is not None and value.type is None:
                    return True
    return False


def fingerprint(model: Model) -> int:
    """Return a hash of a model's structure; constants count by identity, metadata and inner types do not count."""
    facts: list[object] = [tuple(sorted(model.opset_imports.items())), tuple(model.functions)]
    for graph in graphs_of(model.graph):
        facts.extend(_graph_facts(graph))
    return hash(tuple(facts))


def _graph_facts(graph: Graph) -> Iterator[object]:
    yield tuple((v.name, v.type) for v in graph.inputs)
    yield tuple(v.name for v in graph.outputs)
    yield tuple((v.name, id(v.constant)) for v in graph.initializers)
    for node in graph:
        inputs = tuple("" if v is None else v.name for v in node.inputs)
        outputs = tuple("" if v is None else v.name for v in node.outputs)
        attributes = tuple(_attribute_fact(a) for a in node.attributes.values())
        yield (node.op_type, node.domain, node.overload, node.opset, inputs, outputs, attributes)


def _attribute_fact(attribute: Attribute) -> object:
    value = attribute.value
    identity = id(value) if isinstance(value, (Constant, Graph)) or attribute.graphs() else value
    return (attribute.name, attribute.kind, attribute.reference, repr(identity))
