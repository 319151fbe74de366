r"""RE2's regular expressions in Python's ``re``: the syntax that differs, rewritten; what RE2 lacks, refused.

RE2 has no look-around and no back-references (it matches in linear time), knows POSIX classes such as
``[[:alpha:]]``, ``\z`` for the end of the text, ``\Q...\E`` for literal text and ``\pL`` for Unicode classes.
"""

from __future__ import annotations

import re

POSIX_CLASSES = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "ascii": r"\x00-\x7F",
    "blank": r"\t ",
    "cntrl": r"\x00-\x1F\x7F",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": r"!-/:-@\[-`{-~",
    "space": r"\t\n\v\f\r ",
    "upper": "A-Z",
    "word": "0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}
_ESCAPES = {"z": r"\Z", "C": r"(?s:.)", "A": r"\A", "a": r"\x07"}
_REFUSED_GROUPS = ("(?=", "(?!", "(?<=", "(?<!", "(?(", "(?#", "(?>", "(?P=", "(?P>")


def to_python(pattern: str) -> str:
    """Return ``pattern`` as Python's ``re`` reads it.

    Raises:
        ValueError: it uses syntax that RE2 does not have, or a Unicode class, which ``re`` does not have.
    """
    out: list[str] = []
    position, in_class = 0, False
    while position < len(pattern):
        piece, position, in_class = _next_piece(pattern, position, in_class)
        out.append(piece)
    return "".join(out)


def _next_piece(pattern: str, at: int, in_class: bool) -> tuple[str, int, bool]:
    symbol = pattern[at]
    if symbol == "\\":
        piece, after = _escape(pattern, at, in_class)
        return piece, after, in_class
    if in_class:
        return _class_piece(pattern, at)
    if symbol == "[":
        opening = 2 if pattern[at + 1 : at + 2] == "^" else 1
        if pattern[at + opening : at + opening + 1] == "]":  # a bracket right at the start is a member
            return pattern[at : at + opening] + r"\]", at + opening + 1, True
        return pattern[at : at + opening], at + opening, True
    if symbol == "(":
        return _group(pattern, at)
    if symbol == "$":
        return "(?:$(?!\\n))", at + 1, False  # Python's $ also matches before a last line break
    if symbol in "*+?}" and pattern[at + 1 : at + 2] == "+":
        raise ValueError("possessive repetition is not part of RE2")
    return symbol, at + 1, False


def _group(pattern: str, at: int) -> tuple[str, int, bool]:
    for refused in _REFUSED_GROUPS:
        if pattern.startswith(refused, at):
            raise ValueError(f"{refused!r} is not part of RE2")
    if pattern.startswith("(?<", at):
        return "(?P<", at + 3, False
    return "(", at + 1, False


def _class_piece(pattern: str, at: int) -> tuple[str, int, bool]:
    if pattern[at] == "]":
        return "]", at + 1, False
    if pattern.startswith("[:", at):
        end = pattern.find(":]", at)
        name = pattern[at + 2 : end]
        if end < 0 or name not in POSIX_CLASSES:
            raise ValueError(f"unknown character class {pattern[at : end + 2]!r}")
        return POSIX_CLASSES[name], end + 2, True
    piece = "\\" + pattern[at] if pattern[at] in "[&~|" else pattern[at]
    return piece, at + 1, True


def _escape(pattern: str, at: int, in_class: bool) -> tuple[str, int]:
    following = pattern[at + 1 : at + 2]
    if not following:
        raise ValueError("a backslash stands at the end")
    if following == "Q":
        end = pattern.find("\\E", at)
        literal = pattern[at + 2 : end if end >= 0 else len(pattern)]
        return re.escape(literal), (end + 2 if end >= 0 else len(pattern))
    if following in "pP":
        raise ValueError("Unicode classes (\\p) need the google-re2 package")
    if following.isdigit() and following != "0" and not in_class:
        raise ValueError("back-references are not part of RE2")
    if pattern.startswith("\\x{", at):
        end = pattern.index("}", at)
        return f"\\U{int(pattern[at + 3 : end], 16):08x}", end + 1
    if not in_class and following in _ESCAPES:
        return _ESCAPES[following], at + 2
    if following == "Z":
        raise ValueError("\\Z is not part of RE2; use \\z")
    return pattern[at : at + 2], at + 2
