"""The steps of a model as its providers compiled them, for ``ort inspect --steps``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from ort_core import stages
from ort_core.cli.console import output_console
from ort_core.cli.parameters import parse_providers
from ort_core.cli.sessions import SessionRequest
from ort_core.onnx_io.load import load_model

Listing = dict[str, Any]  # Any: names of a partition and its provider, and a list of StepFacts


def list_steps(path: Path, request: SessionRequest, sizes: Mapping[str, int]) -> list[Listing]:
    """Return what partitions tell of their steps.

    Raises:
        OrtError: no session of the model is possible.
    """
    providers = parse_providers(request.providers)
    prepared = stages.prepare(
        load_model(path), request.options(), request.environment(), providers, folder=path.parent, takes_defaults=True
    )
    assert prepared.partitioned is not None
    found = [
        {"partition": part.name, "provider": part.provider.name, "steps": step.compiled.steps(sizes)}
        for part, step in stages.compiled_partitions(prepared.partitioned, prepared.plan)
    ]
    prepared.plan.close()
    return found


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
                _print(console, f"body {' / '.join(path)}")
            for line in step.lines():
                _print(console, f"  {line}")


def _print(console: Console, line: str) -> None:
    console.print(line, soft_wrap=True, markup=False, highlight=False)
