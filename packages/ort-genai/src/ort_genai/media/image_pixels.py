"""What models see of an image: resized, cropped, scaled and normalized, as ``preprocessor_config.json`` states it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ort_genai.errors import InvalidModelFolder
from ort_genai.media.images import resized
from ort_genai.media.seen_images import PixelNumbers, SeenImage

Array = np.ndarray


@dataclass(frozen=True, slots=True)
class PixelRecipe:
    """How an image becomes numbers.

    Attributes:
        shortest: pixels that the shorter side is resized to; 0: by ``size``.
        size: (height, width) that an image is resized to, whatever its sides were; ``None``: by ``shortest``.
        filter_number: Pillow's, of the resizing.
        crop: (height, width) of the middle that is kept; ``None``: all.
        numbers: how pixels become numbers.
    """

    shortest: int
    size: tuple[int, int] | None
    filter_number: int
    crop: tuple[int, int] | None
    numbers: PixelNumbers

    @classmethod
    def of(cls, config: Mapping[str, object]) -> PixelRecipe:
        """Return what a ``preprocessor_config.json`` states.

        Raises:
            InvalidModelFolder: a size is none.
        """
        size, shortest = (None, 0)
        if config.get("do_resize", True):
            stated = config.get("size")
            shortest = _side(stated, "shortest_edge")
            size = None if shortest else _sides(stated, "size")
        number = config.get("resample", 3)
        return cls(
            shortest, size, number if isinstance(number, int) else 3,
            _sides(config.get("crop_size"), "crop_size") if config.get("do_center_crop", False) else None,
            PixelNumbers.of(config),
        )  # fmt: skip

    def seen(self, image: Array) -> SeenImage:
        """Return what is seen of an image, uint8 (height, width, 3): one tile."""
        found = image
        if self.shortest:
            found = resized(found, *_with_shortest(found.shape[0], found.shape[1], self.shortest), self.filter_number)
        elif self.size is not None:
            found = resized(found, *self.size, self.filter_number)
        if self.crop is not None:
            found = _middle(found, *self.crop)
        return SeenImage(self.numbers.of_pixels(found)[None])


def _with_shortest(height: int, width: int, shortest: int) -> tuple[int, int]:
    if height <= width:
        return shortest, max(int(shortest * width / height), 1)
    return max(int(shortest * height / width), 1), shortest


def _middle(image: Array, height: int, width: int) -> Array:
    """Return the middle of an image, with black around it where the image is smaller."""
    top, left = (image.shape[0] - height) // 2, (image.shape[1] - width) // 2
    if top >= 0 and left >= 0:
        return image[top : top + height, left : left + width]
    high, wide = max(height, image.shape[0]), max(width, image.shape[1])
    whole = np.zeros((high, wide, image.shape[2]), image.dtype)
    down, right = -((image.shape[0] - high) // 2), -((image.shape[1] - wide) // 2)
    whole[down : down + image.shape[0], right : right + image.shape[1]] = image
    top, left = max((high - height) // 2, 0), max((wide - width) // 2, 0)
    return whole[top : top + height, left : left + width]


def _side(stated: object, name: str) -> int:
    found = stated.get(name) if isinstance(stated, Mapping) else None
    if isinstance(stated, int) and not isinstance(stated, bool) and name == "shortest_edge":
        found = stated
    return found if isinstance(found, int) and found > 0 else 0


def _sides(stated: object, name: str) -> tuple[int, int]:
    if isinstance(stated, int) and stated > 0:
        return stated, stated
    height, width = _side(stated, "height"), _side(stated, "width")
    if not height or not width:
        raise InvalidModelFolder(
            f"preprocessor_config.json has {name} = {stated!r}, expected height and width, or shortest_edge"
        )
    return height, width
