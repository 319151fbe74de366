"""ImageDecoder: encoded image bytes to pixels, through pillow where it is installed."""

from __future__ import annotations

import io

import numpy as np

from ort_core.errors import Fail, InvalidArgument, NotImplemented
from ort_core.kernels.kernel import kernel

_MODES = {"RGB": "RGB", "BGR": "RGB", "Grayscale": "L"}


@kernel("ImageDecoder", since=20)
def image_decoder(encoded_stream: np.ndarray, *, pixel_format: str = "RGB") -> np.ndarray:
    """Return the image as uint8 [height, width, channels].

    Raises:
        NotImplemented: pillow is not installed.
        Fail: the bytes are no image that pillow can read.
    """
    if pixel_format not in _MODES:
        raise InvalidArgument(f"ImageDecoder: pixel_format is {pixel_format!r}, expected one of {sorted(_MODES)}")
    try:
        import PIL.Image  # imported late: an optional dependency that only this operator needs
    except ImportError as error:
        raise NotImplemented("ImageDecoder needs pillow, which is not installed: pip install pillow") from error
    try:
        with PIL.Image.open(io.BytesIO(encoded_stream.tobytes())) as image:
            pixels = np.asarray(image.convert(_MODES[pixel_format]))
    except OSError as error:
        raise Fail(f"ImageDecoder cannot read an image from {encoded_stream.size} bytes: {error}") from error
    if pixel_format == "Grayscale":
        return pixels[:, :, None]
    return pixels[:, :, ::-1] if pixel_format == "BGR" else pixels
