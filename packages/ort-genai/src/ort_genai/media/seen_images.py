"""An image as a model sees it: the pixels of one tile or of several, and the text that stands for them in a prompt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, TypeGuard

import numpy as np

from ort_genai.errors import InvalidModelFolder

FILE = "preprocessor_config.json"
Array = np.ndarray
_GREATEST = 1e30  # of a number that pixels are scaled or moved by
_AROUND, _WHOLE = "<fake_token_around_image>", "<global-img>"


@dataclass(frozen=True, slots=True)
class SeenImage:
    """What is seen of one image.

    Attributes:
        pixels: float32 (tiles, 3, height, width); the whole image is the last tile.
        layout: rows and columns of the tiles before the last; (0, 0) where there are none, ``None`` of a model that
            knows no tiles.
    """

    pixels: Array
    layout: tuple[int, int] | None = None

    def written(self, name: str, count: int) -> str:
        """Return what stands in a prompt for the image.

        Args:
            name: of the token that stands for a vector.
            count: vectors of a tile.
        """
        vectors = name * count
        if self.layout is None:
            return vectors
        rows, columns = self.layout
        lines = [
            "".join(f"{_AROUND}<row_{row + 1}_col_{column + 1}>{vectors}" for column in range(columns)) + "\n"
            for row in range(rows)
        ]
        last = f"{_AROUND}{_WHOLE}{vectors}{_AROUND}"
        return "".join(lines) + ("\n" if lines else "") + last


class ImageRecipe(Protocol):
    """How a model sees images."""

    def seen(self, image: Array) -> SeenImage:
        """Return what is seen of an image, uint8 (height, width, 3)."""


@dataclass(frozen=True, slots=True)
class PixelNumbers:
    """How the bytes of pixels become numbers.

    Attributes:
        factor: of each number; 0: none.
        mean: that is taken off each channel.
        deviation: that each channel is divided by.
    """

    factor: float
    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    @classmethod
    def of(cls, config: Mapping[str, object], middle: float | None = None) -> PixelNumbers:
        """Return what a ``preprocessor_config.json`` states.

        Args:
            config: its contents.
            middle: mean and deviation where it states none; ``None``: 0 and 1.

        Raises:
            InvalidModelFolder: a number is none.
        """
        is_normalized = config.get("do_normalize", True)
        means = config.get("image_mean") if is_normalized else None
        deviations = config.get("image_std") if is_normalized else None
        has_middle = is_normalized and middle is not None
        factor = config.get("rescale_factor", 1 / 255) if config.get("do_rescale", True) else 0.0
        if not _is_number(factor):
            raise InvalidModelFolder(f"{FILE} has rescale_factor = {factor!r}, expected a number")
        return cls(
            float(factor),
            _floats(means, "image_mean", middle or 0.0 if has_middle else 0.0),
            _floats(deviations, "image_std", middle or 1.0 if has_middle else 1.0),
        )  # fmt: skip

    def of_pixels(self, image: Array) -> Array:
        """Return float32 (3, height, width) of uint8 (height, width, 3)."""
        found = image.astype(np.float32) * np.float32(self.factor or 1) - np.array(self.mean, np.float32)
        return np.ascontiguousarray((found / np.array(self.deviation, np.float32)).transpose(2, 0, 1))


def _floats(stated: object, name: str, default: float) -> tuple[float, ...]:
    listed = [default] * 3 if stated is None else [stated] * 3 if _is_number(stated) else stated
    is_whole = isinstance(listed, list) and len(listed) == 3 and all(_is_number(each) for each in listed)
    if not isinstance(listed, list) or not is_whole or (name == "image_std" and 0 in listed):
        raise InvalidModelFolder(f"{FILE} has {name} = {stated!r}, expected a number for each of three channels")
    return tuple(float(each) for each in listed)


def filter_of(config: Mapping[str, object], default: int) -> int:
    """Return Pillow's number of the filter that images are resized by.

    Args:
        config: contents of a ``preprocessor_config.json``.
        default: where it states none.

    Raises:
        InvalidModelFolder: Pillow has none of that number.
    """
    found = config.get("resample")
    found = default if found is None else found
    if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found <= 5:
        raise InvalidModelFolder(f"{FILE} has resample = {found!r}, expected 0 to 5, as Pillow numbers its filters")
    return found


def _is_number(value: object) -> TypeGuard[int | float]:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return abs(value) <= _GREATEST  # which no NaN is
