"""Text of a model is UTF-8: protobuf hands out ``bytes`` where it is not, which nothing behind the loader expects."""

from __future__ import annotations

from ort_core.errors import InvalidProtobuf


def check_text(*texts: str | bytes) -> None:
    """Raise for text that is not UTF-8: protobuf hands it out as ``bytes``.

    Raises:
        InvalidProtobuf: a name or another text of the model is not UTF-8.
    """
    if bytes in map(type, texts):
        wrong = next(text for text in texts if isinstance(text, bytes))
        raise InvalidProtobuf(f"the model holds a name or text that is not UTF-8: {wrong!r}")
