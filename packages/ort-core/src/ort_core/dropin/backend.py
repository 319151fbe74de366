"""onnx's backend interface over sessions: what ``onnxruntime.backend`` is to programs that use it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ort_core.arguments import takes, text
from ort_core.dropin.lenient import InferenceSession, RunOptions, SessionOptions
from ort_core.errors import InvalidValue, NotImplemented, OrtError
from ort_core.onnx_io.adapters import Backend, BackendRep
from ort_core.session_api.model_source import Loadable
from ort_core.session_api.named_outputs import Output
from ort_core.session_api.process import get_device

Inputs = Sequence[object] | Mapping[str, object] | object


_LOGGING = frozenset({"log_severity_level", "log_verbosity_level", "logid"})
_RUN_OPTIONS = _LOGGING | {"only_execute_path_to_fetches"}
_SESSION_OPTIONS = _LOGGING | {
    "enable_cpu_mem_arena", "enable_mem_pattern", "enable_mem_reuse", "execution_mode", "execution_order",
    "graph_optimization_level", "inter_op_num_threads", "intra_op_num_threads", "use_deterministic_compute",
    "use_per_session_threads",
}  # fmt: skip


def _set_allowed(options: SessionOptions | RunOptions, values: Mapping[str, object], allowed: frozenset[str]) -> None:
    """Set what callers of the backend may set, and ignore what no option is called.

    Raises:
        InvalidValue: an option that writes files, reads others, or stops runs, is not for this door.
    """
    for name, value in values.items():
        if name in allowed:
            setattr(options, name, value)
        elif hasattr(options, name):
            raise InvalidValue(
                f"{type(options).__name__} attribute '{name}' is not permitted via the backend API. "
                f"Allowed attributes: {', '.join(sorted(allowed))}"
            )


class OnnxRuntimeBackendRep(BackendRep):
    """A prepared model. Results are lists, as onnxruntime gives them, where onnx declares tuples."""

    def __init__(self, session: InferenceSession) -> None:
        self._session = session

    def run(self, inputs: Inputs, **kwargs: object) -> list[Output]:  # type: ignore[override]  # see above
        """Run with a list of inputs in order, a mapping by name, or the one input. ``kwargs`` are run options."""
        options = RunOptions()
        _set_allowed(options, kwargs, _RUN_OPTIONS)
        return self._session.run(None, self._feeds(inputs), options)

    def _feeds(self, inputs: Inputs) -> dict[str, object]:
        names = [argument.name for argument in self._session.get_inputs()]
        if isinstance(inputs, Mapping):
            return dict(inputs)
        if isinstance(inputs, (list, tuple)):
            return dict(zip(names, inputs, strict=False))
        if len(names) != 1:
            raise InvalidValue(f"Model expect {len(names)} inputs: {names}; one value was given")
        return {names[0]: inputs}


class OnnxRuntimeBackend(Backend):
    """Prepares and runs models."""

    allowReleasedOpsetsOnly = True  # noqa: N815 - onnxruntime's name

    @classmethod
    def is_compatible(cls, model: Loadable, device: str | None = None, **kwargs: object) -> bool:
        """Return whether a model can be prepared."""
        try:
            cls.prepare(model, device, **kwargs)
        except OrtError:
            return False
        return True

    @classmethod
    def is_opset_supported(cls, model: Any) -> tuple[bool, str]:  # Any: an onnx.ModelProto
        """Return whether the operator sets that a model imports are known, and which is not."""
        from ort_core.onnx_io.schemas import MAX_OPSET

        for entry in model.opset_import:
            if entry.domain in ("", "ai.onnx") and entry.version > MAX_OPSET:
                return False, f"Skipping this test as only released onnx opsets are supported: up to {MAX_OPSET}"
        return True, ""

    @classmethod
    @takes(device=text)
    def supports_device(cls, device: str) -> bool:
        """Return whether there is a device of a kind (``CPU``, ``CUDA:0``)."""
        kind = device.split(":")[0].upper()
        return kind == "CPU" or ("GPU" if kind == "CUDA" else kind) in get_device()

    @classmethod
    def prepare(cls, model: Loadable, device: str | None = None, **kwargs: object) -> OnnxRuntimeBackendRep:
        """Return a prepared model; a session or a prepared model is taken as it is. ``kwargs`` are session options."""
        if isinstance(model, OnnxRuntimeBackendRep):
            return model
        if isinstance(model, InferenceSession):
            return OnnxRuntimeBackendRep(model)
        if device is not None and not cls.supports_device(device):
            raise InvalidValue(f"Incompatible device expected {device!r}, got {get_device()!r}")
        options = SessionOptions()
        _set_allowed(options, kwargs, _SESSION_OPTIONS)
        return OnnxRuntimeBackendRep(InferenceSession(model, options))

    @classmethod
    def run_model(  # type: ignore[override]  # a list, see OnnxRuntimeBackendRep
        cls, model: Loadable, inputs: Inputs, device: str | None = None, **kwargs: object
    ) -> list[Output]:
        """Prepare a model and run it once; ``kwargs`` are session options and run options."""
        return cls.prepare(model, device, **kwargs).run(inputs, **kwargs)

    @classmethod
    def run_node(  # type: ignore[override]  # refuses whatever it is given
        cls, node: object, inputs: Inputs, device: str | None = None, **kwargs: object
    ) -> list[Output]:
        """Refuse: a node alone does not say which operator set it is of. Raises ``NotImplemented`` always."""
        raise NotImplemented("It is much more efficient to run a whole model than every node independently.")
