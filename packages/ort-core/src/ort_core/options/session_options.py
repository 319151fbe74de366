"""SessionOptions: how a model is loaded, optimized and placed.

Objects handed over (initializers, passes, callbacks) are kept as they are; options copy and pickle.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from ort_core.arguments import a_mapping, sizes, takes, text, texts, truth, whole
from ort_core.errors import InvalidArgument, InvalidObject, InvalidType, InvalidValue, WrongObject
from ort_core.frozen import frozen
from ort_core.options.choices import ExecutionMode, ExecutionOrder, GraphOptimizationLevel
from ort_core.options.option import Option
from ort_core.options.strict_options import ANY_SIZE, ONE_LOGGER, SEVERITIES, StrictOptions
from ort_core.settings import IN_TURN, ONE_ARENA, Scope

if TYPE_CHECKING:
    from ort_core.options.rare_choices import OrtExecutionProviderDevicePolicy

_THREADS = (0, 65536)
_PLANNED = "a run's memory is always planned before it: where each value lies, and which values share a place"
_ORDERED = "a provider orders its own steps; the CPU provider's order is fixed when a model is compiled"
_SAME_BITS = "the CPU provider computes the same bits on every run anyway, and no other provider asks"
_SHARED_THREADS = "sessions with the same options of threads share threads, so that there are never more than asked for"


@frozen
class ContextReader:
    """A caller's function that supplies EPContext data, and the largest number of bytes that it may give."""

    read: Callable[..., None]
    max_nbytes: int


class SessionOptions(StrictOptions):
    """How a model is loaded, optimized and placed. Beyond onnxruntime: ``strict_placement`` and the last three."""

    _scope = Scope.SESSION

    enable_cpu_mem_arena = Option(bool, True, "Keep buffers between runs.", no_effect=ONE_ARENA)
    enable_mem_pattern = Option(bool, True, "Plan all offsets before a run.", no_effect=_PLANNED)
    enable_mem_reuse = Option(
        bool, True, "Let values share memory when their lifetimes do not meet.", no_effect=_PLANNED
    )
    enable_profiling = Option(bool, False, "Write a Chrome trace; end_profiling() returns its path.")
    execution_mode = Option(
        ExecutionMode, ExecutionMode.ORT_SEQUENTIAL, "Sequential or parallel operators.", no_effect=IN_TURN
    )
    execution_order = Option(ExecutionOrder, ExecutionOrder.DEFAULT, "Which topological order.", no_effect=_ORDERED)
    graph_optimization_level = Option(
        GraphOptimizationLevel, GraphOptimizationLevel.ORT_ENABLE_ALL, "How far the graph is optimized."
    )
    inter_op_num_threads = Option(
        int, 0, "Operators at the same time; 0 chooses.", range=_THREADS, raises=True, no_effect=IN_TURN
    )
    intra_op_num_threads = Option(int, 0, "Threads within an operator; 0 chooses.", range=_THREADS, raises=True)
    log_severity_level = Option(
        int,
        -1,
        "0 verbose, 1 info, 2 warning, 3 error, 4 fatal; -1: as the process.",
        range=SEVERITIES,
        no_effect=ONE_LOGGER,
    )
    log_verbosity_level = Option(int, 0, "Detail of verbose lines.", no_effect=ONE_LOGGER)
    logid = Option(str, "", "Name of the session in log lines.", no_effect=ONE_LOGGER)
    optimized_model_filepath = Option(str, "", "Save the optimized model there.")
    profile_file_prefix = Option(str, "onnxruntime_profile_", "Start of the trace's file name; the time is appended.")
    use_deterministic_compute = Option(
        bool, False, "Same bits on every run; always so on the CPU.", no_effect=_SAME_BITS
    )
    use_per_session_threads = Option(bool, True, "Own threads for this session.", no_effect=_SHARED_THREADS)
    strict_placement = Option(bool, False, "A node that its first provider refuses is an error with the reason.")
    max_allocation_bytes = Option(
        cast("type[int | None]", int),
        cast("int | None", None),
        "Most bytes one run may hold, beside scratch whose size no input changes; None: half of the memory.",
        range=ANY_SIZE,
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
        self._external_initializers: set[str] = set()
        self._providers: list[tuple[str, dict[str, str]]] = []
        self._policy: OrtExecutionProviderDevicePolicy | None = None
        self._policy_delegate: Callable[..., Sequence[object]] | None = None
        self.custom_passes = []

    def __getstate__(self) -> dict[str, object]:
        from ort_core.options.operator_sources import (
            by_name,
        )  # here and below: few sessions have operators of their own

        files = {name: bytes(view) for name, view in self._external_files.items()}
        return {**self.__dict__, "_external_files": files, "_custom_ops": [by_name(each) for each in self._custom_ops]}

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

    @takes(name=text)
    def add_initializer(self, name: str, value: object, /) -> None:
        """Give an initializer's data as an OrtValue, which several sessions may share."""
        if not hasattr(value, "is_tensor"):
            raise InvalidObject(f"the value of initializer {name!r} is a {type(value).__name__}, expected an OrtValue")
        self._initializers[name] = value

    @takes(names=texts)
    def add_external_initializers(self, names: Sequence[str], values: Sequence[object], /) -> None:
        """Give the data of initializers that the model keeps in external files, as OrtValues."""
        if len(names) != len(values):
            raise InvalidValue(
                f"{len(names)} names and {len(values)} values of external initializers; expected as many"
            )
        for name, value in zip(names, values, strict=True):
            self.add_initializer(name, value)
        self._external_initializers |= set(names)

    @takes(names=texts, lengths=sizes)
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

    @takes(name=text, size=whole)
    def add_free_dimension_override_by_name(self, name: str, size: int, /) -> None:
        """Fix the size of a named dimension of the model's inputs."""
        self._dimensions_by_name[name] = _size(name, size)

    @takes(denotation=text, size=whole)
    def add_free_dimension_override_by_denotation(self, denotation: str, size: int, /) -> None:
        """Fix the size of every input dimension with a denotation, such as ``DATA_BATCH``."""
        self._dimensions_by_denotation[denotation] = _size(denotation, size)

    @takes(name=text, options=a_mapping)
    def add_provider(self, name: str, options: Mapping[str, str], /) -> None:
        """Ask for an execution provider; the first one added is preferred."""
        self._providers.append((name, {str(k): str(v) for k, v in options.items()}))

    @takes(options=a_mapping)
    def add_provider_for_devices(self, devices: Sequence[Any], options: Mapping[str, str], /) -> None:
        """Ask for the provider of these devices (from ``get_ep_devices``; all of one provider)."""
        if other := [device for device in devices if not hasattr(device, "ep_name")]:
            raise WrongObject(f"devices holds {other[0]!r}, expected what get_ep_devices() returns")
        names = {device.ep_name for device in devices}  # Any above: OrtEpDevice lives in a higher layer
        if len(names) != 1:
            raise InvalidArgument(
                "All OrtEpDevice values in devices must have the same execution provider, "
                f"found {sorted(names) or 'none'}"
            )
        self.add_provider(names.pop(), options)

    @property
    def holds_objects(self) -> bool:
        """Whether anything was handed over that is not a plain value: its ``repr`` does not tell what it is."""
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
        from ort_core.options.rare_choices import OrtExecutionProviderDevicePolicy  # imported by whoever has one

        if not isinstance(policy, OrtExecutionProviderDevicePolicy):
            raise InvalidType(f"policy is {policy!r}, expected a member of OrtExecutionProviderDevicePolicy")
        self._policy, self._policy_delegate = policy, None

    def set_provider_selection_policy_delegate(self, delegate: Callable[..., Sequence[object]], /) -> None:
        """Let ``delegate(devices, model_metadata, runtime_metadata, max_selections)`` choose the devices."""
        if not callable(delegate):
            raise InvalidType(f"the delegate is {delegate!r}, expected a callable")
        self._policy, self._policy_delegate = None, delegate

    @takes(cancel=truth)
    def set_load_cancellation_flag(self, cancel: bool, /) -> None:
        """Ask a session that is being made with these options, in another thread, to stop."""
        self._load_cancelled = cancel

    def register_custom_ops_library(self, library: object, /) -> None:
        """Give the session operators: an ``OpLibrary``, an operator, a module or its name, or a Python file.

        A file or module name is loaded when a session is made.

        Raises:
            NotImplemented: it is a shared library, built against onnxruntime's C API.
            NoSuchFile: the Python file does not exist.
            InvalidType: it is a number, a list, a plain function: nothing that can have operators.
        """
        from ort_core.options.operator_sources import is_plain, library_source

        if isinstance(library, (str, os.PathLike)):
            library = library_source(os.fspath(library))
        elif is_plain(library):
            raise InvalidType(
                f"register_custom_ops_library is given {library!r}, a {type(library).__name__}; expected an OpLibrary, "
                "an operator (a function decorated with custom_op or elementwise_op, an ONNX function, a subclass of "
                "onnx.reference.OpRun), a module or its name, or a Python file"
            )
        self._custom_ops.append(library)

    def set_ep_context_data_read_func(self, read_func: Callable[..., None], max_data_size: int) -> None:
        """Let a function supply what EPContext nodes keep outside the model, instead of files beside it.

        ``read_func(name, buffer)`` allocates the ``OrtEpContextDataBuffer``, at most ``max_data_size`` bytes, and
        fills it.
        """
        if not callable(read_func) or max_data_size < 0:
            raise InvalidType(f"expected a function and a size in bytes, found {read_func!r} and {max_data_size!r}")
        self._ep_context_reader = ContextReader(read_func, max_data_size)

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
    def needed_initializers(self) -> frozenset[str]:
        """The names among ``initializers`` that must be the model's; onnxruntime forgives the others."""
        return frozenset(self._initializers if self.unknown_is_error else self._external_initializers)

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


def _size(name: str, size: int) -> int:
    if size < 0:
        raise InvalidArgument(f"the size of dimension {name!r} is {size!r}, expected an integer from 0")
    return size
