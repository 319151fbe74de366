"""What a chat template may do: so many steps of loops, so many characters and elements made, then it is refused.

jinja2's sandbox keeps a template away from Python, not from the processor and the memory: loops in loops, texts that
double and paddings of a billion characters come with the folder of whoever wrote the model.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sized
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

STEPS = 1 << 20  # of loops and macros together
SIZE = 1 << 24  # characters and elements that are made, each time they are made
_STEP, _CONCAT = "__step", "__concat"  # filters of this module's own; a template that names them only counts more
_WIDTH = re.compile(r"\d{8,}")  # of a padding or a precision
_GIVEN_WIDTH = re.compile(r"%[^a-zA-Z%]*\*|\{[^{}]*:[^{}]*\{")  # that an argument states: '%*d', '{:{}}'
_Filter = Callable[..., Any]  # Any: what templates compute


class Budget:
    """Counts what a template does; one for each text that is written."""

    def __init__(self) -> None:
        self._steps = self._size = 0

    def step(self) -> None:
        """Count a step of a loop, or a call of a macro.

        Raises:
            TemplateError: there were too many.
        """
        self._steps += 1
        if self._steps > STEPS:
            raise jinja2.TemplateError(f"it takes more than {STEPS} steps")

    def make(self, count: int) -> None:
        """Count characters or elements that are made.

        Raises:
            TemplateError: there were too many.
        """
        self._size += max(count, 0)
        if self._size > SIZE:
            raise jinja2.TemplateError(f"it makes texts and lists of more than {SIZE} characters and elements")


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """A sandbox that counts.

    Args:
        budget: that is taken from.
        options: of jinja2's sandbox.
    """

    intercepted_binops = frozenset({"*", "+", "%", "**"})

    def __init__(self, budget: Budget, **options: Any) -> None:  # Any: jinja2's own
        super().__init__(**options)
        self._budget = budget
        self.globals.pop("lipsum", None)  # a text of any length, of no use in a conversation
        for name, function in list(self.filters.items()):
            self.filters[name] = self.counted(name, function)
        self.filters[_STEP], self.filters[_CONCAT] = self._stepped, self._concatenated

    def counted(self, name: str, function: _Filter) -> _Filter:
        """Return a filter that counts what it makes."""
        at = sum(hasattr(function, each) for each in ("jinja_pass_arg",))

        def run(*given: Any, **more: Any) -> Any:
            self._check(name, given[at], (*given[at + 1 :], *more.values()))
            return self._made(function(*given, **more))

        if at:
            run.jinja_pass_arg = function.jinja_pass_arg  # type: ignore[attr-defined]  # as jinja2 marks it
        return run

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Run an operator on two values, if what it makes is not too much."""
        if operator == "**":
            if isinstance(left, int) and isinstance(right, int):
                self._budget.make(left.bit_length() * max(right, 0) // 8)
        elif operator == "%" and isinstance(left, str):
            self._check("format", left, right if isinstance(right, tuple) else (right,))
        elif operator == "*":
            for some, times in ((left, right), (right, left)):
                if isinstance(some, str | list | tuple) and isinstance(times, int):
                    self._budget.make(len(some) * times)
        elif operator == "+" and isinstance(left, str | list | tuple) and isinstance(right, Sized):
            self._budget.make(len(left) + len(right))
        return super().call_binop(context, operator, left, right)

    def call(self, context: Any, function: Any, /, *given: Any, **more: Any) -> Any:
        """Call a function or a method, if what it makes is not too much."""
        owner = getattr(function, "__self__", None)
        if isinstance(owner, str):
            self._check(function.__name__, owner, (*given, *more.values()))
            return self._made(super().call(context, function, *given, **more))
        return super().call(context, function, *given, **more)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """Return ``str.format`` of a text as jinja2 guards it, counted."""
        guarded = super().wrap_str_format(value)
        if guarded is None:
            return None

        def run(*given: Any, **more: Any) -> str:
            mapped = given[0].values() if value.__name__ == "format_map" and isinstance(given[0], dict) else ()
            self._check("format", value.__self__, (*given, *more.values(), *mapped))
            return str(self._made(guarded(*given, **more)))

        return run

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        """Return the tree of a template, with steps counted in loops and macros, and ``~`` as a filter."""
        tree = super()._parse(source, name, filename)
        blocks: list[nodes.For | nodes.Macro | nodes.CallBlock] = [
            *tree.find_all(nodes.For), *tree.find_all(nodes.Macro), *tree.find_all(nodes.CallBlock),
        ]  # fmt: skip
        for block in blocks:
            step = nodes.Filter(nodes.Const(0), _STEP, [], [], None, None, lineno=block.lineno)
            block.body.insert(0, nodes.ExprStmt(step, lineno=block.lineno))
        _replace_concatenations(tree)
        tree.set_environment(self)
        return tree

    def _check(self, name: str, value: Any, given: Iterable[Any]) -> None:
        """Count what a function is going to make, where its arguments tell."""
        listed = list(given)
        is_format = name in ("format", "format_map")
        if name not in _COUNTS or (is_format and _GIVEN_WIDTH.search(str(value))):
            lines = value.count("\n") + 1 if name == "indent" and isinstance(value, str) else 1
            for each in listed:
                self._budget.make(each * lines if isinstance(each, int) else 0)
        if is_format and _WIDTH.search(str(value)):
            raise jinja2.TemplateError("it pads a text to more than 9,999,999 characters")
        if name == "replace" and len(listed) >= 2 and isinstance(value, str):
            old, new = str(listed[0]), str(listed[1])
            self._budget.make(value.count(old) * len(new) if len(new) > len(old) else 0)
        if name == "join" and isinstance(value, list | tuple):
            self._budget.make(sum(len(each) for each in value if isinstance(each, str)))

    def _made(self, value: Any) -> Any:
        if isinstance(value, str | list | tuple | dict | bytes):
            self._budget.make(len(value))
        return value

    @jinja2.pass_context  # else it is computed once, when the template is compiled
    def _stepped(self, _: object, value: int) -> int:
        self._budget.step()
        return value

    def _concatenated(self, values: list[Any]) -> str:
        texts = [str(each) for each in values]
        self._budget.make(sum(map(len, texts)))
        return "".join(texts)


_COUNTS = frozenset(
    {"int", "float", "round", "abs", "format", "format_map", "tojson", "default", "d", "get", "split", "replace"}
)


def _replace_concatenations(node: nodes.Node) -> None:
    """Put a filter in the place of each ``~`` below a node."""
    for field, value in node.iter_fields():
        if isinstance(value, list):
            setattr(node, field, [_replaced(each) for each in value])
        else:
            setattr(node, field, _replaced(value))


def _replaced(value: Any) -> Any:
    if not isinstance(value, nodes.Node):
        return value
    _replace_concatenations(value)
    if isinstance(value, nodes.Concat):
        listed = nodes.List(value.nodes, lineno=value.lineno)
        return nodes.Filter(listed, _CONCAT, [], [], None, None, lineno=value.lineno)
    return value
