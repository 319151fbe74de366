"""A meta-path finder that answers for ``onnxruntime`` and its modules, and for its version among installed packages."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Sequence
from email.message import Message
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from importlib.metadata import Distribution, DistributionFinder
from types import ModuleType

from ort_core.dropin.installed import find_tool
from ort_core.errors import InvalidValue
from ort_core.sibling_modules import SiblingFinder, find_alias

NAME = "onnxruntime"
_GENAI = "onnxruntime_genai"
_IMPORTED = (  # what onnxruntime imports by itself, so that programs reach it as attributes
    "capi", "capi.onnxruntime_pybind11_state", "capi._pybind_state", "capi.onnxruntime_inference_collection",
    "capi.onnxruntime_validation", "capi.build_and_package_info",
)  # fmt: skip
_EVERYTHING = DistributionFinder.Context()


class _ModuleLoader(Loader):
    """Fills a module from the table of ``dropin.modules``."""

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Let Python make the module."""
        return None

    def exec_module(self, module: ModuleType) -> None:
        """Give the module its names, and a package its submodules that onnxruntime imports by itself."""
        from ort_core.dropin.modules import MODULES, TOOLS

        vars(module).update((MODULES.get(module.__name__) or TOOLS[module.__name__])())
        module.__file__ = __file__  # programs look for the folder of the package
        module.__doc__ = f"{module.__name__} as ort-core provides it."
        if module.__name__ == NAME:
            for inner in _IMPORTED:
                importlib.import_module(f"{NAME}.{inner}")
        if module.__name__ == f"{NAME}.backend":
            importlib.import_module(f"{NAME}.backend.backend")
            importlib.import_module(f"{NAME}.backend.backend_rep")


class _Distribution(Distribution):
    """onnxruntime as programs find it when they ask for its installed version."""

    def read_text(self, filename: str) -> str | None:
        """Return the metadata file; there is no other."""
        from ort_core.dropin.modules import VERSION

        if filename not in ("METADATA", "PKG-INFO"):
            return None
        header = Message()
        header["Metadata-Version"], header["Name"], header["Version"] = "2.1", NAME, VERSION
        header["Summary"] = "onnxruntime's API, provided by ort-core"
        return header.as_string()

    def locate_file(self, path: object) -> object:  # type: ignore[override]  # there are no files
        """Refuse: there are no files."""
        raise FileNotFoundError(f"{path}: the drop-in is part of ort-core")


class DropInFinder(DistributionFinder):
    """Finds the modules of onnxruntime inside ort-core, in packages that stand beside it, and its tools where it is."""

    _siblings = SiblingFinder(NAME, refuses=False)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a module in the table, of a sibling package, or of an installed onnxruntime's tools."""
        from ort_core.dropin.modules import MODULES, PACKAGES, TOOLS

        if fullname.startswith(_GENAI):
            return find_alias(fullname, _GENAI, "genai")
        if fullname not in MODULES:
            found = self._siblings.find_spec(fullname, path, target) or find_tool(fullname)
            if found is None and fullname not in TOOLS:
                self._siblings.refuse(fullname)
            if found is not None or path or fullname not in TOOLS:  # a path: that of the installed package
                return found
        return ModuleSpec(fullname, _ModuleLoader(), origin="ort_core.dropin", is_package=fullname in PACKAGES)

    def find_distributions(self, context: DistributionFinder.Context = _EVERYTHING) -> Iterable[Distribution]:
        """Return onnxruntime when it is asked for by name, or everything is."""
        return [_Distribution()] if context.name in (None, NAME) else []


def install() -> None:
    """Let ``import onnxruntime`` find ort-core from now on; calling it twice does nothing.

    Raises:
        InvalidValue: onnxruntime itself was imported before.
    """
    from ort_core.dropin.modules import show_codes

    if any(isinstance(finder, DropInFinder) for finder in sys.meta_path):
        return
    if NAME in sys.modules:
        raise InvalidValue("onnxruntime was imported already; install the drop-in before the first import of it")
    sys.meta_path.insert(0, DropInFinder())
    show_codes()
