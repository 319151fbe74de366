"""``ort batch``: a model over all rows of a file."""

from __future__ import annotations

import shutil
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ort_core.cli.parameters import existing_model

_EXTRAS = {"pyarrow": "parquet", "PIL": "images", "ray": "ray"}


class Engine(StrEnum):
    """Where a job runs."""

    here = "here"
    ray = "ray"


def batch(
    model: Annotated[Path, typer.Argument(metavar="MODEL", callback=existing_model, help="The model.")],
    source: Annotated[
        Path,
        typer.Argument(metavar="INPUT", exists=True, help="Rows: .parquet, .csv, .jsonl, .npz, or a folder of images."),
    ],
    output: Annotated[Path, typer.Argument(metavar="OUTPUT", help="Results: .parquet or .jsonl.")],
    batch_size: Annotated[int, typer.Option(min=1, help="Rows per run, if the model has a batch axis.")] = 32,
    part_rows: Annotated[
        int, typer.Option(min=1, help="Rows per part; an interrupted job continues after the last part.")
    ] = 4096,
    provider: Annotated[
        list[str] | None, typer.Option("--provider", "-p", help="Execution providers in order of preference.")
    ] = None,
    on: Annotated[
        Engine, typer.Option(help="This machine, or a Ray cluster whose nodes see the files under the same paths.")
    ] = Engine.here,
    ray_address: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Address of the cluster; by default RAY_ADDRESS, else a local cluster."),
    ] = None,
    actor_cores: Annotated[int, typer.Option(min=1, help="Cores per Ray actor.")] = 1,
    restart: Annotated[
        bool, typer.Option("--restart", help="Start over and delete the parts of an earlier run.")
    ] = False,
) -> None:
    """Run a model over many rows. Repeat the command to continue a job that was interrupted."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from ort_core import InferenceSession
    from ort_serve.batch.job import run_batch_job
    from ort_serve.batch.on_ray import RayJob, run_ray_job
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
        columns = (TextColumn("rows"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console) as bar:
            task = bar.add_task("rows", total=count_rows(source))
            if on is Engine.ray:
                ray_job = RayJob(
                    model.resolve(), tuple(provider) if provider else None, source.resolve(), output.resolve(), job,
                    batch_size, part_rows, actor_cores,
                )  # fmt: skip
                report = run_ray_job(ray_job, ray_address, lambda rows: bar.update(task, advance=rows))
            else:
                session = InferenceSession(str(model), providers=provider)
                report = run_batch_job(
                    session, source, parts, batch_size, part_rows, lambda rows: bar.update(task, advance=rows)
                )
    except (InvalidRequest, ModuleNotFoundError) as error:
        extra = next((extra for module, extra in _EXTRAS.items() if f"'{module}" in str(error)), "")
        advice = f": `pip install ort-serve[{extra}]`" if extra else ""
        typer.echo(f"ort batch: {error}{advice}", err=True)
        raise typer.Exit(1) from error
    except OSError as error:
        typer.echo(f"ort batch: {error}; what is done is kept, and the same command goes on from there", err=True)
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
