"""Claims for plugin authors (provisional): the loop from reasons to claims, and what is known before any run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ort_core.lazy_names import lazy_names

if TYPE_CHECKING:
    from ort_core.providers.claiming import claims_of, form_groups
    from ort_core.providers.static_values import (
        SHAPE_READERS,
        SIZE_ARITHMETIC,
        SMALL_NBYTES,
        bounds_of,
        dtype_of,
        is_static,
        results_beforehand,
        small_bounds,
    )

__all__ = [
    "SHAPE_READERS", "SIZE_ARITHMETIC", "SMALL_NBYTES", "bounds_of", "claims_of", "dtype_of", "form_groups",
    "is_static", "results_beforehand", "small_bounds",
]  # fmt: skip

__getattr__, __dir__ = lazy_names(  # no plugin pays for names that it does not use
    __name__,
    {
        "ort_core.providers.claiming": ("claims_of", "form_groups"),
        "ort_core.providers.static_values": (
            "SHAPE_READERS", "SIZE_ARITHMETIC", "SMALL_NBYTES", "bounds_of", "dtype_of", "is_static",
            "results_beforehand", "small_bounds",
        ),
    },
)  # fmt: skip
