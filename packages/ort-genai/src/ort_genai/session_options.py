"""Session options as ``genai_config.json`` states them for a part of a model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import ort_core
from ort_genai.configuration import Config
from ort_genai.errors import InvalidModelFolder, raised_as
from ort_genai.folder_paths import part_file, path_inside

_COUNTS = ("intra_op_num_threads", "inter_op_num_threads", "log_severity_level", "log_verbosity_level")
_LEVELS = ("ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_LAYOUT", "ORT_ENABLE_ALL")


_PATHS = ("_path", "_file", "_file_name", "_dir")


def session_options(stated: object, folder: Path) -> ort_core.SessionOptions:
    """Return options of a section ``session_options``: threads, logs, the level of optimization, config entries.

    What is about memory patterns and arenas is onnxruntime's own, and left out.

    Args:
        stated: the section.
        folder: of the model, which paths among the entries are in.

    Raises:
        InvalidModelFolder: a value is of another kind, or a path leads out of the folder.
    """
    made = ort_core.SessionOptions()
    given = stated if isinstance(stated, Mapping) else {}
    for name in _COUNTS:
        value = given.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise InvalidModelFolder(f"genai_config.json has session_options.{name} = {value!r}, expected a number")
        setattr(made, name, value)
    level = given.get("graph_optimization_level")
    if level is not None:
        if level not in _LEVELS:
            raise InvalidModelFolder(
                f"genai_config.json has session_options.graph_optimization_level = {level!r}; expected one of "
                f"{', '.join(_LEVELS)}"
            )
        made.graph_optimization_level = getattr(ort_core.GraphOptimizationLevel, str(level))
    entries = given.get("config_entries")
    for name, value in entries.items() if isinstance(entries, Mapping) else ():
        if name.endswith(_PATHS) and value != "":
            value = str(path_inside(folder, value, f"session_options.config_entries.{name}"))
        made.add_session_config_entry(str(name), str(value))
    return made


def open_part(config: Config, part: str, default: str) -> tuple[ort_core.InferenceSession, Path | bytes]:
    """Return a session of a part's graph, and what it was read from.

    Args:
        config: of the folder.
        part: its section of the configuration: ``decoder``.
        default: the file where the section names none.

    Raises:
        InvalidModelFolder: the file is not there, or not in the folder, or not a model that can be run.
    """
    stated = config.part(part)
    file, path = part_file(config.folder, stated, part, default)
    if file not in config.model_data and not path.is_file():
        raise InvalidModelFolder(f"{str(path)!r}, which genai_config.json names for its {part}, is not there")
    model: Path | bytes = config.model_data.get(file, path)
    options = session_options(stated.get("session_options"), config.folder)
    with raised_as(InvalidModelFolder):
        return ort_core.InferenceSession(model, options, providers=config.providers), model
