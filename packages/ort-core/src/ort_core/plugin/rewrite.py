"""Rewriting for plugin authors (provisional): patterns, rules, patches that are checked, and operators' own parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ort_core.lazy_names import lazy_names

if TYPE_CHECKING:
    from ort_core.rewrite.decompose import decompose
    from ort_core.rewrite.fuse import fuse
    from ort_core.rewrite.matcher import Match, constant_of
    from ort_core.rewrite.patch import GraphPatch
    from ort_core.rewrite.pattern import Pattern, constant, is_scalar, one_of, op, optional, var
    from ort_core.rewrite.rule import RewriteRule

__all__ = [
    "GraphPatch", "Match", "Pattern", "RewriteRule", "constant", "constant_of", "decompose", "fuse", "is_scalar",
    "one_of", "op", "optional", "var",
]  # fmt: skip

__getattr__, __dir__ = lazy_names(  # no plugin pays for names that it does not use
    __name__,
    {
        "ort_core.rewrite.decompose": ("decompose",),
        "ort_core.rewrite.fuse": ("fuse",),
        "ort_core.rewrite.matcher": ("Match", "constant_of"),
        "ort_core.rewrite.patch": ("GraphPatch",),
        "ort_core.rewrite.pattern": ("Pattern", "constant", "is_scalar", "one_of", "op", "optional", "var"),
        "ort_core.rewrite.rule": ("RewriteRule",),
    },
)  # fmt: skip
