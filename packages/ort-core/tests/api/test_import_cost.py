"""``import ort_core`` brings names and nothing else; what is heavy comes when it is needed."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys

import pytest

HEAVY = ("onnx", "google", "ml_dtypes", "llvmlite", "importlib.metadata", "pluggy", "platformdirs", "psutil", "asyncio")
MAX_OWN_MODULES = 3  # of ort_core after ``import ort_core``: the package itself today


def modules_after(statement: str) -> set[str]:
    """Return what a new interpreter has imported by a statement beyond what ``import numpy`` brings."""
    program = (
        f"import sys, numpy\nbefore = set(sys.modules)\n{statement}\nnew = sorted(set(sys.modules) - before)\n"
        "import json\nprint(json.dumps(new))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def test_importing_the_package_imports_hardly_anything() -> None:
    found = modules_after("import ort_core")
    assert len([name for name in found if name.startswith("ort_core")]) <= MAX_OWN_MODULES, sorted(found)
    assert not found & set(HEAVY)
    assert len(found) < 20, f"a small package brings few modules of the standard library: {sorted(found)}"


@pytest.mark.parametrize(
    "statement",
    [
        "import ort_core; ort_core.SessionOptions()",
        "import ort_core; ort_core.OrtValue.ortvalue_from_numpy(numpy.zeros(3))",
        "import ort_core; ort_core.errors.OrtError",
    ],
)
def test_names_that_load_no_model_bring_neither_onnx_nor_a_compiler(statement: str) -> None:
    found = modules_after(statement)
    assert not found & {"onnx", "google.protobuf", "ml_dtypes", "llvmlite"}, sorted(found & set(HEAVY))


@pytest.mark.parametrize(
    "module",
    [
        "ort_core.stages", "ort_core.plugin", *(f"ort_core.plugin.{name}" for name in (
            "cache", "devices", "ir", "kernels", "loops", "memory", "ops", "passes", "rewrite")),
    ],
)  # fmt: skip
def test_every_late_name_is_there_and_others_are_not(module: str) -> None:
    found = importlib.import_module(module)
    for name in found.__all__:
        assert getattr(found, name) is getattr(found, name), name
    with pytest.raises(AttributeError, match=f"{module}.*nothing_of_that_name"):
        _ = found.nothing_of_that_name
