"""The Python tools of an installed onnxruntime: its transformers, tools and quantization run on this project.

They are written over the names that the drop-in answers for. Nothing native of the installed package is loaded.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType

from ort_core.sibling_modules import find_sibling

TOOLS = ("quantization", "tools", "transformers")


def installed_folder() -> Path | None:
    """Return the folder of the installed package, if there is one."""
    found = PathFinder.find_spec("onnxruntime")
    return None if found is None or found.origin is None else Path(found.origin).parent


class _ScriptLoader(SourceFileLoader):
    """Runs a script of the installed transformers, which import one another by bare names."""

    def get_code(self, fullname: str) -> CodeType | None:
        """Let those names be found, as importing the installed package would, whether it is imported or run by -m.

        The names are those of the main scripts, and of the scripts in the same folder.
        """
        folder = installed_folder()
        places = [] if folder is None else [str(folder / "transformers"), str(Path(self.path).parent)]
        sys.path += [each for each in dict.fromkeys(places) if each not in sys.path]
        return super().get_code(fullname)


def find_tool(fullname: str) -> ModuleSpec | None:
    """Return the spec of ``onnxruntime.transformers`` or another tool in the installed package, if there is one.

    Of ``onnxruntime.tools`` and ``onnxruntime.transformers`` single modules, too: those that the package standing for
    it does not have. ``onnxruntime.quantization`` is one whole, that package's or the installed one's.
    """
    package, _, name = fullname.partition(".")
    first, *rest = name.split(".")
    if package != "onnxruntime" or first not in TOOLS:
        return None
    if rest and first == "quantization" and find_sibling(first) is not None:
        return None
    folder = installed_folder()
    found = None if folder is None else PathFinder.find_spec(fullname, [str(folder.joinpath(*name.split(".")[:-1]))])
    if found is not None and first == "transformers" and isinstance(found.loader, SourceFileLoader):
        found.loader = _ScriptLoader(found.loader.name, found.loader.path)
    return found
