"""Convert models to ORT format, with the list of operators that they need; onnxruntime.tools' names.

python -m ort_tools.convert_onnx_models_to_ort --optimization_style Fixed FOLDER

A session optimizes each model; what it would run is written. The style ``Runtime`` holds passes back for the device:
here that means the basic ones are done and the others are left to the session that reads the file.
"""

from __future__ import annotations

import argparse
import enum
import os
import pathlib
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass

import onnx

import ort_core
from ort_core.cli.interrupts import run_program
from ort_core.errors import OrtError
from ort_core.model_graphs import write_proto
from ort_core.whole_files import replace_file
from ort_tools.file_utils import files_from_file_or_dir, path_match_suffix_ignore_case
from ort_tools.onnx_model_utils import get_optimization_level
from ort_tools.ort_format_model import create_config_from_models, write_ort_format

LEVEL_VARIABLE = "ORT_CONVERT_ONNX_MODELS_TO_ORT_OPTIMIZATION_LEVEL"
_PORTABLE = {"all": "extended", "layout": "extended"}  # layouts of blocks are this machine's


class OptimizationStyle(enum.Enum):
    """When passes run: before the file is written, or, all but the basic ones, where it is read."""

    Fixed = 0
    Runtime = 1


@dataclass(frozen=True, slots=True)
class _Request:
    source: pathlib.Path
    folder: pathlib.Path
    level: str
    style: OptimizationStyle
    library: pathlib.Path | None
    saves_onnx: bool
    allows_failures: bool

    def suffix(self, ending: str) -> str:
        level = "" if self.level == "all" else f".{self.level}"
        style = ".with_runtime_opt" if self.style is OptimizationStyle.Runtime else ""
        return f"{level}{style}{ending}"


def convert_onnx_models_to_ort(
    model_path_or_dir: pathlib.Path,
    output_dir: pathlib.Path | None = None,
    optimization_styles: list[OptimizationStyle] | None = None,
    custom_op_library_path: pathlib.Path | None = None,
    target_platform: str | None = None,
    save_optimized_onnx_model: bool = False,
    allow_conversion_failures: bool = False,
    enable_type_reduction: bool = False,
) -> None:
    """Convert a model, or all below a folder.

    Args:
        model_path_or_dir: an ``.onnx`` file, or a folder; ``.optimized.onnx`` files are left out.
        output_dir: where the files go, by default beside the models.
        optimization_styles: each writes its own files.
        custom_op_library_path: operators of one's own.
        target_platform: taken for onnxruntime's programs: layouts of one processor are never written.
        save_optimized_onnx_model: write what was converted as ONNX, too.
        allow_conversion_failures: go on behind a model that cannot be converted.
        enable_type_reduction: see ``create_config_from_models``.

    Raises:
        FileNotFoundError: there is no such model, folder or library.
        ValueError: the folder has no models.
        OrtError: a model cannot be loaded, or has no ORT format.
    """
    source = pathlib.Path(model_path_or_dir).resolve()
    if not source.exists():
        raise FileNotFoundError(f"Model path '{source}' is not a file or directory.")
    library = None if custom_op_library_path is None else custom_op_library_path.resolve()
    if library is not None and not library.is_file():
        raise FileNotFoundError(f"Unable to find custom operator library '{library}'")
    folder = source if source.is_dir() else source.parent
    if output_dir is not None:
        output_dir.mkdir(parents=True, exist_ok=True)
        folder = output_dir.resolve()
    level = os.getenv(LEVEL_VARIABLE, "all")
    for style in optimization_styles or []:
        _say(f"Converting models with optimization style '{style.name}' and level '{level}'")
        request = _Request(source, folder, level, style, library, save_optimized_onnx_model, allow_conversion_failures)
        converted = _convert_all(request)
        create_config_from_models(converted, _config_path(request, enable_type_reduction), enable_type_reduction)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def _config_path(request: _Request, with_types: bool) -> pathlib.Path:
    name = ("required_operators_and_types" if with_types else "required_operators") + request.suffix(".config")
    if request.source.is_dir():
        return request.folder / name
    return request.folder / request.source.with_suffix(f".{name}").name


def _is_model(path: pathlib.Path) -> bool:
    if path_match_suffix_ignore_case(path, ".optimized.onnx"):
        _say(f"Ignoring '{path}'")
        return False
    return path_match_suffix_ignore_case(path, ".onnx")


def _convert_all(request: _Request) -> list[pathlib.Path]:
    models = files_from_file_or_dir(request.source, _is_model)
    if not models:
        raise ValueError(f"No model files were found in '{request.source}'")
    converted = []
    base = request.source if request.source.is_dir() else request.source.parent
    for model in models:
        target = (request.folder / model.relative_to(base)).with_suffix(request.suffix(".ort"))
        try:
            _convert(model, target, request)
        except OrtError as error:
            _say(f"Error converting {model}: {error}")
            if not request.allows_failures:
                raise
        else:
            converted.append(target)
    _say(f"Converted {len(converted)}/{len(models)} models successfully.")
    return converted


def _convert(model: pathlib.Path, target: pathlib.Path, request: _Request) -> None:
    _say(f"Converting optimized ONNX model {model} to ORT format model {target}")
    target.parent.mkdir(parents=True, exist_ok=True)
    level = "basic" if request.style is OptimizationStyle.Runtime else _PORTABLE.get(request.level, request.level)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "optimized.onnx"
        options = ort_core.SessionOptions()
        options.optimized_model_filepath = str(path)
        options.graph_optimization_level = get_optimization_level(level)
        if request.library is not None:
            options.register_custom_ops_library(str(request.library))
        ort_core.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        optimized = onnx.load(path)
    replace_file(target, write_ort_format(optimized))
    if request.saves_onnx:
        write_proto(optimized, target.with_suffix(".optimized.onnx"))


def parse_args(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse onnxruntime's command line."""
    parser = argparse.ArgumentParser("convert_onnx_models_to_ort.py", description=(__doc__ or "").splitlines()[0])
    styles = [each.name for each in OptimizationStyle]
    parser.add_argument("--output_dir", type=pathlib.Path, help="where the files go, by default beside the models")
    parser.add_argument(
        "--optimization_style",
        nargs="+",
        default=styles,
        choices=styles,
        help="when passes run; by default both, a file each",
    )
    parser.add_argument("--enable_type_reduction", action="store_true", help="taken: types are not written")
    parser.add_argument("--custom_op_library", type=pathlib.Path, help="operators of one's own")
    parser.add_argument("--save_optimized_onnx_model", action="store_true", help="write it as ONNX, too")
    parser.add_argument("--allow_conversion_failures", action="store_true", help="go on behind a failure")
    parser.add_argument("--target_platform", choices=["arm", "amd64"], help="has no effect here")
    parser.add_argument("model_path_or_dir", type=pathlib.Path, help="a model, or a folder of models")
    parsed = parser.parse_args(arguments)
    parsed.optimization_style = [OptimizationStyle[each] for each in parsed.optimization_style]
    return parsed


def main(arguments: Sequence[str] | None = None) -> None:
    """Convert what the command line names."""
    args = parse_args(arguments)
    convert_onnx_models_to_ort(
        args.model_path_or_dir, args.output_dir, args.optimization_style, args.custom_op_library, args.target_platform,
        args.save_optimized_onnx_model, args.allow_conversion_failures, args.enable_type_reduction,
    )  # fmt: skip


if __name__ == "__main__":
    run_program(main)
