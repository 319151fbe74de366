"""The public names of onnxruntime-genai: walked where its wheel is installed, written in genai_api.json.

python genai_api_walk.py    writes the file anew
"""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path

FILE = Path(__file__).with_name("genai_api.json")
SPECIAL = ("__init__", "__call__", "__len__", "__getitem__", "__setitem__", "__delitem__", "__contains__")
_SIGNATURE = re.compile(r"^(?:\d+\. )?(\w+)\((.*?)\) -> ", re.MULTILINE)


def walked() -> dict[str, object]:
    """Return functions with their parameters, classes with methods and members of enumerations."""
    import onnxruntime_genai

    found: dict[str, object] = {}
    for name in sorted(dir(onnxruntime_genai)):
        each = getattr(onnxruntime_genai, name)
        if name.startswith("_") or inspect.ismodule(each):
            continue
        found[name] = _class(each) if inspect.isclass(each) else _parameters(each)
    return found


def _class(kind: type) -> dict[str, object]:
    members = getattr(kind, "__members__", None)
    if members is not None:
        return {"members": {name: int(value) for name, value in members.items()}}
    found: dict[str, object] = {}
    for name in sorted(dir(kind)):
        if name.startswith("_") and name not in SPECIAL:
            continue
        each = getattr(kind, name)
        if name.startswith("__") and each is getattr(object, name, None):
            continue
        found[name] = "property" if isinstance(each, property) else _parameters(each)
    return found


def _parameters(function: object) -> list[list[str]]:
    """Return the parameters of each form that a docstring of pybind11 lists; ``*`` for any."""
    found = []
    for _, inside in _SIGNATURE.findall(function.__doc__ or ""):
        parts = [
            part.strip()
            for part in re.sub(r"\[[^\[\]]*(?:\[[^\[\]]*\][^\[\]]*)*\]", "", inside).split(",")
            if part.strip()
        ]
        names = [re.split(r"[:=]", part)[0].strip() for part in parts]
        found.append([name for name in names if name not in ("self", "")])
    forms = [form for form in found if form != ["*args", "**kwargs"]] or found
    return forms


if __name__ == "__main__":
    lines = [f"{json.dumps(name)}: {json.dumps(each)}" for name, each in walked().items()]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
