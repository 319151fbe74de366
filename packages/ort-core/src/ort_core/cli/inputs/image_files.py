"""An image file as the input of a model: resized to its height and width, scaled to 0..1 for float inputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ort_core.cli.console import note
from ort_core.errors import InvalidArgument
from ort_core.ir.types import DataType, TensorType
from ort_core.ir.values import Value

_CHANNELS = (1, 3, 4)
_MODES = {1: "L", 3: "RGB", 4: "RGBA"}


def read_image(path: Path, target: Value) -> np.ndarray:
    """Return the image in the layout of an input of rank 3 or 4: channels first or last, with a batch of 1.

    Float inputs get values from 0 to 1, uint8 inputs 0 to 255; a model that wants another normalization needs a
    prepared .npy file.

    Raises:
        InvalidArgument: pillow is missing, the file is no image, or the input cannot hold one.
    """
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError as error:
        raise InvalidArgument(
            f"{str(path)!r} is an image, and reading images needs pillow: pip install pillow. Or give a .npy file."
        ) from error
    channels, is_last, height, width, rank, dtype = _layout(target)
    try:
        with Image.open(path) as opened:
            image = opened.convert(_MODES[channels])
    except (UnidentifiedImageError, OSError) as error:
        raise InvalidArgument(f"{str(path)!r} cannot be read as an image: {error}") from error
    wanted = (width or image.width, height or image.height)
    if wanted != image.size:
        note(f"note: {path.name} is resized from {image.width}x{image.height} to {wanted[0]}x{wanted[1]}")
        image = image.resize(wanted)
    array = np.asarray(image).reshape(image.height, image.width, channels)
    if not is_last:
        array = array.transpose(2, 0, 1)
    if rank == 4:
        array = array[None]
    scaled = array / 255 if dtype.is_float else array
    return np.ascontiguousarray(scaled.astype(dtype.numpy))


def _layout(target: Value) -> tuple[int, bool, int | None, int | None, int, DataType]:
    declared = target.type
    shape = declared.shape if isinstance(declared, TensorType) else None
    if not isinstance(declared, TensorType) or shape is None or len(shape) not in (3, 4):
        raise InvalidArgument(
            f"input {target.name!r} ({declared}) is not a tensor of rank 3 or 4, so it takes no image"
        )
    if not (declared.dtype.is_float or declared.dtype is DataType.UINT8):
        raise InvalidArgument(f"input {target.name!r} is {declared}; an image becomes float or uint8")
    first, second, third = shape[-3:]
    is_last = third in _CHANNELS and first not in _CHANNELS
    channels = third if is_last else first
    height, width = (first, second) if is_last else (second, third)
    return (
        channels if isinstance(channels, int) and channels in _CHANNELS else 3,
        is_last,
        height if isinstance(height, int) else None,
        width if isinstance(width, int) else None,
        len(shape),
        declared.dtype,
    )
