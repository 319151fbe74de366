"""What lies in a folder of models: NAME/VERSION/model.onnx, or one file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ort_serve.failures import InvalidRequest
from ort_serve.repository.model_settings import ModelSettings
from ort_serve.repository.settings_files import read_model_settings


@dataclass(frozen=True)
class FoundModel:
    """One model of a repository.

    Attributes:
        name: its folder's, or its file's without the suffix.
        settings: how it is served.
        versions: files by version.
        problem: why it cannot be served; empty if it can.
    """

    name: str
    settings: ModelSettings
    versions: dict[int, Path]
    problem: str = ""

    def chosen(self) -> dict[int, Path]:
        """Return the versions that the settings ask for."""
        if self.settings.versions == "all":
            return dict(self.versions)
        if self.settings.versions == "latest":
            newest = sorted(self.versions)[-self.settings.latest :]
            return {version: self.versions[version] for version in newest}
        return {version: self.versions[version] for version in self.settings.versions if version in self.versions}


def scan_models(root: Path) -> dict[str, FoundModel]:
    """Return the models below a folder, or the one that a file is.

    Raises:
        InvalidRequest: there is no such file or folder.
    """
    if root.is_file():
        return {root.stem: FoundModel(root.stem, ModelSettings(), {1: root})}
    if not root.is_dir():
        raise InvalidRequest(f"{root} is no model and no folder of models")
    return {folder.name: scan_model(folder) for folder in sorted(_folders(root))}


def scan_one(root: Path, name: str) -> FoundModel | None:
    """Return the model of a name, or None. The name is only compared: no path is made of it."""
    if root.is_file():
        return scan_models(root).get(name)
    folder = next((folder for folder in _folders(root) if folder.name == name), None)
    return None if folder is None else scan_model(folder)


def scan_model(folder: Path) -> FoundModel:
    """Return one model's folder; what is wrong with it stands in ``problem``."""
    try:
        settings = read_model_settings(folder)
        versions = {
            int(path.name): path / settings.file
            for path in _folders(folder)
            if path.name.isdecimal() and len(path.name) <= 18 and (path / settings.file).is_file()
        }
    except InvalidRequest as error:
        return FoundModel(folder.name, ModelSettings(), {}, str(error))
    except OSError as error:
        return FoundModel(folder.name, ModelSettings(), {}, f"{folder} cannot be read: {error}")
    if not versions:
        problem = f"{folder} has no VERSION/{settings.file}; a version is a folder whose name is a number"
        return FoundModel(folder.name, settings, {}, problem)
    return FoundModel(folder.name, settings, versions)


def _folders(root: Path) -> Iterable[Path]:
    return (path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
