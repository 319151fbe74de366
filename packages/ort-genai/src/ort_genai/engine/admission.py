"""What a request asks for: tokens, how long its text may become, and what no engine takes, however empty it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ort_genai.engine.requests import GenerationOptions
from ort_genai.errors import ContextExceeded, InvalidGeneration

if TYPE_CHECKING:
    from ort_genai.model import Model


def tokens_of(model: Model, prompt: Sequence[int] | str) -> list[int]:
    """Return a prompt as tokens."""
    return model.text.encode(prompt) if isinstance(prompt, str) else [int(each) for each in prompt]


def longest_text(model: Model, tokens: list[int], options: GenerationOptions) -> int:
    """Return how many tokens a request's prompt and text may have."""
    end = model.decoder.context_length
    return end if options.max_tokens is None else min(len(tokens) + options.max_tokens, end)


def check_prompt(model: Model, tokens: list[int], options: GenerationOptions) -> None:
    """Require a prompt of the model's own tokens that leaves room for one more.

    Raises:
        ContextExceeded: it leaves none.
        InvalidGeneration: it is none, or one of others' tokens.
    """
    decoder = model.decoder
    if not tokens:
        raise InvalidGeneration("the prompt is empty")
    wrong = [token for token in (*tokens, *options.logit_bias) if not 0 <= token < decoder.vocab_size]
    if wrong:
        what = "token" if wrong[0] in tokens else "logit_bias names token"
        raise InvalidGeneration(f"{what} {wrong[0]} is none of the model's, which are 0 to {decoder.vocab_size - 1}")
    if len(tokens) >= decoder.context_length:
        raise ContextExceeded(
            f"the prompt has {len(tokens)} tokens; the model's context has {decoder.context_length}, and the text "
            "needs one of them at least"
        )


def check_room(tokens: list[int], longest: int, needed: int, given: int) -> None:
    """Require caches of ``needed`` bytes, for the ``longest`` text, to fit those that there may be.

    Raises:
        InvalidGeneration: they do not.
    """
    if needed > given:
        raise InvalidGeneration(
            f"{len(tokens)} tokens and up to {longest - len(tokens)} more need {needed / 1e6:.3f} MB of "
            f"caches, the engine has {given / 1e6:.3f}: ask for fewer (max_tokens)"
        )


def check_images(model: Model, tokens: list[int], features: np.ndarray | None) -> None:
    """Require a vector for each token that stands for a part of an image.

    Raises:
        InvalidGeneration: there are more or fewer.
    """
    table = model.decoder.table
    asked = 0 if table is None else tokens.count(table.image_token)
    given = 0 if features is None else len(features)
    if asked != given:
        raise InvalidGeneration(f"the prompt has {asked} tokens that stand for images, and {given} vectors of them")
