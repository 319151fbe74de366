"""Where samples come from: readers that give one dictionary of inputs after another."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import cast

import numpy as np

from ort_quantization.errors import InvalidCalibration

Sample = Mapping[str, np.ndarray]


class CalibrationDataReader(abc.ABC):
    """Gives samples: whoever has a ``get_next`` is one, whether it derives from this class or not."""

    @classmethod
    def __subclasshook__(cls, subclass: type) -> bool:
        return callable(getattr(subclass, "get_next", None)) or NotImplemented

    @abc.abstractmethod
    def get_next(self) -> Sample | None:
        """Return the inputs of one run by name, ``None`` behind the last."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[Sample]:
        return self

    def __next__(self) -> Sample:
        sample = self.get_next()
        if sample is None:
            raise StopIteration
        return sample

    def __len__(self) -> int:
        raise NotImplementedError

    def set_range(self, start_index: int, end_index: int) -> None:
        """Give only the samples of a range from now on; readers that are read in strides have it."""
        raise NotImplementedError


def samples_of(reader: CalibrationDataReader | Iterable[Sample]) -> Iterator[Sample]:
    """Yield the samples of a reader, or of anything that is iterated; nothing and an empty dictionary are the end.

    Raises:
        InvalidCalibration: the reader raises, or gives no dictionary; which sample it was.
    """
    get_next = _get_next_of(reader)
    count = 0
    while True:
        try:
            sample = get_next()
        except InvalidCalibration:
            raise
        except Exception as error:
            raise InvalidCalibration(
                f"the calibration data reader raised {type(error).__name__} at sample {count}: {error}"
            ) from error
        if sample is None or (isinstance(sample, Mapping) and not sample):
            return
        if not isinstance(sample, Mapping):
            raise InvalidCalibration(
                f"the calibration data reader gave a {type(sample).__name__} at sample {count}; a dictionary of arrays "
                "by the names of the model's inputs is expected"
            )
        yield sample
        count += 1


def _get_next_of(reader: CalibrationDataReader | Iterable[Sample]) -> Callable[[], Sample | None]:
    """Return what gives one sample after another, and ``None`` behind the last."""
    own = getattr(reader, "get_next", None)
    if callable(own):
        return cast("Callable[[], Sample | None]", own)
    if isinstance(reader, Iterable) and not isinstance(reader, (str, bytes, Mapping)):
        left = iter(reader)
        return lambda: next(left, None)
    raise InvalidCalibration(
        f"a calibration data reader has a get_next that gives one sample after another, and None behind the last; "
        f"found a {type(reader).__name__}"
    )
