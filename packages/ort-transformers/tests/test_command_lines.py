"""Conversions have the options of onnxruntime's command lines: names, defaults, choices, and which must be given.

onnxruntime's scripts import torch; here only the functions that read their command lines are run.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import os
from importlib.machinery import PathFinder
from pathlib import Path

import pytest

from ort_transformers.benchmark_helper import Precision
from ort_transformers.fusion_options import FusionOptions
from ort_transformers.models.gpt2.names import MODEL_CLASS_NAMES, PRETRAINED_GPT2_MODELS
from ort_transformers.models.t5.names import PRETRAINED_MT5_MODELS, PRETRAINED_T5_MODELS
from ort_transformers.models.whisper.names import PRETRAINED_WHISPER_MODELS

NEEDED = {
    "models.gpt2.convert_to_onnx": ["-m", "x"],
    "models.t5.convert_to_onnx": [],
    "models.whisper.convert_to_onnx": [],
    "models.llama.convert_to_onnx": ["-m", "x"],
    "models.phi2.convert_to_onnx": [],
    "models.sam2.convert_to_onnx": [],
    "models.stable_diffusion.optimize_pipeline": ["-i", "x", "-o", "y"],
    "convert_generation": ["-m", "x", "--output", "y"],
}
OWN = {"models.phi2.convert_to_onnx": ("model",)}  # beyond onnxruntime's
FUNCTIONS = {"parse_arguments", "get_args"}
PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}


def their_source(module: str) -> ast.Module:
    spec = PathFinder.find_spec("onnxruntime")
    if spec is None or spec.origin is None:
        pytest.skip("onnxruntime is not installed")
    path = Path(spec.origin).parent.joinpath("transformers", *module.split(".")).with_suffix(".py")
    return ast.parse(path.read_text(encoding="utf-8"))


class Caught(Exception):
    """Carries a parser out of the function that makes it."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self.parser = parser


@pytest.fixture(autouse=True)
def _parsers_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def parse_args(self: argparse.ArgumentParser, *args: object, **kwargs: object) -> argparse.Namespace:
        raise Caught(self)

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_args)


def their_parser(module: str) -> argparse.ArgumentParser:
    """Return onnxruntime's parser without its module's imports."""
    (function,) = (each for each in their_source(module).body if getattr(each, "name", "") in FUNCTIONS)
    function.returns = None
    for argument in function.args.args:
        argument.annotation = None

    names = {
        "argparse": argparse, "os": os, "Precision": Precision, "MODEL_CLASSES": dict.fromkeys(MODEL_CLASS_NAMES),
        "PRETRAINED_GPT2_MODELS": PRETRAINED_GPT2_MODELS, "PRETRAINED_T5_MODELS": PRETRAINED_T5_MODELS,
        "PRETRAINED_MT5_MODELS": PRETRAINED_MT5_MODELS, "PRETRAINED_WHISPER_MODELS": PRETRAINED_WHISPER_MODELS,
        "PROVIDERS": PROVIDERS, "FusionOptions": FusionOptions,
    }  # fmt: skip
    exec(compile(ast.Module([function], []), module, "exec"), names)
    with pytest.raises(Caught) as caught:
        names[function.name]()
    return caught.value.parser


def our_parser(module: str) -> argparse.ArgumentParser:
    ours = importlib.import_module(f"ort_transformers.{module}")
    (name,) = (each for each in FUNCTIONS if hasattr(ours, each))
    with pytest.raises(Caught) as caught:
        getattr(ours, name)(NEEDED[module])
    return caught.value.parser


@pytest.mark.parametrize("module", NEEDED)
def test_command_lines_have_onnxruntimes_options(module):
    def facts(parser: argparse.ArgumentParser) -> dict[str, tuple[object, ...]]:
        return {
            action.dest: (
                sorted(action.option_strings), parser.get_default(action.dest), action.required, action.nargs,
                None if action.choices is None else list(action.choices), type(action),
            )
            for action in parser._actions
            if action.dest != "help"
        }  # fmt: skip

    wanted, found = facts(their_parser(module)), facts(our_parser(module))
    for own in OWN.get(module, ()):
        assert own not in wanted
        del found[own]
    assert found == wanted


def test_the_names_of_checkpoints_are_onnxruntimes():
    for module, name, ours in (
        ("models.gpt2.gpt2_helper", "PRETRAINED_GPT2_MODELS", PRETRAINED_GPT2_MODELS),
        ("models.t5.t5_helper", "PRETRAINED_T5_MODELS", PRETRAINED_T5_MODELS),
        ("models.t5.t5_helper", "PRETRAINED_MT5_MODELS", PRETRAINED_MT5_MODELS),
        ("models.whisper.whisper_helper", "PRETRAINED_WHISPER_MODELS", PRETRAINED_WHISPER_MODELS),
    ):
        (value,) = (
            each.value for each in their_source(module).body
            if isinstance(each, ast.Assign) and each.targets[0].id == name
        )  # fmt: skip
        assert ast.literal_eval(value) == ours, name
