"""An operator on strings: text in, token ids and a mask out, inside the model.

    python examples/custom_ops/tokenizer.py

How many tokens a text has is only known after it was split: the shape function leaves that size open, and the rest of
the model takes what comes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

import ort_core as ort
from ort_core.onnx_io.save import model_to_bytes
from ort_core.plugin.ir import Dim
from ort_core.plugin.ops import TensorShape
from ort_core.testing.models import model_of

_TOKEN = re.compile(r"\w+|[^\w\s]")


@ort.custom_op("com.acme", "WordTokenizer")
def word_tokenizer(
    texts: NDArray[np.str_], *, vocabulary: Sequence[str], unknown_id: int = 0, lowercase: bool = True
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return ids [texts, longest] and a mask of the same shape that is False behind a text's last token."""
    ids = {word: index for index, word in enumerate(vocabulary)}
    rows = [_TOKEN.findall(text.lower() if lowercase else text) for text in texts.reshape(-1)]
    longest = max((len(row) for row in rows), default=0)
    tokens = np.full((len(rows), longest), unknown_id, np.int64)
    mask = np.zeros((len(rows), longest), np.bool_)
    for number, row in enumerate(rows):
        tokens[number, : len(row)] = [ids.get(word, unknown_id) for word in row]
        mask[number, : len(row)] = True
    return tokens, mask


@word_tokenizer.shape
def tokenizer_shape(texts: TensorShape) -> tuple[Sequence[Dim], Sequence[Dim]]:
    """Return one row for each text, of a length that nobody knows yet."""
    return (texts[0], None), (texts[0], None)


def open_session() -> ort.InferenceSession:
    """Return a session of a model that counts the tokens of each text that are in the vocabulary."""
    model = model_of(
        """g (string[N] texts) => (int64[N, L] ids, int64[N] known)
        <int64 zero = {0}, int64[1] last = {-1}> {
            ids, mask = com.acme.WordTokenizer <vocabulary: strings = ["?", "the", "cat", "sat"]> (texts)
            found = Greater (ids, zero)
            kept = And (found, mask)
            counted = Cast <to: int = 7> (kept)
            known = ReduceSum <keepdims: int = 0> (counted, last)
        }""",
        opsets='"" : 21, "com.acme" : 1',
    )
    options = ort.SessionOptions()
    options.register_custom_ops_library(ort.OpLibrary("acme-text", [word_tokenizer]))
    return ort.InferenceSession(model_to_bytes(model), options)


def main() -> None:
    """Tokenize two texts."""
    ids, known = open_session().run(None, {"texts": np.array(["The cat sat.", "A dog, the cat!"], object)})
    print(ids)
    print(known)


if __name__ == "__main__":
    main()
