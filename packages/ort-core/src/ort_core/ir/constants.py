"""Constants: tensor data that a model carries, decoded only when somebody asks.

A constant knows its element type, shape and size without its bytes being read. ``array()`` is read-only, decoded
once and safe from many threads; big weights stay in the file (memory-mapped) until then.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ort_core.ir.types import DataType

_SMALL_NBYTES = 1024  # of data that is copied sooner than looked at in place: it takes a microsecond to take a view


class Constant:
    """Tensor data with a known element type and shape.

    Args:
        dtype: the element type.
        shape: the shape, all sizes known.
        read: returns the data as a numpy array of ``dtype.numpy`` and ``shape``; called at most once at a time,
            its result is kept. ``location`` and ``offset`` say where the data lies, for messages and for saving by
            reference.
    """

    __slots__ = ("_array", "_digest", "_read", "dtype", "location", "offset", "shape")

    def __init__(
        self,
        dtype: DataType,
        shape: tuple[int, ...],
        read: Callable[[], np.ndarray],
        location: str | None = None,
        offset: int = 0,
    ) -> None:
        self.dtype = dtype
        self.shape = shape
        self.location = location
        self.offset = offset
        self._read: Callable[[], np.ndarray] | None = read
        self._array: np.ndarray | None = None
        self._digest: bytes | None = None

    @classmethod
    def of(cls, array: np.ndarray, dtype: DataType | None = None) -> Constant:
        """Wrap an array (not copied; it must not change afterwards)."""
        array = np.asarray(array)
        if array.dtype.kind in "USTO":
            strings = np.empty(array.shape, object)
            strings[...] = array
            array = strings
        constant = cls(dtype or DataType.from_numpy(array.dtype), array.shape, lambda: array)
        if array.dtype != object and not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
        view = array.view()
        view.flags.writeable = False
        constant._array, constant._read = view, None
        return constant

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes in memory (sub-byte element types take one byte an element; strings count as pointers)."""
        return self.size * (8 if self.dtype is DataType.STRING else max(1, self.dtype.bits // 8))

    @property
    def is_loaded(self) -> bool:
        """Whether the data has been decoded already."""
        return self._array is not None

    def array(self) -> np.ndarray:
        """Return the read-only array."""
        array = self._array
        if array is None:
            read = self._read
            if read is None:  # another thread finished in between
                assert self._array is not None
                return self._array
            array = read().reshape(self.shape).view()
            array.flags.writeable = False
            self._array, self._read = array, None
        return array

    def digest(self) -> bytes:
        """Return a SHA-256 over element type, shape and bytes."""
        if self._digest is None:
            import hashlib  # sessions out of the cache ask for no digests, and OpenSSL takes 5 ms to load

            hasher = hashlib.sha256(f"{int(self.dtype)}{self.shape}".encode())
            array = self.array()
            if self.dtype is DataType.STRING:
                for item in array.reshape(-1):
                    text = str(item).encode("utf-8", "surrogateescape")
                    hasher.update(len(text).to_bytes(8, "little") + text)
            elif array.nbytes <= _SMALL_NBYTES:
                hasher.update(array.tobytes())
            else:
                hasher.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
            self._digest = hasher.digest()
        return self._digest

    def scalar(self) -> object:
        """Return the one element of a constant of size 1, as a Python object."""
        return self.array().reshape(-1)[0].item() if self.dtype is not DataType.STRING else self.array().reshape(-1)[0]

    def __repr__(self) -> str:
        return f"Constant({self.dtype.text}{list(self.shape)})"
