"""What lies in a folder of models: NAME/VERSION/model.onnx, or one file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ort_serve.failures import InvalidRequest, plain_text
from ort_serve.repository.model_settings import ModelSettings
from ort_serve.repository.settings_files import read_model_settings
from ort_serve.repository.triton_config import unread_fields

_FOREIGN = frozenset(
    {"lost+found", "System Volume Information", "$RECYCLE.BIN", "@eaDir"}
)  # what systems lay into mounts


@dataclass(frozen=True)
class FoundModel:
    """One model of a repository.

    Attributes:
        name: its folder's, or its file's without the suffix.
        settings: how it is served.
        versions: files by version.
        problem: why it cannot be served; empty if it can.
        remark: what is passed over of its settings; empty for nothing.
    """

    name: str
    settings: ModelSettings
    versions: dict[int, Path]
    problem: str = ""
    remark: str = ""

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
        raise InvalidRequest(f"{root} is neither a model nor a folder of models")
    found = [scan_model(folder) for folder in sorted(_folders(root))]
    return {model.name: model for model in found}


def scan_one(root: Path, name: str) -> FoundModel | None:
    """Return the model of a name, or None. The name is only compared: no path is made of it."""
    if root.is_file():
        return scan_models(root).get(name)
    folder = next((folder for folder in _folders(root) if folder.name == name), None)
    return None if folder is None else scan_model(folder)


def scan_model(folder: Path) -> FoundModel:
    """Return one model's folder; what is wrong with it stands in ``problem``."""
    if plain_text(folder.name) != folder.name:
        problem = "the folder's name is not UTF-8, so that no request can name the model; rename the folder"
        return FoundModel(plain_text(folder.name), ModelSettings(), {}, problem)
    try:
        settings = read_model_settings(folder)
        versions = {
            int(path.name): file
            for path in _version_folders(folder)
            if (file := _model_file(path / settings.file)).is_file()
        }
        remark = _remark(folder)
    except InvalidRequest as error:
        return FoundModel(folder.name, ModelSettings(), {}, str(error))
    except OSError as error:
        return FoundModel(folder.name, ModelSettings(), {}, f"{folder} cannot be read: {error}")
    if not versions:
        return FoundModel(folder.name, settings, {}, _without_versions(folder, settings.file), remark)
    found = FoundModel(folder.name, settings, versions, remark=remark)
    if not found.chosen():
        asked, there = list(settings.versions), sorted(versions)
        problem = f"the settings of {folder} ask for versions {asked}; the folder has {there}"
        return FoundModel(folder.name, settings, {}, problem, remark)
    return found


def _version_folders(folder: Path) -> list[Path]:
    """Return the folders whose names are numbers from 1 on, the largest last; ``007`` is not ``7``."""
    names = [path for path in _numbered_folders(folder) if not path.name.startswith("0")]
    return sorted(names, key=lambda path: int(path.name))


def _numbered_folders(folder: Path) -> Iterable[Path]:
    return (path for path in _folders(folder) if path.name.isascii() and path.name.isdecimal() and len(path.name) <= 18)


def _without_versions(folder: Path, name: str) -> str:
    """Return why a model's folder has no version, by what is there instead."""
    versions = _version_folders(folder)
    if not versions:
        advice = f"; move {name} to {folder}/1/{name}" if (folder / name).is_file() else ""
        return f"{folder} has no VERSION/{name}; a version is a folder whose name is a number from 1 on{advice}"
    newest = versions[-1]
    if (newest / name).is_symlink():
        return f"{newest / name} is a link to a file that is not there"
    others = sorted(file.name for file in newest.glob("*.onnx"))
    if others:
        return f"{newest} has no {name}, but {others[0]}: rename it, or name it as `file` in {folder / 'model.toml'}"
    return f"{newest} has no {name}"


def _model_file(path: Path) -> Path:
    """Return a version's file. Triton lays models of several files into a folder of the file's name."""
    return path / "model.onnx" if path.is_dir() else path


def _remark(folder: Path) -> str:
    remarks = []
    padded = sorted(path.name for path in _numbered_folders(folder) if path.name.startswith("0"))
    if padded:
        remarks.append(f"not versions, for numbers of versions do not begin with 0: {', '.join(padded)}")
    unread = [] if (folder / "model.toml").is_file() else unread_fields(folder / "config.pbtxt")
    if unread:
        remarks.append(f"config.pbtxt has fields without a meaning here: {', '.join(unread)}")
    return "; ".join(remarks)


def _folders(root: Path) -> Iterable[Path]:
    return (
        path for path in root.iterdir() if not path.name.startswith(".") and path.name not in _FOREIGN and path.is_dir()
    )
