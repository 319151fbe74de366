"""Modules that other distributions provide under a name of ours: ``ort_core.quantization`` is ``ort_quantization``.

A distribution names its module by an entry point of the group ``ort.modules``: the key is the name below ``ort_core``
(and below ``onnxruntime``, for the drop-in), the value the module. Both names give one module, so that classes and
enumerations stay the same whichever way they were imported.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import sys
from collections.abc import Sequence
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import CodeType, ModuleType

ENTRY_POINT_GROUP = "ort.modules"
DISTRIBUTIONS = {
    "quantization": "ort-quantization",
    "tools": "ort-tools",
    "transformers": "ort-transformers",
    "genai": "ort-genai",
}
"""Modules of packages of this repository, and what to install for them. Advice in messages only."""


def find_sibling(name: str) -> str | None:
    """Return the module that an installed distribution provides under a name, ``None`` where none does."""
    points = importlib.metadata.entry_points(group=ENTRY_POINT_GROUP, name=name)
    return next((point.value for point in points), None)


def absent_text(name: str) -> str | None:
    """Return why a distribution does not have a module, and what to use in its place, where it says so.

    Its module ``absent_modules`` does: ``reason_of(name)`` of what lies below it.
    """
    package, _, rest = name.partition(".")
    sibling = find_sibling(package)
    if sibling is None or not rest or find_spec(f"{sibling}.absent_modules") is None:
        return None
    reason = importlib.import_module(f"{sibling}.absent_modules").reason_of(rest)
    return None if reason is None else f"{package}.{rest} is not part of {sibling.replace('_', '-')}: {reason}"


def missing_text(name: str) -> str:
    """Return what to install for a module that no installed distribution provides."""
    distribution = DISTRIBUTIONS[name]
    return (
        f"ort_core.{name} comes with the package {distribution}, which is not installed here: pip install "
        f"{distribution} (in a clone of the repository: pip install ./packages/{distribution})"
    )


class _AliasLoader(InspectLoader):
    """Gives a module that has another name; ``python -m`` of the alias runs that module's code."""

    def __init__(self, target: str) -> None:
        self._target = target

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Let Python make a module, which ``exec_module`` replaces."""
        return None

    def exec_module(self, module: ModuleType) -> None:
        """Put the other module in this one's place."""
        sys.modules[module.__name__] = importlib.import_module(self._target)

    def is_package(self, fullname: str) -> bool:
        """Return whether the other module has modules below it."""
        spec = find_spec(self._target)
        return spec is not None and spec.submodule_search_locations is not None

    def get_source(self, fullname: str) -> str | None:
        """Return the other module's source."""
        return self._other().get_source(self._target)

    def get_code(self, fullname: str) -> CodeType | None:
        """Return the other module's code."""
        return self._other().get_code(self._target)

    def _other(self) -> InspectLoader:
        spec = find_spec(self._target)
        if spec is None or not isinstance(spec.loader, InspectLoader):
            raise ImportError(f"{self._target} has no source that could be read")
        return spec.loader


class SiblingFinder(MetaPathFinder):
    """Finds ``ort_core.NAME`` and what lies below it in the module of another distribution.

    Args:
        prefix: the package below which the names are ours to answer for: ``ort_core`` or ``onnxruntime``.
        refuses: whether a module that a distribution leaves out on purpose raises its reason; without, it is not found.
    """

    def __init__(self, prefix: str, *, refuses: bool = True) -> None:
        self._prefix = prefix + "."
        self._refuses = refuses

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a module that a distribution provides; others are not found here.

        Raises:
            ModuleNotFoundError: the distribution leaves the module out on purpose; the message says why.
        """
        if not fullname.startswith(self._prefix):
            return None
        name, _, rest = fullname.removeprefix(self._prefix).partition(".")
        sibling = find_sibling(name)
        if sibling is None:
            return None
        other = f"{sibling}.{rest}" if rest else sibling
        try:
            found = find_spec(other)
        except ModuleNotFoundError:  # nor is there a package of that name to look into
            found = None
        if found is None:
            if self._refuses:
                self.refuse(fullname)
            return None
        loader = _AliasLoader(other)
        return ModuleSpec(fullname, loader, origin=other, is_package=loader.is_package(fullname))

    def refuse(self, fullname: str) -> None:
        """Raise the reason for which there is no such module, if one is known.

        Raises:
            ModuleNotFoundError: a distribution leaves it out on purpose, or the one that has it is not installed.
        """
        if not fullname.startswith(self._prefix):
            return
        name = fullname.removeprefix(self._prefix)
        text = absent_text(name)
        if text is not None:
            raise ModuleNotFoundError(f"{self._prefix}{text}", name=fullname)
        package = name.partition(".")[0]
        if package in DISTRIBUTIONS and find_sibling(package) is None:
            # Of another name than the module's own: ``from package import module`` passes over what it did not find.
            raise ModuleNotFoundError(f"{fullname}: {missing_text(package)}", name=self._prefix + package)


def find_alias(fullname: str, top: str, name: str) -> ModuleSpec | None:
    """Return the spec of a module at or below a name of its own, ``onnxruntime_genai``, that a distribution provides.

    Args:
        fullname: of the module that is imported.
        top: the name of its own.
        name: what the distribution calls it among its entry points.
    """
    if fullname != top and not fullname.startswith(top + "."):
        return None
    sibling = find_sibling(name)
    if sibling is None:
        return None
    loader = _AliasLoader(sibling + fullname.removeprefix(top))
    return ModuleSpec(fullname, loader, origin=sibling, is_package=loader.is_package(fullname))


def stand_for_sibling(module_name: str) -> None:
    """Replace a module of ours, while it is imported, by the one that another distribution provides under its name.

    Raises:
        ModuleNotFoundError: no installed distribution does; the message says what to install.
    """
    prefix, _, name = module_name.rpartition(".")
    if find_sibling(name) is None:
        raise ModuleNotFoundError(missing_text(name), name=module_name)
    finder = SiblingFinder(prefix)
    sys.meta_path.insert(0, finder)  # before the folder of the other module, whose files would be imported twice
    spec = finder.find_spec(module_name)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"{find_sibling(name)}, which stands for {module_name}, cannot be found")
    spec.loader.exec_module(sys.modules[module_name])
