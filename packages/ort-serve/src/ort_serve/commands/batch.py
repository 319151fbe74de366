"""``ort batch``: a model over all rows of a file."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from ort_core.cli.parameters import existing_model


def batch(
    model: Annotated[Path, typer.Argument(metavar="MODEL", callback=existing_model, help="The model.")],
    source: Annotated[
        Path,
        typer.Argument(metavar="INPUT", exists=True, help="Rows: .parquet, .csv, .jsonl, .npz, or a folder of images."),
    ],
    output: Annotated[Path, typer.Argument(metavar="OUTPUT", help="Results: .parquet or .jsonl.")],
    batch_size: Annotated[int, typer.Option(min=1, help="Rows of one run, where the model has a batch axis.")] = 32,
    part_rows: Annotated[int, typer.Option(min=1, help="Rows between two places to be taken up again from.")] = 4096,
    provider: Annotated[
        list[str] | None, typer.Option("--provider", "-p", help="Execution providers, in order.")
    ] = None,
    restart: Annotated[bool, typer.Option("--restart", help="Begin anew, whatever parts an earlier run left.")] = False,
) -> None:
    """Run a model over many rows. A job that was ended goes on where it was when it is given again."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from ort_core import InferenceSession
    from ort_serve.batch.job import run_batch_job
    from ort_serve.batch.parts import Parts
    from ort_serve.batch.rows import count_rows
    from ort_serve.failures import InvalidRequest

    console = Console(stderr=True)
    try:
        job = {
            "model": _stamp(model), "input": _stamp(source), "providers": provider or [], "part_rows": part_rows,
        }  # fmt: skip
        if restart:
            shutil.rmtree(output.with_name(output.name + ".parts"), ignore_errors=True)
        parts = Parts(output, job)
        session = InferenceSession(str(model), providers=provider)
        columns = (TextColumn("rows"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console) as bar:
            task = bar.add_task("rows", total=count_rows(source))
            report = run_batch_job(
                session, source, parts, batch_size, part_rows, lambda rows: bar.update(task, advance=rows)
            )
    except (InvalidRequest, ModuleNotFoundError) as error:
        advice = ": `pip install ort-serve[parquet]`" if "pyarrow" in str(error) else ""
        typer.echo(f"ort batch: {error}{advice}", err=True)
        raise typer.Exit(1) from error
    told = f"{report.rows} rows in {output}"
    if report.skipped:
        told += f" ({report.skipped} of them from before)"
    if report.failures:
        told += f"; {report.failures} failed, see {parts.failures_path}"
    typer.echo(told)


def _stamp(path: Path) -> list[object]:
    found = path.stat()
    return [str(path.resolve()), found.st_size, found.st_mtime_ns]
