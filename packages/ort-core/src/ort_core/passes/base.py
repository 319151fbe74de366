"""Pass: one change of policy over a whole model, run by name, which says truthfully what it did."""

from __future__ import annotations

import enum
import functools
import itertools
import operator
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ort_core.frozen import frozen
from ort_core.ir.graph import Graph
from ort_core.ir.model import Model
from ort_core.ir.nodes import Node
from ort_core.ir.rejection import Rejection
from ort_core.ir.traversal import graphs_of
from ort_core.ir.values import Value
from ort_core.ops.registry import SchemaRegistry
from ort_core.passes.normalize import normalize
from ort_core.rewrite.rule import RewriteRule

MAX_REJECTIONS = 32  # kept per pass with their reasons; a real model has thousands of near misses, people read a few
MAX_SWEEPS = 10  # of a rule over a graph; chains shorten by at least half a sweep, so real graphs need 2 or 3

NodeEvaluator = Callable[
    [Node, Sequence[Any]], "Sequence[Any] | Rejection"
]  # Any: kernels take and return RuntimeValues
SymbolicValue = np.ndarray  # of dtype object: an int, a float, a SymbolicDim or None for each element
TypeInference = Callable[[Model], Mapping[Value, SymbolicValue]]  # sets types, returns the known contents of values
SupportsOp = Callable[[str, str], bool]  # (domain, op_type) -> whether the target has it


class Level(enum.IntEnum):
    """How far the result may be from standard ONNX, numbered as onnxruntime's transformer levels."""

    REQUIRED = 0
    BASIC = 1
    EXTENDED = 2
    LAYOUT = 3


@dataclass(frozen=True, slots=True)
class PassLimits:
    """Bounds of what passes may do.

    ``max_folded_nbytes``: the greatest constant that folding may make; ``max_fold_growth_nbytes``: how much larger
    than its inputs it may be (a ConstantOfShape of a gigabyte is better run than stored). The last two hold for all of
    a model: ``max_total_growth_nbytes`` of constants beyond what they were made of, and ``max_products`` of numbers in
    folded matrix products and convolutions. So a file of a few kilobytes takes neither memory nor time without bound.
    """

    max_folded_nbytes: int = 1 << 30
    max_fold_growth_nbytes: int = 1 << 22
    max_total_growth_nbytes: int = 1 << 28
    max_products: int = 1 << 36  # seconds; merging adapters of rank 16 into a model of 7 billion weights takes 1 << 35


def _everything(domain: str, op_type: str) -> bool:
    return True


_EDITS = operator.attrgetter("edits")


class _Snapshot:
    """The graphs of a model, and their nodes by type, as they are until one of the graphs is edited."""

    def __init__(self, graphs: tuple[Graph, ...]) -> None:
        self.graphs = graphs
        self._edits = [*map(_EDITS, graphs)]
        self._by_type: dict[int, tuple[int, dict[str, list[tuple[int, Node]]]]] = {}

    @property
    def holds(self) -> bool:
        """Whether no graph was edited since."""
        return [*map(_EDITS, self.graphs)] == self._edits

    @functools.cached_property
    def num_nodes(self) -> int:
        """How many nodes the graphs have together."""
        return sum(map(len, self.graphs))

    @functools.cached_property
    def graphs_by_type(self) -> dict[str, list[int]]:
        """The numbers of the graphs that have nodes of each type."""
        found: dict[str, list[int]] = {}
        for number, graph in enumerate(self.graphs):
            for op_type in self.by_type(graph):
                found.setdefault(op_type, []).append(number)
        return found

    def by_type(self, graph: Graph) -> dict[str, list[tuple[int, Node]]]:
        """Return the nodes of a graph with their places, by type."""
        edits, found = self._by_type.get(id(graph), (-1, {}))
        if edits != graph.edits:
            found = {}
            for place, node in enumerate(graph.nodes):
                found.setdefault(node.op_type, []).append((place, node))
            self._by_type[id(graph)] = graph.edits, found
        return found


@dataclass(slots=True)
class PassContext:
    """What a pass works on and with.

    ``model`` is editable. ``evaluate_node`` runs one node on arrays and returns its outputs or why it cannot;
    without it nothing is folded. ``infer`` fills in missing types and returns what is known of the contents of small
    integer values (such as ``infer_types(...).values``); ``values`` is its last answer. ``supports`` tells which
    operators the target of the extended passes has. ``free_dimensions`` gives sizes to named dimensions.
    ``fold_growth_nbytes`` and ``fold_products`` count what folding has taken of its ``limits``. ``types_are_current``:
    whether nothing was changed since types were inferred.
    """

    model: Model
    schemas: SchemaRegistry = field(default_factory=SchemaRegistry)
    evaluate_node: NodeEvaluator | None = None
    infer: TypeInference | None = None
    limits: PassLimits = PassLimits()
    supports: SupportsOp = _everything
    values: Mapping[Value, SymbolicValue] | None = None
    free_dimensions: dict[str, int] = field(default_factory=dict)
    fold_growth_nbytes: int = 0
    fold_products: int = 0
    types_are_current: bool = False
    _snapshot: _Snapshot | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        normalize(self.model)

    def infer_types(self) -> None:
        """Bring types and known contents up to date."""
        if self.infer is not None:
            self.values = self.infer(self.model)
            self.types_are_current = True

    def opset(self, node: Node) -> int:
        """Return the opset by which a node is to be understood."""
        return node.opset if node.opset is not None else self.model.opset_imports.get(node.domain, 1)

    def graphs(self) -> Iterator[Graph]:
        """Yield the main graph and all nested ones, outer before inner; those that are cut off meanwhile are left out.

        Whoever edits an outer graph may remove a node with bodies, or take one of them for the node. New nodes in a
        body that nobody runs would read values of outer graphs, which then look as if they were needed.
        """
        return filter(self._is_attached, self._current().graphs)

    def _is_attached(self, graph: Graph) -> bool:
        while graph is not self.model.graph:
            if graph.owner is None or graph.owner.graph is None or graph not in graph.owner.subgraphs():
                return False
            graph = graph.owner.graph
        return True

    def nodes_of(self, graph: Graph, op_types: Collection[str]) -> list[Node]:
        """Return the nodes of one of the graphs that have one of these types, in order."""
        found = (self._snapshot or self._current()).by_type(graph)
        places = [found[op_type] for op_type in op_types if op_type in found]
        return [node for _, node in (sorted(itertools.chain(*places)) if len(places) > 1 else itertools.chain(*places))]

    def num_nodes(self) -> int:
        """Return the number of nodes in the main graph and all nested ones; they are counted behind changes alone."""
        return self._current().num_nodes

    def op_types(self) -> Set[str]:
        """Return the types that nodes of the graphs have."""
        return self._current().graphs_by_type.keys()

    def graphs_with(self, op_types: Collection[str]) -> Iterator[Graph]:
        """Yield those of ``graphs()`` that have nodes of one of these types."""
        current = self._current()
        found = current.graphs_by_type
        numbers = itertools.chain.from_iterable(found[op_type] for op_type in op_types if op_type in found)
        return filter(self._is_attached, [current.graphs[number] for number in sorted(set(numbers))])

    def forget_graphs(self) -> None:
        """Look for nested graphs anew: one may have been put into an attribute, which no graph notices."""
        self._snapshot = None

    def _current(self) -> _Snapshot:
        if self._snapshot is None or not self._snapshot.holds:
            self._snapshot = _Snapshot(tuple(graphs_of(self.model.graph)))
        return self._snapshot

    def is_deterministic(self, node: Node) -> bool:
        """Return whether equal inputs give equal outputs, as far as the operator's schema is known; bodies count."""
        schema = self.schemas.find(node.domain, node.op_type, self.opset(node))
        if isinstance(schema, Rejection) or not schema.is_deterministic or node.op_type in NON_DETERMINISTIC:
            return False
        if node.op_type == "Dropout" and node.input(_TRAINING_MODE) is not None:
            return False  # in training mode it draws; EliminateDropout takes away the others
        return all(self.is_deterministic(inner) for body in node.subgraphs() for inner in body)


NON_DETERMINISTIC = frozenset(
    {
        "Bernoulli", "BiasDropout", "BitmaskBiasDropout", "BitmaskDropout", "Multinomial", "RandomNormal",
        "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Sampling",
    }
)  # fmt: skip  # ONNX marks some of its own, onnxruntime's operators carry no mark
_TRAINING_MODE = 2  # input of Dropout


@frozen
class RecordedRejection:
    """A rewrite that was refused: by which rule, at which node, why."""

    rule: str
    node: str
    reason: str


@frozen
class PassReport:
    """What a pass did. ``counts`` has the number of rewrites of each rule (or kind of change).

    ``num_tidied`` of them give no pass anything more to do. ``is_exhausted``: the pass itself went on until it found
    nothing more.
    """

    name: str
    counts: dict[str, int]
    rejections: tuple[RecordedRejection, ...]
    num_rejections: int
    nodes_before: int
    nodes_after: int
    duration_ns: int
    num_tidied: int = 0
    is_exhausted: bool = False

    @property
    def num_rewrites(self) -> int:
        """How many changes were made."""
        return sum(self.counts.values())

    @property
    def has_changed(self) -> bool:
        """Whether the model differs from what it was."""
        return self.num_rewrites > 0

    @property
    def has_opened(self) -> bool:
        """Whether a change may give this or another pass more to do."""
        return self.num_rewrites > self.num_tidied

    def __str__(self) -> str:
        counts = ", ".join(f"{rule} {count}" for rule, count in self.counts.items()) or "nothing"
        return (
            f"{self.name}: {counts}; nodes {self.nodes_before} -> {self.nodes_after}; {self.duration_ns / 1e6:.2f} ms"
        )


class PassRecordState:
    """Collects what a pass does while it runs."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.rejections: dict[RecordedRejection, None] = {}
        self.num_rejections = 0
        self.num_tidied = 0
        self.is_exhausted = False  # whether the pass has looked once more behind its last change, and found nothing

    def changed(self, rule: str, count: int = 1) -> None:
        """Note that a rule (or kind of change) was applied."""
        if count:
            self.counts[rule] = self.counts.get(rule, 0) + count

    def tidied(self, rule: str, count: int = 1) -> None:
        """Note changes as ``changed`` does that no pass can make use of: initializers that nobody reads are gone."""
        self.changed(rule, count)
        self.num_tidied += count

    def refused(self, rule: str, rejection: Rejection, node: Node | None = None) -> None:
        """Note that a change was refused, and why."""
        self.num_rejections += 1
        if len(self.rejections) < MAX_REJECTIONS:
            place = rejection.node or node
            found = RecordedRejection(rule, place.describe() if place is not None else "", rejection.reason)
            self.rejections[found] = None


class Pass(ABC):
    """A change over a whole model.

    ``name`` is onnxruntime's where it has such a pass. ``after`` and ``before`` name passes of the same pipeline that
    this one must follow or precede. ``is_opt_in`` passes run only when they are enabled by name; one that
    ``runs_once`` needs no second round; after one that ``needs_inference`` missing types are filled in at once.
    """

    name: str
    level: Level = Level.BASIC
    after: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    is_opt_in: bool = False
    runs_once: bool = False
    needs_inference: bool = False

    @abstractmethod
    def apply(self, context: PassContext, record: PassRecordState) -> None:
        """Change ``context.model`` and tell ``record`` each change."""

    def run(self, context: PassContext) -> PassReport:
        """Run the pass and return what it did."""
        nodes_before = context.num_nodes()
        record = PassRecordState()
        start = time.perf_counter_ns()
        self.apply(context, record)
        duration = time.perf_counter_ns() - start
        if record.counts:
            context.forget_graphs()
            context.types_are_current = False
        return PassReport(
            self.name, record.counts, tuple(record.rejections), record.num_rejections, nodes_before,
            context.num_nodes() if record.counts else nodes_before, duration, record.num_tidied, record.is_exhausted,
        )  # fmt: skip


class RulePass(Pass):
    """A pass that applies rewrite rules wherever they fit, until none does."""

    def __init__(
        self,
        name: str,
        rules: Iterable[RewriteRule[Any]],  # Any: each rule has its own kind of bindings
        level: Level = Level.BASIC,
        *,
        after: tuple[str, ...] = (),
        before: tuple[str, ...] = (),
        is_opt_in: bool = False,
    ) -> None:
        self.name = name
        self.rules = tuple(rules)
        self.level = level
        self.after = after
        self.before = before
        self.is_opt_in = is_opt_in

    def apply(self, context: PassContext, record: PassRecordState) -> None:
        """Sweep over every graph until no rule fits any more."""
        rules = [rule for rule in self.rules if all(itertools.starmap(context.supports, rule.emits))]
        for _ in range(MAX_SWEEPS):
            refused, index = PassRecordState(), _by_op_type(rules, context.op_types())
            if not sum(self._sweep(context, graph, index, record, refused) for graph in context.graphs_with(index)):
                record.rejections, record.num_rejections = refused.rejections, refused.num_rejections
                record.is_exhausted = True
                return

    def _sweep(
        self,
        context: PassContext,
        graph: Graph,
        index: dict[str, list[RewriteRule[Any]]],  # Any: as in __init__
        record: PassRecordState,
        refused: PassRecordState,
    ) -> int:
        count = 0
        for node in context.nodes_of(graph, index):
            for rule in index.get(node.op_type, ()):
                if node.graph is not graph:  # an earlier rewrite took it away
                    break
                done = rule.apply_at(context.model, node)
                if isinstance(done, Rejection):
                    refused.refused(rule.name, done, node)
                elif done:
                    record.changed(rule.name)
                    count += 1
        return count


def _by_op_type(
    rules: Sequence[RewriteRule[Any]],  # Any: each rule has its own kind of bindings
    present: Set[str],
) -> dict[str, list[RewriteRule[Any]]]:  # Any: as above
    """Return the rules that may match somewhere by the operators at which they can."""
    index: dict[str, list[RewriteRule[Any]]] = {}  # Any: as above
    for rule in rules:
        if all(not needed.isdisjoint(present) for needed in rule.needed_op_types):
            for op_type in rule.op_types:
                index.setdefault(op_type, []).append(rule)
    return index


def count_nodes(model: Model) -> int:
    """Return the number of nodes in the main graph and all nested ones."""
    return sum(len(graph) for graph in graphs_of(model.graph))
