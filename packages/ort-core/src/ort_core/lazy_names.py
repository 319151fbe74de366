"""Names of a package that are imported when somebody asks for them (PEP 562): who needs one does not pay for all."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping

from ort_core.forks import no_fork


def lazy_names(
    package: str, homes: Mapping[str, Iterable[str]]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return the ``__getattr__`` and the ``__dir__`` of a module whose names live in other modules.

    Args:
        package: the module's own name.
        homes: names by the module that each lives in.
    """
    module_of = {name: module for module, names in homes.items() for name in names}

    def find(name: str) -> object:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        with no_fork():  # a child would wait for ever for the import of a thread that it does not have
            found = getattr(importlib.import_module(module_of[name]), name)
        setattr(sys.modules[package], name, found)
        return found

    def listed() -> list[str]:
        return sorted({*vars(sys.modules[package]), *module_of})

    return find, listed
