"""Tokenizer: strings cut into tokens by separators, by a token expression, or into characters."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable

import numpy as np

from ort_core import errors
from ort_core.kernels.kernel import kernel
from ort_core.kernels.reference.arrays.axes import string_array

_START, _END = "\x02", "\x03"


def _compile(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise errors.InvalidArgument(f"Tokenizer cannot use the expression {pattern!r}: {error}") from error


def _split(text: str, separator: re.Pattern[str], least: int) -> list[str]:
    """Return what lies between matches, if it has ``least`` characters; an empty match moves on by one."""
    tokens, start = [], 0
    while (match := separator.search(text, start)) is not None and start < len(text):
        if match.start() - start >= max(least, 1):
            tokens.append(text[start : match.start()])
        if match.end() > match.start():
            start = match.end()
        else:
            start += 1
    if len(text) - start >= max(least, 1):
        tokens.append(text[start:])
    return tokens


def _find(text: str, expression: re.Pattern[str], least: int) -> list[str]:
    if expression.groups:  # findall would give the groups
        return [match.group() for match in expression.finditer(text) if len(match.group()) >= max(least, 1)]
    found = filter(None, expression.findall(text))
    return list(found) if least <= 1 else [token for token in found if len(token) >= least]


def _cutter(separators: tuple[str, ...], tokenexp: str, least: int) -> Callable[[str], list[str]]:
    if bool(separators) == bool(tokenexp):
        raise errors.InvalidArgument("Tokenizer needs either separators or tokenexp, and not both")
    if separators == ("",) or tokenexp == ".":
        if least > 1:
            raise errors.InvalidArgument(f"mincharnum {least} is too big for char level tokenization")
        return list
    if tokenexp:
        expression = _compile(tokenexp)
        return lambda text: _find(text, expression, least)
    if "" in separators:
        raise errors.InvalidArgument("Tokenizer: no empty separator beside others")
    compiled = [_compile(separator) for separator in separators]

    def cut(text: str) -> list[str]:
        tokens = [text]
        for separator in compiled:
            tokens = [part for token in tokens for part in _split(token, separator, least)]
        return tokens

    return cut


@kernel("Tokenizer", domain="com.microsoft")
def tokenizer(
    x: np.ndarray,
    *,
    mark: int,
    mincharnum: int,
    pad_value: str,
    separators: tuple[str, ...] = (),
    tokenexp: str = "",
) -> np.ndarray:
    """Tokens of each string on a new last axis, padded to the longest; with ``mark`` between two marker characters.

    Expressions are Python's, which agree with RE2 but for alternatives: RE2 takes the longest, Python the first.
    """
    if x.ndim not in (1, 2):
        raise errors.InvalidArgument(f"Input dimensions are either [C] or [N][C] allowed; found {x.shape}")
    if mincharnum < 1:
        raise errors.InvalidArgument(f"mincharnum {mincharnum} must be at least 1")
    if x.size == 0:
        return np.empty((*x.shape[:-1], 0), object)
    cut = _cutter(separators, tokenexp, mincharnum)
    rows = [cut(text) for text in x.reshape(-1)]
    longest = max(len(row) for row in rows)
    if longest == 0:
        return np.empty((*x.shape, 0), object)
    if mark:
        # Padding stands outside of the markers.
        rows = [[_START, *row, _END] for row in rows]
    width = longest + 2 * bool(mark)
    padding = [pad_value] * width
    filled = [(*row, *padding[len(row) :]) for row in rows]
    return string_array(list(itertools.chain.from_iterable(filled)), (*x.shape, width))
