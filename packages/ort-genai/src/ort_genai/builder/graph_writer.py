"""A graph as it is written: nodes in memory, large tensors at once into the data file beside the model."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper, save_model

from ort_genai.errors import InvalidModelFolder

CONTRIB = "com.microsoft"
OPSET, IR_VERSION = 21, 10
_SMALL = 1024  # bytes; smaller tensors stand in the model itself
_ALIGNED = 4096  # bytes; a page, so that the data can be mapped
Value = str | None


class GraphWriter:
    """Writes a model of one graph, with its large tensors in ``NAME.data`` beside it.

    Memory holds one tensor at a time. Use it as a context; ``save`` at its end writes the model.

    Args:
        path: of the model.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._data_name = path.name + ".data"
        self._file = (path.parent / self._data_name).open("wb")
        self._nodes: list[NodeProto] = []
        self._tensors: dict[str, TensorProto] = {}

    def __enter__(self) -> GraphWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def tensor(self, name: str, value: np.ndarray) -> str:
        """Add an initializer and return its name; one that is there already is not written again.

        Raises:
            InvalidModelFolder: it holds numbers that are none, or are beyond its type.
        """
        if name in self._tensors:
            return name
        if value.dtype.kind in "fV" and not np.isfinite(value).all():  # V: bfloat16
            raise InvalidModelFolder(
                f"tensor {name} holds numbers that are infinite or none as {value.dtype.name}; where those of the "
                "checkpoint are finite this type is too narrow: build it with --precision bf16 or fp32"
            )
        made = numpy_helper.from_array(np.asarray(value, order="C"), name)  # its shape as it is: () stays ()
        if len(made.raw_data) > _SMALL:
            self._move_out(made)
        self._tensors[name] = made
        return name

    def _move_out(self, tensor: TensorProto) -> None:
        missing = -self._file.tell() % _ALIGNED
        self._file.write(bytes(missing))
        offset, length = self._file.tell(), len(tensor.raw_data)
        self._file.write(tensor.raw_data)
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        for key, text in (("location", self._data_name), ("offset", str(offset)), ("length", str(length))):
            tensor.external_data.add(key=key, value=text)

    def node(
        self,
        op_type: str,
        inputs: list[Value],
        outputs: list[Value] | str,
        name: str,
        domain: str = "",
        **attributes: float | str | list[int],
    ) -> str:
        """Add a node and return its first output; ``None`` leaves out an input or an output."""
        results = [outputs] if isinstance(outputs, str) else [each or "" for each in outputs]
        given = [each or "" for each in inputs]
        extra: dict[str, Any] = attributes  # Any: as make_node has it
        self._nodes.append(helper.make_node(op_type, given, results, name, None, domain, **extra))
        return results[0]

    def save(self, inputs: list[ValueInfoProto], outputs: list[ValueInfoProto], metadata: dict[str, str]) -> None:
        """Write the model."""
        graph = helper.make_graph(self._nodes, "main_graph", inputs, outputs, list(self._tensors.values()))
        domains = [helper.make_opsetid("", OPSET), helper.make_opsetid(CONTRIB, 1)]
        model = helper.make_model(graph, opset_imports=domains, ir_version=IR_VERSION, producer_name="ort-genai")
        helper.set_model_props(model, metadata)
        save_model(model, self._path)
