"""The steps of a model as its providers compiled them, and their code, for ``ort inspect`` and ``ort compile``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from ort_core import stages
from ort_core.cli.console import output_console
from ort_core.cli.parameters import parse_providers
from ort_core.cli.sessions import SessionRequest
from ort_core.environment import default_environment
from ort_core.ir.rejection import Rejection
from ort_core.onnx_io.load import load_model
from ort_core.partitioning.partition import Partition
from ort_core.runtime.plan import PartitionStep

Code = dict[str, Any]  # Any: names of a partition and its provider, texts by kernel, and why there are none
Listing = dict[str, Any]  # Any: names of a partition and its provider, and a list of StepFacts


def list_steps(path: Path, request: SessionRequest, sizes: Mapping[str, int]) -> list[Listing]:
    """Return what partitions tell of their steps.

    Raises:
        OrtError: no session of the model is possible.
    """
    with _compiled(path, request) as partitions:
        return [
            {"partition": part.name, "provider": part.provider.name, "steps": step.compiled.steps(sizes)}
            for part, step in partitions
        ]


def list_code(path: Path, request: SessionRequest, form: str, kernel: str | None) -> list[Code]:
    """Return what partitions show of their code in a form: of one kernel, or of all.

    Raises:
        OrtError: no session of the model is possible.
    """
    with _compiled(path, request) as partitions:
        found = [(part, step.compiled.code(form, kernel)) for part, step in partitions]
    return [
        {
            "partition": part.name, "provider": part.provider.name,
            "kernels": {} if isinstance(code, Rejection) else dict(code),
            "refused": code.reason if isinstance(code, Rejection) else None,
        }
        for part, code in found
    ]  # fmt: skip


@contextmanager
def _compiled(path: Path, request: SessionRequest) -> Iterator[list[tuple[Partition, PartitionStep]]]:
    prepared = stages.prepare(
        load_model(path), request.options(), default_environment(), parse_providers(request.providers),
        folder=path.parent, takes_defaults=True,
    )  # fmt: skip
    assert prepared.partitioned is not None
    yield list(stages.compiled_partitions(prepared.partitioned, prepared.plan))
    prepared.plan.close()


def plain(partitions: Sequence[Listing]) -> list[Listing]:
    """Return the listing as plain data for JSON."""
    return [{**each, "steps": [asdict(step) for step in each["steps"]]} for each in partitions]


def show_steps(partitions: Sequence[Listing], sizes: Mapping[str, int]) -> None:
    """Print the steps of every partition, those of bodies under their path."""
    console = output_console()
    with_sizes = f" with {', '.join(f'{name} = {size}' for name, size in sizes.items())}" if sizes else ""
    for each in partitions:
        told = "" if each["steps"] else ", which tells of no steps"
        _print(console, f"{each['partition']} on {each['provider']}{told}{with_sizes if each['steps'] else ''}")
        path: tuple[str, ...] = ()
        for step in each["steps"]:
            if step.path != path:
                path = step.path
                inside = (each.rpartition(".") for each in reversed(path))
                _print(console, " in ".join(f"{attribute} of {value}" for value, _, attribute in inside))
            for line in step.lines():
                _print(console, f"  {line}")


def _print(console: Console, line: str) -> None:
    console.print(line, soft_wrap=True, markup=False, highlight=False)
