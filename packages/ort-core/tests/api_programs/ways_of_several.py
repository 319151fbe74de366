"""Ways that take more than one session, binding, value or file: what is kept, reused, written and read again."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import numpy as np
import onnxruntime as ort
from side_by_side import side_by_side

if TYPE_CHECKING:
    from models import Sample

Feeds = dict[str, object]
CPU = ["CPUExecutionProvider"]
THREADS = 3


def _doubled(each: object) -> object:
    """Return other numbers of the same kind."""
    if isinstance(each, np.ndarray) and each.dtype.kind in "fiu":
        return np.asarray(each + each.dtype.type(1))
    return each


def adapted(draw: Random, session: ort.InferenceSession, sample: Sample, fed: Feeds) -> object:
    """Give inputs by an adapter that was written to a file, in place of feeds or beside them."""
    name = draw.choice(["w", "w", "x", "nobody"])
    array = np.full(draw.choice([2, 2, 3]), 7, draw.choice(["f", "f", "d"]))
    adapter = ort.AdapterFormat()
    adapter.set_adapter_version(draw.choice([1, 7]))
    adapter.set_model_version(2)
    adapter.set_parameters({name: ort.OrtValue.ortvalue_from_numpy(array)})
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "one.onnx_adapter"))
        adapter.export_adapter(path)
        read = ort.AdapterFormat.read_adapter(path)
        told = [read.get_adapter_version(), read.get_model_version(), read.get_format_version()]
        held = {key: value.numpy() for key, value in read.get_parameters().items()}
        active = ort.LoraAdapter()
        active.Load(path)
    options = ort.RunOptions()
    options.add_active_adapter(active)
    given = dict(fed) if draw.random() < 0.3 else {key: each for key, each in fed.items() if key != name}
    return [told, held, session.run(sample.wanted, given, options), session.run(sample.wanted, fed)]


def another_session(draw: Random, session: ort.InferenceSession, sample: Sample, fed: Feeds) -> object:
    """Load the model once more with the options of the session that there is, and run both."""
    options = session.get_session_options()
    options.enable_profiling = False
    options.optimized_model_filepath = ""
    other = ort.InferenceSession(sample.content, options, providers=CPU)
    return [session.run(sample.wanted, fed), other.run(sample.wanted, fed), session.run(sample.wanted, fed)]


def written_and_read(draw: Random, session: ort.InferenceSession, sample: Sample, fed: Feeds) -> object:
    """Write the optimized model, in either format, and run what is read of the file."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    level = draw.choice(["ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED"])
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    kind = draw.choice(["onnx", "ort"])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"written.{kind}")
        options.optimized_model_filepath = str(path)
        first = ort.InferenceSession(sample.content, options, providers=CPU)
        plain = ort.SessionOptions()
        plain.log_severity_level = 4
        source = draw.choice([str(path), path, path.read_bytes()])
        second = ort.InferenceSession(source, plain, providers=CPU)
        names = [each.name for each in second.get_inputs()]
        return [first.run(sample.wanted, fed), second.run(sample.wanted, fed), names]


def _bind(binding: ort.IOBinding, sample: Sample, fed: Feeds) -> None:
    for name, each in fed.items():
        binding.bind_cpu_input(name, each)
    for name in sample.outputs:
        binding.bind_output(name)


def binding_again(draw: Random, session: ort.InferenceSession, sample: Sample, fed: Feeds) -> object:
    """Run a binding, change what it is given, and run it again, with outputs that are cleared or not."""
    binding = session.io_binding()
    _bind(binding, sample, fed)
    session.run_with_iobinding(binding)
    first = [each.copy() for each in binding.copy_outputs_to_cpu()]
    if draw.random() < 0.5:
        binding.clear_binding_outputs()
        for name in sample.outputs:
            binding.bind_output(name)
    if draw.random() < 0.3:
        binding.clear_binding_inputs()
    for name, each in fed.items():
        binding.bind_cpu_input(name, _doubled(each))
    session.run_with_iobinding(binding)
    return [first, binding.copy_outputs_to_cpu(), len(binding.get_outputs())]


def values_between(draw: Random, session: ort.InferenceSession, sample: Sample, fed: Feeds) -> object:
    """Feed one OrtValue to two sessions, change it in place, and feed an output where it fits."""
    other = ort.InferenceSession(sample.content, providers=CPU)
    made = {name: ort.OrtValue.ortvalue_from_numpy(each) for name, each in fed.items()}
    one = session.run_with_ort_values(None, made)
    two = other.run_with_ort_values(None, made)
    kept = [np.array(each.numpy()) for each in one]
    first = next(iter(fed))
    changed = _doubled(fed[first])
    made[first].update_inplace(np.ascontiguousarray(changed))
    three = other.run_with_ort_values(None, made)
    found = [kept, [each.numpy() for each in two], [each.numpy() for each in three], made[first].numpy()]
    if (one[0].data_type(), one[0].shape()) == (made[first].data_type(), made[first].shape()):
        made[first] = one[0]
        found.append([each.numpy() for each in other.run_with_ort_values(None, made)])
    return found


def bound_between(draw: Random, session: ort.InferenceSession, sample: Sample, fed: Feeds) -> object:
    """Bind the memory that one session writes as what another one reads."""
    other = ort.InferenceSession(sample.content, providers=CPU)
    first, second = session.io_binding(), other.io_binding()
    _bind(first, sample, fed)
    session.run_with_iobinding(first)
    handed = first.get_outputs()[0]
    for name, each in fed.items():
        second.bind_cpu_input(name, each)
    name = draw.choice(list(fed))
    second.bind_ortvalue_input(name, handed)
    for each in sample.outputs:
        second.bind_output(each)
    other.run_with_iobinding(second)
    return [first.copy_outputs_to_cpu(), second.copy_outputs_to_cpu()]


def bindings_of_threads(draw: Random, session: ort.InferenceSession, sample: Sample, fed: Feeds) -> object:
    """Run a binding of its own in each thread; values are those of all threads."""
    made = {name: ort.OrtValue.ortvalue_from_numpy(each) for name, each in fed.items()}

    def work(number: int) -> object:
        binding = session.io_binding()
        for name, each in made.items():
            binding.bind_ortvalue_input(name, each)
        for name in sample.outputs:
            binding.bind_output(name)
        for _ in range(3):
            session.run_with_iobinding(binding)
        return binding.copy_outputs_to_cpu()

    return side_by_side(work, THREADS)


def many_in_the_background(draw: Random, session: ort.InferenceSession, sample: Sample, fed: Feeds) -> object:
    """Start several runs with different feeds before the first one is waited for."""
    found: dict[int, object] = {}
    done = threading.Semaphore(0)

    def heard(results: object, data: int, error: str) -> None:
        found[data] = [results, bool(error)]
        done.release()

    for number in range(THREADS):
        given = {name: _doubled(each) if number % 2 else each for name, each in fed.items()}
        session.run_async(sample.wanted, given, heard, number)
    waited = [done.acquire(timeout=5) for _ in range(THREADS)]
    return [waited, [found.get(number) for number in range(THREADS)]]


WAYS: tuple[Callable[[Random, ort.InferenceSession, object, Feeds], object], ...] = (
    adapted,
    another_session,
    written_and_read,
    binding_again,
    values_between,
    bound_between,
    bindings_of_threads,
    many_in_the_background,
)
