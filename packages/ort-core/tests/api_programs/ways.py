"""The ways to run a session, each with what a program then looks at: results, whose memory they are, and the feeds."""

from __future__ import annotations

import threading
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

import numpy as np
import onnxruntime as ort
from onnx import TensorProto
from side_by_side import side_by_side

if TYPE_CHECKING:
    from models import Sample

Feeds = dict[str, object]
RUN_ATTRIBUTES: dict[str, list[object]] = {
    "log_severity_level": [4, 3, -1, "2"],
    "log_verbosity_level": [0, 2],
    "logid": ["run", "", None],
    "terminate": [False, True],
    "only_execute_path_to_fetches": [True, False],
    "training_mode": [False],
}


NARROW = {
    "bfloat16": TensorProto.BFLOAT16,
    "float8_e4m3fn": TensorProto.FLOAT8E4M3FN,
    "float8_e5m2": TensorProto.FLOAT8E5M2,
}


def disturbed(draw: Random, fed: Feeds) -> tuple[str, object]:
    """Return feeds with one input too many, one too few, or of another kind."""
    kind = draw.choice(["less", "more", "renamed", "list", "none", "bytes name", "number name"])
    if not fed:
        return "fit", fed
    first = next(iter(fed))
    changed: dict[str, object] = {
        "less": {name: value for name, value in fed.items() if name != first},
        "more": {**fed, "zz": np.zeros(3, np.float32)},
        "renamed": {("zz" if name == first else name): value for name, value in fed.items()},
        "list": list(fed.values()),
        "none": None,
        "bytes name": {name.encode(): value for name, value in fed.items()},
        "number name": {**fed, 3: 4},
    }
    return kind, changed[kind]


def names(draw: Random, sample: Sample, is_odd: bool) -> object:
    """Return names of outputs to ask for."""
    there = sample.outputs
    odd = [
        [],
        [there[0]] * 2,
        tuple(there),
        ["zz"],
        [None],
        there[0],
        [""],
        3,
        {there[0]: 1},
        np.array(there),
        [there[0].encode()],
    ]
    return draw.choice(odd if is_odd else [None, None, there, there[::-1], there[-1:]])


def _seen(results: object, fed: object) -> object:
    """Return results, and whether they lie in the memory of a feed, or of one another."""
    arrays = [each for each in results if isinstance(each, np.ndarray)] if isinstance(results, (list, tuple)) else []
    inputs = [each for each in fed.values() if isinstance(each, np.ndarray)] if isinstance(fed, dict) else []
    shares = [any(np.may_share_memory(each, other) for other in inputs) for each in arrays]
    return [results, shares]


def run(draw: Random, session: ort.InferenceSession, sample: Sample, fed: Feeds) -> object:
    return _seen(session.run(sample.wanted, fed), fed)


def run_plainly(draw: Random, session: ort.InferenceSession, sample: Sample, fed: Feeds) -> object:
    first = session.run(None, fed)
    kept = [each.copy() if isinstance(each, np.ndarray) else each for each in first]
    for each in first:
        if isinstance(each, np.ndarray) and each.dtype != object and each.flags.writeable:
            each[...] = 1
    return _seen([kept, session.run(None, fed)], fed)


def run_with_options(draw: Random, session: ort.InferenceSession, sample: Sample, fed: Feeds) -> object:
    options = ort.RunOptions()
    for name in draw.sample(list(RUN_ATTRIBUTES), 2):
        setattr(options, name, draw.choice(RUN_ATTRIBUTES[name]))
    if draw.random() < 0.3:
        options.add_run_config_entry(draw.choice(["memory.enable_memory_arena_shrinkage", "zz"]), "cpu:0")
    return session.run(sample.wanted, fed, options)


def _value(draw: Random, each: object) -> object:
    if not isinstance(each, np.ndarray):
        return each
    if each.dtype.name in NARROW:
        return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(each.view(f"u{each.itemsize}"), NARROW[each.dtype.name])
    return ort.OrtValue.ortvalue_from_numpy(each)


def _shown(values: object) -> object:
    found = []
    for each in values:
        kind = [
            each.has_value(),
            each.is_tensor(),
            each.is_tensor_sequence(),
            each.is_sparse_tensor(),
            each.data_type(),
        ]
        if each.is_tensor():
            kind += [each.shape(), each.element_type(), each.device_name()]
            kind.append(each.numpy() if each.element_type() < 16 else None)
        found.append(kind)
    return found


def ort_values(draw: Random, session: ort.InferenceSession, sample: Sample, fed: Feeds) -> object:
    made = {name: _value(draw, each) for name, each in fed.items()} if isinstance(fed, dict) else fed
    return _shown(session.run_with_ort_values(sample.wanted, made))


def values_as_feeds(draw: Random, session: ort.InferenceSession, sample: Sample, fed: Feeds) -> object:
    made = {name: _value(draw, each) for name, each in fed.items()} if isinstance(fed, dict) else fed
    return session.run(None, made)


def in_the_background(draw: Random, session: ort.InferenceSession, sample: Sample, fed: Feeds) -> object:
    done, found = threading.Event(), []

    def heard(results: object, data: object, error: str) -> None:
        found.extend([results, data, bool(error)])
        done.set()

    session.run_async(sample.wanted, fed, heard, "mine")
    if not done.wait(3):
        return "never called"
    return found


def _bound(draw: Random, binding: ort.IOBinding, name: str, each: object) -> None:
    how = draw.choice(["array", "array", "value", "address"])
    if how == "array" or not isinstance(each, np.ndarray):
        binding.bind_cpu_input(name, each)
    elif how == "value" or each.dtype == object or not each.flags.c_contiguous:
        binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(each))
    else:
        binding.bind_input(name, "cpu", 0, each.dtype, each.shape, each.ctypes.data)


def bound(draw: Random, session: ort.InferenceSession, sample: Sample, fed: Feeds) -> object:
    binding = session.io_binding()
    for name, each in fed.items():
        _bound(draw, binding, name, each)
    for name in sample.wanted if isinstance(sample.wanted, list) else sample.outputs:
        binding.bind_output(name)
    again = draw.random() < 0.3
    session.run_with_iobinding(binding)
    if again:
        session.run_with_iobinding(binding)
    return [
        _shown(binding.get_outputs()),
        binding.copy_outputs_to_cpu() if not sample.name.startswith(("seq", "zip")) else None,
    ]


def bound_memory(draw: Random, session: ort.InferenceSession, sample: Sample, fed: Feeds) -> object:
    """Bind an output to memory of the size that an ordinary run gives, or nearly."""
    first = session.run([sample.outputs[0]], fed)[0]
    binding = session.io_binding()
    for name, each in fed.items():
        binding.bind_cpu_input(name, each)
    room = np.zeros(
        (*first.shape[:-1], first.shape[-1] + draw.choice([0, 0, 0, 1])) if first.ndim else (),
        draw.choice([first.dtype, first.dtype, np.int16]),
    )
    binding.bind_ortvalue_output(sample.outputs[0], ort.OrtValue.ortvalue_from_numpy(room))
    session.run_with_iobinding(binding)
    return [room, _shown(binding.get_outputs())]


def vectors(draw: Random, session: ort.InferenceSession, sample: Sample, fed: Feeds) -> object:
    from onnxruntime.capi.onnxruntime_pybind11_state import OrtDevice, OrtValueVector

    given, made = OrtValueVector(), OrtValueVector()
    for each in fed.values():
        given.push_back(ort.OrtValue.ortvalue_from_numpy(each)._ortvalue)
    device = OrtDevice(OrtDevice.cpu(), OrtDevice.default_memory(), 0)
    devices = [device] * len(sample.outputs)
    session.run_with_ortvaluevector(ort.RunOptions(), list(fed), given, sample.outputs, made, devices)
    return [each.numpy() for each in made]


def feeds_stay(draw: Random, session: ort.InferenceSession, sample: Sample, fed: Feeds) -> object:
    kept = {name: each.copy() for name, each in fed.items() if isinstance(each, np.ndarray)}
    session.run(None, fed)
    return {name: bool((kept[name] == fed[name]).all()) for name in kept}


def two_threads(draw: Random, session: ort.InferenceSession, sample: Sample, fed: Feeds) -> object:
    return side_by_side(lambda number: [session.run(None, fed) for _ in range(3)][-1], 2)


WAYS: tuple[Callable[[Random, ort.InferenceSession, object, Feeds], object], ...] = (
    run,
    run,
    run,
    run_plainly,
    run_with_options,
    ort_values,
    values_as_feeds,
    in_the_background,
    bound,
    bound,
    bound_memory,
    vectors,
    feeds_stay,
    two_threads,
)
