r"""RE2's regular expressions in Python's ``re``: the syntax that differs, rewritten; what RE2 lacks, refused.

RE2 has no look-around and no back-references (it matches in linear time). It knows POSIX classes such as
``[[:alpha:]]``, ``\z`` for the end of the text, ``\Q...\E`` for literal text and ``\pL`` for Unicode categories; its
``\d``, ``\w``, ``\s`` and ``\b`` know ASCII only, while letter case is Unicode's. Character sets are kept here as
ranges of code points, so that the complement of any of them can be written inside a bracket.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field

LAST_CODE = 0x10FFFF
MAX_REPEAT = 1000  # RE2's own limit
_SETS = {
    "alnum": "09AZaz",
    "alpha": "AZaz",
    "ascii": "\x00\x7f",
    "blank": "\t\t  ",
    "cntrl": "\x00\x1f\x7f\x7f",
    "digit": "09",
    "graph": "!~",
    "lower": "az",
    "print": " ~",
    "punct": "!/:@[`{~",
    "space": "\t\r  ",
    "upper": "AZ",
    "word": "09AZ__az",
    "xdigit": "09AFaf",
    "perl_space": "\t\n\f\r  ",  # unlike [[:space:]], \s has no vertical tab
}
_PERL_CLASSES = {"d": "digit", "w": "word", "s": "perl_space"}
_WORD = "[0-9A-Za-z_]"
_BOUNDARY = f"(?<!{_WORD})(?={_WORD})|(?<={_WORD})(?!{_WORD})"
_NO_BOUNDARY = f"(?<!{_WORD})(?!{_WORD})|(?<={_WORD})(?={_WORD})"
_ESCAPES = {"z": r"\Z", "C": "(?s:.)", "A": r"\A", "b": f"(?:{_BOUNDARY})", "B": f"(?:{_NO_BOUNDARY})"}
_KEPT_ESCAPES = "afnrtv"
_FLAGS = re.compile(r"\(\?([imsU]*)(-[imsU]+)?([:)])")
_NAMED = re.compile(r"\(\?P?<([A-Za-z_]\w*)>")
_REPEAT = re.compile(r"(?:[*+?]|\{\d+(?:,\d*)?\})\??")

Ranges = Sequence[tuple[int, int]]


@dataclass(slots=True)
class _TranslationState:
    """Where the translation stands: the position, and which flags have been set on the way."""

    pattern: str
    at: int = 0
    multiline: bool = False
    out: list[str] = field(default_factory=list)

    def starts(self, text: str) -> bool:
        return self.pattern.startswith(text, self.at)

    def take(self, count: int) -> str:
        self.at += count
        return self.pattern[self.at - count : self.at]


def to_python(pattern: str) -> str:
    """Return ``pattern`` as Python's ``re`` reads it, for matching without further flags.

    Raises:
        ValueError: it uses syntax that RE2 does not have, or a Unicode script, which Python does not know.
    """
    state = _TranslationState(pattern)
    while state.at < len(pattern):
        state.out.append(_next_piece(state))
    return "".join(state.out)


def _next_piece(state: _TranslationState) -> str:
    symbol = state.pattern[state.at]
    if symbol == "\\":
        return _escape(state)
    if symbol == "[":
        return _bracket(state)
    if state.starts("(?"):
        return _group(state)
    repeat = _REPEAT.match(state.pattern, state.at)
    if repeat:
        following = _REPEAT.match(state.pattern, repeat.end())
        if following:
            raise ValueError(f"bad repetition operator: {repeat[0]}{following[0]}")
        if any(int(number) > MAX_REPEAT for number in re.findall(r"\d+", repeat[0])):
            raise ValueError(f"bad repetition operator: {repeat[0]} (at most {MAX_REPEAT} times)")
        return state.take(len(repeat[0]))
    if symbol == "$":
        state.take(1)
        return "$" if state.multiline else r"\Z"  # Python's plain $ also matches before a last line break
    return state.take(1)


def _group(state: _TranslationState) -> str:
    named = _NAMED.match(state.pattern, state.at)
    if named:
        state.take(len(named[0]))
        return f"(?P<{named[1]}>"
    flags = _FLAGS.match(state.pattern, state.at)
    if not flags:
        raise ValueError(f"{state.pattern[state.at : state.at + 4]!r} is not part of RE2")
    state.take(len(flags[0]))
    state.multiline = (state.multiline or "m" in flags[1]) and "m" not in (flags[2] or "")
    # Greediness (U) does not matter for whether the whole text matches.
    on, off = flags[1].replace("U", ""), (flags[2] or "").replace("U", "")
    off = "" if off == "-" else off
    if flags[3] == ":":
        return f"(?{on}{off}:"
    if not on and not off:
        return ""
    if state.out and "".join(state.out):
        raise ValueError("flags in the middle of a pattern are not supported; write (?i:...) around the part instead")
    if off:
        raise ValueError("switching flags off needs a group: (?-i:...)")
    return f"(?{on})"


def _escape(state: _TranslationState) -> str:
    state.take(1)
    if state.at == len(state.pattern):
        raise ValueError("a backslash stands at the end")
    symbol = state.pattern[state.at]
    if symbol == "Q":
        end = state.pattern.find("\\E", state.at)
        literal = state.take((end if end >= 0 else len(state.pattern)) - state.at)[1:]
        state.take(2 if end >= 0 else 0)
        return re.escape(literal)
    ranges = _escaped_set(state)
    if ranges is not None:
        return f"[{_text(ranges)}]"
    if symbol in _ESCAPES:
        state.take(1)
        return _ESCAPES[symbol]
    return _escaped_character(state)


def _escaped_set(state: _TranslationState) -> Ranges | None:
    r"""Read ``d``, ``W``, ``pL``, ``P{Lu}`` and the like after a backslash; ``None`` if it is not a set."""
    symbol = state.pattern[state.at]
    if symbol.lower() in _PERL_CLASSES:
        state.take(1)
        ranges = _named_set(_PERL_CLASSES[symbol.lower()])
        return _complement(ranges) if symbol.isupper() else ranges
    if symbol not in "pP":
        return None
    state.take(1)
    if state.starts("{"):
        name = state.take(max(state.pattern.find("}", state.at), state.at) - state.at + 1)[1:-1]
    else:
        name = state.take(1)
    negated = (symbol == "P") != name.startswith("^")
    ranges = _category(name.removeprefix("^"))
    return _complement(ranges) if negated else ranges


def _escaped_character(state: _TranslationState) -> str:
    symbol = state.take(1)
    if symbol == "x":
        found = re.compile(r"\{([0-9A-Fa-f]+)\}|([0-9A-Fa-f]{2})").match(state.pattern, state.at)
        if not found or int(found[1] or found[2], 16) > LAST_CODE:
            raise ValueError("invalid escape sequence: \\x")
        state.take(len(found[0]))
        return _character(int(found[1] or found[2], 16))
    if symbol in "01234567" and (symbol == "0" or state.pattern[state.at : state.at + 1] in tuple("01234567")):
        digits = re.compile("[0-7]{0,2}").match(state.pattern, state.at)
        more = digits[0] if digits else ""
        state.take(len(more))
        return _character(int(symbol + more, 8))
    if symbol in _KEPT_ESCAPES:
        return "\\" + symbol
    if symbol.isascii() and symbol.isalnum():
        raise ValueError(f"invalid escape sequence: \\{symbol}")
    return re.escape(symbol)


def _bracket(state: _TranslationState) -> str:
    out = [state.take(2 if state.starts("[^") else 1)]
    first = True
    while first or not state.starts("]"):
        if state.at >= len(state.pattern):
            raise ValueError("missing ]")
        out.append(_bracket_piece(state))
        first = False
    state.take(1)
    return "".join(out) + "]"


def _bracket_piece(state: _TranslationState) -> str:
    if state.starts("[:"):
        end = state.pattern.find(":]", state.at)
        name = state.take((end if end >= 0 else state.at) - state.at + 2)[2:-2]
        if name.removeprefix("^") not in _SETS or name == "perl_space":
            raise ValueError(f"invalid character class range: [:{name}:]")
        ranges = _named_set(name.removeprefix("^"))
        return _text(_complement(ranges) if name.startswith("^") else ranges)
    if state.starts("\\"):
        state.take(1)
        if state.at == len(state.pattern):
            raise ValueError("missing ]")
        ranges_or_none = _escaped_set(state)
        return _text(ranges_or_none) if ranges_or_none is not None else _escaped_character(state)
    symbol = state.take(1)
    return symbol if symbol == "-" else _character(ord(symbol))


def _named_set(name: str) -> Ranges:
    ends = _SETS[name]
    return [(ord(low), ord(high)) for low, high in zip(ends[::2], ends[1::2], strict=True)]


@functools.cache
def _category(name: str) -> Ranges:
    """Return the code points of a Unicode general category (``L``, ``Lu``, ...) as ranges."""
    if name == "Any":
        return [(0, LAST_CODE)]
    ranges: list[tuple[int, int]] = []
    for code in range(LAST_CODE + 1):
        if unicodedata.category(chr(code)).startswith(name):
            if ranges and ranges[-1][1] == code - 1:
                ranges[-1] = (ranges[-1][0], code)
            else:
                ranges.append((code, code))
    if not ranges or not name:
        raise ValueError(f"invalid character class range: \\p{{{name}}} (Unicode scripts are not supported)")
    return ranges


def _complement(ranges: Ranges) -> Ranges:
    out, following = [], 0
    for low, high in sorted(ranges):
        if low > following:
            out.append((following, low - 1))
        following = high + 1
    return [*out, (following, LAST_CODE)] if following <= LAST_CODE else out


def _text(ranges: Ranges) -> str:
    return "".join(f"{_character(low)}-{_character(high)}" for low, high in ranges)


def _character(code: int) -> str:
    return chr(code) if chr(code).isascii() and chr(code).isalnum() else f"\\U{code:08x}"
