"""One setting switches the short cuts off: direct calls, own linking of objects, sessions out of the cache."""

from __future__ import annotations

import sys
from pathlib import Path
from unittest import mock

import numpy as np
import onnx
import pytest

import ort_core as ort
from ort_core.cpu.codegen.machine_code import object_loading
from ort_core.plugin import Rejection

TEXT = """<ir_version: 8, opset_import: ["" : 17]> g (float[N, SIZE] x) => (float[N, SIZE] y)
    <float c = {SIZE.5}> {
    a = Tanh (x)
    b = Add (a, c)
    y = Softmax (b)
}"""


def _options(*, by_key: bool) -> ort.SessionOptions:
    options = ort.SessionOptions()
    if by_key:
        options.add_session_config_entry("session.short_cuts", "0")
    return options


def _runs_directly(session: ort.InferenceSession, size: int) -> bool:
    feeds = {"x": np.ones((2, size), np.float32)}
    results = [session.run(None, feeds)[0] for _ in range(3)]
    assert all(np.array_equal(each, results[0]) for each in results)
    return session._loaded.direct.call(feeds, None) is not None


@pytest.mark.parametrize("by_key", [True, False], ids=["session.short_cuts", "ORT_SHORT_CUTS"])
def test_nothing_short_is_taken_without_short_cuts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_key: bool
) -> None:
    monkeypatch.setenv("ORT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("ORT_GUARDED_MEMORY", raising=False)  # under which nothing runs directly
    size = 37 if by_key else 41  # of no other test: code that the process has is linked already
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(TEXT.replace("SIZE", str(size))), path)
    link = mock.Mock(side_effect=object_loading._linked)
    monkeypatch.setattr(object_loading, "_linked", link)
    if not by_key:
        monkeypatch.setenv("ORT_SHORT_CUTS", "0")
    with mock.patch("ort_core.session_api.session_cache.are_settled", return_value=True):
        sessions = [ort.InferenceSession(str(path), _options(by_key=by_key)) for _ in range(2)]
        assert not any(_runs_directly(each, size) for each in sessions)
        assert not list((tmp_path / "cache").rglob("session*")), "nothing is remembered"
        assert [each._loaded.prepare.__name__ for each in sessions] == ["<lambda>"] * 2, "none came out of the cache"
        monkeypatch.delenv("ORT_SHORT_CUTS", raising=False)
        plain = [ort.InferenceSession(str(path)) for _ in range(2)]
        assert all(_runs_directly(each, size) for each in plain), "the same model takes them by default"
    assert link.call_count, "the number in the graph is one of the code, which no other test has compiled"


def test_objects_are_linked_by_llvm_where_short_cuts_are_off(monkeypatch: pytest.MonkeyPatch) -> None:
    from ort_core.cpu.codegen.machine_code.jit import compile_module

    text = "define i64 @seven() {\n  ret i64 7\n}\n"
    code = compile_module(text).object_code
    monkeypatch.setenv("ORT_SHORT_CUTS", "0")
    refused = object_loading._linked(code)
    assert isinstance(refused, Rejection)
    assert "switched off" in refused.reason or sys.platform != "linux"
    assert object_loading.load_object(code).address("seven")
    monkeypatch.delenv("ORT_SHORT_CUTS")
    with object_loading.linked_by_llvm():
        assert isinstance(object_loading._linked(code), Rejection)
