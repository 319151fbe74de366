"""Pad_Fusion: padding in front of a convolution or pooling becomes its own.

    y = Conv(Pad(x, pads, 0), W)                     ->  y = Conv<pads>(x, W)
    y = MaxPool(Pad(x, pads, lowest value))          ->  y = MaxPool<pads>(x)
    y = AveragePool(Pad(x, pads, 0))                 ->  y = AveragePool<pads, count_include_pad = 1>(x)

Only constant padding of the spatial axes, and pools whose windows always hold an element that is no padding.
"""

from __future__ import annotations

import numpy as np

from ort_core.ir.nodes import Node
from ort_core.ir.rejection import Rejection
from ort_core.ir.types import DataType, TensorType
from ort_core.rewrite.matcher import Match, constant_of
from ort_core.rewrite.patch import GraphPatch
from ort_core.rewrite.pattern import Pattern, op, var
from ort_core.rewrite.rule import RewriteRule

INPUT_PADS_OPSET = 11  # before it, pads and value were attributes


class PadFusion(RewriteRule[list[int]]):
    """Let Conv, MaxPool or AveragePool pad by itself."""

    name = "Pad_Fusion"

    def build_pattern(self) -> Pattern:
        """Return one of the three behind a constant Pad that it alone reads."""
        pad = op("Pad", var("x"), name="pad", more_inputs=True, attributes={"mode": lambda m: m in (None, "constant")})
        return op(("Conv", "MaxPool", "AveragePool"), pad, more_inputs=True)

    def check(self, match: Match) -> list[int] | Rejection:
        """Return the sum of the pads, begins before ends, spatial axes only."""
        node, pad = match.root, match.node("pad")
        rank = match["x"].rank
        pads = None if rank is None else _pads_of(pad, match.opset(pad), rank)
        if pads is None or rank is None or rank < 3 or len(pads) != 2 * rank:
            return Rejection("the rank or the pads are not known", node)
        if any(size < 0 for size in pads) or any(pads[axis] or pads[axis + rank] for axis in (0, 1)):
            return Rejection("the padding crops, or pads batch or channels", node)
        if node.string_attribute("auto_pad", "NOTSET") not in ("NOTSET", "VALID") or node.int_attribute("ceil_mode", 0):
            return Rejection("the node computes its own padding or rounds sizes up", node)
        own = list(node.ints_attribute("pads") or [0] * (2 * (rank - 2)))
        if len(own) != 2 * (rank - 2) or (node.op_type != "Conv" and len(_kernel(node)) != rank - 2):
            return Rejection("the node's pads or kernel do not fit the rank", node)
        spatial = pads[2:rank] + pads[rank + 2 :]
        total = [a + b for a, b in zip(own, spatial, strict=True)]
        objection = self._check_value(match, own, total)
        return total if objection is None else objection

    @staticmethod
    def _check_value(match: Match, own: list[int], total: list[int]) -> Rejection | None:
        node, value = match.root, _value_of(match.node("pad"), match.opset(match.node("pad")))
        if node.op_type == "MaxPool":
            return _check_max_pool(match, value, total)
        if value != 0:
            return Rejection("the padding is not zero", node)
        if node.op_type == "AveragePool":
            if any(own) and not node.int_attribute("count_include_pad", 0):
                return Rejection("the node's own padding does not count, the other does", node)
            if any(size >= kernel for size, kernel in zip(total, _kernel(node) * 2)):
                return Rejection("a window may hold nothing but padding", node)
        return None

    def rewrite(self, match: Match, bindings: list[int]) -> GraphPatch:
        """Make the node with the sum of the pads."""
        node = match.root
        attributes: dict[str, object] = {**node.attributes, "pads": bindings}
        attributes.pop("auto_pad", None)
        if node.op_type == "AveragePool":
            attributes["count_include_pad"] = 1
        patch = GraphPatch(match.model, node)
        outputs = tuple(None if v is None else v.type for v in node.outputs[:1])
        new = patch.node(node.op_type, [match["x"], *node.inputs[1:]], attributes, outputs=outputs, name=node.name)
        patch.replace(match.output, new.output)
        patch.remove(*match.nodes)
        return patch


def _check_max_pool(match: Match, value: float | None, total: list[int]) -> Rejection | None:
    value_type = match["x"].type
    if not isinstance(value_type, TensorType) or value is None:
        return Rejection("the padding's value or type is not known", match.root)
    dtype = value_type.dtype
    lowest = -np.inf if dtype.is_float else float(np.iinfo(dtype.numpy).min)
    is_lowest = value == lowest or (dtype is DataType.FLOAT and value <= float(np.finfo(np.float32).min))
    if not is_lowest:
        return Rejection("the padding is not the lowest value, which MaxPool pads with", match.root)
    if any(size >= kernel for size, kernel in zip(total, _kernel(match.root) * 2)):
        return Rejection("a window may hold nothing but padding", match.root)
    return None


def _kernel(node: Node) -> tuple[int, ...]:
    return node.ints_attribute("kernel_shape") or ()


def _pads_of(pad: Node, opset: int, rank: int) -> list[int] | None:
    if opset < INPUT_PADS_OPSET:
        attribute = pad.ints_attribute("pads")
        return None if attribute is None else list(attribute)
    constant = constant_of(pad.input(1))
    if constant is None:
        return None
    pads = [int(size) for size in constant.array().reshape(-1)]
    if pad.input(3) is None:
        return pads if len(pads) == 2 * rank else None
    axes = constant_of(pad.input(3))
    if axes is None or len(pads) != 2 * axes.size:
        return None
    full = [0] * (2 * rank)
    count = axes.size
    for position, axis in enumerate(int(a) % rank for a in axes.array().reshape(-1)):
        full[axis], full[axis + rank] = pads[position], pads[position + count]
    return full


def _value_of(pad: Node, opset: int) -> float | None:
    if opset < INPUT_PADS_OPSET:
        return pad.float_attribute("value", 0.0)
    if pad.input(2) is None:
        return 0.0
    constant = constant_of(pad.input(2))
    return None if constant is None or constant.size != 1 else float(constant.array().reshape(-1)[0])
