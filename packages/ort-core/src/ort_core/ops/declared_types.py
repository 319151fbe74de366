"""What a file declares of a value beside what inference finds: where both contradict, and what they say together."""

from __future__ import annotations

from collections.abc import Collection

from ort_core.ir.dims import SymbolicDim
from ort_core.ir.nodes import Node
from ort_core.ir.types import SparseTensorType, TensorType, ValueType, is_assignable
from ort_core.ir.values import Value
from ort_core.ops.inference_report import NoteKind
from ort_core.ops.merge_types import merge_types, type_shapes_agree, types_agree
from ort_core.ops.unknown_dims import UNKNOWN_PREFIX

_MEANINGLESS = SymbolicDim.named(UNKNOWN_PREFIX)


def without_unnamed_sizes(declared: ValueType) -> ValueType:
    """Return a declared type without sizes named ``?``: exporters write that for several that are not equal."""
    if not isinstance(declared, TensorType) or declared.shape is None:
        return declared
    if _MEANINGLESS not in declared.shape:
        return declared
    return TensorType(declared.dtype, tuple(None if dim == _MEANINGLESS else dim for dim in declared.shape))


def declaration_problem(
    value: Value, declared: ValueType, found: ValueType, node: Node | None
) -> tuple[NoteKind, str] | None:
    """Return the kind and the text of a contradiction between a declared type and the one found, if there is one."""
    if found == declared or _holds_the_same(declared, found) or _is_wider(declared, found):
        return None
    name = node.name if node is not None else ""
    if not types_agree(found, declared):
        return NoteKind.TYPE, (
            f"Type Error: Type ({declared}) of output arg ({value.name}) of node ({name}) does not match expected "
            f"type ({found})."
        )
    if not type_shapes_agree(found, declared):
        return NoteKind.SHAPE, (
            f"the shape {_shape_text(declared)} declared for {value.name!r} contradicts the inferred shape "
            f"{_shape_text(found)} (node {name!r})"
        )
    return None


def joined_types(declared: ValueType, trusted: ValueType, found: ValueType, given: Collection[str]) -> ValueType:
    """Return what a declared type and the one found say together; where they contradict each other, the one found.

    Args:
        declared: the type that the file states.
        trusted: what may be relied on of it.
        found: what inference says.
        given: named sizes that inputs have, as for ``merge_dims``.
    """
    if found == declared or _holds_the_same(declared, found):
        return found
    if _is_wider(declared, found):
        return trusted
    if not types_agree(found, declared) or not type_shapes_agree(found, declared):
        return found
    return merge_types(found, trusted, given)


def _holds_the_same(declared: ValueType, found: ValueType) -> bool:
    """Whether a sparse constant was made dense; onnxruntime takes such declarations for dense ones, too."""
    return isinstance(declared, SparseTensorType) and isinstance(found, TensorType) and declared.dtype == found.dtype


def _is_wider(declared: ValueType, found: ValueType) -> bool:
    """Whether one is an optional of the other: what holds something is declared by what it holds, or the other way."""
    return is_assignable(found, declared) != is_assignable(declared, found)


def _shape_text(value_type: ValueType) -> str:
    shape = value_type.shape if isinstance(value_type, TensorType) else None
    return str(value_type) if shape is None else "{" + ",".join(map(str, shape)) + "}"
