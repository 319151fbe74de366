"""A pytest plugin that records the small models which tests give to sessions or to passes, with what they feed.

    ORT_RECORDED_MODELS=FOLDER python -m pytest -p random_graphs.mutating.recording TESTS

FOLDER gets a pickle for each model: ``model`` (its bytes), ``feeds`` (``None`` where it was not run), ``test``.
"""

from __future__ import annotations

import collections
import functools
import hashlib
import os
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto

import ort_core as ort
from ort_core.onnx_io import load

LARGEST_NBYTES = 300_000  # of a model, and of what is fed
MOST = 40  # models of one test


@dataclass
class RecordingState:
    """Where models are written, what was, and which test runs."""

    folder: Path
    test: str = ""
    written: set[str] = field(default_factory=set)
    counts: collections.Counter[str] = field(default_factory=collections.Counter)

    def record(self, content: bytes, feeds: Mapping[str, Any] | None = None) -> None:
        """Write a model that is new, or the feeds of one that is not."""
        key = hashlib.sha256(content).hexdigest()[:16]
        name = self.test.partition("[")[0]
        if key not in self.written and (len(content) > LARGEST_NBYTES or self.counts[name] >= MOST):
            return
        if key in self.written and feeds is None:
            return
        if key not in self.written:
            self.counts[name] += 1
        self.written.add(key)
        (self.folder / f"{key}.pickle").write_bytes(
            pickle.dumps({"model": content, "feeds": feeds, "test": self.test})
        )  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    """Record from now on what is loaded and run."""
    folder = Path(os.environ["ORT_RECORDED_MODELS"])
    folder.mkdir(parents=True, exist_ok=True)
    state = RecordingState(folder)
    config.pluginmanager.register(_Tests(state))
    load.model_from_proto = _recording_load(load.model_from_proto, state)
    ort.InferenceSession.run = _recording_run(ort.InferenceSession.run, state)
    ort.InferenceSession.__init__ = _recording_init(ort.InferenceSession.__init__)


@dataclass(eq=False)
class _Tests:
    state: RecordingState

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Remember which test runs."""
        self.state.test = item.nodeid


def _recording_load(plain: Callable[..., Any], state: RecordingState) -> Callable[..., Any]:
    @functools.wraps(plain)
    def loaded(proto: ModelProto, *others: Any, **named: Any) -> Any:
        state.record(proto.SerializeToString(deterministic=True))
        return plain(proto, *others, **named)

    return loaded


def _recording_init(plain: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(plain)
    def init(self: Any, source: Any, *others: Any, **named: Any) -> None:
        plain(self, source, *others, **named)
        if isinstance(source, bytes):
            self.__dict__["_recorded"] = source

    return init


def _recording_run(plain: Callable[..., Any], state: RecordingState) -> Callable[..., Any]:
    @functools.wraps(plain)
    def run(self: Any, names: Any, feeds: Any, *others: Any, **named: Any) -> Any:
        content = self.__dict__.pop("_recorded", None)  # the first run alone
        if content is not None and _is_small(feeds):
            proto = ModelProto.FromString(content)
            state.record(
                proto.SerializeToString(deterministic=True), {name: np.array(each) for name, each in feeds.items()}
            )
        return plain(self, names, feeds, *others, **named)

    return run


def _is_small(feeds: Any) -> bool:
    if not isinstance(feeds, Mapping) or not all(isinstance(each, np.ndarray) for each in feeds.values()):
        return False
    return sum(each.nbytes for each in feeds.values()) <= LARGEST_NBYTES
