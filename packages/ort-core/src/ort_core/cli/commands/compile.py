"""``ort compile``: the model with its compiled partitions in it, and what was compiled."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ort_core.cli.parameters import Disabled, JsonFlag, Level, LevelName, ModelPath, Operators, ProviderNames, Strict
from ort_core.whole_files import replace_text

if TYPE_CHECKING:
    from ort_core.cli.sessions import SessionRequest


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
    emit: Annotated[
        str | None,
        typer.Option(
            "--emit",
            metavar="FORM",
            help="Write generated code and no model: llvm, llvm-optimized or asm of the CPU provider; to --output, or "
            "to stdout.",
        ),
    ] = None,
    kernel: Annotated[
        str | None,
        typer.Option("--kernel", metavar="NAME", help="With --emit: one kernel only, by its name or its beginning."),
    ] = None,
    provider: ProviderNames = None,
    level: Level = LevelName.ALL,
    disable: Disabled = None,
    strict: Strict = False,
    ops: Operators = None,
    json: JsonFlag = False,
) -> None:
    """Compile a model ahead of time, for machines of this kind, or write its code.

    A session runs the machine code in it only with session.trust_compiled_code=1; it compiles the graph else.
    """
    from ort_core.cli.console import print_json, working
    from ort_core.cli.outputs.output_files import check_folder
    from ort_core.cli.parameters import check_needed, parse_providers
    from ort_core.cli.sessions import SessionRequest, optimization_level
    from ort_core.compiler import ModelCompiler
    from ort_core.session_api.compiled_file import default_path

    request = SessionRequest(provider, level, disable, strict, operators=ops)
    if emit is not None:
        _emit(model, request, output, (emit, kernel), json)
        return
    check_needed("--emit", {"--kernel": kernel})
    target = default_path(str(model)) if output is None else output
    check_folder(target, "--output", model)
    if target.suffix != ".onnx":
        raise typer.BadParameter(f"{str(target)!r} must end in .onnx", param_hint="--output")
    if external_data is not None and Path(external_data).name != external_data:
        raise typer.BadParameter(f"{external_data!r} must be a file name, no path", param_hint="--external-data")
    check_folder(target.with_name(external_data or f"{target.name}.data"), "--external-data", model)
    options = request.options()
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


def _emit(
    model: Path, request: SessionRequest, output: Path | None, wanted: tuple[str, str | None], json: bool
) -> None:
    from ort_core.cli.console import count_text, note, print_json, working
    from ort_core.cli.models.steps import list_code
    from ort_core.cli.outputs.output_files import check_folder

    form, kernel = wanted
    if output is not None:
        check_folder(output, "--output", model)
    with working(f"Compiling {model.name}"):
        partitions = list_code(model, request, form, kernel)
    kernels = {name: text for each in partitions for name, text in each["kernels"].items()}
    if not kernels:
        reasons = "; ".join(
            f"{each['partition']}: {each['refused'] or 'no such kernel; `ort inspect --steps` names them'}"
            for each in partitions
        )
        raise typer.BadParameter(f"there is no code to show: {reasons}", param_hint="--emit")
    for each in partitions:
        if each["refused"]:
            note(f"note: {each['partition']} on {each['provider']} shows no code: {each['refused']}")
    text = "\n".join(f"; kernel {name}\n{code}" for name, code in kernels.items())
    if output is not None:
        replace_text(output, text)
    if json:
        print_json({"model": str(model), "form": form, "output": output and str(output), "partitions": partitions})
    elif output is None:
        typer.echo(text)
    else:
        note(f"{count_text(len(kernels), 'kernel')} written to {output}")


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
