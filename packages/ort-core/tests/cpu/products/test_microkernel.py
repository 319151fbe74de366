"""The code of the microkernels: sums stay in registers on every kind of target; packing keeps every element."""

from __future__ import annotations

import re

import numpy as np
import pytest
from plain_products import Bias, product_text

from ort_core.cpu.codegen.machine_code.jit import assembly
from ort_core.cpu.codegen.machine_code.llvm_targets import host_target, restricted_target, target_of
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.products.matrix_product import ARGUMENTS
from ort_core.cpu.codegen.products.microkernel import tile_name, tile_shape, tiles_text
from ort_core.cpu.codegen.products.packing import pack_panels

AVX512 = target_of("x86_64-unknown-linux-gnu", "skylake-avx512", "+avx512f,+avx512vl,+avx512bw,+avx512dq,+avx2,+fma")
AVX2 = target_of("x86_64-unknown-linux-gnu", "haswell", "+avx2,+fma,-avx512f")
NEON = target_of("aarch64-unknown-linux-gnu", "neoverse-n1", "+neon")
VECTOR = re.compile(r"%[xyz]mm|\b[vqds]\d")
MULTIPLY_ADD = re.compile(r"\t(vfmadd\w+|fmla)\t")


def inner_loops(text: str, function: str) -> list[list[str]]:
    """Return the instructions of each loop of a function that holds a multiply-add and no other label."""
    body = text.split(f"\n{function}:", 1)[1].split(".Lfunc_end", 1)[0]
    blocks = re.split(r"\n(\.LBB\w+):", body)
    loops = []
    for label, block in zip(blocks[1::2], blocks[2::2], strict=True):
        lines = [line for line in block.splitlines() if line.startswith("\t")]
        jumps = [i for i, line in enumerate(lines) if re.search(rf"{re.escape(label)}\b", line)]
        if jumps and MULTIPLY_ADD.search(block):
            loops.append(lines[: jumps[-1] + 1])
    return loops


@pytest.mark.parametrize(
    ("target", "stack"),
    [
        pytest.param(AVX512, r"\(%rsp", id="AVX-512"),
        pytest.param(AVX2, r"\(%rsp", id="AVX2"),
        pytest.param(NEON, r"\[sp", id="NEON"),
    ],
)
@pytest.mark.parametrize("word", ["float", "double"])
def test_tile_keeps_its_sums_in_registers(target: Target, stack: str, word: str) -> None:
    shape = tile_shape(target, word)
    text = assembly(tiles_text(target, word), target, is_vectorized=True)
    for rows in range(1, shape.rows + 1):
        loops = inner_loops(text, tile_name(rows))
        assert loops, f"no inner loop found in the tile of {rows} rows"
        main = max(loops, key=len)
        count = sum(bool(MULTIPLY_ADD.search(line)) for line in main)
        assert count >= rows * shape.vectors, f"{count} multiply-adds in the loop of {rows} rows"
        on_stack = [line for loop in loops for line in loop if re.search(stack, line)]
        spills = [line for line in on_stack if VECTOR.search(line)]
        assert not spills, f"the tile of {rows} rows keeps vectors on the stack in its loop: {spills}"
        assert len(on_stack) <= 1, f"the tile of {rows} rows reads more than one stride from the stack: {on_stack}"


@pytest.mark.parametrize("word", ["float", "double"])
def test_full_tile_of_avx2_takes_few_instructions_beside_its_loads_and_products(word: str) -> None:
    """Where a core is shared, every instruction counts: 12 products, 2 loads of B and 6 of A make 20 for each k."""
    loops = inner_loops(assembly(tiles_text(AVX2, word), AVX2, is_vectorized=True), tile_name(6))
    main = max(loops, key=len)
    products = sum(bool(MULTIPLY_ADD.search(line)) for line in main)
    assert products == 48, "four numbers of K in a turn"
    assert len(main) / 4 <= 24


@pytest.mark.parametrize("target", [AVX512, AVX2, NEON], ids=["AVX-512", "AVX2", "NEON"])
@pytest.mark.parametrize("packed", [True, False], ids=["packed", "strided"])
@pytest.mark.parametrize("word", ["float", "double"])
def test_product_compiles_for_every_kind_of_target(target: Target, packed: bool, word: str) -> None:
    text = product_text("product", target, packed=packed, epilogue=Bias(ARGUMENTS.count), word=word)
    assert "product:" in assembly(text, target, is_vectorized=True)


def test_text_of_a_product_is_the_same_each_time() -> None:
    target = host_target()
    assert tiles_text(target) == tiles_text(target)
    texts = {product_text("product", target, packed=True, epilogue=Bias(ARGUMENTS.count)) for _ in range(2)}
    assert len(texts) == 1


def test_tile_shape_follows_the_vector_unit() -> None:
    lesser = tile_shape(restricted_target("avx512", "amx"))
    assert lesser.columns == lesser.vectors * lesser.lanes
    assert tile_shape(AVX512).rows * tile_shape(AVX512).vectors + tile_shape(AVX512).vectors < 32
    assert tile_shape(AVX2).rows * tile_shape(AVX2).vectors + tile_shape(AVX2).vectors < 16
    for target in (AVX512, AVX2, NEON):
        floats, doubles = tile_shape(target), tile_shape(target, "double")
        assert (doubles.rows, doubles.vectors, 2 * doubles.lanes) == (floats.rows, floats.vectors, floats.lanes)


@pytest.mark.parametrize("shape", [(5, 1), (7, 32), (3, 33), (0, 4), (4, 0), (2, 3, 6, 70)], ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_pack_panels_keeps_every_element_and_pads_with_zeros(shape: tuple[int, ...], dtype: type) -> None:
    matrix = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    packed = pack_panels(matrix, 32)
    *batch, depth, columns = shape
    assert packed.dtype == dtype
    assert not packed.size or packed.ctypes.data % 64 == 0
    assert packed.size == int(np.prod(batch, dtype=int)) * -(-columns // 32) * 32 * depth
    wide = np.moveaxis(packed, -3, -2).reshape(*batch, depth, packed.shape[-3] * 32)
    np.testing.assert_array_equal(wide[..., :columns], matrix)
    assert not wide[..., columns:].any()
