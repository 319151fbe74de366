"""Options of sessions and runs as ``genai_config.json`` states them for a part of a model."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path

import ort_core
from ort_core.errors import UnknownOption
from ort_genai.configuration import Config
from ort_genai.errors import InvalidModelFolder, raised_as
from ort_genai.folder_paths import part_file, path_inside

log = logging.getLogger(__name__)
_COUNTS = ("intra_op_num_threads", "inter_op_num_threads", "log_severity_level", "log_verbosity_level")
_SWITCHES = ("enable_cpu_mem_arena", "enable_mem_pattern")
_LEVELS = ("ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_LAYOUT", "ORT_ENABLE_ALL")
_PATHS = ("path", "_file", "_file_name", "_dir")  # how entries that name files end: a model's folder holds them
_PROVIDERS = ("provider_options", "providers")  # which Config reads


def session_options(stated: object, folder: Path) -> ort_core.SessionOptions:
    """Return options of a section ``session_options``.

    A name that is no option is an entry of the session's configuration, a text, as in onnxruntime-genai. An entry that
    ort-core does not know is told in the log.

    Args:
        stated: the section.
        folder: of the model, which paths among the entries are in.

    Raises:
        InvalidModelFolder: a value is of another kind, or a path leads out of the folder.
    """
    made = ort_core.SessionOptions()
    given = stated if isinstance(stated, Mapping) else {}
    for name, value in given.items():
        if name in _PROVIDERS or value is None:
            continue
        if name in _COUNTS:
            _set_count(made, name, value)
        elif name in _SWITCHES:
            _demand(isinstance(value, bool), name, value, "true or false")
            setattr(made, name, value)
        elif name == "graph_optimization_level":
            _demand(value in _LEVELS, name, value, f"one of {', '.join(_LEVELS)}")
            made.graph_optimization_level = getattr(ort_core.GraphOptimizationLevel, str(value))
        elif name == "custom_ops_library":
            log.warning(
                "genai_config.json: session_options.custom_ops_library = %r is not loaded: code of a model's folder is "
                "not run, and libraries for onnxruntime's C API cannot be. Install operators as a plugin (ort.plugins)",
                value,
            )
        else:
            _demand(isinstance(value, str), name, value, "a text")
            _set_text(made, name, str(value), folder)
    return made


def run_options(stated: object) -> ort_core.RunOptions | None:
    """Return options of a section ``run_options``: entries of a run's configuration; ``None`` where it has none.

    Raises:
        InvalidModelFolder: a value is no text.
    """
    if not isinstance(stated, Mapping) or not stated:
        return None
    made = ort_core.RunOptions()
    for name, value in stated.items():
        _demand(isinstance(value, str), name, value, "a text", "run_options")
        _add_entry(made.add_run_config_entry, "run_options", name, value)
    return made


def _set_count(made: ort_core.SessionOptions, name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidModelFolder(f"genai_config.json has session_options.{name} = {value!r}, expected a number")
    setattr(made, name, value)


def _set_text(made: ort_core.SessionOptions, name: str, value: str, folder: Path) -> None:
    if name == "log_id":
        made.logid = value
    elif name == "enable_profiling":
        plain = value.replace("-", "").replace("_", "").replace(".", "")
        _demand(plain.isalnum(), name, value, "the start of a file's name, without a folder")
        made.enable_profiling, made.profile_file_prefix = True, value
    else:
        if name.endswith(_PATHS) and value != "":
            value = str(path_inside(folder, value, f"session_options.{name}"))
        _add_entry(made.add_session_config_entry, "session_options", name, value)


def _add_entry(add: Callable[[str, str], None], section: str, name: str, value: str) -> None:
    try:
        with raised_as(InvalidModelFolder):
            add(name, value)
    except UnknownOption as error:
        log.warning("genai_config.json: %s.%s has no effect: %s", section, name, error)


def _demand(is_met: bool, name: str, value: object, expected: str, section: str = "session_options") -> None:
    if not is_met:
        raise InvalidModelFolder(f"genai_config.json has {section}.{name} = {value!r}, expected {expected}")


def part_source(config: Config, part: str, default: str) -> Path | bytes:
    """Return what a part's graph is read from.

    Args:
        config: of the folder.
        part: its section of the configuration: ``decoder``.
        default: the file where the section names none.

    Raises:
        InvalidModelFolder: the file is not there, or not in the folder.
    """
    file, path = part_file(config.folder, config.part(part), part, default)
    if file not in config.model_data and not path.is_file():
        raise InvalidModelFolder(f"{str(path)!r}, which genai_config.json names for its {part}, is not there")
    return config.model_data.get(file, path)


def open_part(config: Config, part: str, default: str) -> ort_core.InferenceSession:
    """Return a session of a part's graph.

    Args:
        config: of the folder.
        part: its section of the configuration: ``decoder``.
        default: the file where the section names none.

    Raises:
        InvalidModelFolder: the file is not there, or not in the folder, or not a model that can be run.
    """
    model = part_source(config, part, default)
    return _opened(config, model, session_options(config.part(part).get("session_options"), config.folder))


def open_rewired(config: Config, part: str, source: Path | bytes, model: bytes) -> ort_core.InferenceSession:
    """Return a session of a graph that stands in the place of a part's own.

    Args:
        config: of the folder.
        part: its section of the configuration, whose options of sessions are taken.
        source: what the part's own graph is read from: weights lie beside it, and a file's session is remembered.
        model: the graph.

    Raises:
        InvalidModelFolder: it cannot be run.
    """
    options = session_options(config.part(part).get("session_options"), config.folder)
    if isinstance(source, Path):
        _say_where(options, source)
    return _opened(config, model, options)


def open_made(config: Config, part: str, default: str, model: bytes) -> ort_core.InferenceSession:
    """Return a session of a graph that was made of a part's own, whose weights lie beside that one.

    Args:
        config: of the folder.
        part: its section of the configuration, whose options of sessions are taken.
        default: the file where the section names none.
        model: the graph.

    Raises:
        InvalidModelFolder: it cannot be run.
    """
    stated = config.part(part)
    options = session_options(stated.get("session_options"), config.folder)
    options.enable_profiling = False  # the part's own session writes the trace
    _say_where(options, part_file(config.folder, stated, part, default)[1])
    return _opened(config, model, options)


def _say_where(options: ort_core.SessionOptions, file: Path) -> None:
    """Say where external data of a part's file lies: beside it, and beside what it leads to where it is a link."""
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(file.parent))
    if file.is_symlink():  # as in the cache of Hugging Face's hub
        linked = str(file.resolve().parent)
        options.add_session_config_entry("session.model_external_initializers_linked_folder_path", linked)
    options.add_session_config_entry("session.recalls_bytes", "1")


def _opened(config: Config, model: Path | bytes, options: ort_core.SessionOptions) -> ort_core.InferenceSession:
    with raised_as(InvalidModelFolder):
        session = ort_core.InferenceSession(model, options, providers=config.providers)
    if options.enable_profiling:  # onnxruntime writes the trace when a session ends
        weakref.finalize(config, session.end_profiling)
    return session
