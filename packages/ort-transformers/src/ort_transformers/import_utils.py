"""is_installed(): whether a package can be imported."""

from __future__ import annotations

import importlib.metadata
import importlib.util


def is_installed(package: str) -> bool:
    """Return whether a distribution, or a module, of that name is there; it is not imported."""
    try:
        importlib.metadata.distribution(package)
    except importlib.metadata.PackageNotFoundError:
        try:
            return importlib.util.find_spec(package) is not None
        except ModuleNotFoundError:  # a package above it is missing
            return False
    return True
