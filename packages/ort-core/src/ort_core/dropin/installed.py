"""The Python tools of an installed onnxruntime: its transformers, tools and quantization run on this project.

They are written over the names that the drop-in answers for. Nothing native of the installed package is loaded.
"""

from __future__ import annotations

from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

TOOLS = ("quantization", "tools", "transformers")


def installed_folder() -> Path | None:
    """Return the folder of the installed package, if there is one."""
    found = PathFinder.find_spec("onnxruntime")
    return None if found is None or found.origin is None else Path(found.origin).parent


def find_tool(fullname: str) -> ModuleSpec | None:
    """Return the spec of ``onnxruntime.transformers`` or another tool in the installed package, if there is one.

    Of ``onnxruntime.tools`` single modules, too: those that the package standing for it does not have.
    """
    package, _, name = fullname.partition(".")
    first, *rest = name.split(".")
    if package != "onnxruntime" or first not in TOOLS or (rest and first != "tools"):
        return None  # what lies inside a tool is found by its own path
    folder = installed_folder()
    return None if folder is None else PathFinder.find_spec(fullname, [str(folder.joinpath(*name.split(".")[:-1]))])
