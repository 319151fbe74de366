"""The models of a folder, as models to change: recorded ones of known operators that the numpy kernels run, and own."""

from __future__ import annotations

import functools
import pickle
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
from onnx import ModelProto, ValueInfoProto, helper

from random_graphs.mutating.mutants import Model, model_of
from random_graphs.mutating.patterns import OLD_FORMS, PATTERNS
from random_graphs.mutating.transformers import TRANSFORMERS

MOST_NODES = 120
LARGEST_NBYTES = 3_000_000  # of all values
DOMAINS = ("", "com.microsoft", "ai.onnx.ml", "ai.onnx")
MUTANTS_OF_EACH = 4  # one behind the other: the values of a model are found once


def made(name: str) -> tuple[ModelProto, Mapping[str, Any]]:
    """Return a transformer or a pattern by its name, with feeds."""
    if name in TRANSFORMERS:
        return TRANSFORMERS[name]()
    head = f'<ir_version: 10, opset_import: ["" : {17 if name in OLD_FORMS else 21}]>\n'
    proto = onnx.parser.parse_model(head + PATTERNS[name])
    feeds = made_up(proto)
    assert feeds is not None
    return proto, feeds


def record_made(folder: Path) -> None:
    """Write all transformers and patterns as records."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in (*TRANSFORMERS, *PATTERNS):
        proto, feeds = made(name)
        record = {"model": proto.SerializeToString(), "feeds": dict(feeds), "test": name}
        (folder / f"{name.replace(' ', '_')}.pickle").write_bytes(pickle.dumps(record))


def recorded_paths(folder: Path) -> Sequence[Path]:
    """Return the records in an order that is the same everywhere, and mixes tests."""
    found = sorted(folder.glob("*.pickle"))
    random.Random(7).shuffle(found)
    return found


@functools.lru_cache(maxsize=2)
def recorded_model(path: Path) -> Model | None:
    """Return the model of a record, ``None`` where it is none to change."""
    record = pickle.loads(path.read_bytes())
    proto = ModelProto.FromString(record["model"])
    imports = {each.domain for each in proto.opset_import}
    if not 0 < len(proto.graph.node) <= MOST_NODES or proto.functions:
        return None
    if "" not in imports or not imports <= set(DOMAINS):
        return None
    feeds = record["feeds"] if record["feeds"] is not None else made_up(proto)
    if feeds is None:
        return None
    try:
        model = model_of(proto, feeds)
    except Exception:  # noqa: BLE001 - tests have models that fail on purpose
        return None
    sizes = [each.nbytes for each in model.values.values() if isinstance(each, np.ndarray)]
    return model if sum(sizes) <= LARGEST_NBYTES else None


def made_up(proto: ModelProto) -> Mapping[str, Any] | None:
    """Return feeds of the declared types and sizes, small ones where names stand for them."""
    generator = np.random.default_rng(0)
    sizes: dict[str, int] = {}
    held = {each.name for each in proto.graph.initializer}
    feeds = {}
    for info in proto.graph.input:
        if info.name in held:
            continue
        array = _array(info, sizes, generator)
        if array is None:
            return None
        feeds[info.name] = array
    return feeds


def _array(info: ValueInfoProto, sizes: dict[str, int], generator: np.random.Generator) -> np.ndarray | None:
    kind = info.type.tensor_type
    if not info.type.HasField("tensor_type") or not kind.HasField("shape"):
        return None
    dims = [(dim.dim_value, dim.dim_param or f"{info.name}.{axis}") for axis, dim in enumerate(kind.shape.dim)]
    shape = [size or sizes.setdefault(name, 2 + len(sizes) % 4) for size, name in dims]
    dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
    if dtype.kind in "fV":
        return generator.normal(size=shape).astype(dtype)
    if dtype.kind in "iub":
        return generator.integers(0, 2 if dtype.kind == "b" else 4, shape).astype(dtype)
    return None
