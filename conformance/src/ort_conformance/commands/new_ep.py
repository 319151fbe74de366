"""``ort new-ep``: write the package of a new execution provider, which passes its own conformance at once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ort_conformance.template.writing import Form, PackageNames, write_package


def new_ep(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Vendor's short name, such as acme: gives the package ort-ep-acme.")
    ],
    form: Annotated[
        Form, typer.Option(help="compiling: whole subgraphs at once; kernels: a function per operator.")
    ] = Form.COMPILING,
    folder: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the package's folder is made.")] = Path(),
) -> None:
    """Write a complete provider package: plugin, provider, capability, compiled partition, options and tests."""
    try:
        names = PackageNames.of(name)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    target = folder / names.distribution
    if target.exists():
        raise typer.BadParameter(f"{target} exists already; nothing was written")
    written = write_package(names, form, target)
    typer.echo(f"{target}: {len(written)} files, the provider {names.provider}")
    typer.echo(
        f"next:  cd {target}  &&  pip install -e .  &&  "
        f"ort conformance --provider {names.provider} --profile tests/test_conformance.py"
    )
