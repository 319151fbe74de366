"""Constant right sides of matrix products: in panels of floats, doubles or bfloat16, with the kernels of each."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from ort_core.cpu.codegen.llvm_ir import matrix_tiles
from ort_core.cpu.codegen.llvm_ir.deferred_kernel import DeferredKernel, deferred_kernel
from ort_core.cpu.codegen.llvm_ir.scalar_printer import TYPES
from ort_core.cpu.codegen.machine_code.code_cache import compiled_for_target, noted
from ort_core.cpu.codegen.machine_code.code_table import code_table
from ort_core.cpu.codegen.machine_code.compiled_module import CompiledModule
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.products.bfloat16_product import (
    bfloat16_functions,
    has_pair_products,
    least_piece_sums,
    pack_pairs,
    pair_table,
    pair_tiles_text,
    pairs_shape,
    split_table,
    split_tiles_text,
    tiled_table,
    tiled_text,
)
from ort_core.cpu.codegen.products.bfloat16_tiles import PAIR, has_tile_products
from ort_core.cpu.codegen.products.expression_epilogue import ExpressionEpilogue
from ort_core.cpu.codegen.products.matrix_product import product_functions
from ort_core.cpu.codegen.products.microkernel import tile_shape, tile_table, tiles_text
from ort_core.cpu.codegen.products.packing import aligned_empty, pack_panels, panels_shape
from ort_core.cpu.lowering.lowering import Lowering
from ort_core.cpu.lowering.views import Buffer, Place
from ort_core.plugin.ir import DataType

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


@dataclass(frozen=True, slots=True, eq=False)
class Panels:
    """A packed matrix; ``words`` are floats, doubles, or pairs of bfloat16."""

    words: np.ndarray
    is_bfloat16: bool = False


def float_panels(lowering: Lowering, constant: np.ndarray, dtype: DataType = DataType.FLOAT) -> Panels:
    """Return ``[k, n]`` packed as float32, or as float64."""
    width, real = tile_shape(lowering.target, TYPES[dtype]).columns, dtype.numpy
    words = lowering.weights.packed(
        constant, f"panels {width} {dtype.text}", lambda: aligned_empty(panels_shape(constant.shape, width), real),
        lambda out: pack_panels(np.asarray(constant, real), width, out),
    )  # fmt: skip
    return Panels(words)


def weight_panels(lowering: Lowering, constant: np.ndarray, dtype: DataType = DataType.FLOAT) -> Panels:
    """Return a model's weights ``[k, n]`` packed: as bfloat16 where they are that, or where the user asked for it."""
    if dtype is DataType.DOUBLE or (constant.dtype != BFLOAT16 and not lowering.uses_bfloat16):
        return float_panels(lowering, constant, dtype)
    width = tile_shape(lowering.target).columns
    step = matrix_tiles.ROWS if has_tile_products(lowering.target) else 1
    words = lowering.weights.packed(
        constant, f"bfloat16 panels {width} {step}", lambda: aligned_empty(pairs_shape(constant.shape, width, step)),
        lambda out: pack_pairs(constant, width, out),
    )  # fmt: skip
    return Panels(words, is_bfloat16=True)


def least_piece_flops(target: Target, panels: Panels | None) -> int:
    """Return how many operations a piece of a product has at least, lest rounding take much of its time; 0: any."""
    if panels is None or not panels.is_bfloat16:
        return 0
    _, depth, _ = panels.words.shape
    return 2 * PAIR * depth * least_piece_sums(target)


def product_kernel(
    target: Target, panels: Panels | None, epilogue: ExpressionEpilogue | None, dtype: DataType = DataType.FLOAT
) -> DeferredKernel:
    """Return the kernel of a product with packed panels, or with a matrix known only at run time (``None``)."""
    structure = epilogue.structure if epilogue else ""
    if panels is not None and panels.is_bfloat16:
        return deferred_kernel(
            "product_bfloat16",
            structure,
            lambda name: bfloat16_functions(name, target, epilogue=epilogue),
            is_vectorized=True,
        )
    packed, word = panels is not None, TYPES[dtype]
    return deferred_kernel(
        "product" if word == "float" else f"product_{word}", f"{packed} {structure}",
        lambda name: product_functions(name, target, packed=packed, epilogue=epilogue, word=word), is_vectorized=True,
    )  # fmt: skip


def tile_table_buffer(target: Target, *, in_bfloat16: bool = False) -> Buffer:
    """Return the constant that holds the addresses of a target's microkernels, for products of pairs if it has them."""
    if in_bfloat16 and has_tile_products(target):
        return _table_buffer(_tiled(target))
    return _table_buffer((_pair_tiles if in_bfloat16 and has_pair_products(target) else _tiles)(target))


def panels_table_buffer(target: Target, panels: Panels | None, dtype: DataType = DataType.FLOAT) -> Buffer:
    """Return the constant that holds the addresses of the microkernels that ``product_kernel`` calls."""
    if dtype is DataType.DOUBLE:
        return _table_buffer(_double_tiles(target))
    if panels is None or not panels.is_bfloat16:
        return tile_table_buffer(target)
    if has_tile_products(target):
        return _table_buffer(_tiled(target))
    return _table_buffer((_pair_tiles if has_pair_products(target) else _split_tiles)(target))


def attention_table_buffer(target: Target, *, in_pairs: bool) -> Buffer:
    """Return the constant that holds the addresses that an attention's ``tiles`` points to."""
    if not in_pairs:
        return tile_table_buffer(target)
    module, _ = _pair_tiles(target)
    return _table_buffer((module, _attention_table(target)))


def attention_tiles_buffer(target: Target) -> Buffer:
    """Return the constant that holds the addresses that ``tiles`` of an attention in registers of tiles points to."""
    return _table_buffer(_attention_tiles(target))


def winograd_product_buffer(target: Target) -> Buffer:
    """Return the constant that holds the address of the product that convolutions by Winograd's algorithm call."""
    return _table_buffer(_winograd_product(target))


def _table_buffer(tiles: tuple[CompiledModule, np.ndarray]) -> Buffer:
    module, table = tiles
    noted(module)
    return Buffer(DataType.INT64, 0, Place.CONSTANT, 0, table)


@functools.cache
def _tiles(target: Target) -> tuple[CompiledModule, np.ndarray]:
    """Return the addresses of the microkernels with the module, which owns their code."""
    module = compiled_for_target("tiles", tiles_text, target, is_common=True)
    return module, tile_table(module, target)


@functools.cache
def _double_tiles(target: Target) -> tuple[CompiledModule, np.ndarray]:
    word = TYPES[DataType.DOUBLE]
    module = compiled_for_target("double_tiles", lambda machine: tiles_text(machine, word), target)
    return module, tile_table(module, target)


@functools.cache
def _winograd_product(target: Target) -> tuple[CompiledModule, np.ndarray]:
    from ort_core.cpu.codegen.convolutions.winograd_blocks import PRODUCT_NAME, product_text  # of images alone

    module = compiled_for_target("winograd_product", product_text, target)
    return module, code_table(module, [PRODUCT_NAME])


@functools.cache
def _pair_tiles(target: Target) -> tuple[CompiledModule, np.ndarray]:
    module = compiled_for_target("pair_tiles", pair_tiles_text, target)
    return module, pair_table(module, target)


@functools.cache
def _tiled(target: Target) -> tuple[CompiledModule, np.ndarray]:
    module = compiled_for_target("bfloat16_tiles", tiled_text, target)
    return module, tiled_table(module)


@functools.cache
def _attention_table(target: Target) -> np.ndarray:
    from ort_core.cpu.codegen.attention.attention_pairs import attention_pair_table  # few models need it

    return attention_pair_table(_pair_tiles(target)[0], target)


@functools.cache
def _attention_tiles(target: Target) -> tuple[CompiledModule, np.ndarray]:
    from ort_core.cpu.codegen.attention.attention_tiles import attention_tile_table, attention_tiles_text

    module = compiled_for_target("attention_tiles", attention_tiles_text, target)
    return module, attention_tile_table(module)


@functools.cache
def _split_tiles(target: Target) -> tuple[CompiledModule, np.ndarray]:
    module = compiled_for_target("split_tiles", split_tiles_text, target)
    return module, split_table(module, target)
