"""A row's columns as a model's inputs, each of one row.

A column named as an input holds it: a number, a list, nested lists, or one flat list of all elements. Columns ``x[0]``,
``x[1]``, … are the elements of input ``x``. Where nothing is named so, a model of one input takes all columns in
their order. An image is resized to the input's height and width, as RGB or grey, from 0 to 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ort_serve.batch.rows import UNREADABLE, Row
from ort_serve.failures import InvalidRequest
from ort_serve.protocol.json_data import array_from_json
from ort_serve.repository.signature import ModelSignature, TensorSignature


def inputs_of_row(row: Row, signature: ModelSignature) -> dict[str, np.ndarray]:
    """Return the tensors of one row, with a batch axis of 1 where the model has one.

    Raises:
        InvalidRequest: the row does not fit the model; the message names the input.
    """
    if UNREADABLE in row:
        raise InvalidRequest(str(row[UNREADABLE]))
    if "file" in row and isinstance(row["file"], Path):
        image = next((tensor for tensor in signature.inputs if len(tensor.shape) in (3, 4)), None)
        if image is None or len(signature.inputs) != 1:
            raise InvalidRequest("a folder of images needs a model of one input of rank 3 or 4")
        return {image.name: _image(row["file"], image)}
    return {
        tensor.name: _tensor(tensor, _value(row, tensor, signature), signature.has_batch) for tensor in signature.inputs
    }


def _value(row: Row, tensor: TensorSignature, signature: ModelSignature) -> Any:
    if tensor.name in row:
        return row[tensor.name]
    parts = [row[name] for name in _numbered(row, tensor.name)]
    if parts:
        return parts
    if len(signature.inputs) == 1 and row:
        return row["*"] if "*" in row else list(row.values())
    raise InvalidRequest(f"no column is input {tensor.name!r}; columns are {', '.join(map(repr, row))}")


def _numbered(row: Row, name: str) -> list[str]:
    found = [column for column in row if column is not None and column.startswith(f"{name}[") and column.endswith("]")]
    return sorted(
        found,
        key=lambda column: [int(part) if part.isdecimal() else 0 for part in column[len(name) + 1 : -1].split(",")],
    )


def _tensor(tensor: TensorSignature, value: Any, has_batch: bool) -> np.ndarray:
    sizes = tensor.shape[1:] if has_batch else tensor.shape
    if isinstance(value, np.ndarray):
        array = value.astype(tensor.datatype.dtype, copy=False)
    else:
        data = value if isinstance(value, list) else [value]
        data = [_number(item) for item in data] if not tensor.datatype.is_text else data
        nested = _shape_of(data)
        array = array_from_json(tensor.name, tensor.datatype, nested, data)
    fixed = [size for size in sizes if isinstance(size, int)]
    if array.ndim != len(sizes) and len(fixed) >= len(sizes) - 1:  # one flat list of all elements
        shape = [size if isinstance(size, int) else -1 for size in sizes]
        try:
            array = array.reshape(shape)
        except ValueError as error:
            raise InvalidRequest(f"input {tensor.name!r}: {array.size} elements do not make shape {shape}") from error
    return array[None] if has_batch else array


def _number(item: Any) -> Any:
    """Read what CSV and the like hold as text."""
    if not isinstance(item, str):
        return item
    try:
        return int(item)
    except ValueError:
        try:
            return float(item)
        except ValueError as error:
            raise InvalidRequest(f"{item!r} is not a number") from error


def _shape_of(data: Any) -> tuple[int, ...]:
    shape: list[int] = []
    while isinstance(data, list):
        shape.append(len(data))
        if not data or len(shape) > 64:
            break
        data = data[0]
    return tuple(shape)


def _image(path: Path, tensor: TensorSignature) -> np.ndarray:
    from PIL import Image, UnidentifiedImageError

    sizes = tensor.shape[-3:]
    is_first = sizes[0] in (1, 3) or sizes[2] not in (1, 3)  # channels before rows, as torch has it
    channels, height, width = (sizes[0], sizes[1], sizes[2]) if is_first else (sizes[2], sizes[0], sizes[1])
    try:
        with Image.open(path) as opened:
            image = opened.convert("L" if channels == 1 else "RGB")
    except (UnidentifiedImageError, OSError) as error:
        raise InvalidRequest(f"{path.name} is not an image that can be read: {error}") from error
    if isinstance(height, int) and isinstance(width, int):
        image = image.resize((width, height))
    pixels = np.asarray(image, np.float32)
    pixels = pixels[..., None] if pixels.ndim == 2 else pixels
    pixels = pixels.transpose(2, 0, 1) if is_first else pixels
    scaled = pixels if tensor.datatype.dtype.kind in "iu" else pixels / 255.0
    scaled = scaled.astype(tensor.datatype.dtype)
    return scaled[None] if len(tensor.shape) == 4 else scaled


def stacked(rows: Sequence[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Return rows of equal shapes as one batch."""
    return {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}
