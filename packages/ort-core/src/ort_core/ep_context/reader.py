"""context_reader(): the files that a compiled model names, out of its own folder or from the caller's function."""

from __future__ import annotations

from pathlib import Path

from ort_core.ep_context.data import OrtEpContextDataBuffer
from ort_core.ep_context.restore import ReadFile
from ort_core.errors import Fail
from ort_core.options import ContextReader


def context_reader(folder: Path | None, given: ContextReader | None) -> ReadFile:
    """Return what reads the content of an EPContext node by the name that it states.

    Args:
        folder: the model's; nothing outside is read.
        given: the caller's own function and the size that it may fill, instead of files.
    """

    def ask(name: str) -> memoryview:
        assert given is not None
        buffer = OrtEpContextDataBuffer(given.max_nbytes)
        given.read(name, buffer)
        if not buffer.is_allocated:
            raise Fail(f"the function that supplies EPContext data gave nothing for {name!r}")
        return buffer.content

    def read(name: str) -> memoryview:
        from ort_core.onnx_io.external_data import ExternalFiles  # its package imports onnx

        return ExternalFiles(folder).read_whole("EPContext", name)

    return read if given is None else ask
