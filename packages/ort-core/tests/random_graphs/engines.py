"""The engines that are judged, and every way that a graph is run in them."""

from __future__ import annotations

import contextlib
import copy
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any
from unittest.mock import patch

import numpy as np
import onnxruntime
from onnx import ModelProto

import ort_core as ort
from random_graphs import ways
from random_graphs.cases import Case
from random_graphs.custom_operators import OPERATORS
from random_graphs.writer import CUSTOM_DOMAIN, TRAINING


class NotAsked(Exception):
    """An engine is not asked for this case; the text says why."""


READ: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "read": ("optimized.onnx", {}),
    "read with data beside": ("optimized.onnx", {"file_name": "optimized.data", "min_size_in_bytes": "100"}),
    "read in ORT format": ("optimized.ort", {}),
}
"""Ways to save a model for onnxruntime: the file's name, and what is said of initializers."""


@dataclass(frozen=True)
class Engine:
    """A way to run a case: whose session, at which level, by how many threads, how often each assignment.

    ``way`` names one of ``ways.OF_SESSIONS``, ``saved``, one of ``READ``, ``compiled``, or ``ORT format``; without one,
    assignments are run one behind the other. With a ``precision`` results are judged by a truth of its own
    (``rounded_truth``). Where passes are ``verified``, the model is optimized anew, and what each pass leaves behind is
    checked. What is not ``is_repeatable`` may give other bits in each run.
    """

    name: str
    provider: str = "CPUExecutionProvider"
    level: str = "ORT_ENABLE_ALL"
    threads: int = 1
    repeats: int = 1
    way: str = ""
    precision: str = ""
    verified: bool = False
    is_repeatable: bool = True

    @property
    def uses(self) -> tuple[str, ...]:
        """The names of the engines that this one runs: its own, and that of whoever writes or reads its file."""
        return (self.name, "onnxruntime") if self.way in ("ORT format", *READ) else (self.name,)

    def session(self, case: Case) -> Any:
        """Return a session.

        Raises:
            NotAsked: the engine has no way to run such a case.
        """
        if self.name == "onnxruntime":
            return _CopyingSession(_onnxruntime_session(case))
        provider = (self.provider, {"precision": self.precision}) if self.precision else self.provider
        with patch.dict(os.environ, _VERIFIED) if self.verified else contextlib.nullcontext():
            return ort.InferenceSession(case.served.SerializeToString(), self._options(case), providers=[provider])

    def _options(self, case: Case) -> ort.SessionOptions:
        options = ort.SessionOptions()
        options.intra_op_num_threads = self.threads
        options.log_severity_level = 4
        options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, self.level)
        if any(each.domain == CUSTOM_DOMAIN for each in case.model.opset_import):
            for operator in OPERATORS:
                options.register_custom_ops_library(operator)
        return options

    def runs(self, case: Case) -> Iterator[tuple[int, Sequence[Any]]]:
        """Yield the number of an assignment of sizes and the outputs, in the order of the runs."""
        if self.way:
            with np.errstate(all="raise"):
                yield from self._ways_runs(case)
            return
        session = self.session(case)
        with np.errstate(all="raise"):
            for _ in range(self.repeats):
                yield 0, session.run(None, dict(case.feeds[0]))
            for number in range(1, len(case.feeds)):
                for _ in range(self.repeats):
                    yield number, session.run(None, dict(case.feeds[number]))
            if self.repeats > 1 and len(case.feeds) > 1:
                yield 0, session.run(None, dict(case.feeds[0]))

    def _ways_runs(self, case: Case) -> ways.Runs:
        if self.way == "ORT format":
            return ways.OF_SESSIONS["to and fro"](self._written_by_onnxruntime(case), case)
        if self.way in READ:
            return ways.OF_SESSIONS["to and fro"](self.read_by_onnxruntime(case), case)
        if self.way == "compiled":
            return ways.OF_SESSIONS["to and fro"](self._compiled(case), case)
        if self.way != "saved":
            return ways.OF_SESSIONS[self.way](self.session(case), case)

        return ways.saved(
            lambda content: ort.InferenceSession(content, self._options(case), providers=[self.provider]),
            lambda path: self._saving(case, path),
            case,
        )

    def _saving(self, case: Case, path: Path, initializers: Mapping[str, str] = MappingProxyType({})) -> Any:
        """Return a session that has saved its optimized model."""
        options = self._options(case)
        options.optimized_model_filepath = str(path)
        for key, value in initializers.items():
            options.add_session_config_entry(f"session.optimized_model_external_initializers_{key}", value)
        return ort.InferenceSession(case.served.SerializeToString(), options, providers=[self.provider])

    def read_by_onnxruntime(self, case: Case) -> Any:
        """Return onnxruntime's session of the model that a session of ours has saved.

        Raises:
            NotAsked: it is not asked for the case itself, or refuses it: it crashes over parts of some that it refuses.
        """
        try:
            _onnxruntime_session(case)
        except NotAsked:
            raise
        except Exception as reason:
            raise NotAsked(f"it refuses the case itself: {reason}") from reason
        name, initializers = READ[self.way]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / name
            self._saving(case, path, initializers)
            return _CopyingSession(_onnxruntime_session_of(str(path)))

    def _compiled(self, case: Case) -> Any:
        """Return a session of the model that carries its compiled code."""
        level = getattr(ort.GraphOptimizationLevel, self.level)
        compiler = ort.ModelCompiler(
            self._options(case), case.served.SerializeToString(), True, graph_optimization_level=level
        )
        options = self._options(case)
        options.add_session_config_entry("session.trust_compiled_code", "1")
        return ort.InferenceSession(compiler.compile_to_bytes(), options, providers=[self.provider])

    def _written_by_onnxruntime(self, case: Case) -> Any:
        """Return a session of the file of ORT format that onnxruntime writes; where it writes none, of the model."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.ort"
            try:
                _onnxruntime_session(case, path)
            except Exception:  # noqa: BLE001 - whatever it refuses: it is judged as an engine of its own
                return self.session(case)
            return ort.InferenceSession(path.read_bytes(), self._options(case), providers=[self.provider])


def has_products(model: ModelProto) -> bool:
    """Return whether a model has operators that a precision may round, in its bodies and functions as well."""
    graphs = [model.graph, *model.functions]
    while graphs:
        nodes = graphs.pop().node
        if any(_PRODUCTS.search(node.op_type) for node in nodes):
            return True
        graphs.extend(attribute.g for node in nodes for attribute in node.attribute if attribute.HasField("g"))
    return False


def _check_is_for_onnxruntime(case: Case) -> None:
    if any(each.domain == CUSTOM_DOMAIN for each in case.model.opset_import):
        raise NotAsked("users' operators")
    if any(each.domain == TRAINING for each in case.model.opset_import):
        raise NotAsked("optimizers' steps, which it has in builds for training alone")
    if not all(any(node.output) for node in case.served.graph.node):
        raise NotAsked("outputs without names, of which it refuses most and crashes on some")
    numbers = {each.type.tensor_type.elem_type for each in (*case.model.graph.input, *case.model.graph.output)}
    if numbers & {16, 17, 18, 19, 20, 21, 22}:
        raise NotAsked("element types that numpy has no name for")


def _onnxruntime_session(case: Case, saved: Path | None = None) -> Any:
    _check_is_for_onnxruntime(case)
    return _onnxruntime_session_of(case.served.SerializeToString(), saved)


def _onnxruntime_session_of(content: bytes | str, saved: Path | None = None) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    if saved is not None:
        options.optimized_model_filepath = str(saved)
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


@dataclass(frozen=True)
class _CopyingSession:
    """A session whose runs get copies: onnxruntime writes new moments of training over those that it was given."""

    session: Any

    def run(self, names: None, feeds: Mapping[str, Any]) -> Sequence[Any]:
        """Return the outputs."""
        return self.session.run(names, copy.deepcopy(dict(feeds)))


_VERIFIED = {"ORT_VERIFY_PASSES": "1", "ORT_OPTIMIZED_MODEL_CACHE": "0"}
ROUNDING = Engine("bfloat16", threads=2, repeats=2, precision="bfloat16")
ROUNDED_SHARE = 4  # one case in so many is run by it, too, if it has products
READING = tuple(
    Engine(f"{way}, {kind}", level=f"ORT_ENABLE_{level}", way=way)
    for level, kind in (("BASIC", "basic"), ("EXTENDED", "extended"), ("ALL", "all"))
    for way in READ
)
"""Engines that save what onnxruntime reads; only what it reads and runs right itself is a difference."""
READING_SHARE = 5  # one case in so many is read by it, too
_PRODUCTS = re.compile("MatMul|Gemm|Einsum|Conv|Attention|LSTM|GRU|RNN|MoE")
WAYS = (
    Engine("by names", way="by names"),
    Engine("bound", way="bound"),
    Engine("bound on 2 threads", threads=2, way="bound"),
    Engine("shared", way="shared"),
    Engine("shared on 2 threads", threads=2, way="shared"),
    Engine("to and fro", way="to and fro"),
    Engine("any sizes", way="any sizes"),
    Engine("any sizes on 2 threads", threads=2, way="any sizes"),
    Engine("laid out", way="laid out"),
    Engine("saved", level="ORT_ENABLE_EXTENDED", way="saved"),
    Engine("saved after basic passes", level="ORT_ENABLE_BASIC", way="saved"),
    Engine("ORT format", way="ORT format"),
    Engine("compiled", way="compiled"),
    Engine("pickled", way="pickled"),
    Engine("extended", level="ORT_ENABLE_EXTENDED", repeats=2),
    Engine("basic", level="ORT_ENABLE_BASIC", repeats=2),
    Engine("reference, optimized", "ReferenceExecutionProvider"),
    Engine("verified passes", verified=True),
)
"""Ways of which each case takes one more."""


def engines(seed: int) -> Sequence[Engine]:
    """Return the engines for a seed: every case is loaded twice with all optimizations, and in one way more."""
    threads = 3 if seed % 2 else 1
    found = [
        Engine("onnxruntime"),
        Engine("reference", "ReferenceExecutionProvider", "ORT_DISABLE_ALL"),
        Engine("cpu", threads=threads, repeats=3),
        Engine("recalled", threads=threads, repeats=2),
    ]
    if seed % 2 == 0:
        found.append(Engine("unoptimized", level="ORT_DISABLE_ALL", threads=3 if seed % 4 else 1, repeats=2))
    found.append(WAYS[seed % len(WAYS)])
    if seed % ROUNDED_SHARE == 1:  # those that are not run unoptimized
        found.append(ROUNDING)
    if seed % READING_SHARE == 3:
        found.append(READING[seed // READING_SHARE % len(READING)])
    return found


BY_NAME: Mapping[str, Engine] = {
    each.name: each
    for each in (
        *engines(0),
        *WAYS,
        ROUNDING,
        *READING,
        *(Engine(f"cpu on {n} threads", threads=n, repeats=3) for n in (1, 2, 3, 4)),
    )
}
