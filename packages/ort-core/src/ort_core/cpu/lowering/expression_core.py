"""Expressions that grow node by node without being walked again from their roots for each.

A chain of elementwise nodes becomes one expression of up to some hundred operations. What a node adds stands on the
expression of its operand, the core, whose inputs are fixed; only what is new is walked. Equal expressions of one
compilation are one object: what was written of one, as its text, is known for all.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import TypeVar, cast

from ort_core.plugin import frozen
from ort_core.plugin.ir import DataType
from ort_core.plugin.loops import Scalar, rebuilt, substitute

T = TypeVar("T")
Place = tuple[int, int, DataType]  # where an input of an expression is read from: its index, the other one, the type
Fact = tuple[str, object, tuple[int, ...], int, str]  # an operation, its type, arguments by number, index and value


@frozen
class ExpressionCore:
    """An expression in which each input is one object: these objects by index, and the number of operations."""

    root: Scalar
    leaves: Mapping[int, Scalar]
    count: int


def core_of(expression: Scalar, core: ExpressionCore | None) -> ExpressionCore:
    """Return an expression with one object for each input; what lies below the core's root is taken as it is."""
    return _CoreWalk(core).core(expression)[0]


class _CoreWalk:
    """One walk over what an expression adds to a core, which notes what it finds."""

    def __init__(self, core: ExpressionCore | None) -> None:
        self._core = core
        self._leaves = {} if core is None else dict(core.leaves)
        self._count = 0 if core is None else core.count
        self._numbers: dict[int, int] = {}
        self._done: list[Scalar] = []
        self._facts: list[Fact] = []
        self._has_core = core is None
        only = () if core is None else core.root.arguments
        self._beneath = only[0] if len(only) == 1 and only[0].arguments else None  # what a cast is left out of
        self._has_beneath = False

    def core(self, expression: Scalar) -> tuple[ExpressionCore, tuple[Fact, ...] | None]:
        """Return the expression, and what it adds to the core; ``None`` where the core is not part of it.

        Of a core whose root has one argument, that may be what the expression stands on.
        """
        root = self._done[self._walk(expression)]
        if not self._has_core and not self._has_beneath:
            return core_of(expression, None), None
        count = self._count if self._has_core else self._count - 1
        return ExpressionCore(root, self._leaves, count), tuple(self._facts)

    def _walk(self, node: Scalar) -> int:
        found = self._numbers.get(id(node))
        if found is not None:
            return found
        result = node
        if self._core is not None and node is self._core.root:
            self._has_core = True
            fact: Fact = ("core", None, (), 0, "")
        elif self._beneath is not None and node is self._beneath:
            self._has_beneath = True
            fact = ("beneath", None, (), 0, "")
        elif node.operation == "input":
            self._count += node.index not in self._leaves
            result = self._leaves.setdefault(node.index, node)
            fact = ("input", result.dtype, (), node.index, "")
        else:
            numbers = tuple([self._walk(argument) for argument in node.arguments])
            arguments = tuple([self._done[number] for number in numbers])
            if any(map(operator.is_not, arguments, node.arguments)):
                result = Scalar(node.operation, node.dtype, arguments, node.index, node.value)
            self._count += 1
            # The text of a value tells 0.0 from -0.0 and True from 1, which are equal.
            fact = (node.operation, node.dtype, numbers, node.index, repr(node.value))
        number = self._numbers[id(node)] = len(self._done)
        self._done.append(result)
        self._facts.append(fact)
        return number


class SharedExpressions:
    """The expressions of one compilation, those that are equal (in what they share within, too) one object."""

    def __init__(self) -> None:
        self._cores: dict[tuple[Scalar | None, tuple[Fact, ...]], ExpressionCore] = {}
        self._grown: dict[Hashable, tuple[Scalar, ExpressionCore | None]] = {}
        self._once: dict[Hashable, object] = {}
        self._roots: set[Scalar] = set()
        self._own: set[Scalar] = set()  # single constants of one value alone
        self._copies: dict[Scalar, list[Scalar]] = {}
        self._copied_from: dict[Scalar, Scalar] = {}
        self._placed: dict[tuple[Scalar, tuple[Place, ...], int], Scalar] = {}

    def has(self, expression: Scalar) -> bool:
        """Return whether an expression may be that of several values."""
        return expression in self._roots

    def alone(self, expression: Scalar) -> Scalar:
        """Return an expression as that of one value, not to be met by its equals; what shares it shares one object."""
        found = _copied(expression) if self.has(expression) else expression
        if not found.arguments:
            self._own.add(found)
        return found

    def apart(self, expression: Scalar, taken: Collection[Scalar]) -> Scalar:
        """Return an expression as ``alone`` does, for a reader that has taken in others already.

        Values with one expression need a copy each only where one reader takes them in. Elsewhere they share copies, so
        that what readers of one kind make of them is made once.
        """
        first = self._copied_from.get(expression, expression)
        if (first is expression and not self.has(expression)) or not expression.arguments:
            return self.alone(expression)
        if first is not expression and expression not in taken:
            return expression
        copies = self._copies.setdefault(first, [])
        for copy in copies:
            if copy not in taken:
                return copy
        copy = _copied(first)
        copies.append(copy)
        self._copied_from[copy] = first
        return copy

    def placed(self, expression: Scalar, reads: Mapping[int, Scalar], number: int) -> Scalar:
        """Return an expression with its inputs replaced by those in ``reads``, for copies of ``apart`` made once.

        ``number`` counts the times that one reader takes the same expression in over the same inputs: each is an object
        of its own there.
        """
        if expression not in self._copied_from:
            return substitute(expression, reads)
        key = (expression, tuple([(i, each.index, each.dtype) for i, each in reads.items()]), number)
        found = self._placed.get(key)
        if found is None:
            found = self._placed[key] = substitute(expression, reads)
            self._roots.add(found)
        return found

    def core_of(self, expression: Scalar, core: ExpressionCore | None) -> ExpressionCore:
        """Return an expression as ``core_of`` does, the same object for equal ones."""
        found, added = _CoreWalk(core).core(expression)
        if added is None:
            return found
        found = self._cores.setdefault((None if core is None else core.root, added), found)
        self._roots.add(found.root)
        return found

    def shared(self, expression: Scalar) -> Scalar:
        """Return a short expression that layers of one kind begin with, one object for equal ones.

        What is made of it is then made once, and written as text once.
        """
        return expression if not expression.arguments else self.core_of(expression, None).root

    def once(self, what: Hashable, scalar: Scalar, make: Callable[[], T]) -> T:
        """Return what is made of an operand, made once for equal ones; ``what`` is all else that it depends on."""
        key = self._key(what, [scalar], None, has_core=False)
        if key is None:
            return make()
        if key not in self._once:
            self._once[key] = make()
        return cast("T", self._once[key])

    def grown(
        self, what: Hashable, scalars: Sequence[Scalar], core: ExpressionCore | None, has_core: bool,
        make: Callable[[], Scalar],
    ) -> tuple[Scalar, ExpressionCore | None]:  # fmt: skip
        """Return what an operator makes of its operands, made once for equal ones.

        Args:
            what: all that decides what is made of operands; ``None`` where that cannot be said.
            scalars: the operands.
            core: the expression among them that was taken in as it is.
            has_core: whether to return an ``ExpressionCore``, too.
            make: makes the expression.
        """
        key = None if what is None else self._key(what, scalars, core, has_core)
        found = None if key is None else self._grown.get(key)
        if found is None:
            expression = make()
            if has_core:
                whole = core_of(expression, core) if key is None else self.core_of(expression, core)
                found = whole.root, whole
            else:
                found = expression, None
            if key is not None:
                self._grown[key] = found
                self._roots.add(found[0])
        return found

    def _key(
        self, what: Hashable, scalars: Sequence[Scalar], core: ExpressionCore | None, has_core: bool
    ) -> Hashable | None:
        tokens: list[Hashable] = []
        for scalar in scalars:
            if scalar in self._own:
                return None
            if scalar.operation == "input":
                tokens.append((scalar.dtype, scalar.index))
            elif scalar.operation == "constant":
                tokens.append((scalar.dtype, repr(scalar.value)))
            elif scalar in self._roots:
                tokens.append(scalar)
            else:
                return None
        return what, has_core, None if core is None else core.root, tuple(tokens)


def _copied(expression: Scalar) -> Scalar:
    """Return an expression that shares no operation with another one."""
    return rebuilt(expression, lambda node: None)
