"""Models: small networks of every common kind, at two sizes in one session, and those of folders that are named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import onnx

import ort_core as ort
from ort_conformance.case import Case, DataSet
from ort_conformance.check import Check
from ort_conformance.judge import case_check
from ort_conformance.subject import ORACLE
from ort_conformance.suites.model_text import evaluate
from ort_conformance.suites.networks import NETWORKS, Network
from ort_core.cli.feeds import InputRequest, run_with_feeds
from ort_core.testing.claims import typed_model


def network_checks() -> Iterator[Check]:
    """Yield a check for each network of the suite, with and without optimisation."""
    for name, (build, first, second) in NETWORKS.items():
        for is_optimized in (True, False):
            sizes = (first, second)

            def network(size: int, build: object = build) -> Network:
                return build("float32", size)  # type: ignore[operator]  # a default binds the loop's variable

            def data_sets(network: object = network, sizes: tuple[int, int] = sizes) -> Iterator[DataSet]:
                for size in sizes:
                    model, feeds = network(size)  # type: ignore[operator]  # as above
                    yield DataSet(feeds, evaluate(model, feeds))

            def model(network: object = network, size: int = first) -> onnx.ModelProto:
                return network(size)[0]  # type: ignore[operator]  # as above

            label = name if is_optimized else f"{name}_as_written"
            yield case_check("models", Case(label, model, data_sets, "approximate", is_optimized), fallbacks=())


def folder_checks(folder: Path) -> Iterator[Check]:
    """Yield a check for each ``.onnx`` file below a folder, with seeded inputs and the oracle's results.

    Raises:
        FileNotFoundError: the folder holds no model.
    """
    paths = sorted(folder.rglob("*.onnx"))
    if not paths:
        raise FileNotFoundError(f"no .onnx file below {folder}")
    for path in paths:
        name = f"{folder.name}/{path.relative_to(folder).with_suffix('').as_posix()}"
        yield case_check("models", _file_case(path, name), fallbacks=())


def _file_case(path: Path, name: str) -> Case:
    def data_sets() -> Iterator[DataSet]:
        with ort.InferenceSession(path, providers=[ORACLE]) as oracle:
            feeds, expected = run_with_feeds(
                typed_model(path), InputRequest(), lambda made: oracle.run(None, made.values)
            )
        yield DataSet(feeds.values, expected)

    return Case(name, lambda: str(path), data_sets, "approximate", is_optimized=True)
