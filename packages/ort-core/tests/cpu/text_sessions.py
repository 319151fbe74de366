"""Sessions of models from text, ours and onnxruntime's, on so many threads."""

from __future__ import annotations

import onnxruntime
from onnx import parser

import ort_core as ort


def session_of(text: str, threads: int = 1, limit: int | None = None) -> ort.InferenceSession:
    """Return ours on the CPU; ``limit`` bounds the bytes of a run."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    if limit is not None:
        options.max_allocation_bytes = limit
    return ort.InferenceSession(
        parser.parse_model(text).SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def peer_of(text: str) -> onnxruntime.InferenceSession:
    """Return onnxruntime's on one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(
        parser.parse_model(text).SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
