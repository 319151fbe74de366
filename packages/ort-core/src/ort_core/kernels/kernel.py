"""The kernel marker: ``@kernel("Relu", since=6)`` attaches facts to a plain function and registers nothing.

The calling convention, which the registry checks when a kernel is collected:

* inputs come positionally in schema order; an omitted optional input is ``None`` (omitted trailing ones are not
  passed at all, so give them a default); a variadic input is ``*args``;
* attributes come as keyword-only arguments whose Python defaults equal the schema's defaults: int, float, str,
  numpy array (TENSOR), SparseTensor, SubgraphRunner (GRAPH), a ``ValueType`` (TYPE_PROTO), or a tuple of these;
* a keyword-only parameter named ``ctx``, if there is one, receives the node's ``KernelContext``;
* the result is one value, or a tuple with one value per output in schema order (``None`` where absent);
* tensors are numpy arrays of exactly the element type of the specification (ml_dtypes for the types that numpy
  lacks, ``object`` arrays of ``str`` for strings), sequences are lists, optionals are the value or ``None``, maps
  are dicts. Inputs are never modified; a result may be a view of an input.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from ort_core.frozen import frozen

if TYPE_CHECKING:
    from ort_core.ir.types import ValueType

MARK = "__ort_kernels__"
KernelFunction = Callable[..., Any]  # Any: kernels differ in arity, and a result is any RuntimeValue or tuple of them
_without_errors = np.errstate(all="ignore")
_SILENCING = getattr(_without_errors(lambda: None), "__code__", None)  # of every function that it decorates
_F = TypeVar("_F", bound=KernelFunction)


@frozen
class KernelSpec:
    """One kernel: the operator and the range of operator versions that it computes, and the function.

    ``since_version`` to ``until_version`` (both inclusive; ``None``: no end) are versions of the operator's domain.
    Kernels follow IEEE 754: what is not finite is a result, so numpy's floating-point errors are off while one runs.
    ``keeps_numpy_errors`` leaves them as the caller has set them, for users' own functions.
    """

    op_type: str
    domain: str
    since_version: int
    until_version: int | None
    function: KernelFunction
    keeps_numpy_errors: bool = False

    def runnable(self, is_control_flow: bool = False) -> KernelFunction:
        """Return the function as it is called: without numpy's errors, but where a body may hold a user's function."""
        if self.keeps_numpy_errors or is_control_flow:
            return self.function
        return _without_errors(_bare(self.function))

    def covers(self, opset: int) -> bool:
        """Return whether this kernel computes the operator as a model that imports ``opset`` means it."""
        return self.since_version <= opset and (self.until_version is None or opset <= self.until_version)


def _bare(function: KernelFunction) -> KernelFunction:
    """Return what ``np.errstate`` decorates: whoever silences all errors need not do so twice, at 0.5 us a call."""
    decorated = getattr(function, "__code__", None) is _SILENCING
    return function.__wrapped__ if decorated else function  # type: ignore[attr-defined]  # of functools.wraps


def is_shared(guard: RunGuard) -> bool:
    """Return whether a guard serves many runs alike, so that what is made for it may be kept."""
    return bool(getattr(guard, "is_shared", False))


def kernel(op_type: str, *, domain: str = "", since: int = 1, until: int | None = None) -> Callable[[_F], _F]:
    """Mark a function as the kernel of ``domain::op_type`` for operator versions ``since`` to ``until``.

    May be applied several times to one function. Attaches data only: see ``registry.KernelRegistry.collect``.
    """

    def mark(function: _F) -> _F:
        spec = KernelSpec(op_type, domain, since, until, function)
        setattr(function, MARK, (*getattr(function, MARK, ()), spec))
        return function

    return mark


class SubgraphRunner(Protocol):
    """Runs the body of a control-flow node; captured values are bound already."""

    @property
    def input_count(self) -> int:
        """Number of formal inputs of the body."""

    @property
    def input_types(self) -> tuple[ValueType | None, ...]:
        """Types of the body's formal inputs, ``None`` where nothing is known."""

    @property
    def output_types(self) -> tuple[ValueType | None, ...]:
        """Types of the body's outputs, ``None`` where inference found none."""

    def __call__(self, *inputs: object) -> tuple[Any, ...]:
        """Run the body once and return its outputs, in order."""


def may_stop(guard: RunGuard) -> bool:
    """Return whether ``check`` may raise, so that long work is done in turns with a check before each."""
    return bool(getattr(guard, "may_stop", False))


def bound_outputs(guard: RunGuard) -> Mapping[str, int]:
    """Return the addresses of inputs where outputs, by name, may be written: the caller bound them as both."""
    found: Mapping[str, int] = getattr(guard, "bound", {})
    return found


class RunGuard(Protocol):
    """What a long-running kernel asks while it runs."""

    def check(self) -> None:
        """Raise ``RunTerminated`` or ``RunTimeout`` when the run must stop; cheap, to be called once per step."""

    def check_allocation(self, nbytes: int, what: str) -> None:
        """Raise ``AllocationLimitExceeded`` when a value of ``nbytes`` bytes may not be made."""

    @property
    def in_place(self) -> frozenset[int]:
        """Addresses of arrays that the caller has bound as an input and an output at once: caches that grow there."""


class Unguarded:
    """A guard without limits, for kernels called outside a session."""

    in_place: frozenset[int] = frozenset()

    def check(self) -> None:
        """Do nothing."""

    def check_allocation(self, nbytes: int, what: str) -> None:
        """Do nothing."""


@frozen
class KernelContext:
    """What a kernel may know of its node beyond inputs and attributes.

    ``output_present[i]`` is False for an output that nobody named. ``output_types`` come from inference. ``state``
    is this node's own dictionary: it lives as long as the session (caches, random generators) and may be shared
    by threads, so a kernel replaces entries rather than changes them. ``seed`` is the session's seed or ``None``.
    ``num_threads`` says how many threads the kernel may use, its own one included.
    """

    op_type: str
    domain: str
    opset: int
    node_name: str
    output_present: tuple[bool, ...]
    output_types: tuple[ValueType | None, ...]
    state: dict[str, Any]
    guard: RunGuard
    seed: int | None = None
    num_threads: int = 1

    def generator(self, seed: float | None) -> np.random.Generator:
        """Return the random generator for this node: fixed by an attribute ``seed``, else by the session's seed."""
        if seed is not None:
            return np.random.default_rng(int(np.float32(seed).view(np.uint32)))
        if "generator" not in self.state:
            self.state["generator"] = np.random.default_rng(self.seed)
        return self.state["generator"]
