"""Tokenizer as runs of characters: what an expression or separators keep together, where that is a set of characters.

A set, one or more times (``[a-z0-9]+``), or separators of one character each: a token is then a longest run of
characters of the set. The expressions are Python's, as in the reference kernel: each character is asked of ``re``.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from ort_core.plugin import Rejection, frozen
from ort_core.plugin.ir import Node

PLANE = 0x10000  # characters that a full fold table covers: Unicode's basic plane
ASCII = 0x80
_SET = r"\[\^?(?:[^\]\[\\]|\\[^\d\n])+\]|\\[wWdDsS]|[^\\.^$*+?{}\[\]|()]|\\[^\w\s]"
_RUN = re.compile(rf"({_SET})\+")
_WORD = r"\b\w\w+\b"  # scikit-learn's: the whole of a longest run of two or more
_ONE = re.compile(rf"({_SET})\+?")


@frozen
class TokenRuns:
    """Tokens are the longest runs of characters that match one of ``sets`` (or none, if ``is_outside``).

    ``least`` is the number of characters below which a run is not a token.
    """

    sets: tuple[str, ...]
    is_outside: bool
    least: int

    def members(self, text: str) -> list[bool]:
        """Return whether each character of a text may be part of a token."""
        matches = [re.compile(each).fullmatch for each in self.sets]
        return [any(match(character) for match in matches) != self.is_outside for character in text]


def token_runs(node: Node) -> TokenRuns | Rejection:
    """Return how a Tokenizer cuts, or why that is no matter of single characters."""
    separators, expression = node.attribute("separators") or (), node.string_attribute("tokenexp", "")
    least = node.int_attribute("mincharnum", 1)
    if node.int_attribute("mark", 0):
        return Rejection("tokens between markers", node)
    if least < 1 or not isinstance(separators, tuple) or bool(separators) == bool(expression):
        return Rejection("the reference says what is wrong with the attributes", node)
    if separators:
        found = [_ONE.fullmatch(str(each)) for each in separators]
        sets = tuple(each.group(1) for each in found if each is not None)
        if len(sets) < len(separators):
            return Rejection("a separator of more than one character", node)
        return _checked(TokenRuns(sets, True, least), node)
    if expression == _WORD:
        return TokenRuns((r"\w",), False, max(2, least))
    run = _RUN.fullmatch(expression)
    if run is None:
        return Rejection(f"tokens of the expression {expression!r} are not runs of a set of characters", node)
    return _checked(TokenRuns((run.group(1),), False, least), node)


def _checked(runs: TokenRuns, node: Node) -> TokenRuns | Rejection:
    try:
        for each in runs.sets:
            re.compile(each)
    except re.error as error:
        return Rejection(f"no expression: {error}", node)
    return runs


def fold_table(runs: TokenRuns, change: Callable[[str], str], size: int) -> np.ndarray:
    """Return uint32[size]: 0 for a character between tokens, else the changed character plus 1.

    ``change`` is the change of case in front of the tokenizer, character by character.
    """
    text = "".join(map(chr, range(size)))
    changed = "".join(each if len(each) == 1 else own for own, each in zip(text, map(change, text), strict=True))
    codes = np.array([ord(each) for each in changed], np.uint32)
    return np.where(np.array(runs.members(changed)), codes + 1, 0).astype(np.uint32)
