"""The corpus: small models of every operator that the ONNX backend suite tests, with feeds that fit them."""

from __future__ import annotations

import pickle
import sys
import warnings
from pathlib import Path

import onnx
from onnx.backend.test.loader import load_model_tests

PER_OPERATOR = 3  # cases of one operator; more of them differ in numbers, hardly in structure
MAX_NBYTES = 20_000

Seed = tuple[str, bytes, dict[str, object]]


def build_corpus() -> list[Seed]:
    """Return name, model and feeds of the chosen cases; takes seconds, since onnx computes them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # onnx's own arithmetic while it makes its expectations
        cases = sorted(load_model_tests(kind="node"), key=lambda case: case.name)
    seen: dict[str, int] = {}
    seeds = []
    for case in cases:
        content = case.model.SerializeToString()
        key = "+".join(sorted({node.op_type for node in case.model.graph.node}))
        key = "expanded" + case.name[5:12] if len(case.model.graph.node) > 8 else key
        seen[key] = seen.get(key, 0) + 1
        if seen[key] <= PER_OPERATOR and len(content) <= MAX_NBYTES:
            names = [info.name for info in case.model.graph.input]
            feeds = {name: value for name, value in zip(names, case.data_sets[0][0], strict=False) if _is_plain(value)}
            seeds.append((case.name, content, feeds))
    return seeds


def _is_plain(value: object) -> bool:
    return not isinstance(value, (onnx.TensorProto, onnx.SequenceProto, onnx.OptionalProto, onnx.MapProto))


def write_corpus(path: Path) -> None:
    """Write the corpus to a file that ``read_corpus`` reads in a moment."""
    path.write_bytes(pickle.dumps(build_corpus()))


def read_corpus(path: Path) -> list[Seed]:
    """Read what ``write_corpus`` wrote."""
    return pickle.loads(path.read_bytes())


if __name__ == "__main__":
    write_corpus(Path(sys.argv[1]))
