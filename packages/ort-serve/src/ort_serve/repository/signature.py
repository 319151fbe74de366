"""What a model takes and gives, in the protocol's words, and which of its axes is the batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ort_serve.failures import InvalidRequest
from ort_serve.protocol.datatypes import BY_ELEMENT, Datatype, datatype_of

Dimension = int | str | None


class Declared(Protocol):
    """What a session says of an input or output."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def type(self) -> str:
        """Its type, such as ``tensor(float)``."""

    @property
    def shape(self) -> Sequence[Dimension]:
        """Its sizes; [] for a rank that is not known, too."""


@dataclass(frozen=True)
class TensorSignature:
    """One input or output. Open sizes are names, or None where they have none."""

    name: str
    datatype: Datatype
    shape: tuple[Dimension, ...]

    @property
    def metadata_shape(self) -> list[int]:
        """The shape as the protocol's metadata gives it: -1 for open sizes."""
        return [size if isinstance(size, int) else -1 for size in self.shape]


@dataclass(frozen=True)
class ModelSignature:
    """The inputs and outputs of a model.

    Attributes:
        has_batch: the first axis of every input and output is one open size of the same name.
        batch_reason: why it is not, for reports.
    """

    inputs: tuple[TensorSignature, ...]
    outputs: tuple[TensorSignature, ...]
    has_batch: bool
    batch_reason: str

    def check(self, inputs: Mapping[str, np.ndarray], outputs: Sequence[str]) -> None:
        """Hold a request against the model.

        Raises:
            InvalidRequest: a name, an element type or a shape does not fit; the message says what does.
        """
        if len(inputs) > len(self.inputs):
            self._check_known(inputs)
        for signature in self.inputs:
            array = inputs.get(signature.name)
            if array is None:
                self._check_known(inputs)
                raise InvalidRequest(
                    f"input {signature.name!r} is missing; the model's inputs are {_names(self.inputs)}"
                )
            _check_tensor(signature, array)
        if not outputs:
            return
        offered = {signature.name for signature in self.outputs}
        for name in outputs:
            if name not in offered:
                raise InvalidRequest(f"the model has no output {name!r}; its outputs are {_names(self.outputs)}")

    def _check_known(self, inputs: Mapping[str, np.ndarray]) -> None:
        known = {signature.name for signature in self.inputs}
        for name in inputs:
            if name not in known:
                raise InvalidRequest(f"the model has no input {name!r}; its inputs are {_names(self.inputs)}")


def read_signature(inputs: Sequence[Declared], outputs: Sequence[Declared]) -> ModelSignature:
    """Return the signature of a session's inputs and outputs.

    Raises:
        InvalidRequest: one of them is no tensor that the protocol can carry.
    """
    taken, given = tuple(map(_signature, inputs)), tuple(map(_signature, outputs))
    reason = _no_batch(taken, given)
    return ModelSignature(taken, given, not reason, reason)


def _signature(declared: Declared) -> TensorSignature:
    element = declared.type.removeprefix("tensor(").removesuffix(")")
    datatype = BY_ELEMENT.get(element) if declared.type.startswith("tensor(") else None
    if datatype is None:
        raise InvalidRequest(
            f"{declared.name!r} is {declared.type}: the protocol carries dense tensors of {', '.join(BY_ELEMENT)} only"
        )
    return TensorSignature(declared.name, datatype, tuple(declared.shape))


def _no_batch(inputs: Sequence[TensorSignature], outputs: Sequence[TensorSignature]) -> str:
    """Return why requests cannot be joined by the model's sizes alone; empty where they can."""
    if not inputs or not outputs:
        return "the model has no inputs or no outputs"
    first: set[str] = set()
    for signature in (*inputs, *outputs):
        if not signature.shape or not isinstance(signature.shape[0], str):
            return f"the first size of {signature.name!r} has no name of its own"
        first.add(signature.shape[0])
        if signature.shape[0] in signature.shape[1:]:
            return f"{signature.shape[0]!r} is a later size of {signature.name!r}, too"
    if len(first) > 1:
        return f"first sizes differ: {', '.join(sorted(first))}"
    return ""


def _check_tensor(signature: TensorSignature, array: np.ndarray) -> None:
    found = datatype_of(array)
    if found is not signature.datatype and found != signature.datatype:
        raise InvalidRequest(f"input {signature.name!r}: the model takes {signature.datatype.name}; found {found.name}")
    is_open = not signature.shape  # a rank that is not known is told so, too: the session looks at it
    fits = is_open or (
        len(array.shape) == len(signature.shape)
        and all(not isinstance(size, int) or size == given for size, given in zip(signature.shape, array.shape))
    )
    if not fits:
        raise InvalidRequest(
            f"input {signature.name!r}: the model takes shape {signature.metadata_shape}; found {list(array.shape)}"
        )


def _names(signatures: Sequence[TensorSignature]) -> str:
    return ", ".join(repr(signature.name) for signature in signatures) or "none"
