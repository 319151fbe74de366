"""The families of operators that random graphs are made of: one function adds a node, or a few that belong together.

To have an operator in the campaign add a row to a table of its family's module, or a function marked ``@family``.
A module that is new is named in ``_MODULES``.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Sequence

from random_graphs.family import Family

_MODULES = (
    "elementwise",
    "integers",
    "choosing",
    "reductions",
    "products",
    "images",
    "movement",
    "indexing",
    "normalizations",
    "quantized",
    "quantized_operators",
    "attention",
    "recurrent",
    "control_flow",
    "sequences",
    "machine_learning",
    "shapes",
    "microsoft",
    "fused_rows",
    "sequences_of_vectors",
    "quantized_rest",
    "standard_rest",
    "custom",
    "experts_and_blocks",
    "carried_sequences",
    "rarer",
    "quantized_chains",
    "searches",
    "optimizer_steps",
    "fused_projections",
    "microsoft_rest",
    "dropped_by_onnx",
    "rows_of_bytes",
    "states",
    "fed_sequences_and_maps",
    "further_forms",
    "quantized_computed",
    "long_rows",
    "repeated",
    "growing_states",
    "signed_scales",
    "biases",
    "narrowed_sizes",
    "written_norms",
    "resized",
    "across_bodies",
)


@functools.cache
def families() -> Sequence[Family]:
    """Return all families, in an order that never depends on the machine."""
    found: list[Family] = []
    for name in _MODULES:
        module = importlib.import_module(f"{__name__}.{name}")
        found += [
            each.family
            for each in vars(module).values()
            if getattr(each, "__module__", "") == module.__name__ and hasattr(each, "family")
        ]
    return tuple(found)
