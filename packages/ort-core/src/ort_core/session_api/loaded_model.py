"""LoadedModel: everything that a session derives from its model and its providers; replaced whole, never changed."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ort_core.frozen import frozen
from ort_core.ir.rejection import Rejection
from ort_core.passes.take_defaults import ShownValues
from ort_core.runtime.feeds import FeedChecker
from ort_core.session_api.direct_runs import DirectRunsState
from ort_core.session_api.node_arg import ModelMetadata, NodeArg
from ort_core.session_api.output_sizes import OutputSizes
from ort_core.session_api.plans import PlansState

if TYPE_CHECKING:
    from ort_core.ir.types import ValueType
    from ort_core.ir.values import Value
    from ort_core.runtime.plan import ExecutionPlan
    from ort_core.session_api.provider_request import Request
    from ort_core.session_api.session_cache import RecalledSession
    from ort_core.stages import PreparedModel


@frozen
class LoadedModel:
    """What runs and what the API shows of it. ``closing`` gives back what the plan holds.

    ``prepare`` returns the prepared model: at once, or, of a session out of the cache, after preparing it.
    """

    prepare: Callable[[], PreparedModel]
    providers: tuple[str, ...]
    provider_options: Mapping[str, Mapping[str, str]]
    metadata: ModelMetadata
    request: Request | None
    checker: FeedChecker
    inputs: tuple[NodeArg, ...]
    overridable: tuple[NodeArg, ...]
    outputs: tuple[NodeArg, ...]
    output_types: Mapping[str, ValueType | None]
    output_sizes: OutputSizes
    direct: DirectRunsState
    plans: PlansState
    closing: weakref.finalize[Any, Any]  # Any: weakref's own type parameters

    @property
    def prepared(self) -> PreparedModel:
        """The prepared model."""
        return self.prepare()

    def close(self) -> None:
        """Refuse further runs and give back what the plan holds."""
        self.direct.close()
        self.closing()

    @classmethod
    def of(
        cls,
        prepared: PreparedModel,
        shown: ShownValues,
        metadata: ModelMetadata,
        request: Request | None,
        prepare_general: Callable[[], PreparedModel],
        owner: object,
        refused: Rejection | None = None,
    ) -> LoadedModel:
        """Derive what the API shows.

        Args:
            prepared: what runs.
            shown: what callers see of it.
            metadata: what the model says of itself.
            request: the providers asked for.
            prepare_general: prepares the model for runs that override initializers, or whose sizes of one name differ.
            owner: the plan is closed when it is dropped.
            refused: why no run is to be made by one native call, if so.
        """
        parts = _shown(shown)
        overridable = _names(shown.overridable if prepared.shown else ())
        plans = PlansState(prepared.plan, overridable, parts[0].sizes_agree, prepare_general)
        sizes = OutputSizes({value.name: value.type for value in shown.outputs})
        return cls(
            lambda: prepared,
            prepared.providers,
            prepared.provider_options,
            metadata,
            request,
            *parts,
            sizes,
            _direct_runs(prepared.plan, shown, sizes, refused),
            plans,
            weakref.finalize(owner, plans.close),
        )

    @classmethod
    def recalled(
        cls, found: RecalledSession, request: Request | None, prepare_general: Callable[[], PreparedModel],
        owner: object,
    ) -> LoadedModel:  # fmt: skip
        """Derive what the API shows from a session out of the cache. Arguments as for ``of``."""
        parts = _shown(found.shown)
        plans = PlansState(found.plan, _names(found.shown.overridable), parts[0].sizes_agree, prepare_general)
        sizes = OutputSizes({value.name: value.type for value in found.shown.outputs})
        return cls(
            found.prepare,
            found.providers,
            found.provider_options,
            found.metadata,
            request,
            *parts,
            sizes,
            _direct_runs(found.plan, found.shown, sizes),
            plans,
            weakref.finalize(owner, plans.close),
        )

    def learn(self, feeds: Mapping[str, object], *, by_steps: bool) -> None:
        """Take note of the checked feeds of an ordinary run without options that succeeded.

        ``by_steps``: a run of the plan's steps with no limits of its own is what the session's options ask for.
        """
        if not self.plans.needs_general(feeds):
            self.direct.learn(feeds, by_steps=by_steps)


def _direct_runs(
    plan: ExecutionPlan, shown: ShownValues, sizes: OutputSizes, refused: Rejection | None = None
) -> DirectRunsState:
    takes_any = sizes.follow({value.name: value.type for value in plan.graph.outputs})
    return DirectRunsState(plan, [value.name for value in shown.outputs], refused, takes_any=takes_any)


def _names(values: tuple[Value, ...]) -> frozenset[str]:
    return frozenset(value.name for value in values)


def _shown(
    shown: ShownValues,
) -> tuple[FeedChecker, tuple[NodeArg, ...], tuple[NodeArg, ...], tuple[NodeArg, ...], Mapping[str, ValueType | None]]:
    """Return the fields ``checker``, ``inputs``, ``overridable``, ``outputs`` and ``output_types``."""
    return (
        FeedChecker(shown.required, shown.overridable),
        tuple(NodeArg.of(value) for value in shown.required),
        tuple(NodeArg.of(value) for value in shown.overridable),
        tuple(NodeArg.of(value) for value in shown.outputs),
        {value.name: value.type for value in shown.outputs},
    )
