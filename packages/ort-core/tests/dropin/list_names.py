"""``python list_names.py FILE`` writes the names of onnxruntime's modules, of their classes, and the parameters.

The same program runs on onnxruntime and, by the drop-in, on this project; ``test_same_names.py`` compares.
"""

import importlib
import inspect
import json
import sys
import types

MODULES = (
    "onnxruntime", "onnxruntime.capi", "onnxruntime.capi._pybind_state", "onnxruntime.capi.onnxruntime_pybind11_state",
    "onnxruntime.capi.onnxruntime_inference_collection", "onnxruntime.capi.onnxruntime_validation",
    "onnxruntime.capi.build_and_package_info", "onnxruntime.backend", "onnxruntime.backend.backend",
    "onnxruntime.backend.backend_rep", "onnxruntime.datasets",
)  # fmt: skip


def parameters(callable_object):
    """Return the names of parameters as Python code states them, ``None`` for native functions."""
    try:
        return list(inspect.signature(callable_object).parameters)
    except (ValueError, TypeError):
        return None


def described(value):
    """Return the members of a class with their parameters, or the parameters of a function."""
    if not inspect.isclass(value):
        return {"parameters": parameters(value)} if callable(value) else {}
    members = {name: getattr(value, name) for name in dir(value) if name[0] != "_"}
    shown = {name: parameters(each) if inspect.isroutine(each) else None for name, each in members.items()}
    return {"members": shown, "parameters": parameters(value)}


def is_own(value):
    """Return whether a name was made by the module's project, not imported from elsewhere for its own use."""
    if isinstance(value, types.ModuleType):
        return value.__name__.startswith("onnxruntime")
    home = getattr(value, "__module__", None) or ""
    return not home or home.startswith(("onnxruntime", "ort_core", "list_names"))


found = {}
for module_name in MODULES:
    module = importlib.import_module(module_name)
    names = [name for name in dir(module) if name[0] != "_" and is_own(getattr(module, name))]
    found[module_name] = {name: described(getattr(module, name)) for name in names}
with open(sys.argv[1], "w", encoding="utf-8") as file:
    json.dump(found, file)
