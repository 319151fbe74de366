"""jinja2's sandbox with a budget: all that a template computes is counted before it is computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.filters import make_attrgetter
from jinja2.runtime import LoopContext, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from ort_genai.template_budget import HOLDERS, JOINED_BY, TEXTS, Budget

# filters of this module's own; a template that names them only counts more
_STEP, _CONCAT, _WEIGHED, _CUT = "__step", "__concat", "__weighed", "__cut"
_REMOVED = ("urlize",)  # its time grows with the square of a text, and no conversation has a use for it
# filters that do not look at the elements of what they are given, or do so one at a time as somebody asks for them
_LAZY = frozenset({
    "length", "count", "first", "last", "default", "d", "map", "select", "reject", "selectattr", "rejectattr", _STEP,
})  # fmt: skip
_NAMED = {"join": ("d", "attribute"), "sum": ("attribute", "start")}  # arguments by place
_CHECKED = (str, bytes, int, float, list, tuple, dict, range)  # whose methods are counted
_FREE = (Macro, LoopContext)  # which only hand on what they are given
_Filter = Callable[..., Any]  # Any: what templates compute


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """A sandbox that counts.

    Args:
        budget: that is taken from.
        options: of jinja2's sandbox.
    """

    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "%", "**"})

    def __init__(self, budget: Budget, **options: Any) -> None:  # Any: jinja2's own
        super().__init__(**options, finalize=self._written)
        self._budget = budget
        self.globals.pop("lipsum", None)  # a text of any length, of no use in a conversation
        for name in _REMOVED:
            self.filters.pop(name, None)
        for name, function in list(self.filters.items()):
            self.filters[name] = self.counted(name, function)
        tests: dict[str, Any] = {**self.tests}
        self.tests.update({name: self._counted_test(function) for name, function in tests.items()})
        self.filters[_STEP], self.filters[_CONCAT] = self._stepped, self._concatenated
        self.filters[_WEIGHED], self.filters[_CUT] = self._weighed, self._made

    def counted(self, name: str, function: _Filter) -> _Filter:
        """Return a filter that counts what it looks at, and what it makes."""
        at = sum(hasattr(function, each) for each in ("jinja_pass_arg",))

        def run(*given: Any, **more: Any) -> Any:
            first, value, rest = given[:at], given[at], given[at + 1 :]
            self._budget.read(8)
            if name in _NAMED:
                more, rest = dict(zip(_NAMED[name], rest, strict=False)) | more, rest[len(_NAMED[name]) :]
            if name not in _LAZY:
                value = self._weighed(value)
                rest, more = tuple(map(self._weighed, rest)), {key: self._weighed(each) for key, each in more.items()}
            if name in _NAMED and more.get("attribute") is not None:
                value = list(map(make_attrgetter(self, more.pop("attribute")), value))
                self._budget.weighed(value)
            self._budget.check(name, value, rest, more)
            return self._made(function(*first, value, *rest, **more))

        if at:
            run.jinja_pass_arg = function.jinja_pass_arg  # type: ignore[attr-defined]  # as jinja2 marks it
        return run

    def _counted_test(self, function: _Filter) -> _Filter:
        at = sum(hasattr(function, each) for each in ("jinja_pass_arg",))

        def run(*given: Any, **more: Any) -> Any:
            self._budget.read(8)
            if len(given) > at + 1:  # a test without arguments asks what a value is, not what it holds
                given = (*given[:at], *map(self._weighed, given[at:]))
            return function(*given, **more)

        if at:
            run.jinja_pass_arg = function.jinja_pass_arg  # type: ignore[attr-defined]  # as jinja2 marks it
        return run

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Run an operator on two values, if what it makes is not too much."""
        self._budget.check_operator(operator, left, right)
        found = super().call_binop(context, operator, left, right)
        return self._made(found) if operator == "%" else found

    def call(self, context: Any, function: Any, /, *given: Any, **more: Any) -> Any:
        """Call a function or a method, if what it makes is not too much."""
        if isinstance(function, _FREE) or function is Namespace:
            return super().call(context, function, *given, **more)
        self._budget.read(8)
        given, more = tuple(map(self._weighed, given)), {key: self._weighed(each) for key, each in more.items()}
        owner = getattr(function, "__self__", None)
        if isinstance(owner, _CHECKED):
            if given or more:
                self._budget.weighed(owner)
            name = function.__name__
            self._budget.check(JOINED_BY if name == "join" else name, owner, given, more)
            return self._made(super().call(context, function, *given, **more))
        return super().call(context, function, *given, **more)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """Return an element; tuples are weighed, as their hashes take all that they hold."""
        return super().getitem(obj, self._weighed(argument) if isinstance(argument, tuple) else argument)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """Return ``str.format`` of a text as jinja2 guards it, counted."""
        guarded = super().wrap_str_format(value)
        if guarded is None:
            return None

        def run(*given: Any, **more: Any) -> str:
            mapped = given[0] if value.__name__ == "format_map" and isinstance(given[0], dict) else {}
            for each in (*given, *more.values()):
                self._budget.weighed(each)
            self._budget.check("format", value.__self__, given, {**mapped, **more})
            return str(self._made(guarded(*given, **more)))

        return run

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        """Return the tree of a template, with steps counted in loops, macros and blocks, and ``~`` as a filter."""
        tree = super()._parse(source, name, filename)
        blocks: list[nodes.For | nodes.Macro | nodes.CallBlock | nodes.Block] = [
            *tree.find_all(nodes.For), *tree.find_all(nodes.Macro), *tree.find_all(nodes.CallBlock),
            *tree.find_all(nodes.Block),
        ]  # fmt: skip
        for block in blocks:
            step = nodes.Filter(nodes.Const(0), _STEP, [], [], None, None, lineno=block.lineno)
            block.body.insert(0, nodes.ExprStmt(step, lineno=block.lineno))
        for compared in tree.find_all(nodes.Compare):
            compared.expr = _by_filter(compared.expr)
            for operand in compared.ops:
                operand.expr = _by_filter(operand.expr)
        for pair in tree.find_all(nodes.Pair):
            pair.key = _by_filter(pair.key)
        _replace_concatenations(tree)
        tree.set_environment(self)
        return tree

    def _made(self, value: Any) -> Any:
        if isinstance(value, (*TEXTS, list, tuple, dict)):
            self._budget.make(len(value))
        return value

    def _weighed(self, value: Any) -> Any:
        """Return a value whose elements are going to be looked at; what an iterator gives as a list."""
        found = self._budget.listed(value)
        self._budget.weighed(found)
        return found

    def _written(self, value: Any) -> Any:
        """Return a value that is going to be written."""
        self._budget.write(self._budget.weighed(value) if isinstance(value, HOLDERS) else _length(value))
        return value

    @jinja2.pass_context  # else it is computed once, when the template is compiled
    def _stepped(self, _: object, value: int) -> int:
        self._budget.step()
        return value

    def _concatenated(self, values: list[Any]) -> str:
        for each in values:
            self._budget.make(self._budget.weighed(each))
        return "".join(map(str, values))


def _length(value: Any) -> int:
    return len(value) if isinstance(value, TEXTS) else 0


def _by_filter(node: nodes.Expr) -> nodes.Expr:
    """Return a node whose value is weighed; texts and numbers of the template itself are as long as it says."""
    if isinstance(node, nodes.Const):
        return node
    return nodes.Filter(node, _WEIGHED, [], [], None, None, lineno=node.lineno)


def _replace_concatenations(node: nodes.Node) -> None:
    """Put a filter in the place of each ``~`` below a node, and around each part of a text or a list."""
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
    if isinstance(value, nodes.Getitem) and isinstance(value.arg, nodes.Slice):
        return nodes.Filter(value, _CUT, [], [], None, None, lineno=value.lineno)
    return value
