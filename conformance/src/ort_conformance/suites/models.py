"""Models: small networks of every common kind, at two sizes in one session."""

from __future__ import annotations

from collections.abc import Iterator

import onnx

from ort_conformance.case import Case, DataSet
from ort_conformance.check import Check
from ort_conformance.judge import case_check
from ort_conformance.suites.model_text import evaluate
from ort_conformance.suites.networks import NETWORKS, Network


def network_checks() -> Iterator[Check]:
    """Yield a check for each network of the suite, with and without optimization."""
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
