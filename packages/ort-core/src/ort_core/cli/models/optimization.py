"""The optimizer run for its own sake: all pipelines up to a level over one model, and what each pass did."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import typer

from ort_core import stages
from ort_core.cli.models.dumping import DumpState
from ort_core.cli.parameters import LevelName
from ort_core.environment import Environment, default_environment
from ort_core.errors import Fail
from ort_core.ir.model import Model
from ort_core.ir.traversal import graphs_of
from ort_core.onnx_io.data_files import data_files
from ort_core.ops.shape_inference import infer_types
from ort_core.passes.base import Level, Pass, count_nodes
from ort_core.passes.equivalence import EquivalenceCheck
from ort_core.passes.near_misses import NearMiss, find_near_misses
from ort_core.passes.pipelines import pipeline_for
from ort_core.passes.runner import PipelineReport, run_pipeline

Pipelines = list[tuple[Level, tuple[Pass, ...]]]
_LEVELS = {
    LevelName.DISABLE: (),
    LevelName.BASIC: (Level.BASIC,),
    LevelName.EXTENDED: (Level.BASIC, Level.EXTENDED),
    LevelName.LAYOUT: (Level.BASIC, Level.EXTENDED, Level.LAYOUT),
    LevelName.ALL: (Level.BASIC, Level.EXTENDED, Level.LAYOUT),
}
MAX_INLINE_NBYTES = 1 << 30  # of weights inside a file; protobuf ends at 2 GiB and needs twice the memory meanwhile


@dataclass(frozen=True, slots=True)
class PassRow:
    """What one pass did over all rounds; ``node_change`` is how many nodes there are more for it, below 0: fewer."""

    name: str
    level: str
    num_rewrites: int
    nodes_before: int
    nodes_after: int
    node_change: int
    duration_ns: int
    counts: dict[str, int]


@dataclass(frozen=True, slots=True)
class OptimizationReport:
    """What all passes did, in the order of their first run.

    ``num_constants`` counts the Constant nodes that became initializers before, ``num_passes`` every round of each
    pass; ``dumped`` are the names of the files with the graph behind passes.
    """

    rows: tuple[PassRow, ...]
    nodes_before: int
    nodes_after: int
    duration_ns: int
    near_misses: tuple[NearMiss, ...] | None = None
    num_passes: int = 0
    dumped: tuple[str, ...] = ()
    num_constants: int = 0

    def as_dict(self) -> dict[str, object]:
        """Return plain data for JSON."""
        return asdict(self) | {"rows": [asdict(row) for row in self.rows]}


def load_passes(names: Iterable[str]) -> list[Pass]:
    """Return instances of the user's passes from ``package.module:Class``."""
    return [_load_pass(name) for name in names]


def _load_pass(name: str) -> Pass:
    module_name, found, attribute = name.partition(":")
    if not found:
        raise typer.BadParameter(f"{name!r} does not name a pass; write PACKAGE.MODULE:CLASS", param_hint="--pass")
    try:
        made = getattr(importlib.import_module(module_name), attribute)
        instance = made() if isinstance(made, type) else made
    except (ImportError, AttributeError, TypeError) as error:
        raise typer.BadParameter(f"pass {name!r} cannot be loaded: {error}", param_hint="--pass") from error
    if not isinstance(instance, Pass):
        raise typer.BadParameter(f"{name!r} is a {type(instance).__name__}, not an ort_core Pass", param_hint="--pass")
    return instance


def build_pipelines(
    level: LevelName, disabled: Iterable[str], enabled: Iterable[str], extra: Sequence[Pass]
) -> Pipelines:
    """Return the passes of every level up to the one asked for."""
    all_extra = (*default_environment().passes, *extra)
    return [
        (each, pipeline_for(each, disabled=tuple(disabled), enabled=tuple(enabled), extra=all_extra))
        for each in _LEVELS[level]
    ]


def optimize_model(
    model: Model,
    pipelines: Pipelines,
    equivalence: EquivalenceCheck | None,
    environment: Environment | None = None,
    *,
    explains_fusions: bool = False,
    folder: Path | None = None,
    stop_after: int | None = None,
) -> OptimizationReport:
    """Optimize a model in place; ``environment`` is one that knows the user's operators, where there are any.

    ``folder`` takes the graph behind each pass as text, ``stop_after`` is how many passes run, each round counted.

    Raises:
        InvalidGraph: the model's types contradict each other.
        Fail: a pass changed a result (with ``equivalence``).
    """
    environment = environment or default_environment()
    environment.operators.adopt(model)
    infer_types(model, environment.schemas, environment.inference_rules)
    nodes_before, num_constants = count_nodes(model), None
    rows: list[PassRow] = []
    misses: list[NearMiss] = []
    duration = 0
    dump = DumpState(model, folder, stop_after)
    for level, passes in pipelines:
        if dump.has_reached_limit:
            break
        context = stages.pass_context(model, environment, stages.PrepareSettings())
        if num_constants is None:
            num_constants = nodes_before - count_nodes(model)
        report = run_pipeline(passes, context, equivalence=equivalence, goes_on=dump.goes_on)
        rows.extend(_rows(report, level))
        duration += report.duration_ns
        if explains_fusions:
            misses += find_near_misses(passes, context)
    told = tuple(misses) if explains_fusions else None
    return OptimizationReport(
        tuple(rows), nodes_before, count_nodes(model), duration, told, dump.count, tuple(dump.files), num_constants or 0
    )


def _rows(report: PipelineReport, level: Level) -> list[PassRow]:
    rows: dict[str, PassRow] = {}
    for each in report.reports:
        known = rows.get(each.name)
        counts = dict(known.counts) if known else {}
        for rule, count in each.counts.items():
            counts[rule] = counts.get(rule, 0) + count
        changed_before = known is not None and known.num_rewrites > 0
        rows[each.name] = PassRow(
            each.name, level.name.lower(), sum(counts.values()),
            known.nodes_before if known is not None and changed_before else each.nodes_before,
            each.nodes_after if each.has_changed or not changed_before or known is None else known.nodes_after,
            each.nodes_after - each.nodes_before + (known.node_change if known else 0),
            each.duration_ns + (known.duration_ns if known else 0), counts,
        )  # fmt: skip
    return list(rows.values())


def external_file_name(model: Model, source: Path, output: Path, asked: str | None) -> str | None:
    """Return the name of the file for large weights: as asked, or when the source has one, or when they are many.

    Raises:
        typer.BadParameter: the name is a path, or a file that the source itself reads.
    """
    constants = [v.constant for graph in graphs_of(model.graph) for v in graph.initializers if v.constant is not None]
    locations = {constant.location for constant in constants if constant.location is not None}
    total = sum(constant.nbytes for constant in constants)
    name = asked or (f"{output.name}.data" if locations or total > MAX_INLINE_NBYTES else None)
    if name is None:
        return None
    if Path(name).name != name:
        raise typer.BadParameter(f"{name!r} must be a file name without a folder", param_hint="--external-data")
    if (output.parent / name).resolve() in data_files(source):
        raise Fail(
            f"{name!r} holds the weights of {str(source)!r} and cannot be written; choose another --external-data"
        )
    return name
