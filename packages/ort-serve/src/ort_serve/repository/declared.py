"""What a model's settings say of its inputs and outputs, held against the model: it may have been exported anew."""

from __future__ import annotations

from collections.abc import Sequence

from ort_serve.failures import InvalidRequest
from ort_serve.repository.model_settings import DeclaredTensor, ModelSettings
from ort_serve.repository.signature import ModelSignature, TensorSignature


def check_declared(settings: ModelSettings, signature: ModelSignature) -> None:
    """Hold a model against its settings.

    Raises:
        InvalidRequest: they tell of another model; the message says where they differ.
    """
    _check("input", settings.inputs, signature.inputs)
    _check("output", settings.outputs, signature.outputs)
    told = {tensor.name for tensor in settings.inputs}
    missing = [tensor.name for tensor in signature.inputs if told and tensor.name not in told]
    if missing:
        raise InvalidRequest(f"the model takes input {missing[0]!r}, which its settings do not name")


def _check(kind: str, told: Sequence[DeclaredTensor], found: Sequence[TensorSignature]) -> None:
    by_name = {tensor.name: tensor for tensor in found}
    for tensor in told:
        own = by_name.get(tensor.name)
        if own is None:
            names = ", ".join(map(repr, by_name)) or "none"
            raise InvalidRequest(f"settings name {kind} {tensor.name!r}; the model's {kind}s are {names}")
        if tensor.datatype is not None and tensor.datatype != own.datatype.name:
            raise InvalidRequest(f"settings say {kind} {tensor.name!r} is {tensor.datatype}; it is {own.datatype.name}")
        told_shape = tensor.shape if tensor.reshape is None else tensor.reshape
        if told_shape is not None and own.shape and not _fits(told_shape, own.metadata_shape):
            raise InvalidRequest(
                f"settings say {kind} {tensor.name!r} has shape {list(told_shape)}; the model's is "
                f"{own.metadata_shape}, with -1 for sizes that are open (config.pbtxt leaves out the first one where "
                "max_batch_size is not 0)"
            )


def _fits(told: Sequence[int], found: Sequence[int]) -> bool:
    """Whether a model takes what is told: an open size of it takes any, a fixed one only itself."""
    return len(told) == len(found) and all(own in (-1, size) for size, own in zip(told, found))
