"""Shapes of clients that are not the model's: Triton's ``reshape``, such as rows of one number each for a vector.

A tensor keeps its elements and their order. Open sizes of one shape are those of the other, in their order, and what
stands between them has as many elements in both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ort_serve.failures import InvalidRequest, ModelFailed
from ort_serve.repository.model_settings import DeclaredTensor, ModelSettings
from ort_serve.repository.signature import Dimension, ModelSignature, TensorSignature

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Reshape:
    """One tensor's way from a shape to another; -1 for open sizes."""

    source: tuple[int, ...]
    target: tuple[int, ...]

    def apply(self, name: str, array: np.ndarray) -> np.ndarray:
        """Return a tensor in its other shape, without a copy where it lies in order.

        Raises:
            ValueError: it has another shape than was declared.
        """
        if len(array.shape) != len(self.source) or any(
            told not in (-1, size) for told, size in zip(self.source, array.shape)
        ):
            raise ValueError(f"{name!r} has shape {list(array.shape)}; the model's settings say {list(self.source)}")
        open_sizes = iter([size for told, size in zip(self.source, array.shape) if told == -1])
        return array.reshape([next(open_sizes) if size == -1 else size for size in self.target])


class Reshapes:
    """What settings say of a model's shapes, and the signature that clients see.

    Args:
        settings: of the model.
        model: the model's own signature, which fits the settings.

    Raises:
        InvalidRequest: the two shapes of a tensor cannot hold the same elements.

    Attributes:
        signature: for clients.
        inputs: by name, from a client's shape to the model's.
        outputs: by name, from the model's shape to a client's.
        is_empty: nothing is reshaped.
    """

    def __init__(self, settings: ModelSettings, model: ModelSignature) -> None:
        taken = {tensor.name: tensor for tensor in settings.inputs if tensor.reshape is not None}
        given = {tensor.name: tensor for tensor in settings.outputs if tensor.reshape is not None}
        self.inputs = {name: Reshape(*_checked("input", tensor)) for name, tensor in taken.items()}
        self.outputs = {name: Reshape(*_checked("output", tensor)[::-1]) for name, tensor in given.items()}
        self.is_empty = not self.inputs and not self.outputs
        self.signature = replace(
            model, inputs=_told(model.inputs, taken), outputs=_told(model.outputs, given)
        )  # whether rows are joined is the model's matter

    def taken(self, inputs: Arrays) -> Arrays:
        """Return a client's tensors as the model takes them.

        Raises:
            InvalidRequest: one has another shape than was declared.
        """
        try:
            return _applied(self.inputs, inputs)
        except ValueError as error:
            raise InvalidRequest(f"input {error}") from error

    def given(self, outputs: Mapping[str, np.ndarray]) -> Arrays:
        """Return the model's tensors as clients get them.

        Raises:
            ModelFailed: one has another shape than was declared.
        """
        try:
            return _applied(self.outputs, outputs)
        except ValueError as error:
            raise ModelFailed(f"output {error}") from error


def _applied(reshapes: Mapping[str, Reshape], arrays: Mapping[str, np.ndarray]) -> Arrays:
    return {name: reshapes[name].apply(name, array) if name in reshapes else array for name, array in arrays.items()}


def _told(tensors: Sequence[TensorSignature], declared: Mapping[str, DeclaredTensor]) -> tuple[TensorSignature, ...]:
    return tuple(
        replace(tensor, shape=_client_shape(tensor, declared[tensor.name])) if tensor.name in declared else tensor
        for tensor in tensors
    )


def _client_shape(tensor: TensorSignature, declared: DeclaredTensor) -> tuple[Dimension, ...]:
    """Return the shape of settings, its open sizes named as the model names those that they become."""
    own, inner = declared.shape or (), declared.reshape or ()
    names = iter([found for told, found in zip(inner, tensor.shape) if told == -1])
    return tuple(next(names, None) if size == -1 else size for size in own)


def _checked(kind: str, tensor: DeclaredTensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return a tensor's shape for clients, and the model's."""
    own, inner = tensor.shape, tensor.reshape
    if own is None or inner is None:
        raise InvalidRequest(f"settings reshape {kind} {tensor.name!r}, and do not say its shape")
    if _counts(own) != _counts(inner):
        raise InvalidRequest(
            f"settings reshape {kind} {tensor.name!r} from {list(own)} to {list(inner)}, which do not hold the same "
            "elements: between open sizes (-1), which are the same ones, must stand as many in both"
        )
    return own, inner


def _counts(shape: Sequence[int]) -> list[int]:
    """Return how many elements stand before, between and behind open sizes."""
    counts: list[int] = []
    part: list[int] = []
    for size in (*shape, -1):
        if size == -1:
            counts.append(math.prod(part))
            part = []
        else:
            part.append(size)
    return counts
