"""Models for tests, from ONNX's text form."""

from __future__ import annotations

from ort_core.ir.model import Model
from ort_core.onnx_io.text import parse_model

DEFAULT_OPSETS = '"" : 21'


def model_of(body: str, *, opsets: str = DEFAULT_OPSETS, ir_version: int = 10) -> Model:
    """Return the model whose graph is ``body`` in ONNX text syntax.

    For example ``model_of("g (float[N] x) => (float[N] y) { y = Relu(x) }")``.

    Args:
        body: the graph, and any functions behind it.
        opsets: the operator-set imports, in text syntax.
        ir_version: the IR version.
    """
    return parse_model(f"<ir_version: {ir_version}, opset_import: [{opsets}]>\n{body}")
