"""Records of direct calls: heads and entries as rows of 64-bit words, with all that must live as long as they do.

A head never changes once its function exists. A new signature makes a new head, with a new function, around the same
entries; whoever is inside the older one keeps it, and with it all that it points to.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from ort_core.cpu.codegen.machine_code.code_cache import compiled_for_host
from ort_core.cpu.codegen.machine_code.compiled_module import CompiledModule
from ort_core.cpu.direct.call_layout import Entry, Head
from ort_core.cpu.direct.python_layout import METH_FASTCALL, MethodDefinition, PythonLayout, build_function
from ort_core.cpu.program.output_memory import LEAST
from ort_core.cpu.program.sources import input_of
from ort_core.cpu.threads.pool_code import ALONE
from ort_core.plugin import Rejection, keep_for_ever

if TYPE_CHECKING:
    import numpy.typing as npt

    from ort_core.cpu.program.program import BoundState
    from ort_core.cpu.program.sources import Source
    from ort_core.cpu.threads.pool import ThreadPool

SingleFunction: TypeAlias = Callable[..., object]  # of arrays; None where the step was run
Words: TypeAlias = "npt.NDArray[np.int64]"


class Runner(Protocol):
    """What runs the steps of an entry."""

    @property
    def entry_points(self) -> tuple[int, int]:
        """The addresses of a function as ``ort_pool_run``, and of its first argument."""


class KeptWords(np.ndarray[Any, Any]):  # Any: numpy's own parameters
    """Words that keep the objects alive which they point to."""

    kept: tuple[object, ...]


def build_entry(
    bound: BoundState, shapes: Sequence[tuple[int, ...]], nbytes: Sequence[int], sources: Sequence[Source],
    order: Sequence[int], numbers: Sequence[int] = (),
) -> KeptWords:  # fmt: skip
    """Return the entry of one signature.

    Args:
        bound: a run state, which the entry owns from now on.
        shapes: of the head's inputs.
        nbytes: of the head's inputs.
        sources: where each input of the program comes from: an input of the head by number, or a constant.
        order: which output of the program each output of the head is.
        numbers: that inputs of the head are.
    """
    patches: list[tuple[int, int, int]] = []
    for source, places in zip(sources, bound.inputs, strict=True):
        if isinstance(source, np.ndarray):
            bound.write(places, source.ctypes.data)
        else:
            patches.extend((*place, input_of(source)) for place in places)
    for number, index in enumerate(order):
        patches.extend((*place, len(shapes) + number) for place in bound.outputs[index])
    signature = [word for s, n in zip(shapes, nbytes, strict=True) for word in (len(s), *s, n)]
    signature.extend(numbers)
    rows, kept_outputs = _output_rows(bound, sources, order)
    words = new_words(Entry.COUNT)
    kept = [filled(patches), filled(signature), filled(rows)]
    words[Entry.STEPS], words[Entry.STEP_COUNT], words[Entry.WANTED] = bound.steps, bound.count, bound.wanted
    words[Entry.ERROR], words[Entry.HOLDS_LOCK] = bound.error, bound.holds_lock
    words[Entry.PATCH_COUNT] = len(patches)
    words[Entry.PATCHES], words[Entry.SIGNATURE], words[Entry.OUTPUTS] = (each.ctypes.data for each in kept)
    words.kept = (bound, *kept, kept_outputs, *sources)
    return words


def build_single(layout: PythonLayout, steps: int, wanted: int, pool: ThreadPool) -> SingleFunction:
    """Return the function that runs the one step at an address, of arrays whose addresses its table begins with.

    The step must live as long as the function.
    """
    words = new_words(Entry.COUNT)
    words[Entry.STEPS], words[Entry.STEP_COUNT], words[Entry.WANTED] = steps, 1, wanted
    words[Entry.HOLDS_LOCK] = wanted == ALONE
    head = build_head(layout, (), (), 0, pool, (words,))
    return build_function(_definition(layout, "ort_single_step"), head)  # type: ignore[return-value]  # what the code returns


def build_head(
    layout: PythonLayout, names: Sequence[str], types: Sequence[np.dtype], outputs: int, runner: Runner,
    entries: Sequence[KeptWords], opened: KeptWords | None = None, numbers: Sequence[int] = (),
) -> KeptWords:  # fmt: skip
    """Return the head over these entries, of which the first that fits is taken, and what takes all other signatures.

    ``numbers`` are the inputs that are a number each, which belongs to the signature.
    """
    words = new_words(Head.COUNT)
    for word, value in layout.words.items():
        words[word] = value
    addresses = [each.ctypes.data for each in entries]
    own = [id(name) for name in names], [id(dtype) for dtype in types], addresses, numbers
    lists = [filled(each) for each in own]
    words[Head.INPUTS], words[Head.OUTPUTS], words[Head.ENTRIES] = len(types), outputs, len(entries)
    words[Head.POOL_RUN], words[Head.POOL] = runner.entry_points
    (
        words[Head.NAMES], words[Head.TYPES], words[Head.LIST], words[Head.NUMBERS]
    ) = (each.ctypes.data for each in lists)  # fmt: skip
    words[Head.NUMBER_COUNT] = len(numbers)
    words[Head.OPEN] = 0 if opened is None else opened.ctypes.data
    words.kept = (runner, *names, *types, *entries, *lists, opened)
    return words


def build_call(layout: PythonLayout, head: KeptWords, name: str) -> Callable[..., list[np.ndarray] | None]:
    """Return one of the module's functions (``ort_direct_call``, ``ort_direct_step``) over a head."""
    return build_function(_definition(layout, name), head)  # type: ignore[return-value]  # what the code returns


_definitions: dict[str, MethodDefinition] = {}


def _definition(layout: PythonLayout, name: str) -> MethodDefinition:
    """Return the definition of a function: never freed, like the code that it names.

    The collector may take a head apart before the function whose ``self`` it is, a function looks into its definition
    when it goes, and some go behind the last module: nothing that can be collected may own one. Threads that ask at
    once may make one each; each of them stays.
    """
    found = _definitions.get(name)
    if found is None:
        code = keep_for_ever(_code(layout))
        made = keep_for_ever(MethodDefinition(b"direct_run", code.address(name), METH_FASTCALL, None))
        found = _definitions.setdefault(name, made)
    return found


def find_call_code(layout: PythonLayout) -> CompiledModule | Rejection:
    """Return the code of direct calls, or why there is none: it is nowhere to be found, and there is no compiler."""
    try:
        return _code(layout)
    except ImportError as error:
        return Rejection(f"the code of direct calls was not stored for this Python, and there is no compiler: {error}")


def _code(layout: PythonLayout) -> CompiledModule:
    threads = "" if layout.is_locked else " of free threads"
    return compiled_for_host(f"direct calls{threads} {layout.arrays}", functools.partial(_written, layout))


def _written(layout: PythonLayout) -> str:
    from ort_core.cpu.direct.call_code import call_text  # when it was not compiled before

    return call_text(layout.arrays, is_locked=layout.is_locked)


def _output_rows(bound: BoundState, sources: Sequence[Source], order: Sequence[int]) -> tuple[list[int], list[object]]:
    rows: list[int] = []
    kept: list[object] = []
    for index in order:
        shape, dtype = bound.shapes[index], bound.dtypes[index]
        sizes = filled(shape)
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        maker = functools.partial(bound.memory.lease, shape, dtype) if nbytes >= LEAST else None
        kept.extend((sizes, maker))
        shared = shared_input(bound.in_place, sources, index)
        rows.extend(
            (dtype.num, id(dtype), len(shape), sizes.ctypes.data, nbytes, shared, 0 if maker is None else id(maker))
        )
    return rows, kept


def shared_input(in_place: Mapping[int, int], sources: Sequence[Source], output: int) -> int:
    """Return which input of the head may lie where an output of the program does, or -1.

    Args:
        in_place: outputs of the program that may lie where an input does, and of which.
        sources: as for ``build_entry``.
        output: of the program.
    """
    source = sources[in_place[output]] if output in in_place else -1
    is_read_once = isinstance(source, int) and [s for s in sources if isinstance(s, int)].count(source) == 1
    return source if isinstance(source, int) and is_read_once else -1


def new_words(count: int) -> KeptWords:
    """Return zeros."""
    return np.zeros(count, np.int64).view(KeptWords)


def filled(values: Sequence[object]) -> Words:
    """Return numbers as words, at least one."""
    return np.array(values, np.int64).reshape(-1) if len(values) else np.zeros(1, np.int64)
