"""Claims for plugin authors (provisional): the loop from reasons to claims, rules, and what is known before a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ort_core.lazy_names import lazy_names

if TYPE_CHECKING:
    from ort_core.providers.claiming import claims_of, form_groups
    from ort_core.providers.rules import (
        PLACED_BODIES,
        STANDARD_DOMAINS,
        AskedView,
        Condition,
        arity_refusal,
        attribute_refusal,
        first_refusal,
        held_bounds,
        held_constant,
        open_size,
        types_refusal,
    )
    from ort_core.providers.static_values import (
        SHAPE_READERS,
        SIZE_ARITHMETIC,
        SMALL_NBYTES,
        InnerSizes,
        bounds_of,
        dtype_of,
        is_static,
        named_sizes,
        places_of_names,
        results_beforehand,
        small_bounds,
    )

__all__ = [
    "PLACED_BODIES", "SHAPE_READERS", "SIZE_ARITHMETIC", "SMALL_NBYTES", "STANDARD_DOMAINS", "AskedView", "Condition",
    "InnerSizes", "arity_refusal", "attribute_refusal", "bounds_of", "claims_of", "dtype_of", "first_refusal",
    "form_groups", "held_bounds", "held_constant", "is_static", "named_sizes", "open_size", "places_of_names",
    "results_beforehand", "small_bounds", "types_refusal",
]  # fmt: skip

__getattr__, __dir__ = lazy_names(  # no plugin pays for names that it does not use
    __name__,
    {
        "ort_core.providers.claiming": ("claims_of", "form_groups"),
        "ort_core.providers.rules": (
            "PLACED_BODIES", "STANDARD_DOMAINS", "AskedView", "Condition", "arity_refusal", "attribute_refusal",
            "first_refusal", "held_bounds", "held_constant", "open_size", "types_refusal",
        ),
        "ort_core.providers.static_values": (
            "SHAPE_READERS", "SIZE_ARITHMETIC", "SMALL_NBYTES", "InnerSizes", "bounds_of", "dtype_of", "is_static",
            "named_sizes", "places_of_names", "results_beforehand", "small_bounds",
        ),
    },
)  # fmt: skip
