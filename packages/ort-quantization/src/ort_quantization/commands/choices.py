"""Which options of ``ort quantize`` go together, and what its ``--extra-option`` says."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import typer

from ort_core.errors import did_you_mean
from ort_quantization.arguments.extra_options import EXTRA_OPTIONS

_ALWAYS = {"model", "output", "data", "provider", "report", "json", "help"}
_COMPARED = {"layers"}
_CALIBRATED = {"method"}
_NAMED = {"exclude"}
_FILES = {"external_data"}
_PLAIN = (
    "weights", "per_channel", "reduce_range", "equalize", "only", "op_type", "prepare", "extra_option",
)  # fmt: skip
_STATIC = ("activations", "format", "method", "samples_at_once", "resume", "correct_bias")
_WAYS: dict[str, set[str]] = {
    "half": {*_ALWAYS, *_NAMED, *_FILES, "half"},
    "weight_only": {
        *_ALWAYS, *_NAMED, *_FILES, *_COMPARED, "weight_only", "weight_method", "block_size", "last_bits",
    },
    "to_target": {*_ALWAYS, *_CALIBRATED, "to_target", "scheme", "budget"},
}  # fmt: skip
_OWN = {"weight_only": ("weight_method", "block_size", "last_bits"), "to_target": ("scheme", "budget")}
_NEED_DATA = (*_STATIC, "layers", "report")


def refuse_unused(context: typer.Context) -> None:
    """Refuse options that would have no effect beside the others.

    Raises:
        typer.BadParameter: which, and beside what.
    """
    given = [name for name in context.params if _is_given(context, name)]
    ways = [name for name in _WAYS if name in given]
    if len(ways) > 1:
        raise typer.BadParameter(f"choose one: {', '.join(map(_flag, ways))} ask for different models")
    way = ways[0] if ways else None
    for name in given:
        if way is not None and name not in _WAYS[way]:
            raise typer.BadParameter(f"has no effect beside {_flag(way)}", param_hint=_flag(name))
        owner = next((each for each, own in _OWN.items() if name in own), None)
        if owner is not None and owner != way:
            raise typer.BadParameter(f"belongs to {_flag(owner)}, which is not given", param_hint=_flag(name))
        if name in _NEED_DATA and not context.params["data"]:
            raise typer.BadParameter("needs samples: give --data", param_hint=_flag(name))
    if way == "half" and "report" in given:
        raise typer.BadParameter("has no effect beside --half", param_hint="--report")


def refuse_half_of_float8(*chosen: str) -> None:
    """Refuse 8-bit floats for weights or activations alone, or by other ranges than those of the distribution.

    Raises:
        typer.BadParameter: what goes together.
    """
    if 0 < sum(each in ("float8", "distribution") for each in chosen) < len(chosen):
        raise typer.BadParameter(
            "8-bit floats need --weights float8, --activations float8 and --method distribution together"
        )


def _is_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"  # the enumeration is click's, or typer's copy of it


def refuse_unwritable(path: Path, option: str) -> None:
    """Refuse a file that cannot be written, before the work whose result it is to hold.

    Raises:
        typer.BadParameter: why.
    """
    if path.is_dir():
        raise typer.BadParameter(f"{path} is a folder; a file is written", param_hint=option)
    folder = next((each for each in path.absolute().parents if each.exists()), path.absolute().parent)
    if not folder.is_dir():
        raise typer.BadParameter(f"{path} cannot be written: {folder} is no folder", param_hint=option)
    if not os.access(folder, os.W_OK):
        raise typer.BadParameter(f"{path} cannot be written: {folder} is not open for writing", param_hint=option)


def refuse_unknown_operators(types: Sequence[str], model: Path) -> None:
    """Refuse operators by type that a model does not have.

    Raises:
        typer.BadParameter: which, and near ones.
    """
    from ort_quantization.arguments.advice import count_operators
    from ort_quantization.models.model_files import read_model

    known = sorted(count_operators(read_model(model)[0])) if types else []
    for each in types:
        if each not in known:
            raise typer.BadParameter(
                f"the model has no operator {each!r}.{did_you_mean(each, known)} It has {', '.join(known)}",
                param_hint="--op-type",
            )


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def extra_options_of(texts: Sequence[str]) -> dict[str, object]:
    """Return the keys of ``extra_options`` that texts ``NAME=VALUE`` give; values are read as JSON, or are text.

    Raises:
        typer.BadParameter: a text has no ``=``, or nothing knows its name.
    """
    found: dict[str, object] = {}
    for text in texts:
        name, is_pair, value = text.partition("=")
        if not is_pair:
            raise typer.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--extra-option")
        if name not in EXTRA_OPTIONS:
            known = sorted(EXTRA_OPTIONS)
            raise typer.BadParameter(
                f"no option is called {name!r}.{did_you_mean(name, known)}", param_hint="--extra-option"
            )
        try:
            found[name] = json.loads(value)
        except json.JSONDecodeError:
            found[name] = {"True": True, "False": False}.get(value, value)
    return found
