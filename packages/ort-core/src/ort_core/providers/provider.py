"""ExecutionProvider: the one contract between the core and any hardware."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from ort_core.errors import OrtError
from ort_core.frozen import frozen
from ort_core.interruptions import raise_interruption
from ort_core.ir.rejection import Rejection
from ort_core.providers.options import NoOptions, parse_options

if TYPE_CHECKING:
    from ort_core.kernels.registry import KernelRegistry
    from ort_core.passes.base import Pass
    from ort_core.providers.capability import Capability, GraphView
    from ort_core.providers.compiled import CompiledPartition, CompileRequest
    from ort_core.providers.roofline import Roofline
    from ort_core.providers.thread_options import ThreadOptions


@frozen
class Available:
    """The provider can run here; ``detail`` says on what, for ``ort doctor``."""

    detail: str = ""


@frozen
class Unavailable:
    """The provider cannot run here, why, and what would change that (``remedy``: a pip line, a driver). Falsy."""

    reason: str
    remedy: str = ""

    def __bool__(self) -> bool:
        return False

    def __str__(self) -> str:
        return f"{self.reason} ({self.remedy})" if self.remedy else self.reason


class ExecutionProvider(ABC):
    """Runs parts of models on some hardware.

    An instance is one provider with its options for one session: identity is (name, options, device). Instances are
    made by the class, ``cls(options)``, when a session asks; ``check`` and ``name`` need no instance. All methods
    may be called from any thread; none may change the graph.
    """

    name: ClassVar[str]
    """The public name, as in onnxruntime where it has one: ``"CPUExecutionProvider"``."""

    options_type: ClassVar[type] = NoOptions
    """A frozen dataclass: field names are option names, defaults are the defaults, and its docstring has a sentence for
    each under ``Attributes:``. Options that are only known in order to refuse them may stand with the reason in a class
    variable ``refused`` instead, a mapping by name."""

    is_last_resort: ClassVar[bool] = False
    """Whether what nobody else took may be given to this provider (the built-in CPU provider says so)."""

    is_listed: ClassVar[bool] = False
    """Whether sessions that name no provider use this one where it can run: installing its package then moves models.
    A provider that wants that declares it; every other is used where a session names it."""

    takes_parts: ClassVar[bool] = True
    """Whether ``get_capability`` is asked again about the parts of composites that it left: with the same graph, where
    the operators that they are made of stand for these nodes. What it claims so is compiled so."""

    folds_parts: ClassVar[bool] = False
    """Whether parts that compute of constants alone are handed over as what they give: for engines that take weights as
    they are multiplied. Those that keep narrow weights narrow want the parts."""

    loads_without_graph: ClassVar[bool] = False
    """Whether ``load`` needs no more of the request's graph than inputs and outputs: what ``serialize`` returns then
    holds the weights, and a compiled model keeps neither the nodes nor the weights of the partition."""

    priority: ClassVar[int] = 100
    """Where the provider stands when a session names none: higher first. The CPU stands at 0."""

    def __init__(self, options: Mapping[str, object] | None = None) -> None:
        self.options = parse_options(self.options_type, options or {}, self.name)

    @classmethod
    def check(cls) -> Available | Unavailable:
        """Return whether this provider can run here, and why not. Imports its SDK if it must; never raises."""
        return Available()

    def check_device(self) -> Available | Unavailable:
        """Return whether the device that the options name is there and can be used, and why not. Never raises.

        It is asked of each instance that a session makes, behind ``check``; one that says no is as one that is absent.
        """
        return Available()

    @classmethod
    def device_text(cls) -> str:
        """Return the device in a word or two (``cpu``, ``cuda``), as onnxruntime names it."""
        return "cpu"

    @property
    def fusions(self) -> Sequence[Pass]:
        """The passes that this provider wants inside its own partitions, in order."""
        return ()

    @abstractmethod
    def get_capability(self, view: GraphView) -> Capability:
        """Return a claim for what this provider would run, and a Rejection with a reason for each node it leaves.

        Deterministic, without side effects; claims are convex and disjoint. `ort explain` asks also where ``check``
        says Unavailable, to show what would be claimed: answer by rules, and by the SDK where it is installed; a node
        on which only the hardware can decide is a Rejection that says so.

        Raises:
            NotImplemented: what it needs to decide (its SDK) is not installed; the message says what to install.
        """

    @abstractmethod
    def compile(self, request: CompileRequest) -> CompiledPartition:
        """Compile a partition that this provider claimed.

        Raises:
            Exception: anything; the core turns it into ``EPFail`` with the provider and the partition named.
        """

    def build(self, request: CompileRequest) -> Rejection | None:
        """Build what ``compile`` would hand to the device, where the device is not here, and keep nothing of it.

        For providers whose SDK builds for hardware that is elsewhere: the conformance suite shows claims as built by
        this where ``check`` says Unavailable. Sizes that are not fixed are the provider's to choose.

        Returns:
            ``None`` when it was built, else why this provider builds nothing without its device.

        Raises:
            Exception: it cannot be built; the core turns it into ``EPFail``.
        """
        return Rejection(f"{self.name} builds nothing where it cannot run")

    def load(self, blob: bytes, request: CompileRequest) -> CompiledPartition | Rejection:
        """Restore what ``CompiledPartition.serialize`` wrote, or say why not.

        The request is as for ``compile``; with ``loads_without_graph`` its graph may hold one EPContext node with the
        partition's inputs and outputs instead. Small constants are those of the time of compiling, large ones (above
        1 KiB) may differ: what depends on their values must check them. The core has checked ``cache_key`` and that the
        caller trusts the bytes.
        """
        return Rejection(f"{self.name} does not store compiled partitions")

    def recall(
        self, content: memoryview, threads: ThreadOptions, compile_anew: Callable[[], CompiledPartition]
    ) -> CompiledPartition | Rejection:
        """Return the partition that ``CompiledPartition.remember`` described, or say why it does not fit here.

        Args:
            content: the bytes, mapped; whoever uses them holds them.
            threads: what the session says of threads.
            compile_anew: compiles the partition from the model, for runs that what is remembered does not serve.
        """
        return Rejection(f"{self.name} does not remember partitions")

    def kernels(self) -> KernelRegistry | None:
        """Return the kernels of a provider that runs node by node, for reports; ``None`` for a compiling one."""
        return None

    def measure_roofline(self, threads: ThreadOptions) -> Roofline | None:
        """Measure how fast this device can compute and move data, in under a second; ``None``: it has no way to."""
        return None

    def cache_key(self) -> str:
        """Return what compiled artefacts depend on beyond the graph: SDK, driver and device versions, options."""
        return f"{self.name}|{self.options!r}"


def check_provider(cls: type[ExecutionProvider]) -> Available | Unavailable:
    """Call ``check`` of a provider; an exception, which the contract forbids, becomes ``Unavailable``."""
    return _checked(cls.name, "check", cls.check)


def check_device(provider: ExecutionProvider) -> Available | Unavailable:
    """Call ``check_device`` of an instance; an exception becomes ``Unavailable``."""
    return _checked(provider.name, "check_device", provider.check_device)


def _checked(name: str, method: str, ask: Callable[[], Available | Unavailable]) -> Available | Unavailable:
    try:
        answer = ask()
    except Exception as error:  # the border to plugins
        raise_interruption(error)
        logging.getLogger(__name__).debug("%s.%s failed", name, method, exc_info=True)
        return Unavailable(f"{name}.{method} raised {type(error).__name__}: {error} (a bug of that provider)")
    if isinstance(answer, (Available, Unavailable)):
        return answer
    return Unavailable(
        f"{name}.{method} returned {answer!r}, expected Available or Unavailable (a bug of that provider)"
    )


def make_provider(cls: type[ExecutionProvider], options: Mapping[str, object]) -> ExecutionProvider | Unavailable:
    """Return an instance with options; an exception that is none of the options' becomes ``Unavailable``.

    Raises:
        OrtError: an option is not known to the provider or does not parse.
    """
    try:
        return cls(options)
    except OrtError:
        raise
    except Exception as error:  # the border to plugins
        raise_interruption(error)
        logging.getLogger(__name__).debug("%s could not be made", cls.name, exc_info=True)
        return Unavailable(f"{cls.name} could not be made: {type(error).__name__}: {error} (a bug of that provider)")
