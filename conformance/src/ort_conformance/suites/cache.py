"""Cache: compiled partitions that outlive their process, where a provider stores them; and processes that share one."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import fields, replace

import numpy as np

from ort_conformance.check import CannotJudge, promise, require
from ort_conformance.comparison import find_difference
from ort_conformance.profile import Feature
from ort_conformance.subject import Subject
from ort_conformance.suites.sample_graphs import PRODUCT
from ort_core.errors import OrtError
from ort_core.plugin import CompiledPartition, CompileRequest, Rejection
from ort_core.testing.claims import new_run_state, request_for
from ort_core.testing.environments import session_environment

SUITE = "cache"
PROCESSES = 2
_CHILD = """
import json, sys
import ort_core as ort
from ort_conformance.suites.networks import perceptron
name, options = sys.argv[1], json.loads(sys.argv[2])
model, feeds = perceptron()
with ort.InferenceSession(model.SerializeToString(), providers=[(name, options)]) as session:
    (y,) = session.run(None, feeds)
print(" ".join(f"{number:.3f}" for number in y.ravel()))
"""


@promise(SUITE, needs=Feature.STORES_COMPILED)
def stored_partitions_compute_the_same(subject: Subject) -> None:
    """What ``serialize`` wrote, ``load`` of a new instance restores, and it computes the same."""
    request, first, blob = _stored(subject)
    second = subject.new_provider().load(blob, request)
    if isinstance(second, Rejection):
        require(False, f"load refused its own bytes: {second}")
    assert isinstance(second, CompiledPartition)
    difference = find_difference(_run(second, request), _run(first, request), "approximate")
    require(difference is None, str(difference))


@promise(SUITE, needs=Feature.STORES_COMPILED)
def corrupt_bytes_are_refused(subject: Subject) -> None:
    """Bytes that are cut, empty, altered or foreign are refused: no crash, no wrong result."""
    request, first, blob = _stored(subject)
    expected = _run(first, request)
    middle = len(blob) // 2
    altered = bytes([*blob[:middle], blob[middle] ^ 0xFF, *blob[middle + 1 :]])
    for name, content in {"empty": b"", "cut": blob[:middle], "altered": altered, "foreign": b"\x00" * 64}.items():
        try:
            loaded = subject.new_provider().load(content, request)
        except OrtError:
            continue
        if isinstance(loaded, Rejection):
            require(loaded.reason.strip(), f"{name} bytes were refused without a reason")
            continue
        difference = find_difference(_run(loaded, request), expected, "approximate")
        require(difference is None, f"{name} bytes were taken, and the result is wrong: {difference}")


@promise(SUITE)
def the_cache_key_depends_on_the_options(subject: Subject) -> None:
    """``cache_key`` is the same for equal options and differs when an option does."""
    provider = subject.new_provider()
    require(provider.cache_key() == subject.new_provider().cache_key(), "two instances have different cache keys")
    require(subject.name in provider.cache_key(), "the cache key does not name the provider")
    for field in fields(subject.provider_class.options_type):
        value = getattr(provider.options, field.name)
        if not isinstance(value, bool):
            continue
        try:
            other = subject.new_provider({**subject.profile.options, field.name: not value})
        except OrtError:
            continue  # the two options do not go together; the provider said so
        require(other.cache_key() != provider.cache_key(), f"the option {field.name!r} is not in the cache key")


@promise(SUITE)
def two_processes_share_a_cache(subject: Subject) -> None:
    """Processes that fill one cache folder at the same time, and find it filled, compute the same."""
    if not _is_installed(subject):
        raise CannotJudge("the plugin lives in memory only, other processes do not see it")
    import json

    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "ORT_CACHE_DIR": folder}
        command = [
            sys.executable,
            "-W",
            "ignore",
            "-c",
            _CHILD,
            subject.name,
            json.dumps(dict(subject.profile.options)),
        ]
        outputs = [text for _ in range(2) for text in _together(command, environment)]
    require(len(set(outputs)) == 1 and outputs[0], f"the processes computed {sorted(set(outputs))}")


def _together(command: list[str], environment: Mapping[str, str]) -> list[str]:
    running = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(PROCESSES)
    ]
    results = [process.communicate() for process in running]
    for process, (_, complaint) in zip(running, results, strict=True):
        require(process.returncode == 0, f"a process ended with {process.returncode}: {complaint[-500:]}")
    return [shown.strip() for shown, _ in results]


def _is_installed(subject: Subject) -> bool:
    plugins = session_environment().plugins.plugins
    return any(
        subject.provider_class in plugin.module.ort_providers() and plugin.module.__name__ in sys.modules
        for plugin in plugins
        if plugin.module is not None and hasattr(plugin.module, "ort_providers")
    )


def _stored(subject: Subject) -> tuple[CompileRequest, CompiledPartition, bytes]:
    view = subject.view(PRODUCT.model())
    claims = subject.claims(view)
    if not claims:
        raise CannotJudge("the provider claims nothing of a matrix product with its activation")
    request = replace(request_for(view, claims[0]))
    compiled = subject.new_provider().compile(request)
    blob = compiled.serialize()
    if isinstance(blob, Rejection):
        require(False, f"serialize refused: {blob}")
    assert isinstance(blob, bytes)
    require(blob, "serialize returned no bytes")
    return request, compiled, blob


def _run(compiled: CompiledPartition, request: CompileRequest) -> list[object]:
    generator = np.random.default_rng(int(hashlib.sha256(request.name.encode()).hexdigest()[:8], 16))
    inputs = [generator.random(_sizes(value)).astype(np.float32) for value in request.graph.inputs]
    plan = compiled.plan([array.shape for array in inputs], {})
    outputs: list[object] = [None] * len(plan.outputs)
    compiled.run(plan, inputs, outputs, new_run_state())
    return outputs


def _sizes(value: object) -> tuple[int, ...]:
    shape = value.type.shape  # type: ignore[attr-defined]  # a graph's value, whose class the door does not name
    return tuple(int(dim) for dim in shape)
