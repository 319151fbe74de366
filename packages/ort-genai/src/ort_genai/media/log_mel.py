"""What Whisper hears: logarithms of the power in bands of the mel scale, 100 frames a second, of 30 seconds as a rule.

The bands are triangles of equal area on Slaney's scale: linear up to 1,000 Hz, logarithmic above.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

Array = np.ndarray
_LINEAR = 200.0 / 3  # Hz of a mel below 1,000 Hz
_KNEE = 1000.0
_STEP = np.log(6.4) / 27  # of the logarithm of a mel above


@dataclass(frozen=True)
class LogMel:
    """How sound becomes frames.

    Attributes:
        bands: of a frame.
        rate: samples of a second.
        width: samples of a frame's window.
        hop: samples between two frames.
        frames: that are heard; shorter sound is followed by silence, longer is cut.
    """

    bands: int = 80
    rate: int = 16000
    width: int = 400
    hop: int = 160
    frames: int = 3000

    @property
    def length(self) -> int:
        """Samples that are heard."""
        return self.frames * self.hop

    def features(self, samples: Array) -> Array:
        """Return float32 (bands, frames) of samples (n,)."""
        heard = np.zeros(self.length)
        heard[: min(len(samples), self.length)] = samples[: self.length]
        half = self.width // 2
        padded = np.pad(heard, half, mode="reflect")
        frames = np.lib.stride_tricks.sliding_window_view(padded, self.width)[:: self.hop][:-1]
        power = np.abs(np.fft.rfft(frames * self._window, axis=1)) ** 2
        found = np.log10(np.maximum(power @ self._filters, 1e-10)).T
        found = np.maximum(found, found.max() - 8.0)
        return ((found + 4.0) / 4.0).astype(np.float32)

    @cached_property
    def _window(self) -> Array:
        return 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(self.width) / self.width)

    @cached_property
    def _filters(self) -> Array:
        """Weights (frequencies, bands)."""
        frequencies = np.linspace(0, self.rate / 2, self.width // 2 + 1)
        edges = _hertz(np.linspace(_mel(0.0), _mel(self.rate / 2), self.bands + 2))
        rising = (frequencies[:, None] - edges[:-2]) / np.diff(edges)[:-1]
        falling = (edges[2:] - frequencies[:, None]) / np.diff(edges)[1:]
        return np.maximum(0, np.minimum(rising, falling)) * (2.0 / (edges[2:] - edges[:-2]))


def _mel(hertz: float) -> float:
    return hertz / _LINEAR if hertz < _KNEE else _KNEE / _LINEAR + np.log(hertz / _KNEE) / _STEP


def _hertz(mels: Array) -> Array:
    knee = _KNEE / _LINEAR
    return np.where(mels < knee, mels * _LINEAR, _KNEE * np.exp(_STEP * (mels - knee)))
