"""Arrays under onnxruntime-genai's names."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping

import numpy as np

from ort_genai.errors import InvalidGeneration


class Tensor:
    """An array that is passed to and from a generation.

    Args:
        array: whose memory it shares.

    Raises:
        InvalidGeneration: its elements are not numbers.
        TypeError: it is not an array.
    """

    def __init__(self, array: np.ndarray) -> None:
        if array is None or isinstance(array, str | bytes):
            raise TypeError(f"Tensor() takes an array, not {type(array).__name__}")
        self._array = np.asarray(array)
        if self._array.dtype.kind in "OSUMm":
            raise InvalidGeneration(f"a tensor holds numbers, not elements of the type {self._array.dtype}")

    def as_numpy(self) -> np.ndarray:
        """Return the array."""
        return self._array

    def shape(self) -> list[int]:
        """Return its shape."""
        return list(self._array.shape)

    def type(self) -> str:
        """Return the name of its element type."""
        return self._array.dtype.name

    def data(self) -> object:
        """Return a capsule of the address of its first element; the tensor must be kept."""
        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        if not self._array.size:
            raise InvalidGeneration("a tensor without elements has no address")
        return make(self._array.ctypes.data, None, None)


class NamedTensors(dict[str, Tensor]):
    """Tensors by name; arrays are taken, too."""

    def __init__(self, tensors: Mapping[str, object] | Iterable[tuple[str, object]] = ()) -> None:
        super().__init__()
        for name, value in dict(tensors).items():
            self[name] = value

    def __setitem__(self, name: str, value: object) -> None:
        super().__setitem__(name, value if isinstance(value, Tensor) else Tensor(value))  # type: ignore[arg-type]  # a list is taken, too

    def __getitem__(self, name: str) -> Tensor:
        if name not in self:
            raise InvalidGeneration(f"Tensor with name: {name} not found.")
        return super().__getitem__(name)

    def __delitem__(self, name: str) -> None:
        self.pop(name, None)  # onnxruntime-genai refuses no name

    def keys(self) -> list[str]:  # type: ignore[override]  # onnxruntime-genai gives a list
        """Return the names."""
        return list(super().keys())


def as_array(value: object) -> np.ndarray:
    """Return the array of a ``Tensor``, or of what is one."""
    return value.as_numpy() if isinstance(value, Tensor) else np.asarray(value)
