"""OpsetRefusal: a node that has no form in another operator set, named with what has none."""

from __future__ import annotations

from onnx import NodeProto

from ort_core.errors import NotImplemented as OrtNotImplemented


class OpsetRefusal(OrtNotImplemented):
    """A node cannot be written in another operator set; ``op_type`` and ``what`` say which and why."""

    def __init__(self, node: NodeProto, target: int, what: str) -> None:
        where = f" at node {node.name!r}" if node.name else f" making {next(iter(node.output), '')!r}"
        super().__init__(f"{node.op_type}{where} has no form in opset {target}: {what}")
        self.op_type, self.what = node.op_type, what
