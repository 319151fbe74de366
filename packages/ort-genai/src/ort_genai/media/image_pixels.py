"""What models see of an image: resized, cropped, scaled and normalized, as ``preprocessor_config.json`` states it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ort_genai.errors import InvalidGeneration, InvalidModelFolder
from ort_genai.media.images import resized
from ort_genai.media.seen_images import PixelNumbers, SeenImage, filter_of

Array = np.ndarray
_LARGEST, _LONGEST = 1 << 13, 1 << 16  # pixels of a side: that a file may state, and that an image may come to


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
        return cls(
            shortest, size, filter_of(config, 3),
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
    longest = max(int(shortest * max(height, width) / min(height, width)), 1)
    if longest > _LONGEST:
        raise InvalidGeneration(
            f"an image of {width} x {height} pixels has {longest} on its longer side when the shorter one has "
            f"{shortest}, as the model sees it; {_LONGEST} is the most"
        )
    return (shortest, longest) if height <= width else (longest, shortest)


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
    is_size = isinstance(found, int) and not isinstance(found, bool) and 0 < found <= _LARGEST
    return found if is_size and isinstance(found, int) else 0


def _sides(stated: object, name: str) -> tuple[int, int]:
    if isinstance(stated, int) and 0 < stated <= _LARGEST:
        return stated, stated
    height, width = _side(stated, "height"), _side(stated, "width")
    if not height or not width:
        raise InvalidModelFolder(
            f"preprocessor_config.json has {name} = {stated!r}, expected height and width, or shortest_edge, of 1 "
            f"to {_LARGEST} pixels"
        )
    return height, width
