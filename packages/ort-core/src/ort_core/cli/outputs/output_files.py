"""Outputs of a run in files: .npz for arrays, .json for everything."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path

import typer

from ort_core.errors import Fail
from ort_core.whole_files import written_whole

ENDINGS = (".npz", ".json")


def check_output(path: Path | None, model: Path) -> None:
    """Refuse a path that could not be written, or holds the model, before the work is done."""
    if path is None:
        return
    if path.suffix not in ENDINGS:
        raise typer.BadParameter(f"{str(path)!r} must end in {' or '.join(ENDINGS)}", param_hint="--output")
    check_folder(path, "--output", model)


def check_folder(path: Path, hint: str, model: Path | None) -> None:
    """Refuse a path that is a folder, whose folder does not exist or takes no file, or that holds the model."""
    if not path.parent.is_dir():
        raise typer.BadParameter(f"the folder {str(path.parent)!r} does not exist", param_hint=hint)
    if path.is_dir():
        raise typer.BadParameter(f"{str(path)!r} is a folder; name a file", param_hint=hint)
    if not os.access(path.parent, os.W_OK):
        raise typer.BadParameter(f"the folder {str(path.parent)!r} cannot be written to", param_hint=hint)
    if model is not None:
        check_not_read(path, hint, model)


def check_not_read(path: Path, hint: str, model: Path) -> None:
    """Refuse a path that is the model's own file, or one that its weights lie in."""
    if not path.exists() or not model.is_file():
        return
    if path.samefile(model):
        raise typer.BadParameter("this would overwrite the model; name another file", param_hint=hint)
    from ort_core.onnx_io.data_files import data_files

    if path.resolve() in data_files(model):
        text = f"{path.name!r} holds weights of {str(model)!r} and cannot be written; name another file"
        raise typer.BadParameter(text, param_hint=hint)


def save_outputs(path: Path, outputs: Mapping[str, object]) -> None:
    """Write outputs by name, over what was there once they are whole.

    Element types that numpy's files lack are kept as their bits.
    """
    with written_whole(path) as partial:
        _write_outputs(partial, outputs, is_text=path.suffix == ".json")


def _write_outputs(path: Path, outputs: Mapping[str, object], *, is_text: bool) -> None:
    if is_text:
        from ort_core.cli.console import plain

        text = json.dumps(plain({name: _plain_value(value) for name, value in outputs.items()}))
        path.write_text(text, encoding="utf-8")
        return
    import numpy as np

    arrays = {}
    for name, value in outputs.items():
        if not isinstance(value, np.ndarray):
            raise Fail(f"output {name!r} is a {type(value).__name__}, which .npz cannot hold; use --output FILE.json")
        arrays[name] = value.astype(str) if value.dtype == object else value
    with zipfile.ZipFile(
        path, "w"
    ) as archive:  # numpy.savez takes names as keywords, and an output may be called "file"
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.ascontiguousarray(array).reshape(array.shape), allow_pickle=False)


def _plain_value(value: object) -> object:
    import numpy as np

    if isinstance(value, np.ndarray):
        return (value.astype(np.float64) if value.dtype.kind == "V" else value).tolist()
    if isinstance(value, Mapping):
        return {key: _plain_value(item) for key, item in value.items()}
    return [_plain_value(item) for item in value] if isinstance(value, list) else value
