"""onnxruntime's native classes below its Python ones: programs reach them by ``_sess``, ``_iobinding`` and ``capi``.

Arguments are positional there and stand in another order: feeds before names, a device in place of its name and number.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

from ort_core.errors import InvalidArgument, InvalidType, InvalidValue
from ort_core.session import InferenceSession
from ort_core.session_api.io_binding import IOBinding
from ort_core.tensors.device import OrtDevice
from ort_core.tensors.ort_value import ElementType, OrtValue, RuntimeValue
from ort_core.tensors.ort_value_vector import OrtValueVector

if TYPE_CHECKING:
    from ort_core.options import RunOptions, SessionOptions
    from ort_core.session_api.devices import OrtEpAssignedSubgraph, OrtEpDevice
    from ort_core.session_api.node_arg import ModelMetadata, NodeArg
    from ort_core.session_api.running import Callback
    from ort_core.tensors.memory_facts import OrtMemoryInfo


class NativeSession:
    """``capi._pybind_state.InferenceSession``: made of options, then initialized with providers."""

    _session_type: ClassVar[type[InferenceSession]] = InferenceSession

    def __init__(
        self,
        session_options: SessionOptions,
        path_or_bytes: str | bytes,
        is_path: bool,
        read_config_from_model: bool = False,
        /,
    ) -> None:
        if not isinstance(path_or_bytes, str if is_path else (bytes, bytearray, memoryview)):
            raise InvalidType(
                f"the model is a {type(path_or_bytes).__name__}, expected {'a path' if is_path else 'bytes'}"
            )
        self._given = (path_or_bytes, session_options, bool(read_config_from_model))
        self._made: InferenceSession | None = None

    @classmethod
    def of(cls, session: InferenceSession) -> Self:
        """Return what lies below a session that is ready to run."""
        made = cls.__new__(cls)
        made._made = session
        return made

    @property
    def session(self) -> InferenceSession:
        """The session that runs. Raises ``InvalidValue`` before ``initialize_session``."""
        if self._made is None:
            raise InvalidValue("Session was not initialized: call initialize_session first")
        return self._made

    def initialize_session(
        self,
        providers: Sequence[str] = (),
        provider_options: Sequence[Mapping[str, str]] = (),
        disabled_optimizers: Collection[str] = (),
        /,
    ) -> None:
        """Load the model, place it on providers (none: those of the options, or the default ones) and compile it."""
        source, options, reads_config = self._given
        self._made = self._session_type(
            source,
            options,
            list(providers) or None,
            list(provider_options) or None,
            disabled_optimizers=list(disabled_optimizers),
            read_config_from_model=reads_config,
        )

    def run(
        self, output_names: Sequence[str], feeds: Mapping[str, object], run_options: RunOptions | None = None, /
    ) -> list[Any]:  # Any: as of the session
        """Compute the named outputs."""
        return self.session.run(_some(output_names), feeds, run_options)

    def run_async(
        self,
        output_names: Sequence[str],
        feeds: Mapping[str, object],
        callback: Callback | None,
        user_data: object = None,
        run_options: RunOptions | None = None,
        /,
    ) -> None:
        """Compute outputs in another thread, then call the callback."""
        self.session.run_async(output_names, feeds, callback, user_data, run_options)

    def run_with_ort_values(
        self, feeds: Mapping[str, OrtValue], output_names: Sequence[str], run_options: RunOptions | None = None, /
    ) -> OrtValueVector:
        """Compute outputs of OrtValues; here the feeds stand first."""
        vector = OrtValueVector()
        vector.replace(self.session.run_with_ort_values(_some(output_names), feeds, run_options))
        return vector

    def run_with_ortvaluevector(
        self,
        run_options: RunOptions | None,
        feed_names: Sequence[str],
        feeds: OrtValueVector,
        fetch_names: Sequence[str],
        fetches: OrtValueVector,
        fetch_devices: Sequence[OrtDevice],
        /,
    ) -> None:
        """Compute outputs from one vector into another."""
        self.session.run_with_ortvaluevector(run_options, feed_names, feeds, fetch_names, fetches, fetch_devices)

    def run_with_iobinding(self, binding: SessionIOBinding, run_options: RunOptions | None = None, /) -> None:
        """Compute the bound outputs from the bound inputs."""
        bound = binding.binding if isinstance(binding, SessionIOBinding) else binding
        self.session.run_with_iobinding(bound, run_options)

    @property
    def inputs_meta(self) -> list[NodeArg]:
        """The inputs."""
        return self.session.get_inputs()

    @property
    def outputs_meta(self) -> list[NodeArg]:
        """The outputs."""
        return self.session.get_outputs()

    @property
    def overridable_initializers(self) -> list[NodeArg]:
        """The initializers that a feed may override."""
        return self.session.get_overridable_initializers()

    @property
    def model_meta(self) -> ModelMetadata:
        """What the model says about itself."""
        return self.session.get_modelmeta()

    @property
    def input_meminfos(self) -> list[OrtMemoryInfo]:
        """Where inputs are expected."""
        return self.session.get_input_memory_infos()

    @property
    def output_meminfos(self) -> list[OrtMemoryInfo]:
        """Where outputs are left."""
        return self.session.get_output_memory_infos()

    @property
    def input_epdevices(self) -> list[OrtEpDevice]:
        """The devices whose providers take the inputs."""
        return self.session.get_input_epdevices()

    @property
    def session_options(self) -> object:
        """The options, copied."""
        return self.session.get_session_options()

    @property
    def get_profiling_start_time_ns(self) -> int:
        """When profiling began; a number, not a method."""
        return self.session.get_profiling_start_time_ns()

    def get_providers(self) -> list[str]:
        """Return the providers in use."""
        return self.session.get_providers()

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """Return the options of each provider."""
        return self.session.get_provider_options()

    def get_provider_graph_assignment_info(self) -> list[OrtEpAssignedSubgraph]:
        """Return which nodes each provider runs."""
        return self.session.get_provider_graph_assignment_info()

    def end_profiling(self) -> str:
        """Write the trace and return its path."""
        return self.session.end_profiling()

    def set_ep_dynamic_options(self, options: Mapping[str, str], /) -> None:
        """Set options that change while a session lives."""
        self.session.set_ep_dynamic_options(options)

    def get_tuning_results(self) -> list[dict[str, Any]]:  # Any: onnxruntime's own records
        """Return what was tuned: nothing here."""
        return self.session.get_tuning_results()

    def set_tuning_results(self, results: list[object], error_on_invalid: bool = False, /) -> None:
        """Accept an empty list only."""
        self.session.set_tuning_results(results, error_on_invalid=error_on_invalid)

    def release_captured_graph(self, graph_annotation_id: int, /) -> None:
        """Release a captured graph (none is captured here)."""
        self.session.release_captured_graph(graph_annotation_id)

    def create_ortvalue_from_shape_and_type(
        self, shape: Sequence[int], element_type: ElementType, device: OrtDevice, /
    ) -> OrtValue:
        """Return a tensor of zeros on a device."""
        return OrtValue.ortvalue_from_shape_and_type(shape, element_type, device)

    create_ortvalue_from_shape_and_onnx_type = create_ortvalue_from_shape_and_type


def _some(output_names: Sequence[str]) -> Sequence[str]:
    """Return names of outputs. Raises ``InvalidArgument`` where there are none: nothing stands for all of them here."""
    if not isinstance(output_names, Sequence):
        raise InvalidType(f"output_names is {output_names!r}, expected a list of names such as ['y']")
    if not output_names:
        raise InvalidArgument("At least one output should be requested.")
    return output_names


def _device(device: object) -> OrtDevice:
    if not isinstance(device, OrtDevice):
        raise InvalidType(f"the device is {device!r}, expected an OrtDevice")
    return device


class SessionIOBinding:
    """Bindings that name a device where those in Python name its kind and its number."""

    def __init__(self, session: NativeSession, /) -> None:
        if not isinstance(session, NativeSession):
            raise InvalidType(f"bindings are made of what lies below a session, its _sess; found {session!r}")
        self._binding = IOBinding(session.session)

    @classmethod
    def of(cls, binding: IOBinding) -> Self:
        """Return what lies below bindings: changing either changes both."""
        made = cls.__new__(cls)
        made._binding = binding
        return made

    @property
    def binding(self) -> IOBinding:
        """The bindings themselves."""
        return self._binding

    def bind_input(self, name: str, *place: Any) -> None:  # Any: an array, or device, element type, shape and address
        """Bind an input to an array, or to memory of a device: ``(name, device, element_type, shape, address)``."""
        if len(place) == 1:
            self._binding.bind_cpu_input(name, place[0])
            return
        if len(place) != 4:
            raise InvalidType(f"input {name!r} is bound to an array or to a device, element type, shape and address")
        device, element_type, shape, address = place
        self._binding.bind_input(name, _device(device), 0, element_type, shape, address)

    def bind_output(self, name: str, device: OrtDevice, *memory: Any) -> None:  # Any: element type, shape, address
        """Ask for an output on a device, or in its memory: ``(name, device, element_type, shape, address)``."""
        if len(memory) not in (0, 3):
            raise InvalidType(f"output {name!r} is wanted on a device, or there with element type, shape and address")
        self._binding.bind_output(name, _device(device), 0, *memory)

    def bind_ortvalue_input(self, name: str, value: OrtValue, /) -> None:
        """Bind an input to an OrtValue."""
        self._binding.bind_ortvalue_input(name, value)

    def bind_ortvalue_output(self, name: str, value: OrtValue, /) -> None:
        """Ask for an output in the memory of an OrtValue."""
        self._binding.bind_ortvalue_output(name, value)

    def get_outputs(self) -> OrtValueVector:
        """Return the outputs of the last run."""
        return self._binding.get_outputs_as_ortvaluevector()

    def copy_outputs_to_cpu(self) -> list[RuntimeValue]:
        """Return copies of the outputs of the last run."""
        return self._binding.copy_outputs_to_cpu()

    def synchronize_inputs(self) -> None:
        """Wait until bound inputs are there."""
        self._binding.synchronize_inputs()

    def synchronize_outputs(self) -> None:
        """Wait until outputs are there."""
        self._binding.synchronize_outputs()

    def clear_binding_inputs(self) -> None:
        """Forget bound inputs."""
        self._binding.clear_binding_inputs()

    def clear_binding_outputs(self) -> None:
        """Forget bound outputs and results."""
        self._binding.clear_binding_outputs()
