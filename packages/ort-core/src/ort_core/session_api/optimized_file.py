"""The file that ``SessionOptions.optimized_model_filepath`` names: the optimized model, for any reader of ONNX."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from ort_core.stages import PreparedModel, PrepareSettings, fuse_whole

if TYPE_CHECKING:
    from ort_core.environment import Environment
    from ort_core.options import SessionOptions

_EXTERNAL = "session.optimized_model_external_initializers"


def save_optimized(
    prepared: PreparedModel, options: SessionOptions, environment: Environment, disabled_passes: Iterable[str] = ()
) -> None:
    """Save a prepared model where the options ask for it, its weights inside unless they name a file or need one.

    Raises:
        Fail: the file cannot be written.
    """
    if not options.optimized_model_filepath:
        return
    from ort_core.onnx_io.save import needs_external_file, save_model  # only programs that save pay for it

    path = Path(options.optimized_model_filepath)
    environment = prepared.environment or environment
    model = fuse_whole(prepared, environment, PrepareSettings.of(options, environment, disabled_passes))
    file = str(options.setting(f"{_EXTERNAL}_file_name")) or None
    if file is None and needs_external_file(model):
        file = f"{path.name}.data"
    threshold = int(options.setting(f"{_EXTERNAL}_min_size_in_bytes"))
    save_model(model, path, external_file=file, external_threshold=threshold)
