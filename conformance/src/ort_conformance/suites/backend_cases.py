"""The ONNX backend node cases, each at the opset that it ships with and at the newest that means the same.

A case's model imports the version in which its operators last changed. Under a later version that changed none of them
the same nodes mean the same, so the outputs that the case ships hold there too: providers that look operators up
by opset are asked for both ends.
"""

from __future__ import annotations

import functools
import pickle
import platform
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.loader import load_model_tests

from ort_conformance.case import Case, DataSet, Margins
from ort_core.plugin.cache import ArtefactCache, CacheKey

ML_DOMAIN = "ai.onnx.ml"
RANDOM = "its outputs are one draw of a generator that ONNX does not fix"
UNJUDGED = {
    "test_bernoulli": RANDOM,
    "test_bernoulli_expanded": RANDOM,
    "test_bernoulli_double": RANDOM,
    "test_bernoulli_double_expanded": RANDOM,
    "test_bernoulli_seed": RANDOM,
    "test_bernoulli_seed_expanded": RANDOM,
}


def node_cases(*, is_ml: bool) -> list[Case]:
    """Return the node cases, those of ai.onnx.ml or all others, in the order of their names."""
    cases: list[Case] = []
    for found in _loaded():
        if found.model is None:
            raise TypeError(f"onnx's node case {found.name} holds no model; the suite needs another reader for it")
        if any(entry.domain == ML_DOMAIN for entry in found.model.opset_import) == is_ml:
            cases.append(_case(found, found.model, None))
            newest = newest_opset(found.model)
            if newest is not None:
                cases.append(_case(found, found.model, newest))
    return cases


@functools.cache
def _loaded() -> list[TestCase]:
    """Return onnx's cases, made once and kept: onnx computes what it expects in Python loops, for half a minute."""
    cache, key = ArtefactCache(), CacheKey("onnx-node-cases", b"1", facts=tuple(_versions().items()))
    kept = cache.get(key)
    if kept is not None:
        found: list[TestCase] = pickle.loads(kept)
        return found
    made = _made()
    cache.put(key, pickle.dumps(made, protocol=5))
    return made


def _versions() -> dict[str, str]:
    return {"onnx": onnx.__version__, "numpy": np.__version__, "python": platform.python_version()}


def _made() -> list[TestCase]:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # onnx's own arithmetic on hostile numbers while it makes its expectations
        return sorted(load_model_tests(kind="node"), key=lambda case: case.name)


def _case(found: TestCase, own: onnx.ModelProto, opset: int | None) -> Case:
    name = found.name if opset is None else f"{found.name}@{opset}"

    def model() -> onnx.ModelProto:
        return own if opset is None else at_opset(own, opset)

    def data_sets() -> Iterator[DataSet]:
        names = [info.name for info in own.graph.input]
        for inputs, outputs in found.data_sets or ():
            yield DataSet(dict(zip(names, map(decode, inputs), strict=False)), [decode(value) for value in outputs])

    return Case(name, model, data_sets, Margins(found.rtol, found.atol), unjudged=UNJUDGED.get(found.name, ""))


def decode(value: Any) -> object:  # Any: onnx's loader gives arrays, scalars and four kinds of protobuf
    """Return the run-time value of what a test case holds: protobufs are decoded, numpy scalars become arrays."""
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    if isinstance(value, onnx.SequenceProto):
        return numpy_helper.to_list(value)
    if isinstance(value, onnx.OptionalProto):
        return numpy_helper.to_optional(value)
    if isinstance(value, onnx.MapProto):
        return numpy_helper.to_dict(value)
    return np.asarray(value) if isinstance(value, np.generic) else value


def newest_opset(model: onnx.ModelProto) -> int | None:
    """Return the newest version of ai.onnx under which a model means the same, ``None`` when that is its own."""
    own = next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), None)
    if own is None or model.functions:
        return None
    operators = {node.op_type for node in _nodes(model.graph) if node.domain in ("", "ai.onnx")}
    newest = own
    for version in range(own + 1, onnx.defs.onnx_opset_version() + 1):
        if any(_since(op_type, version) != _since(op_type, own) for op_type in operators):
            break
        newest = version
    return newest if newest > own else None


def at_opset(model: onnx.ModelProto, version: int) -> onnx.ModelProto:
    """Return a copy of a model that imports another version of ai.onnx."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for entry in copy.opset_import:
        if entry.domain in ("", "ai.onnx"):
            entry.version = version
    return copy


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for body in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
                yield from _nodes(body)


@functools.cache
def _since(op_type: str, version: int) -> int | None:
    try:
        return int(onnx.defs.get_schema(op_type, version, "").since_version)
    except onnx.defs.SchemaError:
        return None
