"""The feeds of a run: values from files where given, made up where not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ort_core.cli.console import note
from ort_core.cli.inputs.input_files import read_inputs
from ort_core.cli.inputs.random_inputs import ANONYMOUS_SIZE, InputMaker, dimension_names
from ort_core.cli.parameters import check_known, parse_shapes, parse_sizes
from ort_core.errors import OrtError, RunTerminated, RunTimeout
from ort_core.ir.model import Model
from ort_core.ir.types import OptionalType
from ort_core.ir.values import Value

Result = TypeVar("Result")
_SIZES_TO_TRY = (ANONYMOUS_SIZE, 64, 224, 512, 1024)  # text, small and usual images, a short piece of sound


@dataclass(frozen=True, slots=True)
class InputRequest:
    """What the user says about inputs, as the texts of the options."""

    inputs: Sequence[str] | None = None
    shapes: Sequence[str] | None = None
    dims: Sequence[str] | None = None
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Feeds:
    """Values by input name, in words where each comes from, and what to say when the guesses were wrong."""

    values: dict[str, object]
    origins: dict[str, str]
    advice: str = ""
    has_guesses: bool = False


def run_with_feeds(model: Model, request: InputRequest, run: Callable[[Feeds], Result]) -> tuple[Feeds, Result]:
    """Call ``run`` with feeds and return both; sizes that were guessed without a name are tried larger when it fails.

    Raises:
        OrtError: of the first try, when no size works; what the user can do is then on stderr.
        typer.BadParameter, InvalidArgument: as ``build_feeds``.
    """
    first_error: OrtError | None = None
    feeds = build_feeds(model, request)
    for size in _SIZES_TO_TRY:
        tried = feeds if first_error is None else build_feeds(model, request, size)
        try:
            return tried, run(tried)
        except OrtError as error:
            first_error = first_error or error
            if not feeds.has_guesses or isinstance(error, (RunTimeout, RunTerminated)):
                break
    assert first_error is not None
    if feeds.advice and not isinstance(first_error, (RunTimeout, RunTerminated)):
        note(f"note: {feeds.advice}")
    raise first_error


def build_feeds(model: Model, request: InputRequest, anonymous_size: int = ANONYMOUS_SIZE) -> Feeds:
    """Return a value for every required input of a model.

    Raises:
        typer.BadParameter: an option names no input or dimension, or a value cannot be made up.
        InvalidArgument: a file does not hold what it should.
    """
    inputs = model.graph.inputs
    shapes, sizes = parse_shapes(request.shapes), parse_sizes(request.dims)
    check_known(shapes, [value.name for value in inputs], "input", "--shape")
    check_known(sizes, dimension_names(inputs), "dimension", "--dim")
    given = read_inputs(request.inputs, inputs)
    required = [value for value in inputs if value.constant is None]
    maker = InputMaker(required, shapes, {**_sizes_of(given, inputs), **sizes}, request.seed, anonymous_size)
    values, origins = dict(given), dict.fromkeys(given, "from a file")
    guessed: list[tuple[str, int, object]] = []
    for value in required:
        if value.name in given or (isinstance(value.type, OptionalType) and value.name not in shapes):
            continue
        made = maker.make(value)
        values[value.name], origins[value.name] = made.value, made.origin
        guessed.extend((value.name, axis, made.value) for axis in made.guessed_axes)
    return Feeds(values, origins, _advice(guessed, any(name not in given for name in values)), bool(guessed))


def _sizes_of(given: Mapping[str, object], inputs: Sequence[Value]) -> dict[str, int]:
    """Return the sizes of named dimensions as the values from files have them, so that made-up ones agree."""
    sizes: dict[str, int] = {}
    for value in inputs:
        found = getattr(given.get(value.name), "shape", None)
        if found is None or value.shape is None or len(found) != len(value.shape):
            continue
        for dim, size in zip(value.shape, found, strict=True):
            name = getattr(dim, "name", None)
            if name is not None:
                sizes.setdefault(name, size)
    return sizes


def _advice(guessed: Sequence[tuple[str, int, object]], is_random: bool) -> str:
    if guessed:
        name, _, value = guessed[0]
        shape = "x".join(map(str, getattr(value, "shape", ())))
        places = ", ".join(f"axis {axis} of {each!r}" for each, axis, _ in guessed)
        return f"Sizes were guessed where the model names none ({places}); try --shape {name}={shape} with other sizes."
    if is_random:
        return "Some inputs were made up; if the model needs others, give --input, --shape or --dim."
    return ""
