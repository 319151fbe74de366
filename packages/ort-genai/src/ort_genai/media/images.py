"""Images, opened from files or bytes by Pillow."""

from __future__ import annotations

import io
import os
import struct
from collections.abc import Sequence
from types import ModuleType

import numpy as np

from ort_genai.errors import InvalidGeneration
from ort_genai.media.opened_files import contents_of, files_of

_PIXELS = 1 << 28  # of one image; a file can claim any number
# Pillow knows many more, some of which start other programs (EPS), or read parts of other files
_FORMATS = ("PNG", "JPEG", "GIF", "BMP", "WEBP", "TIFF", "PPM")
_FAULTS = (
    OSError, ValueError, SyntaxError, EOFError, TypeError, LookupError, AttributeError, ArithmeticError, RuntimeError,
    MemoryError, struct.error, Warning,  # of a program to which warnings are errors
)  # fmt: skip


class Images:
    """Images in the order in which a prompt names them; ``Images.open`` makes it.

    Args:
        pixels: of each image, uint8 (height, width, 3).
    """

    def __init__(self, pixels: Sequence[np.ndarray]) -> None:
        self.pixels = list(pixels)

    @classmethod
    def open(cls, *paths: str | os.PathLike[str]) -> Images:
        """Read image files.

        Raises:
            InvalidGeneration: there is none, or one is not there, or is no image.
        """
        return cls([_decoded(content, name) for content, name in files_of("image", paths)])

    @classmethod
    def open_bytes(cls, *contents: bytes) -> Images:
        """Read images from the bytes of files.

        Raises:
            InvalidGeneration: there is none, or one is no image.
        """
        return cls([_decoded(content, name) for content, name in contents_of("image", contents)])

    def __len__(self) -> int:
        return len(self.pixels)


def _decoded(content: bytes, name: str) -> np.ndarray:
    pillow = pillow_image()
    try:
        with pillow.open(io.BytesIO(content), formats=_FORMATS) as opened:
            if opened.width * opened.height > _PIXELS:
                raise InvalidGeneration(f"{name} has {opened.width} x {opened.height} pixels, more than {_PIXELS}")
            if not opened.width or not opened.height:
                raise InvalidGeneration(f"{name} has no pixels ({opened.width} x {opened.height})")
            return np.asarray(opened.convert("RGB"))
    except (*_FAULTS, pillow.DecompressionBombError) as error:
        if isinstance(error, InvalidGeneration):
            raise
        raise InvalidGeneration(f"{name} cannot be read as an image: {error}") from error


def resized(pixels: np.ndarray, height: int, width: int, filter_number: int) -> np.ndarray:
    """Return uint8 pixels of another size, by Pillow's filter of a number (2: bilinear, 3: bicubic)."""
    pillow = pillow_image()
    made = pillow.fromarray(pixels)
    return np.asarray(made.resize((width, height), resample=pillow.Resampling(filter_number)))


def pillow_image() -> ModuleType:
    """Return Pillow's module of images.

    Raises:
        InvalidGeneration: Pillow is not installed.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise InvalidGeneration('images are read by Pillow: pip install "ort-genai[media]"') from error
    return Image
