"""What a chat template may do: so many steps, so much that is made and looked at, then it is refused.

jinja2's sandbox keeps a template away from Python, not from the processor and the memory: loops in loops, texts that
double and paddings of a billion characters come with the folder of whoever wrote the model. A list that holds another
one a thousand times, which holds a third one a thousand times, is small until somebody writes or compares it: so what
is looked at is weighed first, with all that it holds, as often as it holds it.
"""

from __future__ import annotations

import re
from collections.abc import ItemsView, Mapping, MappingView, Sequence
from types import GeneratorType
from typing import Any  # Any: what templates compute

import jinja2

STEPS = 1 << 20  # of loops, macros and blocks together
SIZE = 1 << 24  # characters and elements that are made, each time they are made
READS = 1 << 25  # elements that are looked at, and sixteen times as many characters
WRITES = 1 << 26  # characters that are written, those of macros among them
BITS = 1 << 14  # of a whole number; Python writes no more than 4,300 digits
PRECISION = 300  # digits that a number is rounded to; floats have no more
_WIDTH = re.compile(r"\d{8,}")  # of a padding or a precision
_GIVEN_WIDTH = re.compile(r"%[^a-zA-Z%]*\*|\{[^{}]*:[^{}]*\{")  # that an argument states: '%*d', '{:{}}'
_CODINGS = frozenset({"utf-8", "utf8", "ascii", "latin-1"})  # the others' time may grow with the square of the text
_UNSIZED = frozenset({"int", "float", "abs", "tojson", "default", "d", "get", "split"})
_ATOMS = frozenset({int, float, bool, type(None)})
_ITERATORS = (GeneratorType, map, filter, zip, enumerate, reversed)
JOINED_BY = "joined_by"  # the method of a text; the filter takes the separator behind what it joins
TEXTS = (str, bytes)
HOLDERS = (list, tuple, set, frozenset, Mapping, MappingView)


class Budget:
    """Counts what a template does; one for each text that is written."""

    def __init__(self) -> None:
        self._steps = self._size = self._reads = self._writes = 0

    def step(self) -> None:
        """Count a step of a loop, or a call of a macro.

        Raises:
            TemplateError: there were too many.
        """
        self._steps += 1
        if self._steps > STEPS:
            raise jinja2.TemplateError(f"it takes more than {STEPS} steps")

    def make(self, count: int) -> None:
        """Count characters or elements that are made.

        Raises:
            TemplateError: there were too many.
        """
        self._size += max(count, 0)
        if self._size > SIZE:
            _refuse_size()

    def read(self, count: int) -> None:
        """Count elements that are looked at.

        Raises:
            TemplateError: there were too many.
        """
        self._reads += count
        if self._reads > READS:
            raise jinja2.TemplateError(f"it takes more than {READS} looks at elements of texts and lists")

    def write(self, count: int) -> None:
        """Count characters that are written.

        Raises:
            TemplateError: there were too many.
        """
        self._writes += count
        if self._writes > WRITES:
            raise jinja2.TemplateError(f"it makes texts and lists of more than {WRITES} characters, which it writes")

    def weighed(self, value: Any) -> int:
        """Return about how many characters writing a value takes, and count the looks at it.

        Raises:
            TemplateError: there are too many.
        """
        found = self._weight(value, {})
        if found > SIZE:
            _refuse_size()
        return found

    def _weight(self, value: Any, known: dict[int, int]) -> int:
        if isinstance(value, TEXTS):
            self.read(len(value) >> 4)
            return len(value)
        if isinstance(value, range):
            self.read(len(value))
            return len(value)
        if not isinstance(value, HOLDERS):
            return 8
        found = known.get(id(value))
        if found is None:
            self.read(len(value))
            held: Any = value
            if isinstance(value, Mapping | ItemsView):  # pairs are made as they are asked for: their ids come again
                pairs = value.items() if isinstance(value, Mapping) else value
                held = (each for pair in pairs for each in pair)
            found = 2
            for each in held:
                found += 10 if type(each) in _ATOMS else 2 + self._weight(each, known)
            known[id(value)] = found
        return found

    def listed(self, value: Any) -> Any:
        """Return what an iterator gives as a list, each look counted; other values as they are."""
        if not isinstance(value, _ITERATORS):
            return value
        found = []
        for each in value:
            self.read(1)
            found.append(each)
        return found

    # ------------------------------------------------------------ functions

    def check(self, name: str, value: Any, given: tuple[Any, ...], more: Mapping[str, Any]) -> None:
        """Count what a function is going to make of a value, where its arguments tell.

        Raises:
            TemplateError: it would be too much.
        """
        listed = [*given, *more.values()]
        if name in ("format", "format_map"):
            self._check_format(str(value), listed)
        elif name == "round":
            if any(isinstance(each, int) and abs(each) > PRECISION for each in listed):
                raise jinja2.TemplateError(f"it takes more than {PRECISION} digits to round to")
        elif name in ("indent", "expandtabs"):
            text = value.decode("latin-1") if isinstance(value, bytes) else str(value)
            times = 1 + text.count("\n" if name == "indent" else "\t")
            self.make(times * sum(_length(each) for each in listed))
        elif name == "replace":
            self._check_replace(value, given, more)
        elif name == "join":
            self._check_join(given[0] if given else more.get("d", ""), value)
        elif name == JOINED_BY:
            self._check_join(value, given[0] if given else ())
        elif name == "sum":
            self._check_sum(value, listed)
        elif name == "translate":
            self._check_times(len(value), listed)
        elif name in ("encode", "decode"):
            coding = str((given or (more.get("encoding", "utf-8"),))[0])
            if coding.lower() not in _CODINGS:
                raise jinja2.TemplateError(f"it asks for the coding {coding[:32]!r}, not {', '.join(sorted(_CODINGS))}")
        elif name not in _UNSIZED:
            for each in listed:
                self.make(each if isinstance(each, int) else 0)

    def check_operator(self, operator: str, left: Any, right: Any) -> None:
        """Count what an operator is going to make of two values.

        Raises:
            TemplateError: it would be too much.
        """
        if isinstance(left, int) and isinstance(right, int):
            bits = left.bit_length()
            if operator == "**":
                bits *= max(right, 1)
            elif operator == "*":
                bits += right.bit_length()
            if max(bits, right.bit_length()) > BITS:
                raise jinja2.TemplateError(f"it makes numbers of more than {BITS} bits")
        elif operator == "%" and isinstance(left, TEXTS):
            listed = right if isinstance(right, tuple) else (right,)
            self.weighed(listed)
            self._check_format(left if isinstance(left, str) else left.decode("latin-1"), listed)
        elif operator == "*":
            for some, times in ((left, right), (right, left)):
                if isinstance(some, str | bytes | list | tuple) and isinstance(times, int):
                    self.make(len(some) * times)
        elif operator == "+" and isinstance(left, str | bytes | list | tuple) and hasattr(right, "__len__"):
            self.make(len(left) + len(right))

    def _check_format(self, text: str, given: Sequence[Any]) -> None:
        if _GIVEN_WIDTH.search(text):
            for each in given:
                self.make(each if isinstance(each, int) else 0)
        if _WIDTH.search(text):
            raise jinja2.TemplateError("it pads a text to more than 9,999,999 characters")
        self._check_times(max(text.count("{"), text.count("%")), given)

    def _check_times(self, times: int, given: Sequence[Any]) -> None:
        """Refuse a text that would have the largest of some values so many times."""
        if times > 1 and times * max(map(self.weighed, given), default=0) > SIZE:
            _refuse_size()

    def _check_replace(self, value: Any, given: tuple[Any, ...], more: Mapping[str, Any]) -> None:
        stated = dict(zip(("old", "new"), given, strict=False)) | {name: more[name] for name in more}
        if isinstance(value, bytes):
            old, new, text = stated.get("old", b""), stated.get("new", b""), value
            times = text.count(old) if isinstance(old, bytes) else 0
            self.make(times * _length(new))
            return
        old, new = str(stated.get("old", "")), str(stated.get("new", ""))
        times = str(value).count(old)
        self.make(times * len(new) if len(new) > len(old) else 0)

    def _check_join(self, separator: Any, items: Any) -> None:
        if hasattr(items, "__len__"):
            self.make(self.weighed(items) + len(items) * _length(separator))

    def _check_sum(self, value: Any, given: Sequence[Any]) -> None:
        """Count what sums of lists are made of: each is a new list."""
        starts = [each for each in given if isinstance(each, list | tuple)]
        if starts and hasattr(value, "__len__"):
            self.make(len(value) * sum(_length(each) for each in (*value, *starts)))


def _length(value: Any) -> int:
    """Return the size that a number states, or that a value has."""
    if isinstance(value, int):
        return value
    return len(value) if hasattr(value, "__len__") else 0


def _refuse_size() -> None:
    raise jinja2.TemplateError(f"it makes texts and lists of more than {SIZE} characters and elements")
