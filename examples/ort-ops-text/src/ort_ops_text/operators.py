"""The operators, and the library that the plugin offers."""

from __future__ import annotations

import unicodedata

import numpy as np
from numpy.typing import NDArray

from ort_core import OpLibrary, custom_op

DOMAIN = "org.example.text"


@custom_op(DOMAIN, "CaseFold")
def case_fold(texts: NDArray[np.str_]) -> NDArray[np.str_]:
    """Return texts in the form in which they compare without regard to case."""
    folded = [text.casefold() for text in texts.reshape(-1)]
    return np.array(folded, object).reshape(texts.shape)


@custom_op(DOMAIN, "Normalize")
def normalize(texts: NDArray[np.str_], *, form: str = "NFC") -> NDArray[np.str_]:
    """Return texts in a normal form of Unicode: NFC, NFD, NFKC or NFKD."""
    normal = [unicodedata.normalize(form, text) for text in texts.reshape(-1)]  # type: ignore[arg-type]  # a model's
    return np.array(normal, object).reshape(texts.shape)


@custom_op(DOMAIN, "Length")
def length(texts: NDArray[np.str_]) -> NDArray[np.int64]:
    """Return how many characters each text has."""
    return np.array([len(text) for text in texts.reshape(-1)], np.int64).reshape(texts.shape)


for _operator in (case_fold, normalize, length):
    _operator.shape(lambda texts: texts)

LIBRARY = OpLibrary("ort-ops-text", [case_fold, normalize, length])
