"""Sounds, opened from files or bytes: WAV by the standard library, FLAC, OGG and MP3 by soundfile."""

from __future__ import annotations

import io
import math
import os
import wave
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ort_genai.errors import InvalidGeneration
from ort_genai.media.opened_files import contents_of, files_of

_RATES = 1000, 1 << 20  # Hz
_HINT = 'pip install "ort-genai[media]"'


@dataclass(frozen=True, slots=True)
class Sound:
    """One channel of sound.

    Attributes:
        samples: float32 (n,) from -1 to 1.
        rate: samples of a second.
    """

    samples: np.ndarray
    rate: int

    def at_rate(self, rate: int) -> np.ndarray:
        """Return the samples at another rate.

        Raises:
            InvalidGeneration: the rates differ, and scipy is not installed, or this one is none of sound.
        """
        if rate == self.rate:
            return self.samples
        if not _RATES[0] <= self.rate <= _RATES[1]:  # a file can claim any; filters are as long as rates are large
            raise InvalidGeneration(f"sound of {self.rate} Hz, expected {_RATES[0]} to {_RATES[1]}")
        if not len(self.samples):
            return self.samples
        try:
            from scipy.signal import resample_poly
        except ImportError as error:
            raise InvalidGeneration(
                f"sound of {self.rate} Hz is brought to {rate} Hz by scipy, which is not installed: {_HINT}"
            ) from error
        common = math.gcd(rate, self.rate)
        return resample_poly(self.samples, rate // common, self.rate // common).astype(np.float32)


class Audios:
    """Sounds, one of each row of a batch; ``Audios.open`` makes it.

    Args:
        sounds: one channel each.
    """

    def __init__(self, sounds: Sequence[Sound]) -> None:
        self.sounds = list(sounds)

    @classmethod
    def open(cls, *paths: str | os.PathLike[str]) -> Audios:
        """Read sound files.

        Raises:
            InvalidGeneration: there is none, or one is not there, or is no sound.
        """
        return cls([_decoded(content, name) for content, name in files_of("audio", paths)])

    @classmethod
    def open_bytes(cls, *contents: bytes) -> Audios:
        """Read sounds from the bytes of files.

        Raises:
            InvalidGeneration: there is none, or one is no sound.
        """
        return cls([_decoded(content, name) for content, name in contents_of("audio", contents)])

    def __len__(self) -> int:
        return len(self.sounds)


def _decoded(content: bytes, name: str) -> Sound:
    try:
        with wave.open(io.BytesIO(content)) as opened:
            return _from_wave(opened, name)
    except (wave.Error, EOFError, ValueError, RuntimeError) as error:  # the last one from chunks that end early
        if isinstance(error, InvalidGeneration):
            raise
        return _by_soundfile(content, name)


def _from_wave(opened: wave.Wave_read, name: str) -> Sound:
    width, channels, rate = opened.getsampwidth(), opened.getnchannels(), opened.getframerate()
    if not channels or not rate or width not in (1, 2, 3, 4):
        raise InvalidGeneration(f"{name} has {channels} channels of {width} bytes at {rate} Hz")
    data = opened.readframes(opened.getnframes())
    data = data[: len(data) // (width * channels) * width * channels]
    return Sound(_numbers(data, width).reshape(-1, channels).mean(axis=1, dtype=np.float32), rate)


def _numbers(data: bytes, width: int) -> np.ndarray:
    """Return numbers from -1 to 1 of PCM data."""
    if width == 1:
        return (np.frombuffer(data, np.uint8).astype(np.float32) - 128) / 128
    if width == 3:
        padded = np.zeros((len(data) // 3, 4), np.uint8)
        padded[:, 1:] = np.frombuffer(data, np.uint8).reshape(-1, 3)
        return (padded.view("<i4").ravel() / (1 << 31)).astype(np.float32)
    kind = {2: "<i2", 4: "<i4"}[width]
    return (np.frombuffer(data, kind) / (1 << (8 * width - 1))).astype(np.float32)


def _by_soundfile(content: bytes, name: str) -> Sound:
    try:
        import soundfile
    except ImportError as error:
        raise InvalidGeneration(
            f"{name} is no WAV file of whole numbers; others are read by soundfile: {_HINT}"
        ) from error
    try:
        samples, rate = soundfile.read(io.BytesIO(content), dtype="float32", always_2d=True)
    except (RuntimeError, ValueError, TypeError) as error:
        raise InvalidGeneration(f"{name} cannot be read as sound: {error}") from error
    if not len(samples):  # libsndfile takes a WAV file that ends within its header for one without sound
        raise InvalidGeneration(f"{name} holds no sound")
    return Sound(np.asarray(samples).mean(axis=1, dtype=np.float32), int(rate))
