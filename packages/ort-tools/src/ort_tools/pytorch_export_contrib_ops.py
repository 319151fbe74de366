"""register(): let torch's export by TorchScript write onnxruntime's operators for what the standard had none.

torch is imported when register() is called. Exports by dynamo have their own table, `custom_translation_table`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

_SINCE = 1  # of what is registered for all opsets
_GELU_OPSETS = range(9, 21)  # for which torch has symbolics of its own, which would come first
_MODES, _PADDINGS = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")
_registered: set[tuple[str, int]] = set()

Graph = Any  # torch's, as are the values in it
Value = Any


def _constant(value: Value, kind: str) -> Any:
    helper = importlib.import_module("torch.onnx.symbolic_helper")
    return helper._maybe_get_const(value, kind)


def grid_sampler(g: Graph, input: Value, grid: Value, mode: Value, padding_mode: Value, align_corners: Value) -> Value:
    """Write GridSample."""
    return g.op(
        "com.microsoft::GridSample", input, grid, mode_s=_MODES[_constant(mode, "i")],
        padding_mode_s=_PADDINGS[_constant(padding_mode, "i")], align_corners_i=int(_constant(align_corners, "b")),
    )  # fmt: skip


def inverse(g: Graph, self: Value) -> Value:
    """Write Inverse."""
    return g.op("com.microsoft::Inverse", self).setType(self.type())


def gelu(g: Graph, self: Value, approximate: Value = "none") -> Value:
    """Write Gelu; one by tanh is left to torch."""
    kind = approximate if isinstance(approximate, str) else _constant(approximate, "s")
    if kind == "none":
        return g.op("com.microsoft::Gelu", self).setType(self.type())
    return importlib.import_module("torch.onnx.symbolic_opset9").gelu(g, self, approximate)


def triu(g: Graph, self: Value, diagonal: Value) -> Value:
    """Write the upper Trilu."""
    return g.op("com.microsoft::Trilu", self, diagonal, upper_i=1).setType(self.type())


def tril(g: Graph, self: Value, diagonal: Value) -> Value:
    """Write the lower Trilu."""
    return g.op("com.microsoft::Trilu", self, diagonal, upper_i=0).setType(self.type())


def dynamic_time_warping(g: Graph, self: Value) -> Value:
    """Write DynamicTimeWarping."""
    return g.op("com.microsoft::DynamicTimeWarping", self)


def unfold_tensor(g: Graph, self: Value, dim: Value, size: Value, step: Value) -> Value:
    """Write UnfoldTensor."""
    axis, width, stride = (int(_constant(each, "i")) for each in (dim, size, step))
    made = g.op("com.microsoft::UnfoldTensor", self, dim_i=axis, size_i=width, step_i=stride)
    return made.setType(self.type().with_sizes([None, None, None, None, width]))


_SYMBOLICS: dict[str, Callable[..., Value]] = {
    "aten::grid_sampler": grid_sampler,
    "aten::inverse": inverse,
    "aten::linalg_inv": inverse,
    "aten::gelu": gelu,
    "aten::triu": triu,
    "aten::tril": tril,
    "onnxruntime::DynamicTimeWarping": dynamic_time_warping,
    "onnxruntime::UnfoldTensor": unfold_tensor,
}


def register() -> None:
    """Register all of them; call it before torch.onnx.export(..., dynamo=False).

    Raises:
        ModuleNotFoundError: torch is not installed.
    """
    onnx = importlib.import_module("torch.onnx")
    for name, symbolic in _SYMBOLICS.items():
        for opset in (_SINCE, *(_GELU_OPSETS if symbolic is gelu else ())):
            onnx.register_custom_op_symbolic(name, symbolic, opset)
            _registered.add((name, opset))


def unregister() -> None:
    """Take all of them back."""
    for name, opset in sorted(_registered):
        importlib.import_module("torch.onnx").unregister_custom_op_symbolic(name, opset)
    _registered.clear()
