"""CodeTable: addresses of functions as a constant that kernels read; it says whose they are, and owns their code.

A program that is taken to another process (``stored_program``) takes the names and looks the addresses up there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from ort_core.cpu.codegen.machine_code.compiled_module import CompiledModule


class CodeTable(np.ndarray[Any, Any]):  # Any: numpy's own parameters
    """int64[functions]: the addresses of ``names`` in ``module``."""

    module: CompiledModule
    names: tuple[str, ...]


def code_table(module: CompiledModule, names: Sequence[str]) -> CodeTable:
    """Return the table of some functions of a module."""
    table = np.array([module.address(name) for name in names], np.int64).view(CodeTable)
    table.module, table.names = module, tuple(names)
    return table
