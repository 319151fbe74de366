"""``ort export-coreml``: an ONNX model as an ``.mlpackage``, on any system."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

DEFAULT_MAXIMUM = 4096


def export_coreml(
    model: Annotated[Path, typer.Argument(metavar="MODEL", exists=True, dir_okay=False, help="ONNX model.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="OUT.mlpackage", help="Folder that is written.")],
    float16: Annotated[bool, typer.Option("--float16", help="Let Core ML compute in half precision.")] = False,
    target: Annotated[str, typer.Option(help="Oldest system: iOS17 (macOS 14) or iOS18 (macOS 15).")] = "iOS17",
    maximum_size: Annotated[
        int, typer.Option(min=1, help="Largest value of a size that is not fixed.")
    ] = DEFAULT_MAXIMUM,
    sizes: Annotated[str, typer.Option(help="Values of open sizes by name: batch=1..8, sequence=16|64|128.")] = "",
    states: Annotated[
        str, typer.Option(help="Inputs and outputs that the model keeps inside: past=present, h0=hn (iOS18).")
    ] = "",
    force: Annotated[bool, typer.Option("--force", help="Replace a package that is there.")] = False,
) -> None:
    """Write a model as a Core ML package; the whole model must go, else the first node that does not is named."""
    from ort_core import OrtError
    from ort_ep_coreml.export import export_model
    from ort_ep_coreml.options import CoreMlEvaluationOptions

    if output.suffix != ".mlpackage":
        raise typer.BadParameter(f"{str(output)!r} must end in .mlpackage", param_hint="--output")
    if output.exists() and not force:
        raise typer.BadParameter(f"{str(output)!r} exists already; --force replaces it", param_hint="--output")
    try:
        chosen = CoreMlEvaluationOptions(
            Precision="FLOAT16" if float16 else "FLOAT32",
            DeploymentTarget=target,  # type: ignore[arg-type]  # a text of the command line: checked by the session
            MaximumSize=maximum_size,
            OpenSizes=sizes,
            States=states,
            PackagePath=str(output),
        )
        written = export_model(model, chosen)
    except (OrtError, ValueError) as error:
        typer.echo(f"nothing was written: {error}", err=True)
        raise typer.Exit(1) from error
    kept = f"; states {', '.join(written.states)}" if written.states else ""
    typer.echo(f"{output}: inputs {', '.join(written.inputs)}; outputs {', '.join(written.outputs)}{kept}")
    typer.echo("built and read back with coremltools; what Core ML itself computes is only known on a Mac")
