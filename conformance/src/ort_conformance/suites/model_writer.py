"""ModelWriter: networks written as Python expressions over names of values, with seeded weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from ort_conformance.suites.model_text import IR_VERSION, seeded

Dims = Sequence[int | str]


class ModelWriter:
    """Collects nodes and weights; every method returns the name of a value.

    ``dtype`` is the element type of weights and of inputs that state none, so that one builder gives the float32
    network and its float64 truth, with the same (float32) numbers in it.
    """

    def __init__(self, name: str, *, opset: int = 21, dtype: str = "float32") -> None:
        self.name, self._opset, self._dtype = name, opset, np.dtype(dtype)
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._domains: set[str] = set()

    def input(self, name: str, shape: Dims, dtype: int | None = None) -> str:
        """Declare an input; names in the shape are symbolic sizes."""
        own = helper.np_dtype_to_tensor_dtype(self._dtype)
        self._inputs.append(helper.make_tensor_value_info(name, own if dtype is None else dtype, shape))
        return name

    def weight(self, *shape: int, scale: float | None = None) -> str:
        """Return a seeded weight whose products neither grow nor vanish."""
        fan_in = int(np.prod(shape[1:])) if len(shape) > 1 else 4
        spread = scale if scale is not None else 1.0 / np.sqrt(max(1, fan_in))
        values = seeded(self.name, len(self._weights), shape).uniform(-1.7, 1.7, shape) * spread
        return self.constant(values.astype(np.float32).astype(self._dtype))

    def constant(self, array: np.ndarray | Sequence[int] | float) -> str:
        """Return an initializer; sequences of int become int64, a float the writer's type."""
        value = np.asarray(array, self._dtype) if isinstance(array, float) else np.asarray(array)
        name = f"c{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(value, name))
        return name

    def op(self, op_type: str, *inputs: str, outputs: int = 1, domain: str = "", **attributes: object) -> str:
        """Add a node and return its first output's name; further outputs are that name with ``_1``, ``_2``."""
        first = f"v{len(self._nodes)}"
        names = [first, *(f"{first}_{index}" for index in range(1, outputs))]
        node = helper.make_node(op_type, inputs, names, name=f"{op_type}_{len(self._nodes)}", domain=domain)
        node.attribute.extend(helper.make_attribute(key, value) for key, value in attributes.items())
        self._nodes.append(node)
        self._domains.add(domain)
        return first

    def model(self, outputs: Mapping[str, str]) -> onnx.ModelProto:
        """Return the model; ``outputs`` gives the public name of values."""
        for inner, public in outputs.items():
            self._nodes.append(helper.make_node("Identity", [inner], [public], name=f"output_{public}"))
        graph = helper.make_graph(
            self._nodes, self.name, self._inputs, [onnx.ValueInfoProto(name=name) for name in outputs.values()],
            self._weights,
        )  # fmt: skip
        imports = [helper.make_opsetid("", self._opset), *(helper.make_opsetid(d, 1) for d in self._domains if d)]
        return helper.make_model(graph, opset_imports=imports, ir_version=IR_VERSION)


INT64, BOOL, UINT8 = TensorProto.INT64, TensorProto.BOOL, TensorProto.UINT8
