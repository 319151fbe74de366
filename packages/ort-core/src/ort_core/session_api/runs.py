"""SessionRuns: every way to run a session. All of them check the feeds, then run the one plan."""

from __future__ import annotations

import dataclasses
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

from ort_core.arguments import an, texts
from ort_core.errors import (
    BoundInputMissing,
    BoundRunFailed,
    EmptyFeed,
    EPFail,
    ForeignBinding,
    InvalidArgument,
    InvalidMapping,
    InvalidType,
    InvalidValue,
    MissingInput,
    OrtError,
    WrongObject,
)
from ort_core.runtime.device_values import NO_TARGETS, DeviceTarget
from ort_core.runtime.limits import DEFAULT_RUN, RunSettings
from ort_core.runtime.profiler import SESSION, Profiler
from ort_core.session_api.facts import SessionFacts
from ort_core.session_api.io_binding import IOBinding
from ort_core.session_api.named_outputs import NamedOutputs, Output
from ort_core.tensors.device import OrtDevice, find_device
from ort_core.tensors.ort_value import ElementType, OrtValue, RuntimeValue
from ort_core.tensors.sparse import SparseArray
from ort_core.tensors.sparse_tensor import SparseTensor

if TYPE_CHECKING:
    from ort_core.options import RunOptions
    from ort_core.session_api.adapters import LoraAdapter
    from ort_core.session_api.loaded_model import LoadedModel
    from ort_core.session_api.running import BackgroundRunsState, Callback
    from ort_core.tensors.ort_value_vector import OrtValueVector

Outputs = list[Output]


def _never() -> bool:
    return False


def _check_run_options(options: object) -> None:
    from ort_core.options import RunOptions  # whoever runs with options has imported them

    if not isinstance(options, RunOptions):
        raise InvalidType(f"run_options is a {type(options).__name__}, expected RunOptions")


def _arrays(values: object) -> object:
    """Return the arrays inside a dict of OrtValues, anything else as it is."""
    if type(values) is not dict:
        return values
    return {name: value.value if type(value) is OrtValue else value for name, value in values.items()}


def _shown(results: list[RuntimeValue]) -> Outputs:
    """Give sparse results their public type."""
    return [SparseTensor.of(value) if isinstance(value, SparseArray) else value for value in results]


class SessionRuns(SessionFacts):
    """The part of a session that runs its plan; safe from many threads."""

    _profiler: Profiler | None
    _background: BackgroundRunsState

    @abstractmethod
    def _fall_back(self, error: EPFail, failed: LoadedModel) -> bool:
        """Place the model on the next provider that was asked for; False when that was not allowed."""

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, object],
        run_options: RunOptions | None = None,
    ) -> Outputs:
        """Compute outputs.

        Args:
            output_names: which outputs, in this order; all when ``None`` or empty.
            input_feed: values by input name: arrays, nested lists, OrtValues, SparseTensors, lists, mappings.
            run_options: cancelling, time and allocation limits.

        Returns:
            One array (list, dict, ``None``) per output. Never a view of an input.

        Raises:
            MissingInput: a required input has no feed.
            InvalidArgument: a feed does not fit, or a name is unknown; the message names it.
            RunTerminated, RunTimeout, AllocationLimitExceeded: a limit was met.
            OrtError: a node failed.
        """
        if run_options is not None:
            return _shown(self._run(_checked_names(output_names), self._feeds(input_feed, run_options), run_options))
        direct = self._loaded.direct
        if output_names is None or (type(output_names) is list and output_names == direct.output_names):
            results = direct.call(input_feed, None)
            if results is not None:
                return results  # the caller owns them
        names, feeds = _checked_names(output_names), self._feeds(input_feed, None)
        outputs = _shown(self._run(names, feeds, None))
        self._learn(feeds)
        return outputs

    def __call__(self, *values: object, **feeds: object) -> NamedOutputs:
        """Compute all outputs: ``session(x=array).y``. Positional values are inputs in order, or one mapping."""
        outputs = self.run(None, self._called_feeds(values, feeds))
        return NamedOutputs([output.name for output in self._loaded.outputs], outputs)

    async def arun(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, object],
        run_options: RunOptions | None = None,
    ) -> Outputs:
        """Compute outputs without blocking the event loop; cancelling the task stops the run. Raises as ``run``."""
        names, feeds = _checked_names(output_names), self._feeds(input_feed, run_options)
        return _shown(
            await self._background.wait(lambda is_cancelled: self._run(names, feeds, run_options, is_cancelled))
        )

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, object],
        callback: Callback | None,
        user_data: object,
        run_options: RunOptions | None = None,
    ) -> None:
        """Compute outputs in another thread, then call ``callback(results, user_data, error_text)``, if any, there.

        Feeds that do not fit the model are an error of the run, as in onnxruntime: the callback hears of them.

        Raises:
            InvalidType: the callback is no function.
            MissingInput: an input is not fed.
        """
        names = _checked_names(output_names)
        if callback is not None and not callable(callback):
            raise InvalidType(f"callback is {callback!r}, expected a function of results, user_data and an error")
        if run_options is not None:
            _check_run_options(run_options)
        try:
            feeds = self._feeds(input_feed, run_options)
        except InvalidArgument as error:
            is_call = isinstance(error, (MissingInput, InvalidMapping)) and not isinstance(error, EmptyFeed)
            if callback is None or is_call:
                raise
            self._background.call(partial(_raise, error.with_traceback(None)), callback, user_data)
            return
        self._background.call(lambda: _shown(self._run(names, feeds, run_options)), callback, user_data)

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """Compute outputs as OrtValues. Raises as ``run``."""
        direct = self._loaded.direct
        is_all = output_names is None or (type(output_names) is list and output_names == direct.output_names)
        if run_options is None and is_all:
            known = direct.call(_arrays(input_dict_ort_values), None)
            if known is not None:
                return [OrtValue(array) for array in known]
        names = list(_checked_names(output_names) or direct.output_names)
        feeds = self._feeds(input_dict_ort_values, run_options)
        results = self._run(names, feeds, run_options)
        if run_options is None:
            self._learn(feeds)
        return self._wrapped(names, results)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: RunOptions | None = None) -> None:
        """Compute the bound outputs from the bound inputs. Raises as ``run``."""
        if not isinstance(iobinding, IOBinding):
            raise WrongObject(f"iobinding is a {type(iobinding).__name__}, expected what session.io_binding() returns")
        if iobinding.session is not self:
            raise ForeignBinding("IOBinding must be used with the session that created it. Call io_binding() of this.")
        direct = self._loaded.direct
        if run_options is None and iobinding.run_directly(direct):
            return
        try:
            names = iobinding.output_names()
            feeds = self._feeds(iobinding.feeds(), run_options)
            in_place = iobinding.in_place(feeds)
            bound = iobinding.outputs_in_place(in_place) if in_place else {}
            targets = iobinding.device_targets()
            results = self._run(names, feeds, run_options, targets=targets, in_place=in_place, bound=bound)
            iobinding.accept(self._wrapped(names, results))
        except OrtError as error:
            raise _as_bound(error) from error
        if run_options is None:
            self._learn(feeds)

    def run_with_ortvaluevector(
        self,
        run_options: RunOptions | None,
        feed_names: Sequence[str],
        feeds: OrtValueVector,
        fetch_names: Sequence[str],
        fetches: OrtValueVector,
        fetch_devices: Sequence[OrtDevice],
    ) -> None:
        """Compute outputs from a vector of OrtValues into another."""
        from ort_core.tensors.ort_value_vector import OrtValueVector  # whoever has one has imported it

        wanted = an(OrtValueVector)
        feed_names, fetch_names = texts(feed_names, "feed_names"), texts(fetch_names, "fetch_names")
        feeds, fetches = wanted(feeds, "feeds"), wanted(fetches, "fetches")
        fetches.replace(self.run_with_ort_values(fetch_names, dict(zip(feed_names, feeds, strict=True)), run_options))

    def io_binding(self) -> IOBinding:
        """Return new, empty bindings."""
        return IOBinding(self)

    def create_ortvalue_from_shape_and_type(
        self,
        shape: Sequence[int],
        element_type: ElementType,
        device_type: str,
        device_id: int = 0,
        vendor_id: int = -1,
    ) -> OrtValue:
        """Return a tensor of zeros on a device."""
        find_device(device_type, device_id)
        return OrtValue.ortvalue_from_shape_and_type(shape, element_type, device_type, device_id, vendor_id)

    def _feeds(self, input_feed: Mapping[str, object], run_options: RunOptions | None) -> dict[str, RuntimeValue]:
        if not self._loaded.closing.alive:
            _wait_for_the_end()
            raise InvalidValue("this session is closed; make a new one")
        if run_options is not None:
            _check_run_options(run_options)
        if run_options is not None and run_options.active_adapters:
            adapters = cast("Sequence[LoraAdapter]", run_options.active_adapters)
            adapted = {name: value for adapter in adapters for name, value in adapter.parameters.items()}
            input_feed = {**input_feed, **adapted}  # as in onnxruntime, adapters stand behind what is fed
        return self._loaded.checker.convert(input_feed)

    def _run(
        self,
        names: Sequence[str] | None,
        feeds: Mapping[str, RuntimeValue],
        options: RunOptions | None,
        is_cancelled: Callable[[], bool] = _never,
        targets: Mapping[str, DeviceTarget] = NO_TARGETS,
        in_place: frozenset[int] = frozenset(),
        bound: Mapping[str, int] | None = None,
    ) -> list[RuntimeValue]:
        settings = self._run_settings(options, is_cancelled)
        if in_place:
            settings = dataclasses.replace(settings, in_place=in_place, bound=bound or {})
        start = time.perf_counter_ns()
        loaded = self._loaded
        try:
            results = loaded.plans.plan_for(feeds).run(feeds, names, settings, targets)
        except EPFail as error:
            if not self._fall_back(error, loaded):
                raise
            results = self._loaded.plans.plan_for(feeds).run(feeds, names, settings, targets)
        finally:
            self._record("SequentialExecutor::Execute", start)
            self._record("model_run", start)
        loaded.output_sizes.check(names, results)
        return results

    def _learn(self, feeds: Mapping[str, RuntimeValue]) -> None:
        """Take note of the checked feeds of an ordinary run without options that succeeded."""
        self._loaded.learn(feeds, by_steps=self._run_settings(None, _never) is DEFAULT_RUN)

    def _wrapped(self, names: Sequence[str], results: list[RuntimeValue]) -> list[OrtValue]:
        types = self._loaded.output_types
        return [OrtValue.of(value, types[name]) for name, value in zip(names, results, strict=True)]

    def _run_settings(self, options: RunOptions | None, is_cancelled: Callable[[], bool]) -> RunSettings:
        limit = self._options.max_allocation_bytes
        observer = self._profiler.observe if self._profiler is not None else None
        if options is None and limit is None and observer is None and is_cancelled is _never:
            return DEFAULT_RUN
        terminate: Callable[[], bool] | None = None if is_cancelled is _never else is_cancelled
        if options is None:
            return RunSettings(terminate, None, limit, observer)
        deadline = None if options.time_limit_s is None else time.monotonic_ns() + int(options.time_limit_s * 1e9)
        limit = limit if options.max_allocation_bytes is None else options.max_allocation_bytes
        return RunSettings(lambda: options.terminate or is_cancelled(), deadline, limit, observer)

    def _called_feeds(self, values: tuple[object, ...], feeds: Mapping[str, object]) -> dict[str, object]:
        if len(values) == 1 and isinstance(values[0], Mapping) and not self._loaded.inputs[0].type.startswith("map("):
            return {**values[0], **feeds}
        if len(values) > len(self._loaded.inputs):
            raise InvalidType(
                f"{len(values)} positional values for {len(self._loaded.inputs)} inputs: "
                f"{self._loaded.checker.described()}"
            )
        named = {argument.name: value for argument, value in zip(self._loaded.inputs, values, strict=False)}
        twice = sorted(named.keys() & feeds.keys())
        if twice:
            raise InvalidType(f"input {twice[0]!r} was given by position and by name")
        return {**named, **feeds}

    def _record(self, name: str, start_ns: int) -> None:
        if self._profiler is not None:
            self._profiler.record(SESSION, name, start_ns)


def _raise(error: OrtError) -> list[object]:
    raise error


def _as_bound(error: OrtError) -> OrtError:
    """Return the error of a run over bindings, which is a ``RuntimeError`` besides what it was."""
    if isinstance(error, RuntimeError):
        return error
    kinds = ((MissingInput, BoundInputMissing), (InvalidArgument, InvalidValue), (OrtError, BoundRunFailed))
    kind = next(bound for plain, bound in kinds if isinstance(error, plain))
    return kind(f"Error in execution: {Exception.__str__(error)}")


def _wait_for_the_end() -> None:
    """Keep a thread that outlives the main one: the interpreter is ending, has closed all sessions and drops it.

    An error would reach nobody, and its traceback, written while the interpreter ends, aborts the process.
    """
    main = threading.main_thread()
    if not main.is_alive() and threading.current_thread() is not main:
        threading.Event().wait()


def _checked_names(output_names: Sequence[str] | None) -> Sequence[str] | None:
    if output_names is not None and not isinstance(output_names, (list, tuple)):
        if isinstance(output_names, (str, bytes)) or not isinstance(output_names, Iterable):
            raise InvalidType(f"output_names is {output_names!r}, expected a list of names such as ['y'], or None")
        output_names = list(output_names)  # of an array, the keys of a mapping, a generator
    if output_names is not None and not all(isinstance(name, str) for name in output_names):
        raise InvalidType(f"output_names is {output_names!r}, expected names of outputs, which are strings")
    return output_names
