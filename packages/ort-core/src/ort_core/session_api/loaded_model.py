"""LoadedModel: everything that a session derives from its model and its providers; replaced whole, never changed."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ort_core.ir.rejection import Rejection
from ort_core.ir.types import ValueType
from ort_core.runtime.feeds import FeedChecker
from ort_core.session_api.direct_runs import DirectRunsState
from ort_core.session_api.node_arg import ModelMetadata, NodeArg
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
        owner: object,
        observed: bool = False,
    ) -> LoadedModel:
        """Derive what the API shows. The plan is closed when ``owner`` is dropped. ``observed``: runs are profiled."""
        graph = prepared.model.graph
        names = [value.name for value in graph.outputs]
        refused = Rejection("runs are profiled node by node") if observed else None
        return cls(
            prepared,
            metadata,
            request,
            FeedChecker(graph.inputs),
            tuple(NodeArg.of(value) for value in graph.inputs if value.constant is None),
            tuple(NodeArg.of(value) for value in graph.inputs if value.constant is not None),
            tuple(NodeArg.of(value) for value in graph.outputs),
            {value.name: value.type for value in graph.outputs},
            DirectRunsState(prepared.plan, names, refused),
            weakref.finalize(owner, prepared.plan.close),
        )
