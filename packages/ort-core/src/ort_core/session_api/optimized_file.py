"""The file that ``SessionOptions.optimized_model_filepath`` names: the optimized model, as ONNX or in ORT format."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from ort_core.errors import Fail
from ort_core.errors import NotImplemented as OrtNotImplemented
from ort_core.sibling_modules import DISTRIBUTIONS, find_sibling
from ort_core.stages import PreparedModel, PrepareSettings, fuse_whole

if TYPE_CHECKING:
    from ort_core.environment import Environment
    from ort_core.ir.model import Model
    from ort_core.ir.values import Value
    from ort_core.options import SessionOptions

_FORMAT = "session.save_model_format"
_EXTERNAL = "session.optimized_model_external_initializers"


def save_optimized(
    prepared: PreparedModel, outputs: Iterable[Value], options: SessionOptions, environment: Environment,
    disabled_passes: Iterable[str] = (),
) -> None:  # fmt: skip
    """Save a prepared model where the options ask for it, its weights inside unless they name a file or need one.

    ``outputs`` are the model's as the session shows them: by the names of sizes that the model declares.

    The format is the one that the options name, else that of the name: ORT format for ``.ort``, as in onnxruntime.

    Raises:
        Fail: the file cannot be written.
        NotImplemented: ORT format is asked for, which ort-tools writes, and it is not installed.
    """
    if not options.optimized_model_filepath:
        return
    from ort_core.onnx_io.save import needs_external_file, save_model  # only programs that save pay for it

    path = Path(options.optimized_model_filepath)
    environment = prepared.environment or environment
    model = fuse_whole(prepared, environment, PrepareSettings.of(options, environment, disabled_passes))
    model = _as_shown(model if model is not prepared.model else model.clone(), outputs)
    if options.config_entries.get(_FORMAT, "ORT" if path.suffix == ".ort" else "ONNX") == "ORT":
        _save_in_ort_format(model, path)
        return
    file = str(options.setting(f"{_EXTERNAL}_file_name")) or None
    if file is None and needs_external_file(model):
        file = f"{path.name}.data"
    threshold = int(options.setting(f"{_EXTERNAL}_min_size_in_bytes"))
    save_model(model, path, external_file=file, external_threshold=threshold)


def _as_shown(model: Model, outputs: Iterable[Value]) -> Model:
    """Give the outputs of a model the types that callers know."""
    types = {value.name: value.type for value in outputs}
    for value in model.graph.outputs:
        value.type = types.get(value.name) or value.type
    return model


def _save_in_ort_format(model: Model, path: Path) -> None:
    from ort_core.onnx_io.save import model_to_proto  # as above
    from ort_core.whole_files import replace_file

    try:
        tools = importlib.import_module(f"{find_sibling('tools')}.ort_format_model")
    except ImportError as error:
        writer = DISTRIBUTIONS["tools"]
        raise OrtNotImplemented(
            f"Saving {path} in ORT format needs {writer}, which cannot be imported: {error}. Install it: "
            f"pip install {writer}; or save ONNX, by a name without .ort and no {_FORMAT}."
        ) from error
    content = tools.write_ort_format(model_to_proto(model))
    try:
        replace_file(path, content)
    except OSError as error:
        raise Fail(f"Saving the optimized model {path} failed: {error}") from error
