"""Conversations with images: their tokens, and the vectors that stand in the place of some of them.

Chat templates take a message in one of two forms: a text, or a list of parts of which some are images. Which one a
template takes is seen by what it writes of a list. Where it takes texts, an image is the name of its token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ort_genai.errors import InvalidGeneration
from ort_genai.media.images import Images
from ort_genai.text import IMAGE_MARK

if TYPE_CHECKING:
    from ort_genai.model import Model

Message = Mapping[str, Any]  # Any: what a template reads of a message
_PROBE = "What is in it?"


@dataclass(frozen=True, slots=True)
class SeenPrompt:
    """A prompt with images.

    Attributes:
        tokens: of the prompt, as many for an image as it has vectors.
        features: (n, hidden) vectors of the images; ``None`` where there are none.
    """

    tokens: list[int]
    features: np.ndarray | None


def seen_prompt(
    model: Model, messages: Sequence[Message], images: Images | None, *, tools: Sequence[Message] | None = None,
    values: Mapping[str, Any] | None = None,
) -> SeenPrompt:  # fmt: skip
    """Return the prompt of a conversation for ``AsyncEngine.submit``.

    Args:
        model: that sees.
        messages: whose ``content`` is a text, or a list of ``{"type": "text", "text": …}`` and ``{"type": "image"}``.
        images: one for each part of this kind, in their order.
        tools: descriptions that the template may list.
        values: more names for the template.

    Raises:
        InvalidGeneration: the model does not see, or the template leaves an image out.
    """
    table, vision = model.decoder.table, model.vision
    if table is None or vision is None:
        raise InvalidGeneration("this model reads no images")
    name = model.text.library.id_to_token(table.image_token) or ""
    given = list(messages) if _takes_parts(model) else [_joined(message) for message in messages]
    tokens = model.text.chat_tokens(given, tools=tools, image_token=name, values=values)
    count = 0 if images is None else len(images)
    if tokens.count(table.image_token) != count:
        raise InvalidGeneration(
            f"the chat template writes {name!r} {tokens.count(table.image_token)} times for {count} images"
        )
    if images is None or count == 0:
        return SeenPrompt(tokens, None)
    processor = model.create_multimodal_processor()
    seen = processor.seen_of(images)
    texts = iter([model.text.encode(processor.written(each), has_special=False) for each in seen])
    spread = [each for token in tokens for each in (next(texts) if token == table.image_token else [token])]
    return SeenPrompt(spread, vision.features_of(np.concatenate([each.pixels for each in seen])))


def _takes_parts(model: Model) -> bool:
    """Return whether the model's template reads lists of parts: it writes their text, and not Python's list."""
    try:
        written = model.text.chat([{"role": "user", "content": [{"type": "text", "text": _PROBE}]}])
    except InvalidGeneration:
        return False
    return _PROBE in written and "'type'" not in written and '"type"' not in written


def _joined(message: Message) -> Message:
    content = message.get("content")
    if not isinstance(content, list):
        return message
    pieces = [IMAGE_MARK if part["type"] == "image" else str(part["text"]) for part in content]
    return {**message, "content": "".join(pieces)}
