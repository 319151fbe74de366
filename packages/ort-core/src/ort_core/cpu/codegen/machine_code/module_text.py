"""ModuleText: what is compiled, and errors of doing so. To know them takes no compiler."""

from __future__ import annotations

from ort_core.plugin import frozen


@frozen
class ModuleText:
    """LLVM IR to be compiled.

    Attributes:
        text: the module.
        is_vectorized: nothing of it is left to be unrolled, vectorized or inlined; then few passes do.
    """

    text: str
    is_vectorized: bool = False
