"""The only module that imports OpenVINO: reading, asking, compiling; its errors as one type, by phase, without paths.

Types of OpenVINO are ``Any`` here: its stubs are generated and incomplete.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, ParamSpec, TypeVar

import numpy as np

from ort_core.plugin import Available, Unavailable
from ort_ep_openvino.lowering.ports import Ports

Phase = Literal["read", "query", "compile", "export", "import", "run"]
Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_PLACE = re.compile(
    r"Exception from [^\n]*?:\d+:\s*|Check '[^\n]*?' failed at [^\n]*?:\d+:\s*|Check '[^\n]*?' failed\s*"
    r"|\"?/[\w+./\-]+/(?=[\w+.\-]+\.(?:so|dll|dylib))"
    r"|\bat (?:src|/)[\w/.\-]+:\d+:?\s*|\b(?:src|/)[\w/.\-]+\.(?:cpp|hpp|h):\d+:?\s*"
)
_URL = re.compile(r",? ?refer to [^\n]*https?://\S+|https?://\S+")
_COUNTER = re.compile(r"\b([A-Z][A-Za-z]*)_\d+\b")  # of names that OpenVINO makes up, another in each process
_READ_NODE = re.compile(r"<Node\([\w.]+\): ([^>]+)>")  # how the frontend names an ONNX node
_BORDER = frozenset({"Parameter", "Result", "Constant"})
_VIRTUAL = frozenset({"AUTO", "HETERO", "MULTI", "BATCH"})
_DIVIDES = "nonconvertable_divide_0"  # OpenVINO's mark, spelled as there, of a quotient that stays one
_CARRIED = frozenset(
    {"Add", "Clamp", "Convert", "Divide", "Maximum", "Minimum", "Multiply", "Negative", "Select", "Subtract"}
)
_NOT_FIXED = frozenset({"Multinomial", "Parameter", "RandomUniform", "ReadValue"})
_STORED = frozenset(  # how weights are kept: folded by OpenVINO, or read by a kernel of its own
    {
        "Add", "Broadcast", "Concat", "Constant", "Convert", "Divide", "FakeQuantize", "Gather", "Multiply", "Negative",
        "Reshape", "ShapeOf", "Slice", "Squeeze", "StridedSlice", "Subtract", "Transpose", "Unsqueeze",
    }
)  # fmt: skip
MAX_MESSAGE = 400  # characters; OpenVINO repeats itself for each layer of its own code


class SdkError(Exception):
    """OpenVINO refused or failed in a phase; the text is its own, without source files and line numbers.

    ``names`` are those of the ONNX nodes that it speaks of, where it does.
    """

    def __init__(self, phase: Phase, text: str, names: frozenset[str] = frozenset()) -> None:
        super().__init__(text)
        self.phase, self.names = phase, names


@dataclass(frozen=True, slots=True)
class Missing:
    """What a device does not run of a model.

    Attributes:
        kinds: kinds of operations, as OpenVINO names them.
        names: of the operations that the device's words are about, and of their results; empty where it names none.
    """

    kinds: tuple[str, ...]
    names: frozenset[str]


def stripped(text: str) -> str:
    """Return a message of OpenVINO without places in its source code, made-up numbers and repeated lines."""
    lines = (_COUNTER.sub(r"\1", _URL.sub("", _PLACE.sub("", line))).strip() for line in text.splitlines())
    kept = list(dict.fromkeys(line for line in lines if line))
    return " ".join(kept)[:MAX_MESSAGE] or "no message"


def find_devices() -> Available | Unavailable:
    """Return OpenVINO's version and devices, or why it cannot be used. Never raises."""
    try:
        import openvino
    except ImportError as error:
        return Unavailable(f"OpenVINO cannot be loaded: {error}", "pip install openvino")
    try:
        devices = ", ".join(core().available_devices)
    except RuntimeError as error:
        return Unavailable(f"OpenVINO finds no devices: {stripped(str(error))}", "reinstall openvino")
    if not devices:
        return Unavailable("OpenVINO finds no device", "install the driver of an Intel device, or reinstall openvino")
    return Available(f"OpenVINO {openvino.__version__.split('-')[0]} on {devices}")


def version() -> str:
    """Return OpenVINO's full version."""
    import openvino

    return str(openvino.__version__)


def core() -> Any:
    """Return the process's ``openvino.Core``; a new one after a fork, whose threads it would lack."""
    return _core_of(os.getpid())


@functools.cache
def _core_of(process: int) -> Any:
    import openvino

    return openvino.Core()


def available_devices() -> tuple[str, ...]:
    """Return the names of the devices, such as ``("CPU", "GPU.0")``."""
    return tuple(core().available_devices)


def find_absence(device: str) -> str | None:
    """Return why there is no such device here, ``None`` where there is; of virtual ones each part is looked for."""
    virtual, _, parts = device.partition(":")
    if virtual in _VIRTUAL:
        named = [part.lstrip("-").partition("(")[0] for part in parts.split(",") if part and not part.startswith("-")]
        absent = [reason for part in named if (reason := find_absence(part)) is not None]
        return absent[0] if named and len(absent) == len(named) else None
    known = available_devices()
    is_seen = any(device == each or each.startswith(f"{device}.") for each in known)
    if is_seen or device.removesuffix(".0") in known:
        return None
    return f"OpenVINO sees no device {device}; it sees {', '.join(known)}"


@functools.cache
def device_name(device: str) -> str:
    """Return the full name of a device, or the given name where it has none (``AUTO:GPU,CPU``)."""
    try:
        return f"{device} {core().get_property(device, 'FULL_DEVICE_NAME')}"
    except RuntimeError:  # a virtual device, or an absent one: compiling says more
        return device


def _in_phase(
    phase: Phase,
) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    def wrap(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        @functools.wraps(function)
        def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
            try:
                return function(*args, **kwargs)
            except (RuntimeError, TypeError, ValueError, AttributeError) as error:  # what its bindings raise
                raise SdkError(phase, stripped(str(error)), frozenset(_READ_NODE.findall(str(error)))) from error

        return call

    return wrap


@_in_phase("read")
def read_model(content: bytes, weights: Mapping[str, np.ndarray]) -> Any:
    """Return the ``openvino.Model`` of a serialized ONNX model.

    Args:
        content: the model.
        weights: values for some of its inputs, contiguous, which become constants. Their memory is shared: keep the
            arrays alive, and unchanged, as long as anything made of the model lives.

    Raises:
        SdkError: OpenVINO's frontend does not take it.
    """
    from openvino import opset16

    model = core().read_model(content)
    _rank_equals_in_order(model)
    _divide_exactly(model)
    by_name = {name: parameter for parameter in model.get_parameters() for name in parameter.output(0).get_names()}
    for name, array in weights.items():
        parameter = by_name[name]
        constant = opset16.constant(_claiming_to_be_writable(array), shared_memory=True)
        constant.set_friendly_name(parameter.get_friendly_name())  # else a counter, and no two runs hash alike
        parameter.output(0).replace(constant.output(0))
        model.remove_parameter(parameter)
    if weights:
        model.validate_nodes_and_infer_types()
    return model


def _rank_equals_in_order(model: Any) -> None:
    """Let each TopK rank equal elements by index, as ONNX says; the frontend leaves their order open."""
    for each in model.get_ordered_ops():
        if each.get_type_name() == "TopK" and each.get_attributes().get("sort") == "value":
            each.set_attribute("stable", True)


def _divide_exactly(model: Any) -> None:
    """Keep quotients that are rounded from being products with reciprocals: an error in the last place is a whole step.

    Other quotients stay as the compiler wants them, those of a constant too: it turns such around where it joins them
    with what divides (2026.4).
    """
    waiting = [each for each in model.get_ordered_ops() if each.get_type_name() == "Round"]
    seen: set[str] = set()
    while waiting:
        sources = [each.get_node() for each in waiting.pop().input_values()]
        for each in sources:
            if each.get_type_name() not in _CARRIED or each.get_friendly_name() in seen:
                continue
            seen.add(each.get_friendly_name())
            waiting.append(each)
            if each.get_type_name() == "Divide" and each.input_value(0).get_node().get_type_name() != "Constant":
                each.get_rt_info()[_DIVIDES] = True


@_in_phase("compile")
def compute_fixed(model: Any) -> None:
    """Put numbers in the place of what constants decide, where OpenVINO folds nothing: products, windows, gates.

    It would compute them in the first run alone, and let what comes behind write over them: from the second run on
    sums are wrong (2026.4). Weights that are kept in another form stay.
    """
    fixed, computed = set[str](), set[str]()  # names of operations; of those that are more than stored weights
    ends = []
    for each in model.get_ordered_ops():
        sources = {value.get_node().get_friendly_name() for value in each.input_values()}
        if each.get_type_name() not in _NOT_FIXED and sources <= fixed:
            fixed.add(each.get_friendly_name())
            if each.get_type_name() not in _STORED or sources & computed:
                computed.add(each.get_friendly_name())
        else:
            ends += [value for value in each.input_values() if value.get_node().get_friendly_name() in computed]
    for value, array in zip(ends, _computed(ends), strict=True):
        _replace_by_constant(value, array)


def _computed(values: Sequence[Any]) -> list[np.ndarray]:
    """Return what outputs of operations hold that depend on no input, computed with all digits."""
    import openvino

    if not values:
        return []
    compiled = core().compile_model(openvino.Model(list(values), []), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    results = compiled()
    return [np.array(results[index]) for index in range(len(values))]


def _replace_by_constant(value: Any, array: np.ndarray) -> None:
    from openvino import opset16

    constant = opset16.constant(array)
    constant.set_friendly_name(f"{value.get_node().get_friendly_name()}/{value.get_index()}")
    value.replace(constant.output(0))


class _WritableMemory:
    """Memory of an array, described as writable."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array  # keeps the memory
        facts = array.__array_interface__
        self.__array_interface__ = {**facts, "data": (facts["data"][0], False)}


def _claiming_to_be_writable(array: np.ndarray) -> np.ndarray:
    """Return the same memory as a writable array: OpenVINO asks for that, and only reads constants."""
    return array if array.flags.writeable else np.asarray(_WritableMemory(array))


@_in_phase("read")
def reshape(model: Any, shapes: Mapping[int, str]) -> None:
    """Narrow the shapes of inputs by position; sizes and bounds are written as OpenVINO writes them (``[1..8,3]``)."""
    import openvino

    given = {model.inputs[index]: openvino.PartialShape(text) for index, text in shapes.items()}
    model.reshape(given)


@_in_phase("read")
def separate_passed(model: Any, inputs: Sequence[str]) -> Ports:
    """Take the outputs that only hand an input on out of a model, and then the inputs that nothing reads.

    Args:
        model: what ``read_model`` returned; changed.
        inputs: the names of the claim's inputs.

    Returns:
        Ports: what is left, and what was taken out.
    """
    _drop_empty_conversions(model)
    place = _places(model, inputs)
    outputs, passed = [], []
    for index, result in enumerate(model.get_results()):
        source = result.input_value(0).get_node()
        if source.get_type_name() == "Parameter":
            passed.append((index, place[source.get_friendly_name()]))
            model.remove_result(result)
        else:
            outputs.append(index)
    for parameter in model.get_parameters():
        if not parameter.output(0).get_target_inputs():
            model.remove_parameter(parameter)
    left = tuple(place[each.get_friendly_name()] for each in model.get_parameters())
    return Ports(left, tuple(outputs), tuple(passed))


def _drop_empty_conversions(model: Any) -> None:
    """Take conversions to the type that there is out of a model.

    Where one stands between an input of open size and an output, runs of another size read freed memory (seen with
    2026.4).
    """
    for each in model.get_ordered_ops():
        if each.get_type_name() == "Convert" and each.get_input_element_type(0) == each.get_output_element_type(0):
            each.output(0).replace(each.input_value(0))


def _places(model: Any, inputs: Sequence[str]) -> dict[str, int]:
    """Return which input each parameter is; one that is handed on has the name of the output instead."""
    names = [each.get_friendly_name() for each in model.get_parameters()]
    place = {name: inputs.index(name) for name in names if name in inputs}
    renamed = [name for name in names if name not in place]
    left = [index for index, name in enumerate(inputs) if name not in place]
    if renamed and len(renamed) != len(left):
        raise ValueError(f"it dropped some of the inputs {[inputs[index] for index in left]} and renamed others")
    return {**place, **dict(zip(renamed, left, strict=False))}


@_in_phase("query")
def unsupported(model: Any, device: str) -> Missing | None:
    """Return which operations of a model a device does not run; ``None`` when it runs the model."""
    able = set(core().query_model(model, device))
    left = [each for each in model.get_ordered_ops() if each.get_friendly_name() not in able]
    kinds = tuple(dict.fromkeys(each.get_type_name() for each in left if each.get_type_name() not in _BORDER))
    if not left:
        return None
    try:  # a query asks before the transformations of a compilation, which leave nothing of some operations
        core().compile_model(model, device, {})
    except RuntimeError as error:
        named = [each for each in left if _speaks_of(str(error), each.get_friendly_name())]
        every = kinds or tuple(dict.fromkeys(each.get_type_name() for each in left))
        return Missing(every, frozenset(name for each in named for name in _names_of(each)))
    return None


def _speaks_of(text: str, name: str) -> bool:
    """Return whether a text holds a name, and not only as a part of a longer one."""
    return re.search(rf"(?<![\w./:-]){re.escape(name)}(?![\w/:-])", text) is not None


def _names_of(operation: Any) -> set[str]:
    results = {name for output in operation.outputs() for name in output.get_names()}
    return {operation.get_friendly_name(), *results}


@_in_phase("compile")
def compile_model(model: Any, device: str, configuration: Mapping[str, object]) -> Any:
    """Return the ``openvino.CompiledModel``."""
    return core().compile_model(model, device, _keeping_errors(device, configuration))


def _keeping_errors(device: str, configuration: Mapping[str, object]) -> dict[str, object]:
    """Return properties with which a run that fails says so.

    Where a stream of the CPU has one thread, a failed run returns as if it had succeeded, and the next model ends the
    process (2026.4). Without streams a run is computed by the thread that asks for it, and by that alone.
    """
    found = dict(configuration)
    if device.startswith(("CPU", "HETERO")) and "CPU" in device and _has_one_thread(found.get("INFERENCE_NUM_THREADS")):
        found["NUM_STREAMS"] = 0
    return found


@functools.cache
def _has_one_thread(asked: object) -> bool:
    """Return whether the CPU device would compute a run by one thread, when it is asked for so many or for its own."""
    if asked is not None and int(str(asked)) == 1:
        return True
    from openvino import Model, Type, opset16

    x = opset16.parameter([1], Type.f32)
    given = {} if asked is None else {"INFERENCE_NUM_THREADS": asked}
    compiled = core().compile_model(Model([opset16.relu(x)], [x]), "CPU", given)
    return int(compiled.get_property("INFERENCE_NUM_THREADS")) == 1


@_in_phase("export")
def export_model(compiled: Any) -> bytes:
    """Return a compiled model as bytes, its weights included.

    Raises:
        SdkError: OpenVINO does not write it, or would read it back as another one.
    """
    for rotation in _rotations(compiled):
        width, table = (port.get_partial_shape()[-1] for port in (rotation.output(0), rotation.input(1)))
        if width.is_dynamic or table.is_dynamic or width != table:
            # Seen with 2026.4: what is imported reads beyond tables of one angle for each pair.
            raise ValueError("it would read rotary embeddings by tables of half their width back wrongly")
    return bytes(compiled.export_model().getvalue())


def _rotations(compiled: Any) -> list[Any]:
    operations = compiled.get_runtime_model().get_ordered_ops()
    return [each for each in operations if _kind_at_run_time(each) == "RoPE"]


def _kind_at_run_time(operation: Any) -> str:
    facts = operation.get_rt_info()
    kind = facts["layerType"] if "layerType" in facts else ""  # noqa: SIM401 - OpenVINO's map has no get
    return str(getattr(kind, "value", kind))


@_in_phase("import")
def import_model(content: bytes, device: str, configuration: Mapping[str, object]) -> Any:
    """Return the compiled model that ``export_model`` wrote."""
    return core().import_model(content, device, _keeping_errors(device, configuration))


def tensor_type() -> Callable[..., Any]:
    """Return ``openvino.Tensor``, for code that calls it often."""
    import openvino

    return openvino.Tensor


_BINDING = "inputs: dict, share_outputs: bool, decode_strings: bool"  # how the extension's own method is called


def infer_function(request: Any) -> Callable[[], object]:
    """Return what runs an ``openvino.InferRequest`` on the tensors that it is bound to.

    ``InferRequest.infer`` is Python over the extension's method of that name, and makes a mapping of the results that
    nobody reads here: 3 to 6 microseconds. Where the extension's is as it was in 2026.4 it is called itself.
    """
    bound = getattr(super(type(request), request), "infer", None)
    if bound is not None and _BINDING in (bound.__doc__ or ""):
        return functools.partial(bound, {}, True, False)
    return functools.partial(request.infer, share_outputs=True)


def operations(model: Any) -> Sequence[tuple[str, str]]:
    """Return (kind, element type and shape of the first output) of every operation of a model, in order, for tests."""
    return [
        (each.get_type_name(), f"{each.output(0).get_element_type().get_type_name()}{each.output(0).partial_shape}")
        if each.get_output_size()
        else (each.get_type_name(), "")
        for each in model.get_ordered_ops()
    ]


def is_static(compiled: Any) -> bool:  # Any: an openvino.CompiledModel
    """Return whether all inputs and outputs of a compiled model have fixed sizes."""
    return all(port.get_partial_shape().is_static for port in (*compiled.inputs, *compiled.outputs))
