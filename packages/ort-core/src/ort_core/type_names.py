"""TypeHelper: what onnxruntime.transformers.io_binding_helper tells of element types; a door of tools, too.

torch is imported for torch's types only.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ort_core.errors import InvalidValue
from ort_core.ir.types import DataType

if TYPE_CHECKING:
    from ort_core.session import InferenceSession
    from ort_core.session_api.node_arg import NodeArg

_TYPES = {f"tensor({each.text})": each for each in DataType if each is not DataType.UNDEFINED}
_TORCH_NAMES = {"float": "float32", "double": "float64"}  # others have ONNX's, but for 8-bit floats


class TypeHelper:
    """Element types by onnxruntime's texts (``"tensor(float)"``), as ONNX, numpy and torch have them."""

    @staticmethod
    def get_input_type(ort_session: InferenceSession, name: str) -> str:
        """Return the text of an input's type. Raises ``InvalidValue``: there is no such input."""
        return _text_of(ort_session.get_inputs(), name, "input")

    @staticmethod
    def get_output_type(ort_session: InferenceSession, name: str) -> str:
        """Return the text of an output's type. Raises ``InvalidValue``: there is no such output."""
        return _text_of(ort_session.get_outputs(), name, "output")

    @staticmethod
    def ort_type_to_onnx_type(ort_type: str) -> int:
        """Return ONNX's number of a type. Raises ``InvalidValue``: the text is none."""
        return int(_data_type(ort_type))

    @staticmethod
    def ort_type_to_numpy_type(ort_type: str) -> type:
        """Return numpy's type; bool is Python's. Raises ``InvalidValue``: the text is none."""
        found = _data_type(ort_type)
        return bool if found is DataType.BOOL else found.numpy.type

    @staticmethod
    def ort_type_to_torch_type(ort_type: str) -> object:
        """Return torch's type. Raises ``InvalidValue``: the text is none, or torch has none for it."""
        text = _data_type(ort_type).text
        name = _TORCH_NAMES.get(text, text).replace("float8e", "float8_e")
        found = getattr(importlib.import_module("torch"), name, None)
        if found is None:
            raise InvalidValue(f"torch has no type for {ort_type}")
        return found

    @staticmethod
    def get_io_onnx_type_map(ort_session: InferenceSession) -> Mapping[str, int]:
        """Return ONNX's number of the type of every input and output, by name."""
        return {name: TypeHelper.ort_type_to_onnx_type(text) for name, text in _types_of(ort_session)}

    @staticmethod
    def get_io_numpy_type_map(ort_session: InferenceSession) -> Mapping[str, type]:
        """Return numpy's type of every input and output, by name."""
        return {name: TypeHelper.ort_type_to_numpy_type(text) for name, text in _types_of(ort_session)}

    @staticmethod
    def get_io_torch_type_map(ort_session: InferenceSession) -> Mapping[str, object]:
        """Return torch's type of every input and output, by name."""
        return {name: TypeHelper.ort_type_to_torch_type(text) for name, text in _types_of(ort_session)}

    @staticmethod
    def numpy_type_to_torch_type(numpy_type: type) -> object:
        """Return torch's type for numpy's. Raises ``InvalidValue``: torch has none for it."""
        name = np.dtype(numpy_type).name
        found = getattr(importlib.import_module("torch"), name, None)
        if found is None:
            raise InvalidValue(f"torch has no type for numpy's {name}")
        return found

    @staticmethod
    def torch_type_to_numpy_type(torch_type: object) -> type:
        """Return numpy's type for torch's; bool is Python's. Raises ``InvalidValue``: numpy has none for it."""
        name = str(torch_type).removeprefix("torch.")
        if name == "bool":
            return bool
        try:
            return np.dtype(name).type
        except TypeError as error:
            raise InvalidValue(f"numpy has no type for {torch_type}") from error


def _types_of(ort_session: InferenceSession) -> Iterator[tuple[str, str]]:
    for value in (*ort_session.get_inputs(), *ort_session.get_outputs()):
        yield value.name, value.type


def _text_of(values: Sequence[NodeArg], name: str, kind: str) -> str:
    found = next((value.type for value in values if value.name == name), None)
    if found is None:
        raise InvalidValue(f"{kind} name {name} not found; there are {', '.join(value.name for value in values)}")
    return found


def _data_type(text: str) -> DataType:
    if text not in _TYPES:
        raise InvalidValue(f"{text} not found in map; known are {', '.join(_TYPES)}")
    return _TYPES[text]
