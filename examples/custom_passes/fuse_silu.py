"""A user's fusion to a user's operator: ``x * sigmoid(x)`` becomes one node, with a formula that is compiled.

python fuse_silu.py [MODEL.onnx]         without a model it writes a small one, silu.onnx
ort optimize silu.onnx fused.onnx --pass fuse_silu:FuseSilu --ops fuse_silu --check       (in this folder)
"""

from __future__ import annotations

import sys
from pathlib import Path

import onnx
import onnx.parser

import ort_core as ort
from ort_core.plugin import Rejection
from ort_core.plugin.ir import DataType, TensorType
from ort_core.plugin.loops import Scalar, sigmoid
from ort_core.plugin.passes import RulePass
from ort_core.plugin.rewrite import GraphPatch, Match, Pattern, RewriteRule, op, var

DOMAIN = "com.acme"
EXAMPLE = """<ir_version: 8, opset_import: ["": 17]> example (float[N, 4] x) => (float[N, 4] y) {
    first_gate = Sigmoid(x)
    first = Mul(x, first_gate)
    shifted = Add(first, x)
    second_gate = Sigmoid(shifted)
    y = Mul(second_gate, shifted)
}"""


@ort.elementwise_op(DOMAIN, "Silu")
def silu(x: Scalar) -> Scalar:
    """Return ``x * sigmoid(x)``."""
    return x * sigmoid(x)


LIBRARY = ort.OpLibrary("acme-silu", [silu])


class SiluRule(RewriteRule[TensorType]):
    """``y = Mul(x, Sigmoid(x))``  ->  ``y = com.acme.Silu(x)``."""

    name = "SiluRule"
    emits = ((DOMAIN, "Silu"),)

    def build_pattern(self) -> Pattern:
        """Mul takes its operands in either order; the value between has no other reader."""
        x = var("x")
        return op("Mul", x, op("Sigmoid", x))

    def check(self, match: Match) -> TensorType | Rejection:
        """The formula is right for float32 only."""
        found = match["x"].type
        if not isinstance(found, TensorType) or found.dtype is not DataType.FLOAT:
            return Rejection(f"x is {found}, the operator takes tensor(float)", match.root)
        return found

    def rewrite(self, match: Match, bindings: TensorType) -> GraphPatch:
        """Return the edit."""
        patch = GraphPatch(match.model, match.root)
        patch.replace(match.output, patch.op("Silu", [match["x"]], type=bindings, domain=DOMAIN))
        patch.remove(*match.nodes)
        return patch


class FuseSilu(RulePass):
    """The rule as a pass; it runs when constants are folded and identities are gone."""

    def __init__(self) -> None:
        super().__init__("FuseSilu", [SiluRule()], after=("ConstantFolding", "EliminateIdentity"))


def open_session(model: Path, *, is_fused: bool = True, provider: str = "CPUExecutionProvider") -> ort.InferenceSession:
    """Return a session of a model, with or without the fusion."""
    options = ort.SessionOptions()
    if is_fused:
        options.register_custom_ops_library(LIBRARY)
        options.custom_passes = [FuseSilu()]
    return ort.InferenceSession(model, options, providers=[provider])


def write_example() -> str:
    """Write a model with two such products into the current folder; return its name."""
    onnx.save(onnx.parser.parse_model(EXAMPLE), "silu.onnx")
    return "silu.onnx"


def main(path: str) -> None:
    """Show how many nodes there are before and after."""
    for is_fused in (False, True):
        session = open_session(Path(path), is_fused=is_fused)
        print(f"{'with' if is_fused else 'without'} the fusion: {len(session.explain().nodes)} nodes")


if __name__ == "__main__":
    if len(sys.argv) > 2:
        sys.exit(
            "usage: python fuse_silu.py [MODEL.onnx]   (a model with Sigmoid and Mul, such as EfficientNet or YOLO)"
        )
    main(sys.argv[1] if len(sys.argv) == 2 else write_example())
