"""Adapters (LoRA): named tensors in a file, fed to runs of a model that has inputs with defaults for them."""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping
from pathlib import Path

from ort_core.arguments import a_path, an_object, takes, whole
from ort_core.errors import Fail, InvalidMapping, NoSuchAdapter
from ort_core.session_api.adapter_file import FORMAT_VERSION, read_adapter, write_adapter
from ort_core.tensors.ort_value import OrtValue
from ort_core.whole_files import replace_file


class LoraAdapter:
    """An adapter for ``RunOptions.add_active_adapter``."""

    def __init__(self) -> None:
        self.parameters: dict[str, OrtValue] = {}

    @takes(path=a_path)
    def Load(self, path: str, /) -> None:  # noqa: N802 - onnxruntime's name
        """Map a file; its tensors are read when they are used."""
        self.parameters = AdapterFormat.read_adapter(path).get_parameters()


class AdapterFormat:
    """Reads and writes adapter files."""

    _format_version: int
    _adapter_version: int
    _model_version: int

    def __init__(self, adapter: AdapterFormat | None = None) -> None:
        self._format_version = FORMAT_VERSION if adapter is None else adapter._format_version
        self._adapter_version = 0 if adapter is None else adapter._adapter_version
        self._model_version = 0 if adapter is None else adapter._model_version
        self._parameters: dict[str, OrtValue] = {} if adapter is None else dict(adapter._parameters)

    @staticmethod
    @takes(file_path=a_path)
    def read_adapter(file_path: str | os.PathLike) -> AdapterFormat:
        """Return the adapter of a file.

        Raises:
            NoSuchFile: there is no such file.
            InvalidProtobuf: the file is not an adapter.
        """
        adapter = AdapterFormat()
        versions = read_adapter(_mapped(Path(file_path)))
        adapter._format_version, adapter._adapter_version, adapter._model_version, arrays = versions
        adapter._parameters = {name: OrtValue.of(array) for name, array in arrays.items()}
        return adapter

    @takes(file_path=a_path)
    def export_adapter(self, file_path: str | os.PathLike) -> None:
        """Write a file."""
        arrays = {name: value.numpy() for name, value in self._parameters.items()}
        content = write_adapter(self._adapter_version, self._model_version, arrays)
        try:
            replace_file(Path(file_path), content)
        except OSError as error:
            raise Fail(f"cannot write the adapter to {str(file_path)!r}: {error}") from error

    def get_format_version(self) -> int:
        """Return the version of the file format."""
        return self._format_version

    @takes(adapter_version=whole)
    def set_adapter_version(self, adapter_version: int) -> None:
        """Set the version of the adapter."""
        self._adapter_version = adapter_version

    def get_adapter_version(self) -> int:
        """Return the version of the adapter."""
        return self._adapter_version

    @takes(model_version=whole)
    def set_model_version(self, model_version: int) -> None:
        """Set the version of the model that the adapter is for."""
        self._model_version = model_version

    def get_model_version(self) -> int:
        """Return the version of the model that the adapter is for."""
        return self._model_version

    def set_parameters(self, params: Mapping[str, OrtValue]) -> None:
        """Set the tensors by name."""
        if not isinstance(params, Mapping):
            raise InvalidMapping(f"the parameters are {params!r}, expected a mapping of names to OrtValues")
        wanted = an_object(OrtValue)
        self._parameters = {name: wanted(value, f"parameter {name!r}") for name, value in params.items()}

    def get_parameters(self) -> dict[str, OrtValue]:
        """Return the tensors by name."""
        return dict(self._parameters)


def _mapped(path: Path) -> memoryview:
    if not path.is_file():
        raise NoSuchAdapter(f"the adapter {str(path)!r} does not exist")
    if path.stat().st_size == 0:
        return memoryview(b"")
    with path.open("rb") as file:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
