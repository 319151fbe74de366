"""The options that several commands share, each declared once, and the readers of their texts."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

_PLACEMENT = "Placement and optimization"
_INPUTS = "Inputs"


class LevelName(enum.StrEnum):
    """How far the graph is optimized."""

    DISABLE = "disable"
    BASIC = "basic"
    EXTENDED = "extended"
    LAYOUT = "layout"
    ALL = "all"


def existing_model(path: Path | None) -> Path | None:
    """Return the path of a model file (a folder stands for the ``model.onnx`` in it), or refuse with near names."""
    if path is None:
        return None
    if path.is_dir():
        models = sorted(path.glob("*.onnx"))
        if (path / "model.onnx") in models or len(models) == 1:
            return path / "model.onnx" if len(models) > 1 else models[0]
        if not models:
            raise typer.BadParameter(f"the folder {str(path)!r} has no .onnx file")
        found = ", ".join(model.name for model in models)
        raise typer.BadParameter(f"the folder {str(path)!r} has several models; name one of them: {found}")
    if path.is_file():
        return path
    if path.is_symlink() and not path.exists():
        raise typer.BadParameter(f"{str(path)!r} is a link to {str(path.readlink())!r}, which does not exist")
    if path.exists():
        raise typer.BadParameter(f"{str(path)!r} is a pipe or a device, not a regular file")
    from ort_core.errors import did_you_mean

    near = [entry.name for entry in path.parent.iterdir() if entry.suffix == ".onnx"] if path.parent.is_dir() else []
    where = "" if path.parent.is_dir() else f" The folder {str(path.parent)!r} does not exist either."
    raise typer.BadParameter(f"there is no file {str(path)!r}.{where}{did_you_mean(path.name, near)}")


def existing_model_or_folder(path: Path) -> Path:
    """Return the path as it is given, of a file or of a folder with a model; refuse as ``existing_model`` does."""
    existing_model(path)
    return path


class ToleranceChoice(enum.StrEnum):
    """Names of the table of tolerances."""

    EXACT = "exact"
    ROUNDING = "rounding"
    APPROXIMATE = "approximate"


def existing_operators(sources: list[str] | None) -> list[str] | None:
    """Return files and modules of operators as they are, or refuse a file that does not exist with near names."""
    from ort_core.errors import did_you_mean

    for path in map(Path, sources or ()):
        if path.suffix == ".py" and not path.is_file():
            near = [entry.name for entry in path.parent.glob("*.py")] if path.parent.is_dir() else []
            raise typer.BadParameter(f"there is no file {str(path)!r}.{did_you_mean(path.name, near)}")
    return sources


ModelPath = Annotated[
    Path, typer.Argument(metavar="MODEL", help="An .onnx file, or a folder with one.", callback=existing_model)
]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else there.")]
ProviderNames = Annotated[
    list[str] | None,
    typer.Option(
        "--provider", "-p", metavar="NAME[:KEY=VALUE,…]", rich_help_panel=_PLACEMENT,
        help="An execution provider, most wanted first; repeatable. 'cpu' stands for CPUExecutionProvider.",
    ),
]  # fmt: skip
Level = Annotated[
    LevelName, typer.Option("--level", "-O", help="How far to optimize the graph.", rich_help_panel=_PLACEMENT)
]
Disabled = Annotated[
    list[str] | None,
    typer.Option(
        "--disable", metavar="PASS", help="Leave out an optimizer pass; repeatable.", rich_help_panel=_PLACEMENT
    ),
]
Strict = Annotated[
    bool,
    typer.Option("--strict", help="Fail when a node does not run on the first provider.", rich_help_panel=_PLACEMENT),
]
Config = Annotated[
    list[str] | None,
    typer.Option(
        "--config", metavar="KEY=VALUE", rich_help_panel=_PLACEMENT,
        help="A configuration entry of the session, such as session.trust_compiled_code=1; repeatable.",
    ),
]  # fmt: skip
Threads = Annotated[
    int,
    typer.Option(
        "--threads", min=0, help="Threads within an operator; 0 lets the provider choose.", rich_help_panel=_PLACEMENT
    ),
]
Operators = Annotated[
    list[str] | None,
    typer.Option(
        "--ops", metavar="FILE.py|MODULE", rich_help_panel=_PLACEMENT, callback=existing_operators,
        help="Operators of your own: a Python file, or the name of a module; repeatable.",
    ),
]  # fmt: skip
Inputs = Annotated[
    list[str] | None,
    typer.Option(
        "--input", "-i", metavar="[NAME=]FILE", rich_help_panel=_INPUTS,
        help="A value from .npy, .npz, .json, .pb or an image, or a folder with input_0.pb …; repeatable. "
        "Inputs that are not given get random values.",
    ),
]  # fmt: skip
Shapes = Annotated[
    list[str] | None,
    typer.Option(
        "--shape", metavar="NAME=1x3x224x224", help="Shape of a random input; repeatable.", rich_help_panel=_INPUTS
    ),
]
Dims = Annotated[
    list[str] | None,
    typer.Option("--dim", metavar="NAME=SIZE", help="Size of a named dimension; repeatable.", rich_help_panel=_INPUTS),
]
Seed = Annotated[int, typer.Option("--seed", help="Seed of random inputs.", rich_help_panel=_INPUTS)]


def check_needed(needed: str, given: Mapping[str, object]) -> None:
    """Refuse options, by name, that were given and mean nothing without the option ``needed``."""
    for name, value in given.items():
        if value:
            raise typer.BadParameter(f"it has no effect without {needed}: give {needed} as well", param_hint=name)


def parse_shapes(texts: Sequence[str] | None) -> dict[str, tuple[int, ...]]:
    """Return shapes by input name from ``name=1x3``; ``name=`` and ``name=scalar`` mean a scalar."""
    shapes = {}
    for text in texts or ():
        name, found, sizes = text.rpartition("=")
        parts = [] if sizes in ("", "scalar") else sizes.lower().replace(",", "x").split("x")
        if not found or not name or not all(part.isdigit() for part in parts):
            raise typer.BadParameter(f"{text!r} is not a shape; write NAME=1x3x224x224", param_hint="--shape")
        shapes[name] = tuple(int(part) for part in parts)
    return shapes


def parse_sizes(texts: Sequence[str] | None) -> dict[str, int]:
    """Return sizes by dimension name from ``batch=2``."""
    sizes = {}
    for text in texts or ():
        name, found, size = text.rpartition("=")
        if not found or not name or not size.isdigit():
            raise typer.BadParameter(f"{text!r} is not a size; write NAME=SIZE, such as batch=2", param_hint="--dim")
        sizes[name] = int(size)
    return sizes


def parse_config(texts: Sequence[str] | None) -> dict[str, str]:
    """Return configuration entries by key from ``session.trust_compiled_code=1``."""
    entries = {}
    for text in texts or ():
        key, found, value = text.partition("=")
        if not found or not key:
            raise typer.BadParameter(f"{text!r} is not an entry; write KEY=VALUE", param_hint="--config")
        entries[key] = value
    return entries


def parse_providers(texts: Sequence[str] | None, hint: str = "--provider") -> list[tuple[str, dict[str, str]]] | None:
    """Return (name, options) in order from ``cpu`` or ``CUDAExecutionProvider:device_id=1``; ``None`` without any."""
    if not texts:
        return None
    request = []
    for text in texts:
        name, _, rest = text.partition(":")
        options = {}
        for entry in filter(None, rest.split(",")):
            key, found, value = entry.partition("=")
            if not found:
                raise typer.BadParameter(f"{entry!r} in {text!r} is not an option; write KEY=VALUE", param_hint=hint)
            options[key] = value
        request.append((full_provider_name(name, hint), options))
    return request


def full_provider_name(name: str, hint: str) -> str:
    """Return the full name of a provider named in short (``cpu``), or refuse with near names."""
    from ort_core.environment import PACKAGES, default_environment
    from ort_core.errors import did_you_mean
    from ort_core.settings import KNOWN_PROVIDERS

    environment = default_environment()
    installed = list(environment.provider_classes())
    known = list(dict.fromkeys([*installed, *environment.plugins.unusable, *KNOWN_PROVIDERS]))
    by_short = {each.removesuffix("ExecutionProvider").lower(): each for each in reversed(known)}
    found = by_short.get(name.removesuffix("ExecutionProvider").lower())
    if found is None:
        shipped = [each for each in known if each in installed or each in PACKAGES]  # not those that nobody brings
        short = [each.removesuffix("ExecutionProvider").lower() for each in shipped]
        near = did_you_mean(name.lower(), short) or did_you_mean(name, shipped)
        raise typer.BadParameter(
            f"no provider is called {name!r}.{near} Installed: {', '.join(installed)}. `ort providers` shows more.",
            param_hint=hint,
        )
    return found


def installed_provider_name(name: str) -> str:
    """Return the full name of a provider that a plugin brings, or refuse with what to install or why it is unusable."""
    from ort_core.environment import PACKAGES, default_environment

    found, environment = full_provider_name(name, "--provider"), default_environment()
    if found not in environment.provider_classes():
        broken = environment.plugins.unusable.get(found)
        remedy = PACKAGES.get(found, "no known package brings it")
        reason = f"the plugin cannot be used: {broken}" if broken else f"it is not installed: {remedy}"
        raise typer.BadParameter(f"{found}: {reason}", param_hint="--provider")
    return found


def check_known(names: Iterable[str], known: Mapping[str, object] | Sequence[str], what: str, hint: str) -> None:
    """Refuse names that are not known, with near ones."""
    from ort_core.errors import did_you_mean

    for name in names:
        if name not in known:
            listed = ", ".join(list(known)[:12]) or "none"
            same = next((each for each in known if each.casefold() == name.casefold()), None)
            near = did_you_mean(name, list(known)) if same is None else f" Did you mean {same!r}?"
            raise typer.BadParameter(f"the model has no {what} {name!r}.{near} It has: {listed}.", param_hint=hint)
