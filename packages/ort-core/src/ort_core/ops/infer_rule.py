"""The rule marker and the rule registry: ``@infer_rule("Conv", since=1)`` attaches facts to a plain function."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar

from ort_core.frozen import frozen

if TYPE_CHECKING:
    from ort_core.ops.inference_context import InferenceContext

MARK = "__ort_infer_rules__"
RuleFunction = Callable[["InferenceContext"], None]
_F = TypeVar("_F", bound=RuleFunction)


@frozen
class InferRule:
    """One rule: the operator, the opset of its domain from which it holds, and the function."""

    op_type: str
    domain: str
    since_version: int
    function: RuleFunction


def infer_rule(*op_types: str, domain: str = "", since: int = 1) -> Callable[[_F], _F]:
    """Mark a function as the inference rule of some operators from version ``since`` of their domain on.

    May be applied several times to one function. Attaches data only: see ``InferenceRules.of``.
    """

    def mark(function: _F) -> _F:
        rules = tuple(InferRule(op_type, domain, since, function) for op_type in op_types)
        setattr(function, MARK, (*getattr(function, MARK, ()), *rules))
        return function

    return mark


class InferenceRules:
    """A lookup from (domain, op_type, opset) to the rule with the highest fitting since-version."""

    def __init__(self) -> None:
        self._rules: dict[tuple[str, str], list[InferRule]] = {}

    def add(self, rule: InferRule) -> None:
        """Add one rule.

        Raises:
            ValueError: there is a rule for that operator and since-version already.
        """
        known = self._rules.setdefault((rule.domain, rule.op_type), [])
        for other in known:
            if other.since_version == rule.since_version:
                raise ValueError(
                    f"two inference rules for {rule.domain or 'ai.onnx'}::{rule.op_type} since version "
                    f"{rule.since_version}: {_name(other.function)} and {_name(rule.function)}"
                )
        known.append(rule)
        known.sort(key=lambda item: -item.since_version)

    def collect(self, module: ModuleType) -> InferenceRules:
        """Add every marked function defined in ``module`` and return self."""
        for function in vars(module).values():
            if getattr(function, "__module__", None) == module.__name__:
                for rule in getattr(function, MARK, ()):
                    self.add(rule)
        return self

    def find(self, domain: str, op_type: str, opset: int) -> RuleFunction | None:
        """Return the rule for an operator at ``opset``, or ``None``."""
        for rule in self._rules.get((domain, op_type), ()):
            if rule.since_version <= opset:
                return rule.function
        return None

    def operators(self) -> tuple[tuple[str, str], ...]:
        """Return (domain, op_type) of every operator with a rule, sorted."""
        return tuple(sorted(self._rules))

    def extended(self) -> InferenceRules:
        """Return new rules that start with everything in these."""
        copy = InferenceRules()
        copy._rules = {key: list(rules) for key, rules in self._rules.items()}
        return copy

    @classmethod
    def of(cls, modules: Iterable[ModuleType]) -> InferenceRules:
        """Build a registry from marked modules."""
        registry = cls()
        for module in modules:
            registry.collect(module)
        return registry


def _name(function: RuleFunction) -> str:
    return f"{function.__module__}.{function.__qualname__}"
