"""ONNX functions from what people have: a FunctionProto, its bytes, its text, or an object that makes one."""

from __future__ import annotations

import onnx
import onnx.parser
from google.protobuf.message import DecodeError

from ort_core.errors import InvalidGraph
from ort_core.ir.model import Function
from ort_core.onnx_io.graph_loader import GraphLoader


def is_function_source(candidate: object) -> bool:
    """Return whether ``load_function`` takes an object."""
    return isinstance(candidate, (onnx.FunctionProto, str, bytes)) or hasattr(candidate, "to_function_proto")


def load_function(source: object) -> Function:
    """Return the function that a FunctionProto, its serialized bytes or its text (``onnx.parser``) describes.

    Raises:
        InvalidGraph: it is not a valid function.
    """
    return GraphLoader(None).function(_proto(source))


def _proto(source: object) -> onnx.FunctionProto:
    if isinstance(source, onnx.FunctionProto):
        return source
    if isinstance(source, bytes):
        try:
            return onnx.FunctionProto.FromString(source)
        except DecodeError as error:
            raise InvalidGraph("the bytes are not a serialized FunctionProto") from error
    if isinstance(source, str):
        try:
            return onnx.parser.parse_function(source)
        except onnx.parser.ParseError as error:
            raise InvalidGraph(f"the text is not an ONNX function: {error}") from error
    made = source.to_function_proto()  # type: ignore[attr-defined]  # is_function_source has looked for it
    if not isinstance(made, onnx.FunctionProto):
        raise InvalidGraph(f"to_function_proto of {source!r} returned a {type(made).__name__}, no FunctionProto")
    return made
