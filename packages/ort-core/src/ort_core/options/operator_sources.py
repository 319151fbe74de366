"""What a session is given to find operators in: a Python file, the name of a module, or an object."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from ort_core.errors import InvalidArgument, NoSuchFile, UnsupportedLibrary

_SHARED_LIBRARIES = (".so", ".dll", ".dylib", ".pyd")


def by_name(source: object) -> object:
    """Return the name of a module, which can be pickled as the module cannot, and anything else as it is."""
    return source.__name__ if isinstance(source, ModuleType) else source


def is_plain(value: object) -> bool:
    """Return whether a value is of Python's own types that cannot be an operator: a class, a module, bytes can."""
    return type(value).__module__ == "builtins" and not isinstance(value, (type, ModuleType, bytes))


def library_source(name: str) -> object:
    """Return a Python file as its path, a module's name as it is."""
    path = Path(name)
    if path.suffix.lower() in _SHARED_LIBRARIES or ".so." in path.name:
        raise UnsupportedLibrary(
            f"Failed to load library {name}: it is compiled against onnxruntime's C API, which this engine does not "
            "have. Write the operator in Python (ort_core.custom_op; a C function of it is called through ctypes) and "
            "register the file, the module or an OpLibrary, or install a package that offers it by the hook "
            "ort_custom_ops. docs/howto/custom_operators.md shows how."
        )
    if path.suffix == ".py":
        if not path.is_file():
            raise NoSuchFile(f"Failed to load library {name}: cannot open file: No such file")
        return path
    if all(part.isidentifier() for part in name.split(".")):
        return name
    raise InvalidArgument(
        f"Failed to load library {name}: expected a Python file (.py), the name of a module, or an OpLibrary"
    )
