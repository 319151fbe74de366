"""Records of onnxruntime's EPContext and external-initializer API: what callers' own functions read and fill."""

from __future__ import annotations

from ort_core.errors import InvalidValue
from ort_core.frozen import frozen


@frozen
class OrtExternalInitializerInfo:
    """Where an initializer's data lies: a file relative to the model's folder, an offset and a size in bytes."""

    filepath: str
    file_offset: int
    byte_size: int


class OrtEpContextData:
    """Bytes that a provider wrote, read in parts."""

    def __init__(self, content: bytes | memoryview) -> None:
        self._content = memoryview(content).cast("B")

    @property
    def size(self) -> int:
        """The number of bytes."""
        return len(self._content)

    def read(self, offset: int = 0, length: int | None = None) -> bytes:
        """Return a part.

        Raises:
            InvalidValue: the part does not lie inside.
        """
        end = self.size if length is None else offset + length
        if not 0 <= offset <= end <= self.size:
            raise InvalidValue(f"bytes {offset} to {end} were asked for, there are {self.size}")
        return bytes(self._content[offset:end])


class OrtEpContextDataBuffer:
    """A buffer of bounded size that a callback allocates once and fills."""

    def __init__(self, max_size: int) -> None:
        self.max_size = max_size
        self._content: bytearray | None = None

    @property
    def is_allocated(self) -> bool:
        """Whether ``allocate`` has been called."""
        return self._content is not None

    @property
    def content(self) -> memoryview:
        """What was written; nothing before ``allocate``."""
        return memoryview(b"" if self._content is None else self._content)

    @property
    def size(self) -> int:
        """The number of bytes allocated."""
        return 0 if self._content is None else len(self._content)

    def allocate(self, size: int, /) -> None:
        """Allocate the buffer (``InvalidValue`` when it is too large or there already)."""
        if self._content is not None or not 0 <= size <= self.max_size:
            raise InvalidValue(f"cannot allocate {size} bytes: at most {self.max_size}, once")
        self._content = bytearray(size)

    def write(self, data: bytes | memoryview, offset: int = 0) -> None:
        """Copy bytes into the buffer (``InvalidValue`` when they do not fit)."""
        view = memoryview(data).cast("B")
        if self._content is None or not 0 <= offset <= offset + len(view) <= len(self._content):
            raise InvalidValue(f"bytes {offset} to {offset + len(view)} lie outside the {self.size} bytes allocated")
        self._content[offset : offset + len(view)] = view
