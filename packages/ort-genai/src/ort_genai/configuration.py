"""``genai_config.json``: what a folder says of its model and of searches, and changes laid over it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from ort_core.errors import did_you_mean
from ort_genai.arguments import demand
from ort_genai.configuration_names import check_names, tell_without_effect
from ort_genai.errors import InvalidGeneration, InvalidModelFolder
from ort_genai.folder_paths import path_inside
from ort_genai.json_files import read_json
from ort_genai.machine import get_current_gpu_device_id
from ort_genai.search_options import SearchOptions

_PROVIDERS = {
    "cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider", "dml": "DmlExecutionProvider",
    "openvino": "OpenVINOExecutionProvider", "nvtensorrtrtx": "NvTensorRTRTXExecutionProvider",
    "tensorrt": "TensorrtExecutionProvider", "coreml": "CoreMLExecutionProvider", "webgpu": "WebGpuExecutionProvider",
    "qnn": "QNNExecutionProvider",
}  # fmt: skip

_GREATEST_TOKEN = (1 << 31) - 1
_GPUS = ("CUDAExecutionProvider", "DmlExecutionProvider", "TensorrtExecutionProvider", "NvTensorRTRTXExecutionProvider")


class Config:
    """The configuration of a model folder.

    Args:
        path: the folder.

    Raises:
        InvalidModelFolder: it has no ``genai_config.json`` that can be read, or one with names that there are not.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.folder = Path(path)
        file = self.folder / "genai_config.json"
        if not file.is_file():
            raise InvalidModelFolder(
                f"Error opening {file}: no such file. `ort genai build SOURCE FOLDER` makes a folder that has one"
            )
        self._stated = read_json(file)
        check_names(self._stated)
        tell_without_effect(self._stated)
        self._model_data: dict[str, bytes] = {}
        self._providers: list[tuple[str, dict[str, str]]] = _stated_providers(self.decoder.get("session_options"))

    @property
    def model(self) -> Mapping[str, object]:
        """The section ``model``."""
        return _section(self._stated, "model")

    @property
    def decoder(self) -> Mapping[str, object]:
        """The section ``model.decoder``."""
        return _section(self.model, "decoder")

    @property
    def search(self) -> Mapping[str, object]:
        """The section ``search``; empty where there is none."""
        found = self._stated.get("search", {})
        return found if isinstance(found, dict) else {}

    @property
    def speculative(self) -> Mapping[str, object]:
        """The section ``speculative``; empty where there is none."""
        found = self._stated.get("speculative", {})
        return _values(found) if isinstance(found, dict) else {}

    @property
    def tokenizer_folder(self) -> Path:
        """Where the tokenizer lies: ``model.tokenizer_dir`` in the folder, or the folder itself.

        Raises:
            InvalidModelFolder: the path leads out of the folder.
        """
        stated = self.model.get("tokenizer_dir")
        return path_inside(self.folder, stated, "model.tokenizer_dir") if stated else self.folder

    @property
    def engine(self) -> Mapping[str, object]:
        """The section ``engine``; empty where there is none."""
        found = self._stated.get("engine", {})
        return found if isinstance(found, dict) else {}

    @property
    def providers(self) -> list[tuple[str, dict[str, str]]]:
        """Providers to ask, first the most wished, with their options; the CPU comes behind them."""
        number = str(get_current_gpu_device_id())
        asked = [
            (name, {"device_id": number, **options} if name in _GPUS and number != "0" else options)
            for name, options in self._providers
        ]
        return [*asked, ("CPUExecutionProvider", {})]

    @classmethod
    def from_package_ep(cls, config_path: str, ep: str) -> Config:
        """Return the configuration of a model package's variant for a provider; packages are not read here.

        Raises:
            InvalidModelFolder: always; a folder with ``genai_config.json`` is what ``Config(path)`` reads.
        """
        raise InvalidModelFolder(
            f"{config_path!r} is not a model package that can be read (asked for {ep!r}): name the folder of one "
            "variant, Config(FOLDER)"
        )

    def set_decoder_provider_options_hardware_device_id(self, provider: str, device_id: int) -> None:
        """Let a provider use the device of a number."""
        self.set_provider_option(provider, "device_id", str(int(device_id)))

    def set_decoder_provider_options_hardware_device_type(self, provider: str, device_type: str) -> None:
        """Let a provider use a kind of device: ``cpu``, ``gpu`` or ``npu``; OpenVINO has several, others their own."""
        for what, given in (("provider", provider), ("device_type", device_type)):
            demand("set_decoder_provider_options_hardware_device_type()", what, given, str)
        if device_type.lower() not in ("cpu", "gpu", "npu"):
            raise InvalidModelFolder(f"hardware device type {device_type!r}; expected cpu, gpu or npu")
        if _provider_name(provider) == "OpenVINOExecutionProvider":
            self.set_provider_option(provider, "device_type", device_type.upper())

    def set_decoder_provider_options_hardware_vendor_id(self, provider: str, vendor_id: int) -> None:
        """Take a vendor's number, to no effect: a provider here is one vendor's."""
        _provider_name(provider)

    def clear_decoder_provider_options_hardware_device_id(self, provider: str) -> None:
        """Forget the device's number."""
        self._clear_option(provider, "device_id")

    def clear_decoder_provider_options_hardware_device_type(self, provider: str) -> None:
        """Forget the kind of device."""
        self._clear_option(provider, "device_type")

    def clear_decoder_provider_options_hardware_vendor_id(self, provider: str) -> None:
        """Forget a vendor's number."""
        _provider_name(provider)

    def _clear_option(self, provider: str, key: str) -> None:
        full = _provider_name(provider)
        for name, options in self._providers:
            if name == full:
                options.pop(key, None)

    @property
    def model_data(self) -> Mapping[str, bytes]:
        """Models given as bytes, by file name."""
        return self._model_data

    @property
    def end_tokens(self) -> tuple[int, ...]:
        """Tokens that end a text.

        Raises:
            InvalidModelFolder: one is beyond any vocabulary.
        """
        found = self.model.get("eos_token_id")
        listed = found if isinstance(found, list) else [] if found is None else [found]
        tokens = tuple(each for each in listed if isinstance(each, int) and not isinstance(each, bool))
        if len(tokens) < len(listed) or any(abs(each) > _GREATEST_TOKEN for each in tokens):
            raise InvalidModelFolder(f"genai_config.json has model.eos_token_id = {found!r}, expected tokens")
        return tokens

    def part(self, name: str) -> Mapping[str, object]:
        """Return a section of ``model``; empty where there is none."""
        found = self.model.get(name, {})
        return found if isinstance(found, dict) else {}

    def size(self, name: str) -> int:
        """Return a whole number of the section ``model.decoder``.

        Raises:
            InvalidModelFolder: there is none.
        """
        found = self.decoder.get(name)
        if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found <= _GREATEST_TOKEN:
            raise InvalidModelFolder(f"genai_config.json has model.decoder.{name} = {found!r}, expected a whole number")
        return found

    def number(self, name: str) -> int:
        """Return a whole number of the section ``model``.

        Raises:
            InvalidModelFolder: there is none.
        """
        found = self.model.get(name)
        if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found <= _GREATEST_TOKEN:
            raise InvalidModelFolder(f"genai_config.json has model.{name} = {found!r}, expected a whole number")
        return found

    def overlay(self, text: str) -> None:
        """Lay an object of JSON over the configuration, section by section.

        Raises:
            InvalidModelFolder: the text is no object of JSON, or has a name that there is not, or gives a search
                option a value of another kind or out of range.
        """
        try:
            found = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InvalidModelFolder(f"the overlay is no JSON: {error}") from error
        if not isinstance(found, dict):
            raise InvalidModelFolder(f"the overlay is {type(found).__name__}, expected an object")
        check_names(found)
        search = found.get("search")
        try:
            SearchOptions(max_length=1).changed(_values(search) if isinstance(search, dict) else {})
        except InvalidGeneration as error:
            raise InvalidModelFolder(f"search: {error}") from error
        self._stated = _merged(self._stated, found)
        tell_without_effect(found)
        if "decoder" in found.get("model", {}) and "session_options" in found["model"]["decoder"]:
            self._providers = _stated_providers(self.decoder.get("session_options"))

    def clear_providers(self) -> None:
        """Ask no provider but the CPU."""
        self._providers = []

    def append_provider(self, name: str) -> None:
        """Ask a provider behind those asked already."""
        demand("append_provider()", "name", name, str)
        self._providers.append((_provider_name(name), {}))

    def set_provider_option(self, name: str, key: str, value: str) -> None:
        """Set an option of a provider, which is asked from now on."""
        for what, given in (("name", name), ("key", key), ("value", value)):
            demand("set_provider_option()", what, given, str)
        full = _provider_name(name)
        if full not in [each for each, _ in self._providers]:
            self._providers.append((full, {}))
        next(options for each, options in self._providers if each == full)[key] = value

    def add_model_data(self, file_name: str, data: bytes) -> None:
        """Take the bytes of a model in place of its file.

        Raises:
            InvalidModelFolder: they are not bytes.
        """
        if not isinstance(data, bytes | bytearray | memoryview):
            raise InvalidModelFolder(f"model data for {file_name!r} are {type(data).__name__}, expected bytes")
        self._model_data[file_name] = bytes(data)

    def remove_model_data(self, file_name: str) -> None:
        """Forget the bytes of a model; its file is read again.

        Raises:
            InvalidModelFolder: there are none.
        """
        if self._model_data.pop(file_name, None) is None:
            raise InvalidModelFolder(f"Model data for {file_name!r} was not found.")


def _section(stated: Mapping[str, object], name: str) -> Mapping[str, object]:
    found = stated.get(name)
    if not isinstance(found, dict):
        raise InvalidModelFolder(f"genai_config.json has no section {name!r}; found {', '.join(stated) or 'nothing'}")
    return found


def _values(stated: Mapping[str, object]) -> dict[str, object]:
    """Return what a section states, but for names whose value is null."""
    return {name: value for name, value in stated.items() if value is not None}


def _merged(below: Mapping[str, object], above: Mapping[str, object]) -> dict[str, object]:
    found = dict(below)
    for name, value in above.items():
        old = found.get(name)
        found[name] = _merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return found


def _provider_name(name: str) -> str:
    if name.endswith("ExecutionProvider"):
        return name
    if name.lower() not in _PROVIDERS:
        raise InvalidModelFolder(f"Unknown provider name {name!r}.{did_you_mean(name, list(_PROVIDERS))}")
    return _PROVIDERS[name.lower()]


def _stated_providers(options: object) -> list[tuple[str, dict[str, str]]]:
    """Return what ``provider_options`` lists: an object a provider, its name and its options."""
    listed = options.get("provider_options", []) if isinstance(options, dict) else []
    found = []
    for each in listed if isinstance(listed, list) else []:
        if isinstance(each, dict):
            found += [
                (_provider_name(name), {key: str(value) for key, value in given.items()})
                for name, given in each.items() if isinstance(given, dict)
            ]  # fmt: skip
    return [each for each in found if each[0] != "CPUExecutionProvider"]
