"""How long a model takes to load: the first time ever, with our artefact cache filled, and in onnxruntime.

What is imported when a session is made counts; the rows ending in ``_with_import`` count the import of the engine's
package, too, which brings numpy: onnxruntime imports all of its own there, ours hardly anything. Every figure is the
median over processes of their own that do nothing else; the model's file is in the system's page cache for all of them.
"First ever" starts with an empty artefact cache. Modules are loaded from byte code, as those of an installed package
are.
"""

from __future__ import annotations

import functools
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROUNDS = 5
FIRST_ROUNDS = 2  # compiling from nothing varies little and takes long
_LOAD = """
import json, sys, time
begin = time.perf_counter()
import {module} as engine
options = engine.SessionOptions()
options.intra_op_num_threads = {threads}
start = time.perf_counter()
session = engine.InferenceSession({model!r}, options, providers=["CPUExecutionProvider"])
end = time.perf_counter()
print(json.dumps([end - start, end - begin]))
"""


def load_times(model: Path, threads: int) -> dict[str, float]:
    """Return seconds by what was loaded: ``first``, ``cached`` and ``onnxruntime``, in turns, and all with imports."""
    times: dict[str, list[tuple[float, float]]] = {"first": [], "cached": [], "onnxruntime": []}
    with tempfile.TemporaryDirectory(prefix="ort-bench-cache-") as filled:
        _seconds("ort_core", model, threads, filled)  # also writes the byte code
        for _ in range(FIRST_ROUNDS):
            with tempfile.TemporaryDirectory(prefix="ort-bench-cache-") as empty:
                times["first"].append(_seconds("ort_core", model, threads, empty))
        for _ in range(ROUNDS):
            times["cached"].append(_seconds("ort_core", model, threads, filled))
            times["onnxruntime"].append(_seconds("onnxruntime", model, threads, filled))
    loads = {name: statistics.median(load for load, _ in pairs) for name, pairs in times.items()}
    return loads | {
        f"{name}_with_import": statistics.median(both for _, both in pairs) for name, pairs in times.items()
    }


@functools.cache
def _byte_code() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="ort-bench-byte-code-")


def _seconds(module: str, model: Path, threads: int, cache: str) -> tuple[float, float]:
    program = _LOAD.format(module=module, model=str(model), threads=threads)
    environment = {**os.environ, "ORT_CACHE_DIR": cache, "PYTHONPYCACHEPREFIX": _byte_code().name}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # its caller's: each import would compile its module
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    load, with_import = json.loads(done.stdout.splitlines()[-1])
    return float(load), float(with_import)
