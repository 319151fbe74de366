"""``ort optimize``: the optimized model as a file, and what each pass did."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ort_core.cli.parameters import (
    Dims,
    Disabled,
    Inputs,
    JsonFlag,
    Level,
    LevelName,
    Operators,
    Seed,
    Shapes,
    existing_model,
)

if TYPE_CHECKING:
    from ort_core.cli.models.optimization import OptimizationReport
    from ort_core.environment import Environment
    from ort_core.ir.model import Model
    from ort_core.passes.equivalence import EquivalenceCheck


def optimize(
    model: Annotated[
        Path | None,
        typer.Argument(metavar="MODEL", help="An .onnx file, or a folder with one.", callback=existing_model),
    ] = None,
    output: Annotated[
        Path | None, typer.Argument(metavar="OUTPUT", help="The file to write; without it nothing is written.")
    ] = None,
    level: Level = LevelName.ALL,
    disable: Disabled = None,
    enable: Annotated[
        list[str] | None,
        typer.Option("--enable", metavar="PASS", help="Run a pass that is off by default; repeatable."),
    ] = None,
    extra: Annotated[
        list[str] | None,
        typer.Option("--pass", metavar="PACKAGE.MODULE:CLASS", help="Run a pass of your own as well; repeatable."),
    ] = None,
    ops: Operators = None,
    check: Annotated[
        bool, typer.Option("--check", help="Evaluate the model before and after each pass, and compare.")
    ] = False,
    allow: Annotated[
        float,
        typer.Option(
            "--allow",
            metavar="SHARE",
            min=0.0,
            max=1.0,
            help="With --check: let outputs be off by this share of their largest value, too; many layers multiply "
            "what a pass rounds otherwise.",
        ),
    ] = 0.0,
    external_data: Annotated[
        str | None,
        typer.Option("--external-data", metavar="FILE", help="Keep large weights in this file beside the output."),
    ] = None,
    dump: Annotated[
        Path | None,
        typer.Option("--dump", metavar="DIR", help="Write the graph behind each pass that changed it as text."),
    ] = None,
    stop_after: Annotated[
        int | None,
        typer.Option("--stop-after", metavar="N", min=0, help="Run the first N passes only, as --dump numbers them."),
    ] = None,
    list_passes: Annotated[bool, typer.Option("--list", help="List the passes of each level and stop.")] = False,
    explain_fusions: Annotated[
        bool, typer.Option("--explain-fusions", help="Show which rewrites nearly fired, and why they did not.")
    ] = False,
    show_all: Annotated[bool, typer.Option("--all", help="Show passes that changed nothing, too.")] = False,
    inputs: Inputs = None,
    shape: Shapes = None,
    dim: Dims = None,
    seed: Seed = 0,
    json: JsonFlag = False,
) -> None:
    """Optimize a model and show what each pass did."""
    from ort_core.cli.console import print_json, working
    from ort_core.cli.inputs.feeds import InputRequest
    from ort_core.cli.models.optimization import build_pipelines, load_passes, optimize_model
    from ort_core.cli.outputs.output_files import check_folder
    from ort_core.cli.parameters import check_needed
    from ort_core.cli.sessions import environment_with
    from ort_core.onnx_io.load import load_model

    if output is not None:
        check_folder(output, "OUTPUT", model)
    else:
        check_needed("OUTPUT", {"--external-data": external_data})
    if not check:
        made = {"--input": inputs, "--shape": shape, "--dim": dim, "--seed": seed}
        check_needed("--check", {"--allow": allow, **made})
    if dump is not None:
        _check_dump(dump)
    environment = environment_with(ops or ())
    pipelines = build_pipelines(level, disable or (), enable or (), load_passes(extra or ()))
    if list_passes:
        _show_passes(pipelines, json)
        return
    if model is None:
        raise typer.BadParameter("give the model to optimize, or --list", param_hint="MODEL")
    with working(f"Optimizing {model.name}"):
        loaded = load_model(model)
        request = InputRequest(inputs, shape, dim, seed)
        equivalence = _equivalence(loaded, request, environment, allow) if check else None
        report = optimize_model(
            loaded,
            pipelines,
            equivalence,
            environment,
            explains_fusions=explain_fusions,
            folder=dump,
            stop_after=stop_after,
        )
        written = None if output is None else _write(loaded, model, output, external_data)
    data = {
        "model": str(model), "level": level.value, "checked": check, **report.as_dict(), "output": written,
        "dump": None if dump is None else str(dump),
    }  # fmt: skip
    if json:
        print_json(data)
    else:
        _show(report, data, show_all)


def _check_dump(folder: Path) -> None:
    """Make the folder, or refuse one that has other files in it: those of two runs would be told apart by nobody."""
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise typer.BadParameter(f"{str(folder)!r} is not empty; name a new folder", param_hint="--dump")


def _equivalence(
    model: Model,
    request: Any,  # Any: an InputRequest, imported late
    environment: Environment,
    share_of_largest: float,
) -> EquivalenceCheck:
    from ort_core.cli.inputs.feeds import run_with_feeds
    from ort_core.passes.equivalence import EquivalenceCheck
    from ort_core.stages import evaluate_by_reference
    from ort_core.tolerances import tolerance

    limits = tolerance("approximate", "float32")
    feeds, _ = run_with_feeds(model, request, lambda f: evaluate_by_reference(model, f.values, None, environment))
    return EquivalenceCheck(
        lambda changed, _: evaluate_by_reference(changed, feeds.values, None, environment),
        limits.relative,
        limits.absolute,
        share_of_largest=share_of_largest,
    )


def _write(model: Model, source: Path, output: Path, external: str | None) -> dict[str, object]:
    from ort_core.cli.models.optimization import external_file_name
    from ort_core.onnx_io.save import save_model

    name = external_file_name(model, source, output, external)
    save_model(model, output, external_file=name)
    files = [output, *([output.parent / name] if name else [])]
    return {"files": [str(file) for file in files], "nbytes": sum(file.stat().st_size for file in files)}


def _show_passes(pipelines: Any, json: bool) -> None:  # Any: as in optimization.Pipelines, imported late
    from ort_core.cli.console import output_console, print_json
    from ort_core.cli.tables import new_table, show_table

    rows = [
        {"name": each.name, "level": level.name.lower(), "opt_in": each.is_opt_in,
         "rules": [rule.name for rule in getattr(each, "rules", ())]}
        for level, passes in pipelines for each in passes
    ]  # fmt: skip
    if json:
        print_json({"passes": rows})
        return
    table = new_table(("pass", "level", "rules"))
    for row in rows:
        rules = row["rules"]
        assert isinstance(rules, list)
        table.add_row(str(row["name"]), str(row["level"]), ", ".join(rules))
    show_table(output_console(), table)


def _show(report: OptimizationReport, data: dict[str, Any], show_all: bool) -> None:  # Any: plain data
    from ort_core.cli.console import bytes_text, count_text, output_console, time_text
    from ort_core.cli.tables import new_table, show_table

    console = output_console()
    shown = [row for row in report.rows if show_all or row.num_rewrites]
    if shown:
        table = new_table(("pass", "level", "changes", "nodes", "time"), numbers=("changes", "nodes", "time"))
        for row in shown:
            nodes = f"{row.node_change:+}" if row.node_change else ""
            table.add_row(row.name, row.level, str(row.num_rewrites), nodes, time_text(row.duration_ns))
        show_table(console, table)
    else:
        console.print("no pass changed anything")
    checked = ", each checked on the same inputs" if data["checked"] else ""
    lifted = count_text(report.num_constants, "Constant node")
    constants = f" ({lifted} became initializers)" if report.num_constants else ""
    console.print(
        f"{report.nodes_before} → {report.nodes_after} nodes{constants} by "
        f"{count_text(sum(row.num_rewrites for row in report.rows), 'change')} "
        f"in {time_text(report.duration_ns)} ({len(report.rows)} passes{checked})"
    )
    if data["dump"] is not None:
        files = count_text(len(report.dumped), "graph")
        console.print(f"{files} written to {data['dump']}, behind {count_text(report.num_passes, 'run')} of passes")
    if report.near_misses is not None:
        from ort_core.cli.models.near_misses import show_near_misses

        show_near_misses(report.near_misses)
    if data["output"] is not None:
        console.print(f"written: {', '.join(data['output']['files'])} ({bytes_text(data['output']['nbytes'])})")
