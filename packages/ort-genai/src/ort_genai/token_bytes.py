"""The bytes of single tokens: half characters, and spaces that decoding alone would strip."""

from __future__ import annotations

import json
import re

import tokenizers

_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_SPACE = "\u2581"  # SentencePiece's


class TokenBytes:
    """Tells what each token of a tokenizer writes.

    Args:
        library: the tokenizer.
    """

    def __init__(self, library: tokenizers.Tokenizer) -> None:
        self._library = library
        self._added = {token: each.content for token, each in library.get_added_tokens_decoder().items()}
        decoder = json.dumps(json.loads(library.to_str()).get("decoder"))
        self._bytes = _byte_alphabet() if '"ByteLevel"' in decoder else None
        self._has_spaces = _SPACE in decoder or "\\u2581" in decoder

    def of(self, token: int) -> bytes:
        """Return the bytes that a token writes; of a special one its name."""
        if token in self._added:
            return self._added[token].encode("utf-8")
        piece = self._library.id_to_token(token)
        if piece is None:
            return b""
        if self._bytes is not None and all(each in self._bytes for each in piece):
            return bytes(self._bytes[each] for each in piece)
        single = _BYTE.fullmatch(piece)
        if single is not None:
            return bytes([int(single[1], 16)])
        if self._has_spaces:
            return piece.replace(_SPACE, " ").encode("utf-8")
        return self._library.decode([token], skip_special_tokens=False).encode("utf-8")


def _byte_alphabet() -> dict[str, int]:
    """Return GPT-2's characters for bytes: printable ones stand for themselves, others follow behind 255 in order."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in shown]
    return {**{chr(byte): byte for byte in shown}, **{chr(256 + place): byte for place, byte in enumerate(others)}}
