"""Subject: the provider under test on this machine, and the few things that checks do with it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import onnx

import ort_core as ort
from ort_conformance.profile import EpProfile
from ort_core.plugin import (
    Available,
    Claim,
    EPFail,
    ExecutionProvider,
    GraphView,
    NotImplemented,
    Rejection,
    Unavailable,
)
from ort_core.testing.claims import foreseen, typed_model, view_of
from ort_core.testing.environments import session_environment

if TYPE_CHECKING:
    from ort_core.stages import ForeseenPlacement

ORACLE = "ReferenceExecutionProvider"
_SMALLEST = """<ir_version: 8, opset_import: ["": 18]> g (float[1] x) => (float[1] y) { y = Relu(x) }"""


class Subject:
    """A provider with its profile. Sessions made here see the plugins that any session of the process sees."""

    def __init__(self, profile: EpProfile) -> None:
        self.profile = profile

    @property
    def name(self) -> str:
        """The provider's name."""
        return self.profile.name

    @cached_property
    def availability(self) -> Available | Unavailable:
        """Whether the provider can run here."""
        return session_environment().check(self.name)

    @cached_property
    def provider_class(self) -> type[ExecutionProvider]:
        """The provider's class.

        Raises:
            NotFound: no installed plugin brings it.
        """
        return session_environment().get_provider(self.name)

    @cached_property
    def can_be_asked(self) -> bool:
        """Whether the provider says what it would run, though it may not run here: installed, and with its SDK."""
        try:
            list(self.new_provider().get_capability(self.view(onnx.parser.parse_model(_SMALLEST))))
        except NotImplemented:  # it cannot decide: its SDK is not installed
            return False
        except Exception:  # noqa: BLE001 - a provider that fails to claim has been asked: each case shows it
            return session_environment().provider_classes().get(self.name) is not None
        return True

    def new_provider(self, options: Mapping[str, object] | None = None) -> ExecutionProvider:
        """Return a new instance, as a session makes one."""
        return self.provider_class(self.profile.options if options is None else options)

    def session(
        self,
        model: object,
        *,
        is_optimized: bool = True,
        fallbacks: Sequence[str] = (),
        options: ort.SessionOptions | None = None,
    ) -> ort.InferenceSession:
        """Return a session in which the provider runs all that it claimed. It does not go on to others in a run.

        Args:
            model: whatever a session takes.
            is_optimized: whether passes run; without them the report shows every node of the model.
            fallbacks: who takes what the provider leaves, before the last resort.
            options: the session's options; new ones by default.

        Raises:
            EPFail: the provider failed to compile what it had claimed.
        """
        session = self.lenient_session(model, is_optimized=is_optimized, fallbacks=fallbacks, options=options)
        failures = session.explain().fallbacks
        if failures:
            session.close()
            raise EPFail(failures[0])
        return session

    def lenient_session(
        self,
        model: object,
        *,
        is_optimized: bool = True,
        fallbacks: Sequence[str] = (),
        options: ort.SessionOptions | None = None,
    ) -> ort.InferenceSession:
        """Return a session as ``session`` does, also where others took over what the provider failed to compile."""
        chosen = ort.SessionOptions() if options is None else options
        if not is_optimized:
            chosen.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        others: list[tuple[str, Mapping[str, object]]] = [(name, {}) for name in fallbacks if name != self.name]
        source = model.SerializeToString() if isinstance(model, onnx.ModelProto) else model
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of placement: the report says the same
            return ort.InferenceSession(
                source, chosen, providers=[(self.name, self.profile.options), *others], enable_fallback=False
            )

    def foresee(self, model: object, *, is_optimized: bool = True) -> ForeseenPlacement:
        """Return where nodes would run if the provider could run here, the oracle behind it. Raises as the stage."""
        request = [(self.name, self.profile.options), (ORACLE, {})]
        return foreseen(model, request, is_optimized=is_optimized)

    def view(self, model: object) -> GraphView:
        """Return the view of a model's main graph as the provider sees it."""
        return view_of(typed_model(model))

    def answers(self, view: GraphView) -> list[Claim | Rejection]:
        """Ask a new instance for its capability."""
        return list(self.new_provider().get_capability(view))

    def claims(self, view: GraphView) -> list[Claim]:
        """Return what a new instance would run."""
        return [answer for answer in self.answers(view) if isinstance(answer, Claim)]
