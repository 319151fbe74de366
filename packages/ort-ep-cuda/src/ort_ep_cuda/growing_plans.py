"""One program for sizes that grow from run to run, such as a decoder's cache: lowered once, bound to each step's sizes.

The second signature whose sizes have grown from those of the last one is lowered with sizes that remember their formula
(``lowering.values.growing``). Later sizes that meet its conditions get the same program: the same buffers, made for
more than today's sizes, and the same captured launches, which read their sizes on the device.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ort_core.plugin import OrtError
from ort_ep_cuda.lowering.program import Program
from ort_ep_cuda.lowering.values.growing import CannotGrow, SizeKey, Trace, evaluated, grows, key_of
from ort_ep_cuda.lowering.values.growing_values import growing_array
from ort_ep_cuda.lowering.values.views import Shape

LEAST_ROOM = 64  # sizes that a program has room for beyond today's: as many steps of a decoder
MAXIMUM_PROGRAMS = 8  # of one partition; each holds buffers
Known = Mapping[int, np.ndarray]
Lower = Callable[[Sequence[Shape], Known], Program]
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Signature:
    """Sizes and contents that decide a program: integers in one row, and what else must be equal."""

    numbers: tuple[int, ...]
    form: tuple[object, ...]

    @classmethod
    def of(cls, shapes: Sequence[Shape], known: Known) -> Signature:
        """Return the signature of inputs: a known vector of integers is part of the row."""
        numbers = [size for shape in shapes for size in shape]
        form: list[object] = [len(shape) for shape in shapes]
        for index, content in known.items():
            form += [index, content.shape, content.dtype.str]
            if content.dtype.kind in "iu":
                numbers += content.reshape(-1).tolist()
            else:
                form.append(content.tobytes())
        return cls(tuple(numbers), tuple(form))


@dataclass(frozen=True, slots=True)
class Binding:
    """A program for one signature: what its words are, and the shapes of its outputs."""

    program: Program
    words: np.ndarray
    shapes: tuple[Shape, ...]


@dataclass(frozen=True, slots=True)
class GrowingProgram:
    """A program with the formulas of its sizes.

    ``variables`` names, for each number of the signature, the variable that it is, or ``None`` where it is fixed.
    """

    program: Program
    trace: Trace
    first: Signature
    variables: tuple[int | None, ...]
    words: tuple[SizeKey, ...]
    shapes: tuple[tuple[SizeKey, ...], ...]
    rooms: tuple[tuple[SizeKey, int], ...]

    @classmethod
    def of(cls, program: Program, trace: Trace, first: Signature, variables: Sequence[int | None]) -> GrowingProgram:
        """Return a program that was lowered with a trace."""
        rooms = {
            (key_of(used), buffer.nbytes)
            for used, buffer in zip(program.nbytes, program.buffers, strict=True)
            if grows(used)
        }
        return cls(
            program,
            trace,
            first,
            tuple(variables),
            tuple(key_of(word) for word in program.words),
            tuple(tuple(key_of(size) for size in facts.shape) for facts in program.outputs),
            tuple(sorted(rooms)),
        )

    def bind(self, signature: Signature) -> Binding | None:
        """Return the program for other sizes; ``None`` where it does not hold for them, or has no room."""
        if signature.form != self.first.form:
            return None
        values: dict[int, int] = {}
        for number, fixed, variable in zip(signature.numbers, self.first.numbers, self.variables, strict=True):
            if (fixed if variable is None else values.setdefault(variable, number)) != number:
                return None
        atoms = self.trace.values_of([values[variable] for variable in range(len(values))])
        if atoms is None or not self.trace.holds(atoms):
            return None
        if any(evaluated(used, atoms) > room for used, room in self.rooms):
            return None
        words = np.array([evaluated(word, atoms) for word in self.words], np.int64)
        shapes = tuple(tuple(evaluated(size, atoms) for size in shape) for shape in self.shapes)
        return Binding(self.program, words, shapes)


@dataclass(slots=True)
class GrowingPlans:
    """The growing programs of one partition. Safe from many threads.

    Args:
        lower: lowers the partition for shapes and known contents, which may hold sizes that grow.
    """

    lower: Lower
    _programs: list[GrowingProgram] = field(default_factory=list)
    _refused: set[tuple[object, ...]] = field(default_factory=set)
    _last: Signature | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def bind(self, shapes: Sequence[Shape], known: Known) -> Binding | None:
        """Return a growing program for a signature; ``None``: it is lowered by itself."""
        signature = Signature.of(shapes, known)
        with self._lock:
            last, self._last = self._last, signature
            for program in self._programs:
                bound = program.bind(signature)
                if bound is not None:
                    return bound
            grown = None if last is None else self._grown(last, signature, shapes, known)
            if grown is None:
                return None
            self._programs = [*self._programs, grown][-MAXIMUM_PROGRAMS:]
            return grown.bind(signature)

    def forget(self, program: Program) -> None:
        """Do not use a program again, such as one whose buffers find no memory."""
        with self._lock:
            for found in [each for each in self._programs if each.program is program]:
                self._refused.add((found.first.form, tuple(variable is not None for variable in found.variables)))
                self._programs.remove(found)

    def _grown(
        self, last: Signature, signature: Signature, shapes: Sequence[Shape], known: Known
    ) -> GrowingProgram | None:
        """Lower the program for sizes that have grown since the last signature, and will grow on."""
        if last.form != signature.form:
            return None
        pairs = list(zip(last.numbers, signature.numbers, strict=True))
        moved = tuple(before != now for before, now in pairs)
        if not any(moved) or (signature.form, moved) in self._refused or any(now < before for before, now in pairs):
            return None
        kinds = list(dict.fromkeys(pair for pair in pairs if pair[0] != pair[1]))
        variables = [kinds.index(pair) if pair[0] != pair[1] else None for pair in pairs]
        trace, room = Trace(), _room(max(now for _, now in kinds))
        sizes = [trace.variable(now, now + room) for _, now in kinds]
        row = iter([number if v is None else sizes[v] for number, v in zip(signature.numbers, variables, strict=True)])
        try:
            program = self.lower([tuple(next(row) for _ in shape) for shape in shapes], _contents(known, row))
            found = GrowingProgram.of(program, trace, signature, variables)
            next_sizes = [2 * now - before for before, now in kinds]
            atoms = trace.values_of(next_sizes)
            if atoms is None or not trace.holds(atoms):
                raise CannotGrow("it holds for these sizes only")
        except (CannotGrow, OrtError) as error:
            log.debug("this partition is lowered for each size: %s", error)
        except Exception as error:  # noqa: BLE001 - a lowering that a size confuses: one of one size does without
            log.warning("this partition is lowered for each size: %s: %s", type(error).__name__, error)
        else:
            return found
        self._refused.add((signature.form, moved))
        return None


def _room(size: int) -> int:
    """Return by how much all sizes may grow in a program that is lowered now: to the next power of two, at least."""
    return (1 << (size + LEAST_ROOM - 1).bit_length()) - size


def _contents(known: Known, row: Iterator[int]) -> dict[int, np.ndarray]:
    """Return known contents with sizes that grow in place of their numbers."""
    found: dict[int, np.ndarray] = {}
    for index, content in known.items():
        if content.dtype.kind not in "iu":
            found[index] = content
            continue
        numbers = [next(row) for _ in range(content.size)]
        is_growing = any(grows(number) for number in numbers)
        found[index] = growing_array(numbers, content.shape) if is_growing else content
    return found
