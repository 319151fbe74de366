"""SessionOptions and RunOptions: typed attributes with onnxruntime's names; an unknown name is an error.

Attributes are checked when they are set. A configuration key that says the same as an attribute sets the attribute.
Objects handed over (initializers, passes, callbacks) are kept as they are; both classes copy and pickle.
"""

from __future__ import annotations

import enum
import logging
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Generic, TypeVar, cast, overload

from ort_core.errors import InvalidArgument, InvalidType, NoSuchFile, NotImplemented, UnknownOption, did_you_mean
from ort_core.frozen import frozen
from ort_core.settings import (
    MAX_KEY_LENGTH,
    MAX_VALUE_LENGTH,
    Scope,
    SettingValue,
    all_settings,
    find_setting,
    get_setting,
)

log = logging.getLogger(__name__)


class GraphOptimizationLevel(enum.IntEnum):
    """How far the graph is optimised."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(enum.IntEnum):
    """Whether independent operators may run at the same time."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(enum.IntEnum):
    """In which topological order operators run."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


class OrtExecutionProviderDevicePolicy(enum.IntEnum):
    """Which devices a session prefers when no provider is named."""

    DEFAULT = 0
    PREFER_CPU = 1
    PREFER_NPU = 2
    PREFER_GPU = 3
    MAX_PERFORMANCE = 4
    MAX_EFFICIENCY = 5
    MIN_OVERALL_POWER = 6


class OrtCompileApiFlags(enum.IntFlag):
    """What ModelCompiler treats as an error."""

    NONE = 0
    ERROR_IF_NO_NODES_COMPILED = 1
    ERROR_IF_OUTPUT_FILE_EXISTS = 2


class OrtCompiledModelCompatibility(enum.IntEnum):
    """Whether a compiled model fits a device."""

    EP_NOT_APPLICABLE = 0
    EP_SUPPORTED_OPTIMAL = 1
    EP_SUPPORTED_PREFER_RECOMPILATION = 2
    EP_UNSUPPORTED = 3


class OrtDeviceEpIncompatibilityReason(enum.IntFlag):
    """Why a provider cannot use a device."""

    NONE = 0
    DRIVER_INCOMPATIBLE = 1
    DEVICE_INCOMPATIBLE = 2
    MISSING_DEPENDENCY = 4
    UNKNOWN = -2147483648


@frozen
class ContextReader:
    """A caller's function that supplies EPContext data, and the largest number of bytes that it may give."""

    read: Callable[..., None]
    max_nbytes: int


_T = TypeVar("_T")
_LEVELS_BY_TEXT = {
    "disable_all": GraphOptimizationLevel.ORT_DISABLE_ALL,
    "enable_basic": GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "enable_extended": GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "enable_layout": GraphOptimizationLevel.ORT_ENABLE_LAYOUT,
    "enable_all": GraphOptimizationLevel.ORT_ENABLE_ALL,
}
_MODES_BY_TEXT = {"sequential": ExecutionMode.ORT_SEQUENTIAL, "parallel": ExecutionMode.ORT_PARALLEL}


class Option(Generic[_T]):
    """A typed attribute: a descriptor that checks what is set. ``range`` (both ends included) limits numbers."""

    def __init__(
        self,
        kind: type,
        default: _T,
        doc: str,
        *,
        range: tuple[float, float] | None = None,
        optional: bool = False,
    ) -> None:
        self._kind, self._default, self._range, self._optional = kind, default, range, optional
        self.__doc__ = doc

    def __set_name__(self, owner: type, name: str) -> None:
        self._name, self._owner = name, owner.__name__

    @overload
    def __get__(self, instance: None, owner: type) -> Option[_T]: ...

    @overload
    def __get__(self, instance: object, owner: type) -> _T: ...

    def __get__(self, instance: object | None, owner: type) -> Option[_T] | _T:
        return self if instance is None else instance.__dict__.get(self._name, self._default)

    def __set__(self, instance: object, value: _T) -> None:
        instance.__dict__[self._name] = self._checked(value)

    def _checked(self, value: object) -> object:
        if value is None and self._optional:
            return None
        if issubclass(self._kind, enum.IntEnum):
            return self._member(value)
        if self._kind is bool and isinstance(value, int) and value in (0, 1):
            return bool(value)
        if self._kind is str and isinstance(value, os.PathLike):
            value = os.fspath(value)
        if self._kind in (int, float) and not isinstance(value, (bool, str)) and hasattr(value, "__index__"):
            value = int(cast(int, value))
        accepted = (int, float) if self._kind is float else self._kind
        if not isinstance(value, accepted) or (isinstance(value, bool) and self._kind is not bool):
            raise InvalidType(
                f"{self._owner}.{self._name} is {value!r} ({type(value).__name__}), expected {self._kind.__name__}"
            )
        if self._range is not None and not self._range[0] <= cast(float, value) <= self._range[1]:
            raise InvalidArgument(
                f"{self._owner}.{self._name} is {value!r}, expected {self._range[0]} to {self._range[1]}"
            )
        return value

    def _member(self, value: object) -> object:
        kind = cast("type[enum.IntEnum]", self._kind)
        if isinstance(value, int) and not isinstance(value, bool) and value in {int(member) for member in kind}:
            return kind(value)
        names = ", ".join(f"{kind.__name__}.{member.name}" for member in kind)
        raise InvalidType(f"{self._owner}.{self._name} is {value!r}, expected one of {names}")


_THREADS = (0, 65536)
_SEVERITY = (-1, 4)
_MANY = (0, float("inf"))


class _Options:
    """What both kinds of options share: strict names, configuration entries, copying and comparing.

    ``unknown_is_error`` is switched off in the subclasses of the drop-in, which warn as onnxruntime would stay silent.
    """

    unknown_is_error: ClassVar[bool] = True
    _scope: ClassVar[Scope]

    def __init__(self) -> None:
        self._config: dict[str, str] = {}

    def __setattr__(self, name: str, value: object) -> None:
        if not name.startswith("_") and not isinstance(getattr(type(self), name, None), Option):
            known = sorted(n for n in dir(type(self)) if isinstance(getattr(type(self), n), Option))
            raise UnknownOption(
                f"{type(self).__name__} has no attribute {name!r} that can be set.{did_you_mean(name, known)} "
                f"Attributes: {', '.join(known)}"
            )
        object.__setattr__(self, name, value)

    def __copy__(self: _Self) -> _Self:
        copy = type(self).__new__(type(self))
        copy.__dict__.update({name: _shallow(value) for name, value in self.__dict__.items()})
        return copy

    def copy(self: _Self) -> _Self:
        """Return an independent copy; objects handed over are shared."""
        return self.__copy__()

    def __eq__(self, other: object) -> bool:
        try:
            return type(self) is type(other) and bool(self.__dict__ == other.__dict__)
        except ValueError:  # sample inputs: two arrays that are not one object count as different
            return False

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        shown = {name: value for name, value in self.__dict__.items() if not name.startswith("_")}
        text = ", ".join(f"{name}={value!r}" for name, value in {**shown, **self._config}.items())
        return f"{type(self).__name__}({text})"

    def _add_entry(self, key: str, value: str) -> None:
        if not isinstance(key, str) or not isinstance(value, str):
            raise InvalidType(f"a configuration entry is a pair of strings, found {key!r}: {value!r}")
        if not key or len(key) > MAX_KEY_LENGTH or len(value) > MAX_VALUE_LENGTH:
            raise InvalidArgument(
                f"a configuration key has 1 to {MAX_KEY_LENGTH} characters, its value at most {MAX_VALUE_LENGTH}; "
                f"found {len(key)} and {len(value)}"
            )
        try:
            setting = get_setting(self._scope, key)
            parsed = setting.parse(value)
        except InvalidArgument as error:
            if self.unknown_is_error:
                raise
            warnings.warn(str(error), stacklevel=3)
            self._config[key] = value
            return
        if setting.attribute:
            setattr(self, setting.attribute, _attribute_value(setting.attribute, parsed))
        if setting.no_effect:
            log.info("%s %s has no effect here: %s", self._scope.value, key, setting.no_effect)
        self._config[key] = value

    def _entry(self, key: str) -> str:
        if key not in self._config:
            hint = (
                ""
                if find_setting(self._scope, key)
                else did_you_mean(key, [n for s, n in all_settings() if s is self._scope])
            )
            raise UnknownOption(f"{self._scope.value} does not have configuration with key: {key}.{hint}")
        return self._config[key]

    @property
    def config_entries(self) -> dict[str, str]:
        """The configuration entries that were set, as a copy."""
        return dict(self._config)

    def setting(self, key: str) -> SettingValue:
        """Return the typed value of a configuration key: what was set, else its default.

        Raises:
            UnknownOption: the key is not in the table of ``ort_core.settings``.
        """
        setting = get_setting(self._scope, key)
        text = self._config.get(key)
        if text is None:
            return setting.default
        try:
            return setting.parse(text)
        except InvalidArgument:
            if self.unknown_is_error:
                raise
            return setting.default  # warned about when it was set


_Self = TypeVar("_Self", bound=_Options)


def _shallow(value: Any) -> Any:  # Any: whatever an attribute holds
    return value.copy() if isinstance(value, (dict, list)) else value


def _attribute_value(attribute: str, parsed: SettingValue) -> object:
    if attribute == "graph_optimization_level":
        return _LEVELS_BY_TEXT[cast(str, parsed)]
    return _MODES_BY_TEXT[cast(str, parsed)] if attribute == "execution_mode" else parsed


class SessionOptions(_Options):
    """How a model is loaded, optimised and placed. Beyond onnxruntime: ``strict_placement`` and the last three."""

    _scope = Scope.SESSION

    enable_cpu_mem_arena = Option(bool, True, "Keep buffers between runs.")
    enable_mem_pattern = Option(bool, True, "Plan all offsets before a run.")
    enable_mem_reuse = Option(bool, True, "Let values share memory when their lifetimes do not meet.")
    enable_profiling = Option(bool, False, "Write a Chrome trace; end_profiling() returns its path.")
    execution_mode = Option(ExecutionMode, ExecutionMode.ORT_SEQUENTIAL, "Sequential or parallel operators.")
    execution_order = Option(ExecutionOrder, ExecutionOrder.DEFAULT, "Which topological order.")
    graph_optimization_level = Option(
        GraphOptimizationLevel, GraphOptimizationLevel.ORT_ENABLE_ALL, "How far the graph is optimised."
    )
    inter_op_num_threads = Option(int, 0, "Operators at the same time; 0 chooses.", range=_THREADS)
    intra_op_num_threads = Option(int, 0, "Threads within an operator; 0 chooses.", range=_THREADS)
    log_severity_level = Option(
        int, -1, "0 verbose, 1 info, 2 warning, 3 error, 4 fatal; -1: as the process.", range=_SEVERITY
    )
    log_verbosity_level = Option(int, 0, "Detail of verbose lines.")
    logid = Option(str, "", "Name of the session in log lines.")
    optimized_model_filepath = Option(str, "", "Save the optimised model there.")
    profile_file_prefix = Option(str, "onnxruntime_profile_", "Start of the trace's file name; the time is appended.")
    use_deterministic_compute = Option(bool, False, "Same bits on every run; always so on the CPU.")
    use_per_session_threads = Option(bool, True, "Own threads for this session.")
    strict_placement = Option(bool, False, "A node that its first provider refuses is an error with the reason.")
    max_allocation_bytes = Option(
        cast("type[int | None]", int),
        None,
        "Most bytes one run may hold; None: half of the memory.",
        range=_MANY,
        optional=True,
    )
    custom_passes = Option(list, cast("list[object]", ()), "Passes of the user, run after the basic ones.")
    sample_inputs = Option(dict, cast("dict[str, object]", ()), "Feeds that measured placement is tried with.")

    def __init__(self) -> None:
        super().__init__()
        self._load_cancelled = False
        self._custom_ops: list[object] = []
        self._ep_context_reader: ContextReader | None = None
        self.sample_inputs = {}
        self._initializers: dict[str, object] = {}
        self._external_files: dict[str, memoryview] = {}
        self._dimensions_by_name: dict[str, int] = {}
        self._dimensions_by_denotation: dict[str, int] = {}
        self._providers: list[tuple[str, dict[str, str]]] = []
        self._policy: OrtExecutionProviderDevicePolicy | None = None
        self._policy_delegate: Callable[..., Sequence[object]] | None = None
        self.custom_passes = []

    def __getstate__(self) -> dict[str, object]:
        files = {name: bytes(view) for name, view in self._external_files.items()}
        return {**self.__dict__, "_external_files": files, "_custom_ops": [_by_name(each) for each in self._custom_ops]}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._external_files = {name: memoryview(content) for name, content in state["_external_files"].items()}

    def add_session_config_entry(self, key: str, value: str, /) -> None:
        """Set one configuration entry.

        Raises:
            UnknownOption: the key is not known; the message lists near ones.
            InvalidArgument: the value does not fit the key's type.
        """
        self._add_entry(key, value)

    def get_session_config_entry(self, key: str, /) -> str:
        """Return an entry that was set (``UnknownOption`` otherwise)."""
        return self._entry(key)

    def add_initializer(self, name: str, value: object, /) -> None:
        """Give an initializer's data as an OrtValue, which several sessions may share."""
        if not hasattr(value, "is_tensor"):
            raise InvalidType(f"the value of initializer {name!r} is a {type(value).__name__}, expected an OrtValue")
        self._initializers[name] = value

    def add_external_initializers(self, names: Sequence[str], values: Sequence[object], /) -> None:
        """Give the data of initializers that the model keeps in external files, as OrtValues."""
        if len(names) != len(values):
            raise InvalidArgument(
                f"{len(names)} names and {len(values)} values of external initializers; expected as many"
            )
        for name, value in zip(names, values, strict=True):
            self.add_initializer(name, value)

    def add_external_initializers_from_files_in_memory(
        self, names: Sequence[str], buffers: Sequence[bytes | bytearray | memoryview], lengths: Sequence[int], /
    ) -> None:
        """Give the contents of external files by the names that the model uses. Buffers are not copied."""
        if not len(names) == len(buffers) == len(lengths):
            raise InvalidArgument(
                f"{len(names)} names, {len(buffers)} buffers and {len(lengths)} lengths; expected as many"
            )
        for name, buffer, length in zip(names, buffers, lengths, strict=True):
            self._external_files[name] = memoryview(buffer).cast("B")[:length]

    def add_free_dimension_override_by_name(self, name: str, size: int, /) -> None:
        """Fix the size of a named dimension of the model's inputs."""
        self._dimensions_by_name[name] = _size(name, size)

    def add_free_dimension_override_by_denotation(self, denotation: str, size: int, /) -> None:
        """Fix the size of every input dimension with a denotation, such as ``DATA_BATCH``."""
        self._dimensions_by_denotation[denotation] = _size(denotation, size)

    def add_provider(self, name: str, options: Mapping[str, str], /) -> None:
        """Ask for an execution provider; the first one added is preferred."""
        self._providers.append((name, {str(k): str(v) for k, v in options.items()}))

    def add_provider_for_devices(self, devices: Sequence[Any], options: Mapping[str, str], /) -> None:
        """Ask for the provider of these devices (from ``get_ep_devices``; all of one provider)."""
        names = {device.ep_name for device in devices}  # Any above: OrtEpDevice lives in a higher layer
        if len(names) != 1:
            raise InvalidArgument(
                "All OrtEpDevice values in devices must have the same execution provider, "
                f"found {sorted(names) or 'none'}"
            )
        self.add_provider(names.pop(), options)

    @property
    def holds_objects(self) -> bool:
        """Whether anything was handed over that is no plain value: its ``repr`` does not tell what it is."""
        objects = (
            self._custom_ops, self._ep_context_reader, self._initializers, self._external_files, self._policy,
            self._policy_delegate, self._dimensions_by_name, self._dimensions_by_denotation, self.custom_passes,
            self.sample_inputs,
        )  # fmt: skip
        return any(objects) or self._load_cancelled

    def has_providers(self) -> bool:
        """Return whether providers or a policy have been set here."""
        return bool(self._providers) or self._policy is not None or self._policy_delegate is not None

    def set_provider_selection_policy(self, policy: OrtExecutionProviderDevicePolicy, /) -> None:
        """Prefer a kind of device where no provider is named."""
        if not isinstance(policy, OrtExecutionProviderDevicePolicy):
            raise InvalidType(f"policy is {policy!r}, expected a member of OrtExecutionProviderDevicePolicy")
        self._policy, self._policy_delegate = policy, None

    def set_provider_selection_policy_delegate(self, delegate: Callable[..., Sequence[object]], /) -> None:
        """Let ``delegate(devices, model_metadata, runtime_metadata, max_selections)`` choose the devices."""
        if not callable(delegate):
            raise InvalidType(f"the delegate is {delegate!r}, expected a callable")
        self._policy, self._policy_delegate = None, delegate

    def set_load_cancellation_flag(self, cancel: bool, /) -> None:
        """Ask a session that is being made with these options, in another thread, to stop."""
        self._load_cancelled = bool(cancel)

    def register_custom_ops_library(self, library: object, /) -> None:
        """Give the session operators: an ``OpLibrary``, an operator, a module or its name, or a Python file.

        A file or module name is loaded when a session is made.

        Raises:
            NotImplemented: it is a shared library, built against onnxruntime's C API.
            NoSuchFile: the Python file does not exist.
            InvalidType: it is a number, a list, a plain function: nothing that can have operators.
        """
        if isinstance(library, (str, os.PathLike)):
            library = _library_path(os.fspath(library))
        elif _is_plain(library):
            raise InvalidType(
                f"register_custom_ops_library is given {library!r}, a {type(library).__name__}; expected an OpLibrary, "
                "an operator (a function decorated with custom_op or elementwise_op, an ONNX function, a subclass of "
                "onnx.reference.OpRun), a module or its name, or a Python file"
            )
        self._custom_ops.append(library)

    def set_ep_context_data_read_func(self, read: Callable[..., None], max_data_size: int) -> None:
        """Let a function supply what EPContext nodes keep outside the model, instead of files beside it.

        ``read(name, buffer)`` allocates the ``OrtEpContextDataBuffer``, at most ``max_data_size`` bytes, and fills it.
        """
        if not callable(read) or max_data_size < 0:
            raise InvalidType(f"expected a function and a size in bytes, found {read!r} and {max_data_size!r}")
        self._ep_context_reader = ContextReader(read, max_data_size)

    def clear_ep_context_data_read_func(self) -> None:
        """Read files beside the model again."""
        self._ep_context_reader = None

    @property
    def ep_context_reader(self) -> ContextReader | None:
        """What supplies EPContext data, ``None`` for files."""
        return self._ep_context_reader

    @property
    def custom_op_libraries(self) -> Sequence[object]:
        """What was registered as operator libraries, in order: objects, module names, and paths of Python files."""
        return self._custom_ops

    @property
    def initializers(self) -> Mapping[str, object]:
        """The OrtValues given for initializers, by name."""
        return self._initializers

    @property
    def external_files(self) -> Mapping[str, memoryview]:
        """Contents given for external files, by the model's name for the file."""
        return self._external_files

    @property
    def dimensions_by_name(self) -> Mapping[str, int]:
        """Sizes fixed by the name of a dimension."""
        return self._dimensions_by_name

    @property
    def dimensions_by_denotation(self) -> Mapping[str, int]:
        """Sizes fixed by the denotation of a dimension."""
        return self._dimensions_by_denotation

    @property
    def providers(self) -> Sequence[tuple[str, dict[str, str]]]:
        """The providers added here, in order."""
        return self._providers

    @property
    def provider_policy(self) -> OrtExecutionProviderDevicePolicy | Callable[..., Sequence[object]] | None:
        """The policy or the delegate that chooses devices, if one was set."""
        return self._policy_delegate or self._policy

    @property
    def load_cancelled(self) -> bool:
        """Whether loading was asked to stop."""
        return self._load_cancelled


def _by_name(source: object) -> object:
    return source.__name__ if isinstance(source, ModuleType) else source  # modules are pickled by name


_SHARED_LIBRARIES = (".so", ".dll", ".dylib", ".pyd")


def _is_plain(value: object) -> bool:
    """Return whether a value is of Python's own types that cannot be an operator: a class, a module, bytes can."""
    return type(value).__module__ == "builtins" and not isinstance(value, (type, ModuleType, bytes))


def _library_path(name: str) -> object:
    """Return a Python file as its path, a module's name as it is."""
    path = Path(name)
    if path.suffix.lower() in _SHARED_LIBRARIES or ".so." in path.name:
        raise NotImplemented(
            f"Failed to load library {name}: it is compiled against onnxruntime's C API, which this engine does not "
            "have. Write the operator in Python (ort_core.custom_op; a C function of it is called through ctypes) and "
            "register the file, the module or an OpLibrary, or install a package that offers it by the hook "
            "ort_custom_ops. docs/howto/custom_operators.md shows how."
        )
    if path.suffix == ".py":
        if not path.is_file():
            raise NoSuchFile(f"Failed to load library {name}: cannot open file: No such file")
        return path
    if all(part.isidentifier() for part in name.split(".")):
        return name
    raise InvalidArgument(
        f"Failed to load library {name}: expected a Python file (.py), the name of a module, or an OpLibrary"
    )


def _size(name: str, size: object) -> int:
    if isinstance(size, bool) or not hasattr(size, "__index__") or int(cast(int, size)) < 0:
        raise InvalidArgument(f"the size of dimension {name!r} is {size!r}, expected an integer from 0")
    return int(cast(int, size))


class RunOptions(_Options):
    """How one run goes. ``terminate`` may be set from another thread; the last two go beyond onnxruntime."""

    _scope = Scope.RUN

    log_severity_level = Option(
        int, -1, "0 verbose, 1 info, 2 warning, 3 error, 4 fatal; -1: as the session.", range=_SEVERITY
    )
    log_verbosity_level = Option(int, 0, "Detail of verbose lines.")
    logid = Option(str, "", "Name of the run in log lines.")
    only_execute_path_to_fetches = Option(bool, False, "Run only the nodes that the asked-for outputs need.")
    terminate = Option(bool, False, "Stop every run that uses these options, with RunTerminated.")
    time_limit_s = Option(
        cast("type[float | None]", float),
        None,
        "Seconds after which the run ends with RunTimeout.",
        range=_MANY,
        optional=True,
    )
    max_allocation_bytes = Option(
        cast("type[int | None]", int),
        None,
        "Most bytes the run may hold; None: as the session.",
        range=_MANY,
        optional=True,
    )

    def __init__(self) -> None:
        super().__init__()
        self._adapters: list[object] = []

    def add_run_config_entry(self, key: str, value: str, /) -> None:
        """Set one configuration entry. Raises as ``SessionOptions.add_session_config_entry``."""
        self._add_entry(key, value)

    def get_run_config_entry(self, key: str, /) -> str:
        """Return an entry that was set (``UnknownOption`` otherwise)."""
        return self._entry(key)

    def add_active_adapter(self, adapter: object, /) -> None:
        """Feed the parameters of a loaded LoraAdapter to this run."""
        if not hasattr(adapter, "parameters"):
            raise InvalidType(f"the adapter is a {type(adapter).__name__}, expected a LoraAdapter")
        self._adapters.append(adapter)

    @property
    def active_adapters(self) -> Sequence[object]:
        """The adapters added, in order."""
        return self._adapters
