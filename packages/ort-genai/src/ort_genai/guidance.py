"""Texts that follow a grammar: JSON schemas, regular expressions and Lark, by the library ``llguidance``."""

from __future__ import annotations

import enum
import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ort_genai.arguments import demand
from ort_genai.errors import InvalidGeneration
from ort_genai.library_panics import LibraryPanics
from ort_genai.text import Text

if TYPE_CHECKING:  # imported by the first grammar: a start without one does not wait for it
    from llguidance import LLMatcher, LLTokenizer

_GUIDING = LibraryPanics(InvalidGeneration, "following a grammar")


class GrammarKind(enum.StrEnum):
    """What a grammar is written in, by onnxruntime-genai's names."""

    JSON_SCHEMA = "json_schema"
    REGEX = "regex"
    LARK = "lark_grammar"


@dataclass(frozen=True, slots=True)
class Grammar:
    """A grammar that a text must follow.

    Attributes:
        kind: what it is written in.
        source: its text.
    """

    kind: GrammarKind
    source: str

    @classmethod
    def of(cls, kind: str, source: str) -> Grammar:
        """Return a grammar by the name of its kind.

        Raises:
            InvalidGeneration: there is no such kind, or no grammar.
        """
        for name, value in (("type", kind), ("data", source)):
            demand("set_guidance()", name, value, str)
        if not kind or not source:
            raise InvalidGeneration("Guidance type and data must be provided together.")
        names = [str(each) for each in GrammarKind]
        if kind not in names:
            raise InvalidGeneration(f"guidance of the kind {kind!r}; expected one of {', '.join(names)}")
        return cls(GrammarKind(kind), source)

    def compiled(self) -> str:
        """Return what llguidance reads."""
        from llguidance import LLMatcher

        try:
            if self.kind is GrammarKind.JSON_SCHEMA:
                json.loads(self.source)
                return LLMatcher.grammar_from_json_schema(self.source)
            if self.kind is GrammarKind.REGEX:
                return LLMatcher.grammar_from_regex(self.source)
            return LLMatcher.grammar_from_lark(self.source)
        except (ValueError, TypeError, RecursionError) as error:
            raise InvalidGeneration(f"the {self.kind} cannot be read: {error}") from error


class GuidanceTokens:
    """The tokens of a model as llguidance has them; made once, when a grammar first needs them.

    Args:
        text: the model's tokenizer.
        vocab_size: tokens that logits have.
        end_tokens: that end a text.
    """

    def __init__(self, text: Text, vocab_size: int, end_tokens: Sequence[int]) -> None:
        self._text, self._size, self._ends = text, vocab_size, list(end_tokens)
        self._made: LLTokenizer | None = None
        self._lock = threading.Lock()

    def matcher(self, grammar: Grammar) -> Guide:
        """Return the state of a text that follows a grammar.

        Raises:
            InvalidGeneration: the grammar cannot be read.
        """
        from llguidance import LLMatcher, LLTokenizer

        with self._lock, _GUIDING:
            if self._made is None:
                try:
                    stated = _with_known_decoder(self._text.library.to_str())
                    self._made = LLTokenizer(stated, n_vocab=self._size, eos_token=self._ends or None)
                except (ValueError, RuntimeError, OverflowError) as error:
                    raise InvalidGeneration(f"grammars cannot be followed with this tokenizer: {error}") from error
        with _GUIDING:
            matcher = LLMatcher(self._made, grammar.compiled(), log_level=0)
            if not matcher.is_error():
                matcher.compute_bitmask()  # of a grammar that no text follows this is an error
        if matcher.is_error():
            raise InvalidGeneration(f"the {grammar.kind} cannot be followed: {_fault(matcher)}")
        return Guide(matcher, self._size)


def _fault(matcher: LLMatcher) -> str:
    """Return what went wrong, without the state of the parser behind it."""
    return str(matcher.get_error()).partition("\n<state>")[0]


def _with_known_decoder(stated: str) -> str:
    """Return a tokenizer's JSON with SentencePiece's decoder in the steps by which llguidance knows it."""
    found = json.loads(stated)
    decoder = found.get("decoder") or {}
    if decoder.get("type") != "Metaspace":
        return stated
    space = {"type": "Replace", "pattern": {"String": decoder["replacement"]}, "content": " "}
    found["decoder"] = {"type": "Sequence", "decoders": [space, {"type": "ByteFallback"}, {"type": "Fuse"}]}
    return json.dumps(found)


class Guide:
    """How far a text has followed its grammar."""

    def __init__(self, matcher: LLMatcher, size: int) -> None:
        self._matcher, self._size = matcher, size

    def allowed(self, logits: np.ndarray) -> np.ndarray:
        """Return logits (vocabulary,) with those of tokens that the grammar forbids at minus infinity.

        Raises:
            InvalidGeneration: the grammar has no further token.
        """
        with _GUIDING:
            bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        if self._matcher.is_error():
            raise InvalidGeneration(f"the grammar cannot go on: {_fault(self._matcher)}")
        allows = np.unpackbits(bits, bitorder="little")[: self._size].astype(bool)
        return np.where(np.pad(allows, (0, self._size - len(allows))), logits, np.float32(-np.inf))

    def take(self, token: int) -> None:
        """Go on by a token.

        Raises:
            InvalidGeneration: the grammar forbids it.
        """
        with _GUIDING:
            is_taken = self._matcher.is_stopped() or self._matcher.consume_token(token)
        if not is_taken:
            raise InvalidGeneration(f"token {token} does not follow the grammar: {_fault(self._matcher)}")

    def back(self, tokens: int) -> None:
        """Go back by tokens."""
        if tokens and not self._matcher.rollback(tokens):
            raise InvalidGeneration(f"the grammar cannot go back by {tokens} tokens: {_fault(self._matcher)}")

    @property
    def has_ended(self) -> bool:
        """Whether nothing can follow."""
        return bool(self._matcher.is_stopped())
