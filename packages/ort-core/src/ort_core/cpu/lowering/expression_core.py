"""Expressions that grow node by node without being walked again from their roots for each.

A chain of elementwise nodes becomes one expression of up to some hundred operations. What a node adds stands on the
expression of its operand, the core, whose inputs are fixed; only what is new is walked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ort_core.plugin.loops import Scalar


@dataclass(frozen=True, slots=True)
class ExpressionCore:
    """An expression in which each input is one object: these objects by index, and the number of operations."""

    root: Scalar
    leaves: Mapping[int, Scalar]
    count: int


def core_of(expression: Scalar, core: ExpressionCore | None) -> ExpressionCore:
    """Return an expression with one object for each input; what lies below the core's root is taken as it is."""
    leaves = {} if core is None else dict(core.leaves)
    done: dict[int, Scalar] = {} if core is None else {id(core.root): core.root}
    count = 0 if core is None else core.count

    def walk(node: Scalar) -> Scalar:
        nonlocal count
        found = done.get(id(node))
        if found is not None:
            return found
        if node.operation == "input":
            count += node.index not in leaves
            result = leaves.setdefault(node.index, node)
        else:
            arguments = tuple([walk(argument) for argument in node.arguments])
            same = all(a is b for a, b in zip(arguments, node.arguments, strict=True))
            result = node if same else Scalar(node.operation, node.dtype, arguments, node.index, node.value)
            count += 1
        done[id(node)] = result
        return result

    return ExpressionCore(walk(expression), leaves, count)
