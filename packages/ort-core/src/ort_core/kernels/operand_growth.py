"""How large a result its operands ask for, where they multiply: broadcasts, products, scores, frames and ranges.

    Add of [2097152, 1] and [1, 2097152] asks for 17592186044416 bytes

A kernel that computes a size from what its inputs hold asks its guard itself. Of the operators named here the
evaluator asks before it calls the kernel, so that an allocation that no machine serves, or that would only be served
from disk, is refused with a sentence that names the node.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ort_core.ir.nodes import Node
from ort_core.ir.types import TensorType
from ort_core.kernels.kernel import RunGuard
from ort_core.tensors.broadcasting import broadcast_shapes

Shape = tuple[int, ...]
Rule = Callable[[Sequence[np.ndarray | None], Mapping[str, Any]], "Shape | None"]
_MOST = 2**63 - 1  # that a size of a tensor can be: the kernel says that it cannot
SMALL = 1 << 26  # elements: 64 MB of bytes, at most 512 MB of what has eight; less is never asked about


def check_growth(rule: Rule, node: Node, inputs: Sequence[object], guard: RunGuard) -> None:
    """Ask the guard for the largest array that a node needs; operands that do not fit are the kernel's to refuse.

    Args:
        rule: what ``find_growth`` gave for the operator.
        node: for its attributes, and for the type of its first output.
        inputs: the operands; what is not an array counts as absent.
        guard: of the run.

    Raises:
        AllocationLimitExceeded: the guard forbids that many bytes.
    """
    if depends_on_shapes(rule) and is_small(inputs):
        return
    arrays = [x if isinstance(x, np.ndarray) else None for x in inputs]
    try:
        shape = rule(arrays, {name: attribute.value for name, attribute in node.attributes.items()})
    except (ValueError, IndexError, AssertionError):  # they do not fit
        return
    if shape is not None:
        declared = None if node.outputs[0] is None else node.outputs[0].type
        first = next(x for x in arrays if x is not None).dtype
        dtype = declared.dtype.numpy if isinstance(declared, TensorType) and declared.dtype else first
        text = "{" + ",".join(map(str, shape)) + "}"
        guard.check_allocation(math.prod(shape) * dtype.itemsize, f"{node.op_type} of shape {text}")


def find_growth(domain: str, op_type: str) -> Rule | None:
    """Return how the shape of an operator's largest array follows from its operands, ``None`` for most operators."""
    return _RULES.get((domain, op_type))


def depends_on_shapes(rule: Rule) -> bool:
    """Return whether the shape of the largest array follows from the operands' shapes alone."""
    return rule not in _BY_CONTENTS


def is_small(inputs: Sequence[object]) -> bool:
    """Return whether no result of operands can be so large that a guard is asked."""
    return math.prod([_elements(x) for x in inputs if isinstance(x, np.ndarray)]) < SMALL


def _elements(x: np.ndarray) -> int:
    return x.size or math.prod(max(size, 1) for size in x.shape)  # an empty inner axis leaves the outer ones


def _broadcast(*positions: int) -> Rule:
    def rule(inputs: Sequence[np.ndarray | None], _: Mapping[str, Any]) -> Shape:
        chosen = [inputs[i] for i in positions] if positions else inputs
        return broadcast_shapes(*(x.shape for x in chosen if x is not None))

    return rule


def _product(left: int, right: int) -> Rule:
    def rule(inputs: Sequence[np.ndarray | None], attributes: Mapping[str, Any]) -> Shape:
        a, b = inputs[left], inputs[right]
        assert a is not None
        assert b is not None
        rows = a.shape[-1:] if attributes.get("transA") else a.shape[-2:-1]
        columns = () if b.ndim < 2 else b.shape[-2:-1] if attributes.get("transB") else b.shape[-1:]
        return (*broadcast_shapes(a.shape[:-2], b.shape[:-2]), *rows, *columns)

    return rule


def _einsum(inputs: Sequence[np.ndarray | None], attributes: Mapping[str, Any]) -> Shape | None:
    equation = attributes["equation"].replace(" ", "")
    if "..." in equation or "->" not in equation:
        return None
    left, _, result = equation.partition("->")
    sizes: dict[str, int] = {}
    for term, x in zip(left.split(","), inputs, strict=True):
        assert x is not None
        for letter, size in zip(term, x.shape, strict=True):
            sizes[letter] = max(size, sizes.get(letter, 0))
    return tuple(sizes[letter] for letter in result)


def _distances(inputs: Sequence[np.ndarray | None], _: Mapping[str, Any]) -> Shape:
    a, b = inputs[:2]
    assert a is not None
    assert b is not None
    return (a.shape[0], b.shape[0])


def _points(inputs: Sequence[np.ndarray | None], _: Mapping[str, Any]) -> Shape:
    x, grid = inputs[:2]
    assert x is not None
    assert grid is not None
    return (*x.shape[:2], *grid.shape[1:-1])


def _scores(inputs: Sequence[np.ndarray | None], attributes: Mapping[str, Any]) -> Shape | None:
    query, key = inputs[:2]
    if query is None or key is None or query.ndim not in (3, 4) or key.ndim != query.ndim:
        return None
    heads = query.shape[1] if query.ndim == 4 else attributes.get("num_heads") or attributes.get("q_num_heads") or 1
    return (query.shape[0], heads, query.shape[-2], key.shape[-2])


def _frames(inputs: Sequence[np.ndarray | None], attributes: Mapping[str, Any]) -> Shape | None:
    signal, step, window, length = (*inputs, None, None)[:4]
    assert signal is not None
    assert step is not None
    size = int(length.reshape(())) if length is not None else signal.shape[1] if window is None else window.shape[0]
    every = int(step.reshape(()))
    if every <= 0 or not 0 < size <= signal.shape[1]:
        return None
    bins = size // 2 + 1 if attributes.get("onesided", 1) else size
    return (signal.shape[0], (signal.shape[1] - size) // every + 1, bins, 2)


def _range(inputs: Sequence[np.ndarray | None], _: Mapping[str, Any]) -> Shape | None:
    start, limit, delta = (None if x is None else x.reshape(()).item() for x in (*inputs, None)[:3])
    step = 1 if delta is None else delta
    if not step or start is None or limit is None or not math.isfinite((limit - start) / step):
        return None
    count = max(math.ceil((limit - start) / step), 0)
    return None if count > _MOST else (count,)


_BROADCAST = (
    "Add And BitShift BitwiseAnd BitwiseOr BitwiseXor Div Equal Greater GreaterOrEqual Less LessOrEqual Max Mean Min "
    "Mod Mul Or Pow Sub Sum Where Xor"
)
_RULES: Mapping[tuple[str, str], Rule] = {
    **{("", name): _broadcast() for name in _BROADCAST.split()},
    **{("com.microsoft", name): _broadcast(0, 3) for name in ("QLinearAdd", "QLinearMul")},
    ("com.microsoft", "MulInteger"): _broadcast(0, 2), ("com.microsoft", "QLinearWhere"): _broadcast(0, 1, 4),
    **{("", name): _product(0, 1) for name in ("MatMul", "Gemm", "MatMulInteger")},
    **{
        ("com.microsoft", name): _product(0, 1)
        for name in (
            "FusedMatMul", "TransposeMatMul", "FusedGemm", "GemmFastGelu", "MatMulInteger16", "MatMulIntegerToFloat",
            "DynamicQuantizeMatMul", "GemmFloat8",
        )
    },
    ("", "QLinearMatMul"): _product(0, 3), ("com.microsoft", "QGemm"): _product(0, 3),
    ("", "Einsum"): _einsum, ("com.microsoft", "CDist"): _distances, ("com.microsoft", "Range"): _range,
    ("", "GridSample"): _points, ("com.microsoft", "GridSample"): _points, ("", "STFT"): _frames,
    ("", "Attention"): _scores, ("com.microsoft", "MultiHeadAttention"): _scores,
    ("com.microsoft", "GroupQueryAttention"): _scores,
}  # fmt: skip
_BY_CONTENTS = (_frames, _range)  # small operands may say a large number
