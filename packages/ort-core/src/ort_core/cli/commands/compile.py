"""``ort compile``: the model with its compiled partitions in it, and what was compiled."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ort_core.cli.parameters import Disabled, JsonFlag, Level, LevelName, ModelPath, Operators, ProviderNames, Strict


def compile(  # noqa: A001 - the name of the command
    model: ModelPath,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="OUT.onnx", help="The file to write; by default MODEL_ctx.onnx."),
    ] = None,
    embed: Annotated[
        bool, typer.Option("--embed", help="Keep compiled partitions inside the file, not in files beside it.")
    ] = False,
    external_data: Annotated[
        str | None,
        typer.Option("--external-data", metavar="FILE", help="Keep large weights in this file beside the output."),
    ] = None,
    provider: ProviderNames = None,
    level: Level = LevelName.ALL,
    disable: Disabled = None,
    strict: Strict = False,
    ops: Operators = None,
    json: JsonFlag = False,
) -> None:
    """Compile a model ahead of time, for machines of this kind.

    A session runs the machine code in it only with session.trust_compiled_code=1; it compiles the graph else.
    """
    from ort_core.cli.console import print_json, working
    from ort_core.cli.output_files import check_folder
    from ort_core.cli.parameters import parse_providers
    from ort_core.cli.sessions import SessionRequest, optimization_level
    from ort_core.compiler import ModelCompiler
    from ort_core.session_api.compiled_file import default_path

    target = default_path(str(model)) if output is None else output
    check_folder(target, "--output")
    if target.suffix != ".onnx":
        raise typer.BadParameter(f"{str(target)!r} must end in .onnx", param_hint="--output")
    if target.resolve() == model.resolve():
        raise typer.BadParameter("this would overwrite the model; name another file", param_hint="--output")
    if external_data is not None and Path(external_data).name != external_data:
        raise typer.BadParameter(f"{external_data!r} must be a file name, no path", param_hint="--external-data")
    options = SessionRequest(provider, level, disable, strict, operators=ops).options()
    for name, values in parse_providers(provider) or ():
        options.add_provider(name, values)
    with working(f"Compiling {model.name}"):
        report = ModelCompiler(
            options, model, embed, external_data, graph_optimization_level=optimization_level(level)
        ).compile_to_file(target)
    data = {"model": str(model), "output": str(target), "stored": list(report.stored), "not_stored": report.refused}
    if json:
        print_json({**data, "nbytes": target.stat().st_size})
        return
    _show(target, report.stored, report.refused)


def _show(target: Path, stored: tuple[str, ...], refused: dict[str, str]) -> None:
    from ort_core.cli.console import bytes_text, output_console
    from ort_core.cli.tables import new_table, show_table

    console = output_console()
    table = new_table(("partition", "stored", "reason"))
    for name in stored:
        table.add_row(name, "yes", "")
    for name, reason in refused.items():
        table.add_row(name, "no", reason)
    show_table(console, table)
    console.print(f"written: {target} ({bytes_text(target.stat().st_size)})")
