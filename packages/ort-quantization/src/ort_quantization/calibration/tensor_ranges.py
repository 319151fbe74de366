"""What calibration found out about the tensors of a model, in memory and in a file.

The file is onnxruntime's: JSON in which arrays say their type.
"""

from __future__ import annotations

import json
from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ort_core.errors import NoSuchFile
from ort_core.whole_files import replace_text
from ort_quantization.errors import InvalidQuantization


class CalibrationMethod(Enum):
    """How ranges follow from the numbers that samples give."""

    MinMax = 0
    Entropy = 1
    Percentile = 2
    Distribution = 3


class TensorData:
    """What is known of one tensor: any of its range, its moments and its histogram.

    Attributes:
        lowest: float32 or float16: the range's lower end.
        highest: the range's upper end.
        avg: mean.
        std: standard deviation.
        hist: counts (bins,).
        hist_edges: ends of the bins (bins + 1,).
        bins: the same, where a method gives them with the range.
    """

    lowest: np.ndarray
    highest: np.ndarray
    avg: np.ndarray
    std: np.ndarray
    hist: np.ndarray
    hist_edges: np.ndarray
    bins: np.ndarray

    _allowed: ClassVar = frozenset({"avg", "std", "lowest", "highest", "hist", "hist_edges", "bins"})
    _floats: ClassVar = frozenset({"avg", "std", "lowest", "highest", "hist_edges"})

    def __init__(self, **facts: Any) -> None:  # Any: arrays and numbers of numpy
        for name, value in facts.items():
            if name not in self._allowed:
                raise InvalidQuantization(f"{name!r} is no fact of a tensor; known: {', '.join(sorted(self._allowed))}")
            if name in self._floats and getattr(value, "dtype", None) not in (np.float16, np.float32):
                found = getattr(value, "dtype", type(value).__name__)
                raise InvalidQuantization(f"{name!r} must be float32 or float16; found {found}")
            setattr(self, name, value)

    @classmethod
    def of_nothing(cls) -> TensorData:
        """Return the range of a value that held no number in any sample, as a cache that begins empty."""
        return cls(lowest=np.float32(np.inf), highest=np.float32(-np.inf))

    @property
    def is_empty_range(self) -> bool:
        """Whether there was no number."""
        return hasattr(self, "lowest") and bool(np.all(np.asarray(self.lowest) > np.asarray(self.highest)))

    @property
    def range_value(self) -> tuple[np.ndarray, np.ndarray]:
        """The range."""
        return self.lowest, self.highest

    @property
    def avg_std(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation."""
        return self.avg, self.std

    def to_dict(self) -> dict[str, Any]:  # Any: what a file of JSON holds
        """Return the facts by name, as the file has them."""
        return {**vars(self), "CLS": type(self).__name__}

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> TensorData:  # Any: what a file of JSON holds
        """Return the tensor that ``to_dict`` wrote."""
        return cls(**{name: cls._read(name, value) for name, value in d.items() if name != "CLS"})

    @classmethod
    def _read(cls, name: str, value: Any) -> Any:  # Any: what a file of JSON holds
        if isinstance(value, dict) and value.get("CLS") == "numpy.array":
            return np.array(value["data"], dtype=np.dtype(value["dtype"]))
        if name in cls._floats and isinstance(value, (int, float)):
            return np.array(value, np.float32)
        return value


class TensorsData:
    """What is known of all tensors, by name; only those that calibration has seen can be replaced."""

    def __init__(
        self, calibration_method: CalibrationMethod, data: Mapping[str, TensorData | tuple[np.ndarray, ...]]
    ) -> None:
        self.calibration_method = calibration_method
        self.data = {name: _tensor_data(calibration_method, name, value) for name, value in data.items()}

    def __iter__(self) -> Iterator[str]:
        return iter(self.data)

    def __contains__(self, key: object) -> bool:
        return key in self.data

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, key: str) -> TensorData:
        return self.data[key]

    def __setitem__(self, key: str, value: TensorData) -> None:
        if key not in self.data:
            raise RuntimeError(f"Only an existing tensor can be modified, {key!r} is not.")
        self.data[key] = value

    def keys(self) -> KeysView[str]:
        """Return the names."""
        return self.data.keys()

    def values(self) -> ValuesView[TensorData]:
        """Return what is known, in the order of the names."""
        return self.data.values()

    def items(self) -> ItemsView[str, TensorData]:
        """Return names with what is known."""
        return self.data.items()

    def to_dict(self) -> dict[str, Any]:  # Any: what a file of JSON holds
        """Return everything, as the file has it."""
        return {"CLS": type(self).__name__, "data": self.data, "calibration_method": self.calibration_method}

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> TensorsData:  # Any: what a file of JSON holds
        """Return what ``to_dict`` wrote."""
        method = d["calibration_method"]
        if isinstance(method, dict):
            method = CalibrationMethod[method["value"].rpartition(".")[2]]
        if not isinstance(method, CalibrationMethod):
            raise InvalidQuantization(f"a calibration_method is expected; found {method!r}")
        return cls(method, {name: TensorData.from_dict(value) for name, value in d["data"].items()})


def _tensor_data(method: CalibrationMethod, name: str, value: TensorData | tuple[np.ndarray, ...]) -> TensorData:
    if isinstance(value, TensorData):
        return value
    if isinstance(value, tuple) and method == CalibrationMethod.MinMax and len(value) == 2:
        return TensorData(lowest=value[0], highest=value[1])
    if isinstance(value, tuple) and len(value) == 4:
        return TensorData(lowest=value[0], highest=value[1], hist=value[2], bins=value[3])
    raise TypeError(f"{name!r} must have a TensorData, or a tuple of its range; found {value!r}")


class CalibrationCacheEncoder(json.JSONEncoder):
    """Writes what JSON does not know: arrays with their types, numbers of numpy, and the classes of this module."""

    def default(self, obj: object) -> object:
        """Return something that JSON knows."""
        if isinstance(obj, (TensorData, TensorsData)):
            return obj.to_dict()
        if isinstance(obj, np.ndarray):
            return {"data": obj.tolist(), "dtype": str(obj.dtype), "CLS": "numpy.array"}
        if isinstance(obj, CalibrationMethod):
            return {"CLS": type(obj).__name__, "value": str(obj)}
        if isinstance(obj, (np.integer, np.floating)):
            return obj.item()
        return super().default(obj)


def save_tensors_data(tensors_data: TensorsData, path: str | Path, *, smooth_quant: bool = False) -> None:
    """Write what calibration found, whole or not at all, and whether SmoothQuant had changed the model."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    content = {**tensors_data.to_dict(), "smooth_quant": smooth_quant}
    replace_text(target, json.dumps(content, cls=CalibrationCacheEncoder))


def load_tensors_data(path: str | Path) -> TensorsData:
    """Return what ``save_tensors_data`` wrote.

    Raises:
        NoSuchFile: there is no such file.
        InvalidQuantization: it is not such a file.
    """
    content = read_ranges_file(path)
    try:
        return TensorsData.from_dict(content)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InvalidQuantization(f"{path} is no file of calibrated ranges: {error}") from error


def read_ranges_file(path: str | Path) -> dict[str, Any]:  # Any: what a file of JSON holds
    """Return the content of a file of ranges; see ``load_tensors_data``."""
    source = Path(path)
    if not source.exists():
        raise NoSuchFile(f"{source}: there is no such file of calibrated ranges")
    if not source.is_file():
        raise InvalidQuantization(f"{source} is no file of calibrated ranges: it is no file")
    try:
        content = json.loads(source.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InvalidQuantization(f"{source} is no file of calibrated ranges: {error}") from error
    if not isinstance(content, dict) or not {"data", "calibration_method"} <= content.keys():
        raise InvalidQuantization(f"{source} is no file of calibrated ranges: it has no data or no method")
    return content
