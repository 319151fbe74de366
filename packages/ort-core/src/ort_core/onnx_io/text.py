"""Models from ONNX's text form (``onnx.parser``), for tests, examples and documentation."""

from __future__ import annotations

import onnx.parser

from ort_core.errors import InvalidGraph
from ort_core.ir.model import Model
from ort_core.onnx_io.load import model_from_proto


def parse_model(text: str) -> Model:
    """Return the model that a text in ONNX's textual syntax describes.

    Raises:
        InvalidGraph: the text does not parse, or the model breaks a rule of ONNX.
    """
    try:
        proto = onnx.parser.parse_model(text)
    except onnx.parser.ParseError as error:
        raise InvalidGraph(f"the text is not an ONNX model: {error}") from error
    return model_from_proto(proto)
