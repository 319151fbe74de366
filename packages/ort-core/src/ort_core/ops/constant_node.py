"""The tensor that a Constant node holds, whichever of its attributes it stands in."""

from __future__ import annotations

import numpy as np

from ort_core.ir.constants import Constant
from ort_core.ir.nodes import Node
from ort_core.ir.types import DataType

_DTYPES = {"value_float": np.float32, "value_int": np.int64, "value_string": object}


def constant_from_attribute(name: str, value: object) -> Constant | None:
    """Return the tensor that attribute ``name`` of a Constant node stands for, ``None`` if it is not a dense tensor."""
    if isinstance(value, Constant):
        return value
    dtype = _DTYPES.get(name.removesuffix("s"))
    if dtype is None or value is None:
        return None
    return Constant.of(np.array(value, dtype), DataType.STRING if dtype is object else None)


def constant_of_node(node: Node) -> Constant | None:
    """Return the tensor of a Constant node of ai.onnx; ``None`` for other nodes and for sparse tensors."""
    if node.op_type != "Constant" or node.domain:
        return None
    found = (constant_from_attribute(name, attribute.value) for name, attribute in node.attributes.items())
    return next((constant for constant in found if constant is not None), None)
