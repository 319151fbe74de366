"""Where the numbers of a model's tensors lie that are not in its message: in its folder, or set aside.

A message of protobuf keeps the memory of what was taken out of it. Large tensors that are made of a model in files are
therefore never put into one: their numbers go to a file without a name, and the tensor refers to it meanwhile.
"""

from __future__ import annotations

import contextlib
import tempfile
import uuid
import weakref
from pathlib import Path
from typing import IO

from onnx import TensorProto

SET_ASIDE_FROM = 1 << 20  # bytes; smaller ones are few enough to stay in memory


class TensorFolder(str):
    """The folder of a model's external data, as a path; tensors that are made meanwhile are set aside.

    Args:
        folder: of the model.
        scratch: folder in which the file without a name lies, if it can be written; the system's own by default.
    """

    _scratch: str | Path | None
    _file: IO[bytes] | None
    _location: str

    def __new__(cls, folder: str, scratch: str | Path | None = None) -> TensorFolder:
        """Return the folder as a path."""
        made = super().__new__(cls, folder)
        made._scratch = scratch
        made._file = None
        made._location = f"ort.set_aside.{uuid.uuid4().hex}"  # no file that came with the model has such a name
        return made

    def set_aside(self, tensor: TensorProto) -> TensorProto:
        """Return a tensor that refers to numbers that were set aside, or the one given where it is small."""
        if tensor.data_location == TensorProto.EXTERNAL or len(tensor.raw_data) < SET_ASIDE_FROM:
            return tensor
        file = self._opened()
        start = file.seek(0, 2)
        file.write(tensor.raw_data)
        made = TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
        made.data_location = TensorProto.EXTERNAL
        for key, value in (("location", self._location), ("offset", start), ("length", len(tensor.raw_data))):
            made.external_data.add(key=key, value=str(value))
        return made

    def opened(self, location: str) -> IO[bytes] | None:
        """Return the file of tensors that were set aside where a location is its own."""
        return self._file if location == self._location else None

    def _opened(self) -> IO[bytes]:
        if self._file is not None:
            return self._file
        if self._scratch is not None:
            with contextlib.suppress(OSError):  # it cannot be written: the system's folder is as good
                self._file = tempfile.TemporaryFile(dir=self._scratch)  # noqa: SIM115 - it lives as long as this
        if self._file is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 - likewise
        weakref.finalize(self, self._file.close)
        return self._file


def set_aside(tensor: TensorProto, folder: str) -> TensorProto:
    """Return a tensor to add to a model: one that refers to its numbers where the model's folder takes large ones."""
    return folder.set_aside(tensor) if isinstance(folder, TensorFolder) else tensor
