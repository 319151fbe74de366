"""``ort extract``: a part of a model with its recorded inputs, small enough for a bug report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ort_core.cli.parameters import (
    Dims,
    Inputs,
    JsonFlag,
    LevelName,
    ModelPath,
    Operators,
    ProviderNames,
    Seed,
    Shapes,
)


def extract(
    model: ModelPath,
    output: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where model.onnx and test_data_set_0 are written.")],
    node: Annotated[
        list[str] | None,
        typer.Option("--node", metavar="NAME", help="A node, by its name or one of its outputs; repeatable."),
    ] = None,
    partition: Annotated[
        str | None, typer.Option("--partition", metavar="NAME", help="A partition, as `ort explain` names it.")
    ] = None,
    start: Annotated[
        list[str] | None, typer.Option("--from", metavar="VALUE", help="Begin behind these values; repeatable.")
    ] = None,
    end: Annotated[
        list[str] | None, typer.Option("--to", metavar="VALUE", help="End with these values; repeatable.")
    ] = None,
    level: Annotated[
        LevelName, typer.Option("--level", "-O", help="Optimize first, up to this level.")
    ] = LevelName.DISABLE,
    provider: ProviderNames = None,
    ops: Operators = None,
    force: Annotated[bool, typer.Option("--force", help="Write into a folder that exists already.")] = False,
    inputs: Inputs = None,
    shape: Shapes = None,
    dim: Dims = None,
    seed: Seed = 0,
    json: JsonFlag = False,
) -> None:
    """Cut a node, a partition or a range out of a model, with its inputs and the reference's outputs."""
    from ort_core.cli.comparing.extraction import WRITTEN, Cut, extract_part
    from ort_core.cli.console import bytes_text, count_text, print_json, working
    from ort_core.cli.inputs.feeds import InputRequest
    from ort_core.cli.outputs.output_files import check_not_read
    from ort_core.cli.sessions import SessionRequest

    if sum(1 for way in (node, partition, start or end) if way) != 1:
        raise typer.BadParameter("say what to extract: --node NAME, --partition NAME, or --from VALUE and --to VALUE")
    if output.exists() and not force and (not output.is_dir() or any(output.iterdir())):
        raise typer.BadParameter(f"{str(output)!r} exists already; --force writes into it", param_hint="FOLDER")
    for name in WRITTEN:
        check_not_read(output / name, "FOLDER", model)
    cut = Cut(tuple(node or ()), partition, tuple(start or ()), tuple(end or ()))
    with working(f"Extracting from {model.name}"):
        report = extract_part(
            model, output, cut, SessionRequest(provider, level, operators=ops), InputRequest(inputs, shape, dim, seed)
        )
    if json:
        print_json(report.as_dict())
        return
    typer.echo(f"{count_text(report.num_nodes, 'node')} ({report.operators}) written to {report.folder}")
    for file, what in report.files.items():
        typer.echo(f"  {file}: {what}")
    typer.echo(f"{bytes_text(report.nbytes)} in all; try: ort run {report.folder}")
