"""Inputs from files: .npy, .npz, .json, .pb, images, and folders laid out as ONNX's test data sets."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import typer

from ort_core.errors import InvalidArgument, did_you_mean
from ort_core.ir.types import DataType, MapType, OptionalType, SequenceType, TensorType, ValueType
from ort_core.ir.values import Value

IMAGES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"})
_HINT = "--input"


def read_inputs(texts: Sequence[str] | None, inputs: Sequence[Value]) -> dict[str, object]:
    """Return values by input name from ``name=file``, ``file`` or ``folder`` arguments.

    Raises:
        typer.BadParameter: a file does not exist, its kind is not known, or no input has that name.
        InvalidArgument: a file does not hold what it should.
    """
    values: dict[str, object] = {}
    for text in texts or ():
        name, path = _split(text, inputs)
        if path.is_dir():
            values.update(_read_folder(path, inputs))
        elif path.suffix.lower() in (".npz", ".json") and name is None:
            values.update(_read_many(path, inputs))
        else:
            target = _by_name(name, inputs) if name is not None else _next_free(path, inputs, values)
            values[target.name] = read_value_file(path, target)
    return values


def read_value_file(path: Path, target: Value) -> object:
    """Return the value that a file holds for one input."""
    suffix = path.suffix.lower()
    if suffix == ".npy":
        return _fitted(_load_numpy(path), target.type)
    if suffix == ".npz":
        found = _load_archive(path)
        if target.name not in found and len(found) != 1:
            raise InvalidArgument(f"{str(path)!r} has no array {target.name!r}; it has {', '.join(found)}")
        return _fitted(found.get(target.name, next(iter(found.values()))), target.type)
    if suffix == ".json":
        data = _load_json(path)
        inner = data[target.name] if isinstance(data, dict) and target.name in data else data
        return from_plain(inner, target.type, target.name)
    if suffix == ".pb":
        from ort_core.onnx_io.value_file import read_value  # onnx is only loaded for protobuf files

        return read_value(path.read_bytes(), target.type)[1]
    if suffix in IMAGES:
        from ort_core.cli.inputs.image_files import read_image

        return read_image(path, target)
    raise typer.BadParameter(
        f"{str(path)!r}: the ending {path.suffix!r} is not known; use .npy, .npz, .json, .pb or an image",
        param_hint=_HINT,
    )


def from_plain(data: object, declared: ValueType | None, name: str) -> object:
    """Return the run-time value that JSON data stands for, by the input's type."""
    if isinstance(declared, OptionalType):
        return None if data is None else from_plain(data, declared.element, name)
    if isinstance(declared, SequenceType) and isinstance(data, list):
        return [from_plain(item, declared.element, name) for item in data]
    if isinstance(declared, MapType) and isinstance(data, dict):
        keys = {key: key if declared.key is DataType.STRING else int(key) for key in data}
        return {keys[key]: value for key, value in data.items()}
    if not isinstance(declared, TensorType):
        return data
    try:
        return np.array(data, dtype=declared.dtype.numpy)
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidArgument(f"the JSON for input {name!r} is no {declared}: {error}") from error


def _split(text: str, inputs: Sequence[Value]) -> tuple[str | None, Path]:
    if Path(text).exists():
        return None, Path(text)
    name, found, file = text.partition("=")
    if not found:
        names = ", ".join(value.name for value in inputs)
        raise typer.BadParameter(
            f"there is no file {text!r}; write FILE or NAME=FILE, with one of the names {names}", param_hint=_HINT
        )
    _by_name(name, inputs)
    path = Path(file)
    if not path.exists():
        near = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
        raise typer.BadParameter(
            f"there is no file {file!r} for input {name!r}.{did_you_mean(path.name, near)}", param_hint=_HINT
        )
    return name, path


def _by_name(name: str, inputs: Sequence[Value]) -> Value:
    names = [value.name for value in inputs]
    if name in names:
        return inputs[names.index(name)]
    raise typer.BadParameter(
        f"the model has no input {name!r}.{did_you_mean(name, names)} Its inputs: {', '.join(names)}.", param_hint=_HINT
    )


def _next_free(path: Path, inputs: Sequence[Value], values: dict[str, object]) -> Value:
    free = [value for value in inputs if value.name not in values]
    by_stem = [value for value in free if value.name == path.stem]
    required = [value for value in free if value.constant is None]
    if by_stem or len(required) == 1 or len(free) == 1:
        return (by_stem or required or free)[0]
    names = ", ".join(value.name for value in free)
    raise typer.BadParameter(
        f"say which input {str(path)!r} is for: NAME={path}, NAME one of {names}", param_hint=_HINT
    )


def _read_many(path: Path, inputs: Sequence[Value]) -> dict[str, object]:
    found: object = _load_archive(path) if path.suffix.lower() == ".npz" else _load_json(path)
    names = {value.name for value in inputs}
    if isinstance(found, dict) and found and set(map(str, found)) <= names:
        by_name = {value.name: value for value in inputs}
        return {name: _from_entry(item, by_name[name]) for name, item in found.items()}
    is_unnamed = list(found) == ["arr_0"] if isinstance(found, dict) else False  # numpy's name where none was given
    if isinstance(found, dict) and path.suffix.lower() == ".npz" and (not is_unnamed or len(inputs) != 1):
        wrong = next(name for name in found if name not in names)
        _by_name(str(wrong), inputs)
    target = _next_free(path, inputs, {})
    return {target.name: read_value_file(path, target)}


def _from_entry(item: object, target: Value) -> object:
    if isinstance(item, np.ndarray):
        return _fitted(item, target.type)
    return from_plain(item, target.type, target.name)


def _read_folder(folder: Path, inputs: Sequence[Value]) -> dict[str, object]:
    values: dict[str, object] = {}
    for index, target in enumerate(inputs):
        path = folder / f"input_{index}.pb"
        if path.is_file():
            from ort_core.onnx_io.value_file import read_value  # onnx is only loaded for protobuf files

            name, value = read_value(path.read_bytes(), target.type)
            values[name if any(name == other.name for other in inputs) else target.name] = value
    if not values:
        raise typer.BadParameter(f"the folder {str(folder)!r} has no input_0.pb", param_hint=_HINT)
    return values


def _load_numpy(path: Path) -> np.ndarray:
    try:
        return np.load(path, allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise InvalidArgument(f"{str(path)!r} is no .npy file that can be read: {error}") from error


def _load_archive(path: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, AttributeError) as error:
        raise InvalidArgument(f"{str(path)!r} is no .npz file that can be read: {error}") from error
    if not arrays:
        raise InvalidArgument(f"{str(path)!r} has no arrays")
    return arrays


def _load_json(path: Path) -> object:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InvalidArgument(f"{str(path)!r} is not JSON: {error}") from error


def _fitted(array: np.ndarray, declared: ValueType | None) -> object:
    """Give an array the bits of types that .npy does not know (bfloat16 and narrower), and strings their objects."""
    if not isinstance(declared, TensorType):
        return array
    wanted = declared.dtype.numpy
    if declared.dtype is DataType.STRING and array.dtype.kind in "USO":
        return array.astype(object)
    if array.dtype.kind == "V" and array.dtype.itemsize == wanted.itemsize:
        return array.view(wanted)
    return array
