"""External data of models in memory: whether there is any, and tensors taken out as a program would add them again."""

from __future__ import annotations

import numpy as np
from onnx import ModelProto, TensorProto, numpy_helper

OUTSIDE = "foo.bin"  # onnxruntime's: never read, as the contents are handed over by name


def has_external_data(model: ModelProto) -> bool:
    """Return whether an initializer of the main graph lies outside the model."""
    return any(tensor.data_location == TensorProto.EXTERNAL for tensor in model.graph.initializer)


def extract_raw_data_from_model(model: ModelProto) -> tuple[tuple[str, ...], tuple[np.ndarray, ...]]:
    """Take the raw data of initializers out of a model, which then says that they lie outside.

    Returns:
        Names and contents, as ``SessionOptions.add_external_initializers`` wants them wrapped in OrtValues.
    """
    taken: list[tuple[str, np.ndarray]] = []
    for tensor in model.graph.initializer:
        if not tensor.HasField("raw_data"):
            continue
        taken.append((tensor.name, numpy_helper.to_array(tensor)))
        tensor.ClearField("raw_data")
        del tensor.external_data[:]
        tensor.data_location = TensorProto.EXTERNAL
        entry = tensor.external_data.add()
        entry.key, entry.value = "location", OUTSIDE
    return tuple(name for name, _ in taken), tuple(array for _, array in taken)
