"""What this package refuses with, as onnxruntime's tool does: a ``ValueError`` that is an error of ort-core, too."""

from __future__ import annotations

from ort_core.errors import InvalidArgument


class InvalidQuantization(InvalidArgument, ValueError):
    """A model, an option or data that cannot be quantized as asked."""


class InvalidCalibration(InvalidQuantization, RuntimeError):
    """Data from which no ranges follow: none at all, of a wrong shape, or without finite numbers."""


class UnsupportedQuantization(InvalidQuantization, NotImplementedError):
    """Something that is not quantized in one way, and may be in another."""
