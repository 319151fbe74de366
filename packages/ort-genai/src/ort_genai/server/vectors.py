"""Vectors and ranks of texts, as clients of OpenAI's and of reranking routes ask for them."""

from __future__ import annotations

import base64
from typing import Any, Literal

import numpy as np
from pydantic import Field

from ort_genai.cross_encoder import CrossEncoder
from ort_genai.embeddings import Embedder
from ort_genai.errors import InvalidGeneration
from ort_genai.server.schemas import Body

_MOST = 2048  # texts of a request, as OpenAI has it


class EmbeddingBody(Body):
    """``/v1/embeddings``."""

    input: str | list[str] | list[int] | list[list[int]] = Field(min_length=1)
    model: str = ""
    user: str = ""
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = Field(default=None, ge=1)

    def texts(self) -> list[str | list[int]]:
        """Return the texts, or their tokens."""
        if isinstance(self.input, str):
            return [self.input]
        if self.input and all(isinstance(each, int) for each in self.input):
            return [[each for each in self.input if isinstance(each, int)]]
        return [each for each in self.input if not isinstance(each, int)]


class RerankBody(Body):
    """``/v1/rerank``."""

    model: str = ""
    query: str
    documents: list[str] = Field(min_length=1, max_length=_MOST)
    top_n: int | None = Field(default=None, ge=1)
    return_documents: bool = True


def embedding_answer(embedder: Embedder, body: EmbeddingBody, model: str) -> dict[str, Any]:  # Any: JSON
    """Return the vectors of texts; shortened ones have length 1 again.

    Raises:
        InvalidGeneration: there are too many texts, or vectors have fewer dimensions than asked for.
    """
    texts = body.texts()
    if len(texts) > _MOST:
        raise InvalidGeneration(f"input has {len(texts)} texts; {_MOST} at most")
    tokens = [embedder.tokens_of(text) for text in texts]
    whole = embedder.embed(tokens)
    if body.dimensions is not None and body.dimensions > whole.shape[1]:
        raise InvalidGeneration(f"dimensions = {body.dimensions}; this model's vectors have {whole.shape[1]}")
    vectors = whole[:, : body.dimensions]
    vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.float32(1e-12))
    count = sum(map(len, tokens))
    return {
        "object": "list", "model": model,
        "data": [
            {"object": "embedding", "index": place, "embedding": _written(vector, body.encoding_format)}
            for place, vector in enumerate(vectors)
        ],
        "usage": {"prompt_tokens": count, "total_tokens": count},
    }  # fmt: skip


def rerank_answer(ranker: Embedder | CrossEncoder, body: RerankBody, model: str) -> dict[str, Any]:  # Any: JSON
    """Return documents by how near they are to the query, or by how well they answer it."""
    ranked = ranker.ranked(body.query, body.documents)[: body.top_n]
    results = [
        {
            "index": place,
            "relevance_score": score,
            **({"document": {"text": body.documents[place]}} if body.return_documents else {}),
        }
        for place, score in ranked
    ]
    return {"model": model, "results": results}


def _written(vector: np.ndarray, form: str) -> list[float] | str:
    if form == "base64":
        return base64.b64encode(vector.astype("<f4").tobytes()).decode("ascii")
    return [float(each) for each in vector]
