"""SessionFacts: what a session tells about its model, its options and the placement."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ort_core.errors import Fail

if TYPE_CHECKING:
    from ort_core.environment import Environment
    from ort_core.options import SessionOptions
    from ort_core.partitioning.report import PlacementReport
    from ort_core.session_api.devices import OrtEpAssignedSubgraph, OrtEpDevice
    from ort_core.session_api.loaded_model import LoadedModel
    from ort_core.session_api.model_source import ModelSource
    from ort_core.session_api.node_arg import ModelMetadata, NodeArg
    from ort_core.tensors.memory_facts import OrtMemoryInfo


class SessionFacts:
    """The part of a session that only answers questions."""

    _loaded: LoadedModel
    _options: SessionOptions
    _environment: Environment
    _source: ModelSource

    def get_inputs(self) -> list[NodeArg]:
        """Return the inputs that must be fed."""
        return list(self._loaded.inputs)

    def get_outputs(self) -> list[NodeArg]:
        """Return the outputs."""
        return list(self._loaded.outputs)

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Return the inputs with a default, which may be fed."""
        return list(self._loaded.overridable)

    def get_modelmeta(self) -> ModelMetadata:
        """Return what the model says about itself."""
        return self._loaded.metadata

    def get_session_options(self) -> SessionOptions:
        """Return the options of this session (changing them does not change the session)."""
        return self._options

    def get_providers(self) -> list[str]:
        """Return the names of this session's providers, in order."""
        return list(self._loaded.providers)

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """Return the options of each provider as strings."""
        return {name: dict(options) for name, options in self._loaded.provider_options.items()}

    def explain(self, *, fusions: bool = False) -> PlacementReport:
        """Return which provider runs each node, how it does, and why the others do not; ``str()`` of it is a table.

        A session out of the cache prepares its model for this, once.

        Args:
            fusions: tell which fusions nearly fired, too, and why they did not: the model is loaded again, and its
                passes are run again.
        """
        from dataclasses import replace  # as below: few ask, and all would pay

        from ort_core.stages import explain_executions, find_fusion_misses

        report = explain_executions(self._loaded.prepared)
        if not fusions:
            return report
        misses = find_fusion_misses(
            self._source.load(self._options), self._options, self._environment, self._loaded.request,
            self._disabled_passes(), self._source.folder,
        )  # fmt: skip
        return replace(report, near_misses=tuple(misses))

    def _disabled_passes(self) -> frozenset[str]:
        raise NotImplementedError

    def get_provider_graph_assignment_info(self) -> list[OrtEpAssignedSubgraph]:
        """Return the nodes of each provider (``explain`` says more)."""
        if not self._options.setting("session.record_ep_graph_assignment_info"):
            raise Fail(
                "Session configuration entry 'session.record_ep_graph_assignment_info' must be set to \"1\" to "
                "retrieve EP graph assignment information. session.explain() needs no setting."
            )
        from ort_core.session_api.devices import assigned_subgraphs  # as below: few ask, and all would pay

        classes = self._environment.provider_classes()
        return assigned_subgraphs(self._loaded.prepared.report, lambda name: classes[name].is_last_resort)

    def get_input_memory_infos(self) -> list[OrtMemoryInfo]:
        """Return where each input is wanted: the host, from where the plan copies."""
        from ort_core.tensors.memory_facts import OrtMemoryInfo  # as above

        return [OrtMemoryInfo("Cpu") for _ in self._loaded.inputs]

    def get_output_memory_infos(self) -> list[OrtMemoryInfo]:
        """Return where each output arrives: the host."""
        from ort_core.tensors.memory_facts import OrtMemoryInfo  # as above

        return [OrtMemoryInfo("Cpu") for _ in self._loaded.outputs]

    def get_input_epdevices(self) -> list[OrtEpDevice]:
        """Return the provider and device that each input goes to first."""
        from ort_core.session_api.devices import ep_devices

        devices = [device for device in ep_devices(self._environment) if device.ep_name == self._loaded.providers[0]]
        return devices[:1] * len(self._loaded.inputs)
