"""Modules that come compiled with the package are found by their text, verified, and else compiled."""

from __future__ import annotations

import ctypes
import importlib
import logging
import weakref
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import ort_core as ort
from ort_core.cpu.codegen.convolutions import winograd_blocks
from ort_core.cpu.codegen.convolutions.winograd_blocks import product_text
from ort_core.cpu.codegen.machine_code import code_cache, jit, shipped_code
from ort_core.cpu.codegen.machine_code.code_cache import compiled
from ort_core.cpu.codegen.machine_code.levels import level_of, levels
from ort_core.cpu.codegen.machine_code.llvm_targets import host_target
from ort_core.cpu.codegen.machine_code.shipped_code import file_name, shipped_file, text_name
from ort_core.cpu.codegen.machine_code.target import Target, target_of
from ort_core.cpu.codegen.machine_code.target_setting import LEVELS
from ort_core.cpu.codegen.products.microkernel import tiles_text
from ort_core.cpu.lowering.products import product_panels

ROOT = Path(__file__).parents[5]
LINUX = "x86_64-pc-linux-gnu"
TEXT = """
define i64 @answer() {
  ret i64 %d
}
"""


def processor(level: str, *more: str, without: tuple[str, ...] = ()) -> Target:
    names = (LEVELS[level] | set(more)) - set(without)
    return target_of(LINUX, "some processor", ",".join(f"+{name}" for name in sorted(names)), "llvm0")


def answer(number: int) -> int:
    module = compiled(TEXT % number, host_target(), is_common=True)
    return int(ctypes.CFUNCTYPE(ctypes.c_int64)(module.address("answer"))())


def host_level() -> Target:
    level = level_of(host_target())
    if level is None:
        pytest.skip("this processor has no level")
    return level


def tool(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "tools")
    return importlib.import_module(name)


def refuse_to_compile(texts: Iterable[jit.ModuleText], *_: object, **__: object) -> None:
    pytest.fail("\n".join(each.text for each in texts))


def ship(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str, code_of: str) -> Path:
    """Put the code of one text where that of another is looked for."""
    level = host_level()
    path = folder / file_name(level)
    name = text_name(text, is_vectorized=False)
    path.write_bytes(shipped_file(level, {name: jit.object_code(code_of, level)}))
    monkeypatch.setattr(shipped_code, "FOLDER", str(folder))
    return path


def test_a_module_that_came_with_the_package_is_not_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ship(tmp_path, monkeypatch, TEXT % 1001, TEXT % 77)  # another answer shows whose code runs
    assert answer(1001) == 77


@pytest.mark.parametrize("damage", ["cut", "flipped", "of another level"])
def test_a_damaged_file_is_told_and_its_module_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    number = {"cut": 1002, "flipped": 1003, "of another level": 1004}[damage]
    path = ship(tmp_path, monkeypatch, TEXT % number, TEXT % 77)
    blob = bytearray(path.read_bytes())
    if damage == "cut":
        del blob[-9:]
    elif damage == "flipped":
        blob[len(blob) // 2] ^= 4
    else:
        other = next(level for level in levels() if level.key != host_level().key)
        name = text_name(TEXT % number, is_vectorized=False)
        blob = bytearray(shipped_file(other, {name: jit.object_code(TEXT % 77, host_level())}))
    path.write_bytes(blob)
    with caplog.at_level(logging.WARNING, "ort_core"):
        assert answer(number) == number
    assert path.name in caplog.text


def test_without_a_file_the_module_is_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipped_code, "FOLDER", str(tmp_path / "nowhere"))
    assert answer(1005) == 1005


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (processor("x86-64-v4", "avx512vnni", "avx512bf16"), "x86-64-v4"),
        (processor("x86-64-v3", "aes"), "x86-64-v3"),
        (processor("x86-64-v2"), "x86-64-v2"),
        (processor("x86-64-v3", without=("avx2", "fma", "bmi2")), "x86-64-v2"),
        (processor("x86-64-v3", without=("movbe",)), None),  # wide vectors, but not the level
        (processor("x86-64"), None),
        (target_of("aarch64-alpine-linux-musl", "cortex-a72", "+neon", "llvm0"), "generic"),
        (target_of("arm64-apple-darwin24.1.0", "apple-m4", "+neon", "llvm0"), "generic"),
        (target_of("riscv64-unknown-linux-gnu", "generic", "", "llvm0"), None),
    ],
)
def test_the_level_of_a_processor(target: Target, expected: str | None) -> None:
    level = level_of(target)
    assert (None if level is None else level.cpu) == expected
    assert level is None or (level.lanes, level.vector_registers) == (target.lanes, target.vector_registers)


def test_a_level_depends_on_neither_the_distribution_nor_the_compiler() -> None:
    features = processor("x86-64-v3").features
    triples = ("x86_64-pc-linux-gnu", "x86_64-alpine-linux-musl", "x86_64-unknown-linux-gnu")
    found = {level_of(target_of(triple, "znver5", features, compiler)) for triple in triples for compiler in ("a", "b")}
    assert len(found) == 1


def test_the_tiles_of_a_level_are_those_of_its_processors() -> None:
    for target in (processor("x86-64-v2"), processor("x86-64-v3", "aes"), processor("x86-64-v4", "avx512vnni")):
        level = level_of(target)
        assert level is not None
        assert tiles_text(level) == tiles_text(target)
        assert product_text(level) == product_text(target)


def test_a_kernel_of_a_model_that_came_with_the_package_is_not_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layers, program = tool("common_layers", monkeypatch), tool("ship_kernels", monkeypatch)
    layer = layers.Layer(layers.SIZES[0])
    product = layer.node("Relu", layer.product(layer.input("x")))
    model = layer.model(layer.node("Softmax", product, axis=-1), layer.node("Erf", product))
    program.write_level(tmp_path, host_level(), program.kernels_of([model], host_level()))
    monkeypatch.setattr(shipped_code, "FOLDER", str(tmp_path))
    monkeypatch.setenv("ORT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(jit, "compile_modules", refuse_to_compile)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    x = np.random.default_rng(0).standard_normal((2, 5, layers.SIZES[0].width)).astype(np.float32)
    reference = ort.InferenceSession(model.SerializeToString(), providers=["ReferenceExecutionProvider"])
    for found, expected in zip(session.run(None, {"x": x}), reference.run(None, {"x": x}), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_tiles_that_came_with_the_package_are_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tool("ship_kernels", monkeypatch)
    program.write_level(tmp_path, host_level(), {})
    monkeypatch.setattr(shipped_code, "FOLDER", str(tmp_path))
    monkeypatch.setenv("ORT_CACHE_DIR", str(tmp_path / "cache"))

    def refuse_to_write(target: Target) -> str:
        pytest.fail(f"text for {target.cpu} is written")

    monkeypatch.setattr(product_panels, "tiles_text", refuse_to_write)
    monkeypatch.setattr(winograd_blocks, "product_text", refuse_to_write)
    monkeypatch.setattr(jit, "compile_modules", refuse_to_compile)
    monkeypatch.setattr(code_cache, "_loaded", weakref.WeakValueDictionary())
    for made in (product_panels._tiles, product_panels._winograd_product):
        _, table = made.__wrapped__(host_target())
        assert np.all(table), "addresses"


def test_a_kernel_that_other_processors_of_a_level_have_otherwise_is_not_shipped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    layers, program = tool("common_layers", monkeypatch), tool("ship_kernels", monkeypatch)
    layer = layers.Layer(layers.SIZES[0])
    x = layer.input("x", ("N", 4))
    model = layer.model(layer.node("Relu", x), layer.node("Cast", x, to=layers.onnx.TensorProto.FLOAT16))
    level = next(level for level in levels() if level.cpu == "x86-64-v2")  # some processors of it convert halves
    assert len(program.kernels_of([model], level)) == 1, "the one of Relu"


def test_what_is_written_for_a_wheel_is_what_a_load_looks_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tool("ship_kernels", monkeypatch)
    arm = next(level for level in levels() if level.cpu == "generic")
    monkeypatch.setattr(shipped_code, "FOLDER", str(tmp_path))
    written = program.write_level(tmp_path, arm, {})
    modules = shipped_code.shipped_modules(arm)
    assert len(modules) == written == len(program.common_modules(arm))
    for name, module in program.common_modules(arm).items():
        found = modules[name]
        assert bytes(found[:4]) == b"\x7fELF"
        if not module.is_vectorized:
            assert found == jit.object_code(module.text, arm), "the same bytes when made again"
