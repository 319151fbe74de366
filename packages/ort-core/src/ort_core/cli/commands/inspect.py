"""``ort inspect``: what a model is, without running it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ort_core.cli.parameters import (
    Config,
    Dims,
    JsonFlag,
    Level,
    LevelName,
    ModelPath,
    Operators,
    ProviderNames,
    Shapes,
    Threads,
)

if TYPE_CHECKING:
    from pathlib import Path

    from rich.tree import Tree

    from ort_core.cli.inputs.random_inputs import InputMaker
    from ort_core.cli.sessions import SessionRequest
    from ort_core.environment import Environment
    from ort_core.ir.graph import Graph
    from ort_core.ir.model import Model

_MAX_ROWS = 30  # of operators and inputs, where --all is not given
_MAX_TEXT = 160  # characters of one metadata entry, likewise


def inspect(
    model: ModelPath,
    tree: Annotated[bool, typer.Option("--tree", help="List the nodes, nested graphs inside their nodes.")] = False,
    show_all: Annotated[bool, typer.Option("--all", help="Show every input, output and operator.")] = False,
    shape: Shapes = None,
    dim: Dims = None,
    steps: Annotated[
        bool, typer.Option("--steps", help="Compile the model and list the steps of which its partitions consist.")
    ] = False,
    provider: ProviderNames = None,
    level: Level = LevelName.ALL,
    threads: Threads = 0,
    config: Config = None,
    ops: Operators = None,
    json: JsonFlag = False,
) -> None:
    """Show a model's inputs, outputs, operators, parameters and memory, or the steps that it is compiled to."""
    from ort_core.cli.console import print_json, working
    from ort_core.cli.models.model_facts import describe_model
    from ort_core.cli.parameters import check_needed
    from ort_core.cli.sessions import SessionRequest, environment_with
    from ort_core.onnx_io.load import load_model

    if not steps:
        check_needed("--steps", {"--provider": provider, "--threads": threads, "--config": config})
    with working(f"Loading {model.name}"):
        loaded = load_model(model)
        report = describe_model(loaded, model)
    if steps:
        request = SessionRequest(provider, level, None, False, threads, ops, config)
        _show_steps(model, loaded, request, _maker(loaded, shape, dim), json)
        return
    with working(f"Loading {model.name}"):
        report["memory"] = _memory(loaded, shape, dim, environment_with(ops or ()))
    if json:
        print_json({**report, "nodes": list(_nodes(loaded.graph))} if tree else report)
        return
    _show(report, None if show_all else _MAX_ROWS)
    if tree:
        _show_tree(loaded)


def _memory(
    model: Model, shapes: list[str] | None, dims: list[str] | None, environment: Environment
) -> dict[str, object]:
    from ort_core.cli.models.model_facts import estimate_memory
    from ort_core.errors import OrtError
    from ort_core.ops.shape_inference import infer_types

    maker = _maker(model, shapes, dims)
    try:
        environment.operators.adopt(model)
        infer_types(model, environment.schemas, environment.inference_rules)
    except OrtError as error:
        return {"not_estimated": str(error)}
    return {"shapes": maker.open_shapes(), **estimate_memory(model, maker.size)}


def _maker(model: Model, shapes: list[str] | None, dims: list[str] | None) -> InputMaker:
    """Return what chooses the sizes that the user leaves open."""
    from ort_core.cli.inputs.random_inputs import InputMaker, dimension_names
    from ort_core.cli.parameters import check_known, parse_shapes, parse_sizes

    given, sizes = parse_shapes(shapes), parse_sizes(dims)
    inputs = model.graph.inputs
    check_known(given, [value.name for value in inputs], "input", "--shape")
    check_known(sizes, dimension_names(inputs), "dimension", "--dim")
    for value in inputs:
        if value.name in given and value.shape is not None:
            names = (getattr(d, "name", None) for d in value.shape)
            sizes |= {name: size for name, size in zip(names, given[value.name]) if name is not None}
    return InputMaker(inputs, {}, sizes)


def _show_steps(path: Path, loaded: Model, request: SessionRequest, maker: InputMaker, json: bool) -> None:
    from ort_core.cli.console import print_json, working
    from ort_core.cli.models.steps import list_steps, plain, show_steps
    from ort_core.ir.dims import SymbolicDim

    dims = {dim for value in loaded.graph.inputs for dim in value.shape or () if isinstance(dim, SymbolicDim)}
    sizes = {dim.name: maker.size(dim, 0) for dim in sorted(dims, key=str) if dim.name is not None}
    with working(f"Compiling {path.name}"):
        partitions = list_steps(path, request, sizes)
    if json:
        print_json({"model": str(path), "sizes": sizes, "partitions": plain(partitions)})
        return
    show_steps(partitions, sizes)


def _nodes(graph: Graph) -> Iterator[dict[str, object]]:
    from ort_core.ir.printer import format_type

    for node in graph:
        yield {
            "name": node.name,
            "operator": node.qualified_name,
            "inputs": ["" if value is None else value.name for value in node.inputs],
            "outputs": [
                None if value is None else {"name": value.name, "type": format_type(value.type)}
                for value in node.outputs
            ],
            "graphs": [{"name": nested.name, "nodes": list(_nodes(nested))} for nested in node.subgraphs()],
        }


def _show(report: Mapping[str, Any], limit: int | None) -> None:  # Any: plain data, as in the JSON document
    from ort_core.cli.console import bytes_text, output_console
    from ort_core.cli.tables import new_table, show_facts, show_table

    console = output_console()
    parameters, memory = report["parameters"], report["memory"]
    counts = ", ".join(f"{count:,} {name}" for name, count in parameters["by_type"].items())
    nested = f", {report['num_nested_graphs']} nested graphs" if report["num_nested_graphs"] else ""
    facts = [
        ("model", f"{report['model']} ({bytes_text(report['file_nbytes'])})"),
        ("graph", f"{report['graph'] or '(no name)'}: {report['num_nodes']} nodes{nested}"),
        ("format", f"IR {report['ir_version']}, opsets {', '.join(f'{d} {v}' for d, v in report['opsets'].items())}"),
        ("producer", report["producer"]),
        ("description", report["description"]),
        ("functions", ", ".join(report["functions"])),
        *((f"metadata {key}", _cut(text, limit)) for key, text in report["metadata"].items()),
        ("parameters", f"{parameters['count']:,} in {bytes_text(parameters['nbytes'])} ({counts or 'none'})"),
        ("memory", _memory_text(memory, parameters["nbytes"])),
    ]
    show_facts(console, [(name, text) for name, text in facts if text])
    console.print()
    for what in ("inputs", "outputs"):
        table = new_table((what[:-1], "type"))
        for entry in report[what][:limit]:
            table.add_row(entry["name"], entry["text"] + (" (has a default)" if entry["has_default"] else ""))
        show_table(console, table)
        _show_rest(console.print, len(report[what]), limit, what)
    table = new_table(("operator", "nodes"), numbers=("nodes",))
    for name, count in list(report["operators"].items())[:limit]:
        table.add_row(name.removeprefix("ai.onnx::"), str(count))
    show_table(console, table)
    _show_rest(console.print, len(report["operators"]), limit, "operators")


def _cut(text: str, limit: int | None) -> str:
    return text if limit is None or len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}… ({len(text):,} characters)"


def _show_rest(write: Any, total: int, limit: int | None, what: str) -> None:  # Any: a console's print
    if limit is not None and total > limit:
        write(f"… and {total - limit} more {what}; --all shows them")


def _memory_text(memory: Mapping[str, Any], weights: int) -> str:  # Any: plain data, as in the JSON document
    from ort_core.cli.console import bytes_text

    if "not_estimated" in memory:
        return f"not estimated: {memory['not_estimated']}"
    shapes = [f"{name} {'x'.join(map(str, sizes))}" for name, sizes in memory["shapes"].items()]
    sizes = ", ".join([*shapes[:4], *(["…"] if len(shapes) > 4 else [])])
    unknown = memory["num_values_of_unknown_size"]
    return (
        f"about {bytes_text(weights + memory['inputs_nbytes'] + memory['peak_values_nbytes'])}: weights "
        f"{bytes_text(weights)}, inputs {bytes_text(memory['inputs_nbytes'])}, values at most "
        f"{bytes_text(memory['peak_values_nbytes'])} (at {memory['peak_at']})"
        + (f", with {sizes}" if sizes else "")
        + (f"; {unknown} values of unknown size left out" if unknown else "")
    )


def _show_tree(model: Model) -> None:
    from rich.text import Text
    from rich.tree import Tree

    from ort_core.cli.console import output_console

    root = Tree(Text(model.graph.name or "graph", style="bold"))
    _grow(root, model.graph)
    for function in model.functions.values():
        branch = root.add(Text(f"function {function.domain}::{function.name}", style="bold"))
        _grow(branch, function.graph)
    output_console().print(root)


def _grow(branch: Tree, graph: Graph) -> None:
    from rich.text import Text

    from ort_core.ir.printer import format_type

    for node in graph:
        outputs = ", ".join("-" if v is None else f"{v.name} {format_type(v.type)}" for v in node.outputs)
        inputs = ", ".join("-" if v is None else v.name for v in node.inputs)
        line = Text(node.qualified_name.removeprefix("ai.onnx::"), style="cyan")
        line.append(f" ({inputs}) → {outputs}", style="default")
        leaf = branch.add(line)
        for attribute in node.attributes.values():
            for nested in attribute.graphs():
                formal = ", ".join(f"{value.name} {format_type(value.type)}" for value in nested.inputs)
                inner = leaf.add(Text(f"{attribute.name} ({formal})", style="bold"))
                _grow(inner, nested)
                inner.add(Text("returns " + ", ".join(value.name for value in nested.outputs), style="dim"))
