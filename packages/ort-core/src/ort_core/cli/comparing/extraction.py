"""A part of a model as a model of its own, with the values that crossed its border in a recorded run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import typer

from ort_core import stages
from ort_core.cli.console import count_text
from ort_core.cli.inputs.feeds import Feeds, InputRequest, run_with_feeds
from ort_core.cli.outputs.summaries import shape_text, summarize
from ort_core.cli.parameters import parse_providers
from ort_core.cli.sessions import SessionRequest
from ort_core.environment import Environment
from ort_core.errors import Fail, did_you_mean
from ort_core.ir.graph import Graph
from ort_core.ir.model import Model
from ort_core.ir.nodes import Node
from ort_core.ir.subgraph import border_of
from ort_core.ir.subgraph import extract as extract_graph
from ort_core.ir.traversal import graphs_of, predecessors, reads_of, walk
from ort_core.ir.values import Value
from ort_core.onnx_io.load import load_model
from ort_core.onnx_io.save import save_model
from ort_core.onnx_io.value_file import write_value
from ort_core.partitioning.partition import ControlFlow, Partition, partition_graph
from ort_core.stages import evaluate_by_reference
from ort_core.whole_files import replace_file

DATA_FOLDER = "test_data_set_0"
WRITTEN = ("model.onnx", "model.onnx.data")


@dataclass(frozen=True, slots=True)
class Cut:
    """What to extract: nodes by name, a partition, or the nodes between two sets of values."""

    nodes: tuple[str, ...] = ()
    partition: str | None = None
    start: tuple[str, ...] = ()
    end: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ExtractionReport:
    """What was written; ``files`` says of each what it holds."""

    folder: Path
    num_nodes: int
    operators: str
    files: dict[str, str]
    nbytes: int

    def as_dict(self) -> dict[str, object]:
        """Return plain data for JSON."""
        return {**asdict(self), "folder": str(self.folder)}


def extract_part(path: Path, folder: Path, cut: Cut, request: SessionRequest, inputs: InputRequest) -> ExtractionReport:
    """Write a part of a model and its recorded inputs and outputs in ONNX's test data layout.

    Raises:
        typer.BadParameter: a node, partition or value is not known.
        Fail: the recorded run never reached the part.
        OrtError: the model fails before that.
    """
    model = load_model(path)
    environment = request.environment()
    settings = stages.PrepareSettings.of(request.options(), environment)
    stages.optimize(model, environment, settings)
    nodes = _find_nodes(model, cut, request, settings)
    border = border_of(nodes)
    recorder = Recorder(nodes, {value.name for value in (*border.inputs, *border.outputs)})
    _record(model, recorder, inputs, environment)
    graph, border = extract_graph(nodes, name=f"{model.graph.name or 'graph'}_part")
    missing = [value.name for value in border.inputs if value.name not in recorder.values]
    if missing or not recorder.is_complete:
        raise Fail(
            f"the recorded run did not reach the part ({', '.join(missing[:3]) or 'a branch was not taken'}); "
            "give inputs with which it does (--input, --shape, --dim)"
        )
    opsets = dict(model.opset_imports)
    part = Model(graph, opsets, dict(model.functions), model.ir_version, "ort-core")
    return _write(part, folder, recorder.values, nodes)


class Recorder:
    """Observes a run and keeps the values that cross the border of some nodes, until all these nodes have run once."""

    def __init__(self, nodes: Sequence[Node], names: set[str]) -> None:
        self._waiting = {self._key(node) for node in nodes}
        self._names = names
        self.values: dict[str, object] = {}

    @staticmethod
    def _key(node: Node) -> tuple[str, ...]:
        return tuple("" if value is None else value.name for value in node.outputs)

    @property
    def is_complete(self) -> bool:
        """Whether all nodes of the part have run."""
        return not self._waiting

    def start(self, feeds: Feeds) -> None:
        """Take the values of the model's own inputs."""
        self.values.update({name: value for name, value in feeds.values.items() if name in self._names})

    def observe(
        self, node: Node, start_ns: int, inputs: Sequence[object], outputs: Sequence[object], work: object = None, /
    ) -> None:
        """Keep what one node read and wrote; an ``Observer`` of the evaluator."""
        if self.is_complete:
            return
        for values, found in ((node.inputs, inputs), (node.outputs, outputs)):
            for value, item in zip(values, found):
                if value is not None and value.name in self._names:
                    self.values[value.name] = np.array(item) if isinstance(item, np.ndarray) else item
        self._waiting.discard(self._key(node))


def _record(model: Model, recorder: Recorder, inputs: InputRequest, environment: Environment) -> None:
    def run(feeds: Feeds) -> list[object]:
        recorder.start(feeds)
        return evaluate_by_reference(model, feeds.values, recorder.observe, environment)

    run_with_feeds(model, inputs, run)


def _find_nodes(model: Model, cut: Cut, request: SessionRequest, settings: stages.PrepareSettings) -> list[Node]:
    if cut.partition is not None:
        return _partition(model, cut.partition, request, settings)
    if cut.nodes:
        return [_node(model, name) for name in cut.nodes]
    return _range(model, cut.start, cut.end)


def _node(model: Model, name: str) -> Node:
    nodes = list(walk(model.graph))
    for node in nodes:
        if node.name == name or any(value.name == name for value in node.present_outputs()):
            return node
    known = [node.name or next((v.name for v in node.present_outputs()), "") for node in nodes]
    hint = did_you_mean(name, known)
    raise typer.BadParameter(
        f"no node is called {name!r}, and none makes a value of that name.{hint}", param_hint="--node"
    )


def _range(model: Model, start: tuple[str, ...], end: tuple[str, ...]) -> list[Node]:
    values = {value.name: value for graph in graphs_of(model.graph) for value in _values_of(graph)}
    for hint, names in (("--from", start), ("--to", end)):
        for name in names:
            if name not in values:
                raise typer.BadParameter(
                    f"the model has no value {name!r}.{did_you_mean(name, list(values))}", param_hint=hint
                )
    ends = [values[name] for name in end] or list(model.graph.outputs)
    graph = ends[0].graph
    if graph is None or any(values[name].graph is not graph for name in (*start, *end)):
        raise typer.BadParameter("the values of --from and --to must belong to one graph", param_hint="--to")
    stops = {values[name] for name in start}
    found: set[Node] = set()
    waiting = [v.producer for v in ends if v.producer is not None and v not in stops]
    while waiting:
        node = waiting.pop()
        if node in found or node.graph is not graph:
            continue
        found.add(node)
        allowed = {v.producer for v in stops}
        waiting.extend(before for before in predecessors(node) if before not in allowed)
    between = [node for node in graph if node in found]
    if start:
        between = _depending_on(stops, between)
    if not between:
        raise typer.BadParameter("no node lies between these values", param_hint="--to")
    return between


def _depending_on(values: set[Value], nodes: Sequence[Node]) -> list[Node]:
    """Return the nodes, given in topological order, that read one of some values or what follows from them."""
    known = set(values)
    kept = []
    for node in nodes:
        if any(value in known for value in reads_of(node)):
            kept.append(node)
            known.update(node.present_outputs())
    return kept


def _values_of(graph: Graph) -> Iterable[Value]:
    yield from graph.inputs
    for node in graph:
        yield from node.present_outputs()


def _partition(model: Model, name: str, request: SessionRequest, settings: stages.PrepareSettings) -> list[Node]:
    environment = request.environment()
    selection = stages.select_providers(parse_providers(request.providers), environment, settings)
    context = stages.evaluation_context(model, environment)
    partitioned = partition_graph(model, model.graph, selection.providers, context)
    found = {step.name: _step_nodes(step) for step in partitioned.every_step()}
    if name not in found:
        raise typer.BadParameter(
            f"there is no partition {name!r}.{did_you_mean(name, list(found))} There are: {', '.join(found)}.",
            param_hint="--partition",
        )
    return found[name]


def _step_nodes(step: Partition | ControlFlow) -> list[Node]:
    return list(step.nodes) if isinstance(step, Partition) else [step.node]


def _write(part: Model, folder: Path, values: dict[str, object], nodes: Sequence[Node]) -> ExtractionReport:
    data = folder / DATA_FOLDER
    data.mkdir(parents=True, exist_ok=True)
    constants = sum(v.constant.nbytes for v in part.graph.initializers if v.constant is not None)
    name, beside = WRITTEN
    save_model(part, folder / name, external_file=beside if constants > 1 << 30 else None)
    files = {"model.onnx": count_text(len(nodes), "node")}
    for kind, border in (("input", part.graph.inputs), ("output", part.graph.outputs)):
        for index, value in enumerate(border):
            name = f"{DATA_FOLDER}/{kind}_{index}.pb"
            replace_file(folder / name, write_value(values.get(value.name), value.name, value.type))
            files[name] = f"{value.name} {shape_text(summarize(values.get(value.name), 0))}"
    operators = ", ".join(
        f"{op} x{count}" if count > 1 else op for op, count in Counter(n.op_type for n in nodes).most_common(6)
    )
    nbytes = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    return ExtractionReport(folder, len(nodes), operators, files, nbytes)
