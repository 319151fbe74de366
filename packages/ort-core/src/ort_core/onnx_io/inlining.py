"""Models in the form of files with their functions inlined, for tools that see nodes of graphs alone.

ONNX's converter of opsets drops functions without a word, and its inliner passes over those of other opsets.
"""

from __future__ import annotations

from onnx import ModelProto, inliner

from ort_core.errors import InvalidGraph
from ort_core.errors import NotImplemented as OrtNotImplemented
from ort_core.onnx_io.proto_graphs import drop_idle_nodes


def without_functions(model: ModelProto) -> ModelProto:
    """Return a model whose functions are inlined, those of another opset converted to that of the model.

    Raises:
        NotImplemented: a function cannot be inlined, which the text names.
        InvalidGraph: ONNX finds a fault in the model.
    """
    if not model.functions:
        return model
    try:
        inlined = inliner.inline_local_functions(model, convert_version=True)
    except RuntimeError as error:
        raise InvalidGraph(f"the functions of the model cannot be inlined: {error}") from error
    if inlined.functions:
        function = inlined.functions[0]
        versions = ", ".join(f"{each.domain or 'ai.onnx'} {each.version}" for each in function.opset_import)
        raise OrtNotImplemented(
            f"the function {function.domain}.{function.name} cannot be inlined: it imports versions of operators "
            f"({versions}) that the model does not import, and ONNX cannot convert it. Export the model without "
            "functions, or with one opset for all of it."
        )
    drop_idle_nodes(inlined.graph)  # the inliner takes names of outputs that are empty away
    return inlined
