"""A load that finds machine code in the cache writes no kernel; broken entries are compiled anew, to the same bits."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import ort_core as ort
from ort_core.cache.store import ArtefactCache
from ort_core.cpu.codegen.machine_code import code_cache, jit, shipped_code
from ort_core.cpu.codegen.machine_code.compiled_module import CompiledModule
from ort_core.cpu.codegen.machine_code.llvm_targets import host_target
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.nests.elementwise_nests import (
    BROADCAST,
    DENSE,
    ElementwiseNest,
    NestInput,
    elementwise_kernel,
)
from ort_core.cpu.codegen.nests.row_nests import RowNest, row_kernel
from ort_core.plugin.ir import DataType
from ort_core.plugin.loops import RowPass, RowReduction, Scalar, element

F32 = DataType.FLOAT


def model() -> bytes:
    rng = np.random.default_rng(0)
    node, info = helper.make_node, helper.make_tensor_value_info
    nodes = [
        node("MatMul", ["x", "w"], ["a"]),
        node("Add", ["a", "b"], ["c"]),
        node("Softmax", ["c"], ["d"]),
        node("Exp", ["d"], ["e"]),
        node("ReduceSum", ["e", "axes"], ["y"]),
    ]
    constants = {
        "w": rng.standard_normal((24, 40)).astype(np.float32), "b": rng.standard_normal(40).astype(np.float32),
        "axes": np.array([0], np.int64),
    }  # fmt: skip
    graph = helper.make_graph(
        nodes, "cached", [info("x", TensorProto.FLOAT, ["N", 24])], [info("y", TensorProto.FLOAT, None)],
        initializer=[numpy_helper.from_array(array, name) for name, array in constants.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10).SerializeToString()


def run() -> np.ndarray:
    x = np.random.default_rng(1).standard_normal((7, 24)).astype(np.float32)
    return ort.InferenceSession(model(), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]


@pytest.fixture
def objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Fill a cache of its own, forget what this process holds and what came with the package, and give the entries."""
    monkeypatch.setenv("ORT_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(shipped_code, "FOLDER", str(tmp_path / "nothing"))
    monkeypatch.setattr(code_cache, "_loaded", {})
    run()
    monkeypatch.setattr(code_cache, "_loaded", {})
    found = sorted((tmp_path / "cpu-object").iterdir())
    assert found, "nothing was put into the cache"
    return found


def test_load_with_all_objects_in_the_cache_compiles_nothing(
    objects: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object, **keywords: object) -> None:
        raise AssertionError("a kernel was compiled that lies in the cache")

    expected = run()
    monkeypatch.setattr(code_cache, "_loaded", {})
    monkeypatch.setattr(jit, "compile_module", refuse)
    np.testing.assert_array_equal(run(), expected)


@pytest.mark.parametrize("damage", ["flipped", "cut", "empty", "foreign"])
def test_broken_objects_are_compiled_anew_to_the_same_bits(
    objects: list[Path], damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = run()
    monkeypatch.setattr(code_cache, "_loaded", {})
    for path in objects:
        content = bytearray(path.read_bytes())
        content[-9] ^= 0xFF
        kept = {"flipped": bytes(content), "cut": bytes(content[:200]), "empty": b"", "foreign": b"no artefact" * 99}
        path.unlink()
        path.write_bytes(kept[damage])
    compiled: list[str] = []
    make = jit.compile_modules

    def noted(texts: Iterable[jit.ModuleText], target: Target | None, *, num_threads: int) -> list[CompiledModule]:
        listed = list(texts)
        compiled.extend(each.text for each in listed)
        return make(listed, target, num_threads=num_threads)

    monkeypatch.setattr(jit, "compile_modules", noted)
    np.testing.assert_array_equal(run(), expected)
    assert compiled, "damaged machine code was loaded"


@pytest.mark.parametrize("content", [b"no object", b"", b"\x7fELF\x02\x01\x01" + bytes(500)])
def test_an_intact_entry_that_is_no_object_is_removed_and_compiled_anew(
    objects: list[Path], content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = run()
    monkeypatch.setattr(code_cache, "_loaded", {})
    cache, get = ArtefactCache(), ArtefactCache.get
    sound = {path.name: path.read_bytes() for path in objects}
    monkeypatch.setattr(ArtefactCache, "get", lambda self, key: None if get(self, key) is None else content)
    np.testing.assert_array_equal(run(), expected)
    monkeypatch.undo()
    monkeypatch.setenv("ORT_CACHE_DIR", str(tmp_path))
    assert {path.name: path.stat().st_size for path in objects} == {n: len(c) for n, c in sound.items()}
    assert cache.folder == str(tmp_path)


def nest(expression: Scalar, inner: int = DENSE, rank: int = 2) -> ElementwiseNest:
    return ElementwiseNest(rank, (NestInput(F32, inner), NestInput(F32, DENSE)), ((expression, F32),))


def test_kernels_of_equal_structure_share_a_name_and_others_do_not() -> None:
    a, b = element(0, F32), element(1, F32)
    names = [
        elementwise_kernel(each, host_target()).name
        for each in (
            nest(a + b), nest(a - b), nest(b + a), nest(a + 0.0), nest(a + -0.0), nest(a + b, BROADCAST),
            nest(a + b, rank=3),
        )
    ]  # fmt: skip
    assert len(set(names)) == len(names), names
    assert elementwise_kernel(nest(element(0, F32) + element(1, F32)), host_target()).name == names[0]


def test_row_kernels_are_told_apart_by_what_they_reduce_store_and_return() -> None:
    a = element(0, F32)
    total = RowPass((), (RowReduction("sum", a, 1),))
    base = RowNest(2, (NestInput(F32, DENSE),), (F32,), (total, RowPass(((0, a * 2.0),))))
    others = [
        base,
        replace(base, passes=(RowPass((), (RowReduction("max", a, 1),)), base.passes[1])),
        replace(base, passes=(RowPass((), (RowReduction("sum", a, 2),)), base.passes[1])),
        replace(base, passes=(total, RowPass(((0, a * 3.0),)))),
        replace(base, passes=(total, RowPass(((0, a * 2.0),), (), ((3, a),)))),
        replace(base, outputs=(), passes=(total,), scalars=(1,)),
        replace(base, rank=3),
    ]
    names = {row_kernel(each, host_target()).name for each in others}
    assert len(names) == len(others), names


def test_load_takes_what_is_there_and_compiles_what_is_missing(
    objects: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = run()
    for entry in objects[::2]:
        entry.unlink()
    monkeypatch.setattr(code_cache, "_loaded", {})
    compiled: list[jit.ModuleText] = []
    original = jit.compile_modules

    def noted(texts: Iterable[jit.ModuleText], target: Target | None, *, num_threads: int) -> list[CompiledModule]:
        listed = list(texts)
        compiled.extend(listed)
        return original(listed, target, num_threads=num_threads)

    monkeypatch.setattr(jit, "compile_modules", noted)
    np.testing.assert_array_equal(run(), expected)
    assert len(compiled) == len(objects[::2])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_that_is_forked_while_a_thread_compiles_can_compile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORT_CACHE_DIR", str(tmp_path))
    is_compiling = threading.Event()

    def write() -> str:
        is_compiling.set()
        time.sleep(0.2)  # a large module takes longer
        return "define i64 @f(i64 %x) { ret i64 %x }"

    compiler = threading.Thread(target=lambda: code_cache.compiled_for_host("slow", write))
    compiler.start()
    assert is_compiling.wait(200)
    child = os.fork()
    if child == 0:
        found = code_cache.compiled_for_host("fast", lambda: "define i64 @f(i64 %x) { ret i64 %x }")
        os._exit(0 if found.address("f") else 1)
    end = time.monotonic() + 200
    while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < end:
        time.sleep(0.01)
    if ended == (0, 0):
        os.kill(child, 9)
        os.waitpid(child, 0)
    compiler.join()
    assert ended == (child, 0), "the child waits for a thread that it does not have"


def test_noting_a_module_asks_no_other_one_however_many_there_are(calls_of):
    target = host_target()
    kept = code_cache.compiled("define i64 @kept(i64 %x) { ret i64 %x }", target)
    with code_cache.recorded() as found:
        code_cache.noted(kept)
        few, _ = calls_of(code_cache.noted, kept)
        others = [
            code_cache.compiled(f"define i64 @other{i}(i64 %x) {{ ret i64 %x }}", target, is_vectorized=True)
            for i in range(40)
        ]
        many, _ = calls_of(code_cache.noted, kept)
    assert many == few, "each product of a model notes its tile kernels: 10,000 times the process's modules"
    assert kept in found.values()
    assert all(other in found.values() for other in others)
