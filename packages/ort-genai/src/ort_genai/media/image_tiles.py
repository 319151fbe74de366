"""What SmolVLM and Idefics 3 see of an image: tiles of one size, row by row, and behind them the whole image."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ort_genai.errors import InvalidModelFolder
from ort_genai.media.images import resized
from ort_genai.media.seen_images import PixelNumbers, SeenImage, filter_of

Array = np.ndarray
_LONGEST = 4096  # pixels of a side that an image is resized to at most


@dataclass(frozen=True, slots=True)
class TileRecipe:
    """How an image becomes tiles.

    Attributes:
        longest: pixels that the longer side is resized to; 0: it stays.
        side: pixels of a tile.
        is_split: whether an image is split; else it is seen as a whole alone.
        filter_number: Pillow's, of the resizing.
        numbers: how pixels become numbers.
    """

    longest: int
    side: int
    is_split: bool
    filter_number: int
    numbers: PixelNumbers

    @classmethod
    def of(cls, config: Mapping[str, object]) -> TileRecipe:
        """Return what a ``preprocessor_config.json`` states.

        Raises:
            InvalidModelFolder: a size is none.
        """
        return cls(
            _longest_edge(config, "size", 4 * 364) if config.get("do_resize", True) else 0,
            _longest_edge(config, "max_image_size", 364), bool(config.get("do_image_splitting", True)),
            filter_of(config, 1), PixelNumbers.of(config, 0.5),
        )  # fmt: skip

    def seen(self, image: Array) -> SeenImage:
        """Return the tiles of an image, uint8 (height, width, 3)."""
        found, side, layout = image, self.side, (0, 0)
        if self.longest:
            found = resized(found, *_with_longest(found.shape[0], found.shape[1], self.longest), self.filter_number)
        tiles: list[Array] = []
        if self.is_split:
            found = resized(found, *_whole_tiles(found.shape[0], found.shape[1], side), self.filter_number)
            rows, columns = found.shape[0] // side, found.shape[1] // side
            if rows * columns > 1:
                layout = (rows, columns)
                tiles = [
                    found[row * side : (row + 1) * side, column * side : (column + 1) * side]
                    for row in range(rows) for column in range(columns)
                ]  # fmt: skip
        tiles.append(resized(found, side, side, self.filter_number))
        return SeenImage(np.stack([self.numbers.of_pixels(each) for each in tiles]), layout)


def _with_longest(height: int, width: int, longest: int) -> tuple[int, int]:
    """Return a height and a width whose longer side is ``longest``, the other one even."""
    ratio = width / height
    is_wide = width >= height
    height, width = (_even(int(longest / ratio)), longest) if is_wide else (longest, _even(int(longest * ratio)))
    height, width = max(height, 1), max(width, 1)
    if max(height, width) <= _LONGEST:
        return height, width
    ratio = width / height
    if width >= height:
        return max(int(_LONGEST / ratio), 1), _LONGEST
    return _LONGEST, max(int(_LONGEST * ratio), 1)


def _whole_tiles(height: int, width: int, side: int) -> tuple[int, int]:
    """Return a height and a width of whole tiles, not smaller than those given."""
    ratio = width / height
    if width >= height:
        width = math.ceil(width / side) * side
        return math.ceil(max(int(width / ratio), 1) / side) * side, width
    height = math.ceil(height / side) * side
    return height, math.ceil(max(int(height * ratio), 1) / side) * side  # 49 * (1 / 49) is less than 1


def _even(count: int) -> int:
    return count + count % 2


def _longest_edge(config: Mapping[str, object], name: str, default: int) -> int:
    stated = config.get(name, {"longest_edge": default})
    found = stated.get("longest_edge") if isinstance(stated, Mapping) else None
    if isinstance(found, bool) or not isinstance(found, int) or not 1 <= found <= 1 << 13:
        raise InvalidModelFolder(f"preprocessor_config.json has {name} = {stated!r}, expected longest_edge")
    return found
