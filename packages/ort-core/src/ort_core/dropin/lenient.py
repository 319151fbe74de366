"""What onnxruntime forgives, the drop-in forgives: unknown keys and absent providers warn instead of failing.

Instances also answer to the private names of onnxruntime that well-known programs read.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from ort_core import options, session
from ort_core.dropin import native
from ort_core.environment import default_environment
from ort_core.errors import DelegateFailed, InvalidArgument, InvalidType, InvalidValue
from ort_core.model_packages import selecting
from ort_core.passes.pipelines import known_names
from ort_core.session_api import io_binding
from ort_core.session_api.provider_request import Providers, Request, normalized, provider_request
from ort_core.settings import environment_value

if TYPE_CHECKING:
    from ort_core.environment import Environment
    from ort_core.session_api.node_arg import ModelMetadata

_DISABLED = "optimization.disable_specified_optimizers"


class SessionOptions(options.SessionOptions):
    """Session options that warn of unknown configuration keys and unfit values."""

    unknown_is_error: ClassVar[bool] = False

    def add_provider(self, name: str, options: Mapping[str, str], /) -> None:
        """Add a provider. Raises ``RuntimeError`` for a name that no installed provider has."""
        super().add_provider(name, options)
        _check_added([name], default_environment())


class RunOptions(options.RunOptions):
    """Run options that warn of unknown configuration keys and unfit values."""

    unknown_is_error: ClassVar[bool] = False


class IOBinding(io_binding.IOBinding):
    """Bindings below which programs find the native ones."""

    @property
    def _iobinding(self) -> native.SessionIOBinding:
        return native.SessionIOBinding.of(self)


class InferenceSession(session.InferenceSession):
    """A session that leaves out providers and provider options that it does not know, with a warning."""

    _options_type: ClassVar[type[options.SessionOptions]] = SessionOptions

    def _requested(
        self,
        providers: Providers | None,
        provider_options: Sequence[Mapping[str, object]] | None,
        metadata: Mapping[str, str],
    ) -> Request | None:
        try:
            request = provider_request(providers, provider_options, self._options, self._environment, metadata)
        except DelegateFailed:
            raise
        except (InvalidArgument, InvalidType) as error:
            if providers is not None and not isinstance(providers, Iterable):
                raise
            return self._fallback_request(error, providers)
        if request is None:
            return None
        available = self._environment.available_providers()
        if not providers:
            _check_added([name for name, _ in request], self._environment)
        usable: Request = []
        for name, values in request:
            if self._environment.check(name):
                usable.append((name, self._known_options(name, values)))
                continue
            warnings.warn(
                f"Specified provider '{name}' is not in available provider names. "
                f"Available providers: '{', '.join(available)}'",
                stacklevel=5,
            )
        return usable

    def _fallback_request(self, error: InvalidArgument, providers: object) -> Request:
        """Return the provider that onnxruntime goes on with where what was asked for cannot be understood."""
        warnings.warn(
            f"EP Error {Exception.__str__(error)} when using {providers}. Falling back to ['CPUExecutionProvider'].",
            stacklevel=6,
        )
        return [("CPUExecutionProvider", {})]

    def set_providers(
        self, providers: Providers | None = None, provider_options: Sequence[Mapping[str, object]] | None = None
    ) -> None:
        """Place the model anew. Raises ``RuntimeError`` for a name that no installed provider has."""
        if isinstance(providers, str):  # a list of letters for onnxruntime, none of which is a provider
            raise InvalidValue(f"Unknown Provider Type: {providers}; expected a list such as [{providers!r}]")
        request = normalized(providers, provider_options) if providers else []
        _check_added([name for name, _ in request], self._environment)
        known = [(name, self._known_options(name, values)) for name, values in request]
        super().set_providers(known)

    def _known_options(self, name: str, values: Mapping[str, object]) -> dict[str, object]:
        known = {field.name for field in dataclasses.fields(self._environment.get_provider(name).options_type)}
        unknown = [key for key in values if key not in known]
        if unknown:
            warnings.warn(f"{name} has no options {', '.join(unknown)}; ignored", stacklevel=6)
        return {key: value for key, value in values.items() if key in known}

    def _disabled_passes(self) -> frozenset[str]:
        configured = str(self._options.setting(_DISABLED)).replace(",", ";").split(";")
        names = super()._disabled_passes() | {name.strip() for name in configured if name.strip()}
        known = {*known_names(self._environment.passes)}
        self._options.add_session_config_entry(_DISABLED, "")  # its known names are in the result
        if names - known:
            warnings.warn(f"there are no optimizers {', '.join(sorted(names - known))}; ignored", stacklevel=5)
        return names & known

    def io_binding(self) -> IOBinding:
        """Return new, empty bindings."""
        return IOBinding(self)

    @property
    def _sess(self) -> NativeSession:
        return NativeSession.of(self)

    @property
    def _model_path(self) -> str | None:
        return self._source.path

    @property
    def _model_bytes(self) -> bytes | None:
        """The model as given, written anew: a session does not keep the bytes that it was made of."""
        return self._source.content()

    @property
    def _sess_options(self) -> options.SessionOptions:
        return self._options

    @property
    def _sess_options_initial(self) -> options.SessionOptions:
        return self._options

    @property
    def _read_config_from_model(self) -> bool:
        return bool(self._keywords.get("read_config_from_model", environment_value("ORT_LOAD_CONFIG_FROM_MODEL")))

    @property
    def _enable_fallback(self) -> bool:
        return self._fallback

    @property
    def _fallback_providers(self) -> list[str]:
        is_tensorrt = {"TensorrtExecutionProvider", "CUDAExecutionProvider"} <= {*self.get_providers()}
        return ["CUDAExecutionProvider", "CPUExecutionProvider"] if is_tensorrt else ["CPUExecutionProvider"]

    @property
    def _providers(self) -> list[str]:
        return self.get_providers()

    @property
    def _provider_options(self) -> dict[str, dict[str, str]]:
        return self.get_provider_options()

    @property
    def _inputs_meta(self) -> Sequence[Any]:  # Any: NodeArg, as programs read it
        return self.get_inputs()

    @property
    def _outputs_meta(self) -> Sequence[Any]:  # Any: as above
        return self.get_outputs()

    @property
    def _overridable_initializers(self) -> Sequence[Any]:  # Any: as above
        return self.get_overridable_initializers()

    @property
    def _model_meta(self) -> ModelMetadata:
        return self.get_modelmeta()

    @property
    def _profiling_start_time_ns(self) -> int:
        return self.get_profiling_start_time_ns()


def _check_added(names: Sequence[str], environment: Environment) -> None:
    """Refuse providers that were added to options, or set later, and cannot run here: nobody goes on without them."""
    for name in names:
        if not environment.check(name):
            raise InvalidValue(f"Unknown Provider Type: {name}. Available: {environment.available_providers()}")


class NativeSession(native.NativeSession):
    """What lies below a session of the drop-in."""

    _session_type: ClassVar[type[session.InferenceSession]] = InferenceSession


class ModelPackageComponentContext(selecting.ModelPackageComponentContext):
    """A variant whose sessions are the drop-in's."""

    _session_type: ClassVar[type[session.InferenceSession]] = InferenceSession


class ModelPackageContext(selecting.ModelPackageContext):
    """A package whose sessions are the drop-in's."""

    _component_type: ClassVar[type[selecting.ModelPackageComponentContext]] = ModelPackageComponentContext
