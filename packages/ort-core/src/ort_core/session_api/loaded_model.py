"""LoadedModel: everything that a session derives from its model and its providers; replaced whole, never changed."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ort_core.ir.rejection import Rejection
from ort_core.ir.types import ValueType
from ort_core.passes.take_defaults import ShownValues
from ort_core.runtime.feeds import FeedChecker
from ort_core.session_api.direct_runs import DirectRunsState
from ort_core.session_api.node_arg import ModelMetadata, NodeArg
from ort_core.session_api.plans import PlansState
from ort_core.session_api.provider_request import Request
from ort_core.stages import PreparedModel


@dataclass(frozen=True)
class LoadedModel:
    """A prepared model with what the API shows of it. ``closing`` gives back what the plan holds."""

    prepared: PreparedModel
    metadata: ModelMetadata
    request: Request | None
    checker: FeedChecker
    inputs: tuple[NodeArg, ...]
    overridable: tuple[NodeArg, ...]
    outputs: tuple[NodeArg, ...]
    output_types: Mapping[str, ValueType | None]
    direct: DirectRunsState
    plans: PlansState
    closing: weakref.finalize[Any, Any]  # Any: weakref's own type parameters

    def close(self) -> None:
        """Refuse further runs and give back what the plan holds."""
        self.direct.close()
        self.closing()

    @classmethod
    def of(
        cls,
        prepared: PreparedModel,
        metadata: ModelMetadata,
        request: Request | None,
        prepare_general: Callable[[], PreparedModel],
        owner: object,
        observed: bool = False,
    ) -> LoadedModel:
        """Derive what the API shows.

        Args:
            prepared: what runs.
            metadata: what the model says of itself.
            request: the providers asked for.
            prepare_general: prepares the model for runs that override initializers.
            owner: the plan is closed when it is dropped.
            observed: whether runs are profiled.
        """
        shown = prepared.shown or ShownValues.of(prepared.model)
        names = [value.name for value in shown.outputs]
        plans = PlansState(prepared, prepare_general)
        refused = Rejection("runs are profiled node by node") if observed else None
        return cls(
            prepared,
            metadata,
            request,
            FeedChecker(shown.required, shown.overridable),
            tuple(NodeArg.of(value) for value in shown.required),
            tuple(NodeArg.of(value) for value in shown.overridable),
            tuple(NodeArg.of(value) for value in shown.outputs),
            {value.name: value.type for value in shown.outputs},
            DirectRunsState(prepared.plan, names, refused),
            plans,
            weakref.finalize(owner, plans.close),
        )

    def learn(self, feeds: Mapping[str, object]) -> None:
        """Take note of the checked feeds of an ordinary run without options that succeeded."""
        if not self.plans.is_overridden(feeds):
            self.direct.learn(feeds)
