"""Registers of tiles: asked for once, left alone where they are withheld, multiplied as their manual says."""

from __future__ import annotations

import platform
import sys

import ml_dtypes
import numpy as np
import pytest
from kernel_calls import compiled

from ort_core.cpu.codegen.llvm_ir import matrix_tiles
from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, module_text
from ort_core.cpu.codegen.machine_code import host_key, llvm_targets
from ort_core.cpu.codegen.machine_code.jit import assembly
from ort_core.cpu.codegen.machine_code.llvm_targets import host_target, target_of
from ort_core.cpu.threads.pool import ThreadPool
from ort_core.plugin import Rejection

if sys.platform == "linux":
    from ort_core.cpu.codegen.machine_code import processor_linux

on_linux = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="asks Linux on x86-64 for registers"
)
SAPPHIRE_RAPIDS = target_of(
    "x86_64-unknown-linux-gnu",
    "sapphirerapids",
    "+amx-bf16,+amx-int8,+amx-tile,+avx512bf16,+avx512bw,+avx512dq,+avx512f,+avx512vl,+avx512vnni",
)
ROWS, COLUMNS, STEPS = 11, 16, 3


def product(instruction: str, rows: int) -> str:
    """Return the text of a step that multiplies ``STEPS`` tiles of ``rows`` rows with as many of B."""
    emitter = Emitter("product", [("ptr", "args"), ("i64", "piece"), ("i64", "pieces"), ("i64", "thread")])
    args = emitter.parameter("args")
    c, a, b = (emitter.argument(args, i, "ptr") for i in range(3))
    steps = emitter.argument(args, 3)
    with matrix_tiles.configured(emitter, [(rows, 64), (rows, 64), (16, 64)]):
        matrix_tiles.clear(emitter, 0)
        with emitter.loop(0, steps, unroll=False) as step:
            matrix_tiles.load(emitter, 1, emitter.element(a, emitter.mul(step, 64), "i8"), STEPS * 64)
            matrix_tiles.load(emitter, 2, emitter.element(b, emitter.mul(step, 1024), "i8"), 64)
            matrix_tiles.multiply(emitter, instruction, 0, 1, 2)
        matrix_tiles.store(emitter, 0, c, COLUMNS * 4)
    return module_text([emitter])


def computed(instruction: str, a: np.ndarray, b: np.ndarray, dtype: type) -> np.ndarray:
    """Run it; ``a`` is [rows, K], ``b`` [K, columns] of elements whose words lie side by side."""
    target = host_target()
    if not (target.has("amx-tile") and target.has("amx-int8") and target.has("amx-bf16")):
        pytest.skip("needs a processor with AMX, and a system that permits it")
    word = 4 // a.itemsize
    panels = np.ascontiguousarray(b.reshape(-1, word, COLUMNS).transpose(0, 2, 1))
    rows = np.ascontiguousarray(a)
    c = np.full((ROWS + 1, COLUMNS), 77, dtype)
    module = compiled(product(instruction, ROWS), target, is_vectorized=True)
    words = np.array([c.ctypes.data, rows.ctypes.data, panels.ctypes.data, STEPS], np.int64)
    steps = np.array([module.address("product"), words.ctypes.data, 1, 0], np.int64)
    pool = ThreadPool(1)
    try:
        pool.run(int(steps.ctypes.data), 1)
    finally:
        pool.close()
    assert (c[ROWS] == 77).all()
    return c[:ROWS]


@pytest.mark.parametrize("a_type", [np.int8, np.uint8])
@pytest.mark.parametrize("b_type", [np.int8, np.uint8])
def test_products_of_bytes_are_exact(a_type: type, b_type: type) -> None:
    random = np.random.default_rng(3)
    a, b = (
        random.integers(np.iinfo(type_).min, np.iinfo(type_).max, shape, endpoint=True, dtype=type_)
        for type_, shape in ((a_type, (ROWS, STEPS * 64)), (b_type, (STEPS * 64, COLUMNS)))
    )
    instruction = matrix_tiles.byte_products(a_type is np.int8, b_type is np.int8)
    np.testing.assert_array_equal(computed(instruction, a, b, np.int32), a.astype(np.int32) @ b.astype(np.int32))


def test_products_of_pairs_are_those_of_their_floats() -> None:
    random = np.random.default_rng(4)
    a, b = (random.standard_normal(s).astype(ml_dtypes.bfloat16) for s in ((ROWS, STEPS * 32), (STEPS * 32, COLUMNS)))
    exact = a.astype(np.float64) @ b.astype(np.float64)
    bound = np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64)) * STEPS * 32 * 2.0**-24
    assert (np.abs(computed(matrix_tiles.FLOAT_PAIRS, a, b, np.float32) - exact) <= bound).all()


def test_products_are_instructions_of_registers_of_tiles() -> None:
    text = assembly(product(matrix_tiles.byte_products(False, True), 16), SAPPHIRE_RAPIDS, is_vectorized=True)
    for name in ("ldtilecfg", "tilezero", "tileloadd", "tdpbusd", "tilestored", "tilerelease"):
        assert name in text


@on_linux
def test_a_processor_whose_tiles_are_withheld_is_one_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor_linux, "permitted_tiles", lambda: Rejection("a test withholds them"))
    features = llvm_targets._with_permitted_tiles({"amx-tile": True, "amx-int8": True, "avx512f": True, "sse4a": False})
    assert features == {"amx-tile": False, "amx-int8": False, "avx512f": True, "sse4a": False}


@on_linux
def test_code_for_tiles_is_not_recalled_where_they_are_withheld(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("proc") / "cpuinfo"
    facts = {"vendor_id": "x", "cpu family": "6", "model": "207", "model name": "y", "stepping": "2"}
    file.write_text("".join(f"{name}\t: {text}\n" for name, text in {**facts, "flags": "fpu amx_tile"}.items()) + "\n")
    monkeypatch.setattr(processor_linux, "permitted_tiles", lambda: None)
    permitted = processor_linux.processor_text(file)
    monkeypatch.setattr(processor_linux, "permitted_tiles", lambda: Rejection("a test withholds them"))
    assert processor_linux.processor_text(file) == f"{permitted}|without tiles"
    assert host_key.machine_key()
