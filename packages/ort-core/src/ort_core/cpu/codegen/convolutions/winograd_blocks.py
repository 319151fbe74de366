"""Winograd's convolution block by block: what a block of tiles needs stays in the cache of the core that made it.

Stored as a whole, transformed inputs and products take four times the memory of the images, each. Here a thread
transforms a block of its tiles, multiplies them, and transforms them back, before it takes the next. The parts are the
kernels of ``winograd`` and ``matrix_product``, called with argument tables of their own. All convolutions share one
product, compiled by itself. Each group of a grouped convolution is one of its own, of some of the channels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ort_core.cpu.codegen.convolutions.winograd import (
    INPUT_ARGUMENTS,
    OUTPUT_ARGUMENTS,
    PLACES,
    input_kernel,
    output_kernel,
)
from ort_core.cpu.codegen.images.channels_last import Epilogue, ceil_divide, divide, kernel_emitter, share_of
from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, integer, module_text
from ort_core.cpu.codegen.machine_code.target import Target
from ort_core.cpu.codegen.products.matrix_product import ARGUMENTS as PRODUCT
from ort_core.cpu.codegen.products.matrix_product import BATCH_DIMS, product_functions
from ort_core.cpu.codegen.products.microkernel import tile_shape
from ort_core.cpu.codegen.products.packing import panels_shape
from ort_core.plugin import frozen

SCRATCH, SCRATCH_STRIDE, TILES, PRODUCT_CODE, FIRST_PART = range(5)  # of the argument table; parts follow each other
SKEW = 64  # elements between places beyond the tiles: else all places of a tile fall into one set of the cache
LEAST_TILES = 48  # of a block: the product reads all weights once for each block
MOST_TILES = 512
FAR_WEIGHTS = 1 << 17  # input times output channels: more, transformed, are far from every core
FAR_TILES = 128  # of a block then: a core multiplies for 7 ms what it reads in 2
PRODUCT_NAME = "winograd_product"
FLOAT_NBYTES = 4
BALANCED_BLOCKS = 16  # as many at least, where they are large enough: threads end more nearly together


@frozen
class WinogradBlocks:
    """A convolution of 3x3 windows in blocks of tiles.

    Attributes:
        inputs: channels of a group; a multiple of the vector's lanes, as ``outputs``.
        outputs: channels of a group.
        pads: rows above the images and columns left of them.
        tiles: of a block at most.
        is_whole: tiles cover height and width exactly.
        epilogue: what is done before the store.
        x_pixel: elements from one input pixel to the next; ``None``: the channels of all groups, as ``y_pixel``.
        y_pixel: elements from one output pixel to the next.
        groups: how many there are.
    """

    inputs: int
    outputs: int
    pads: tuple[int, int]
    tiles: int
    is_whole: bool
    epilogue: Epilogue | None
    x_pixel: int | None = None
    y_pixel: int | None = None
    groups: int = 1

    @property
    def transformed(self) -> tuple[int, int]:
        """Floats from place to place of a block's transformed inputs and of its products."""
        return self.tiles * self.inputs + SKEW, self.tiles * self.outputs + SKEW

    @property
    def scratch_floats(self) -> int:
        """Floats that a thread needs for both."""
        return PLACES * sum(self.transformed)

    @property
    def facts(self) -> str:
        """All that the kernel's text depends on, the target apart."""
        epilogue = self.epilogue.structure if self.epilogue else ""
        sizes = f"{self.inputs} {self.outputs} {self.groups} {self.pads} {self.tiles} {self.is_whole}"
        return f"{sizes} {self.x_pixel} {self.y_pixel} {epilogue}"


def has_far_weights(inputs: int, outputs: int) -> bool:
    """Return whether transformed weights take much more memory than a core has near it: 8 MiB and more."""
    return inputs * outputs > FAR_WEIGHTS


def block_tiles(inputs: int, outputs: int, target: Target) -> int:
    """Return how many tiles a block has: most of the second cache is used, but not all, unless weights are far."""
    if has_far_weights(inputs, outputs):
        return FAR_TILES
    fitting = target.second_level_nbytes // 2 // (4 * PLACES * (inputs + outputs))
    return max(LEAST_TILES, min(MOST_TILES, fitting // 16 * 16))


def winograd_kernel(name: str, blocks: WinogradBlocks, target: Target) -> list[Emitter]:
    """Return the functions of a convolution in blocks; ``name`` is the kernel.

    Its argument table: the address of ``4 * blocks.scratch_floats`` bytes for each thread, their distance in bytes, the
    number of all tiles, the address of the address of ``product_text``'s kernel, then the tables of the input's
    transform, of the product and of the output's transform.
    """
    x_pixel, y_pixel, epilogue = blocks.x_pixel or blocks.inputs * blocks.groups, blocks.y_pixel, blocks.epilogue
    return [
        *input_kernel(f"{name}.input", blocks.inputs, blocks.pads, target, x_pixel),
        *output_kernel(f"{name}.output", blocks.outputs, epilogue, blocks.is_whole, target, y_pixel, blocks.groups),
        _driver(name, blocks, target),
    ]


def product_text(target: Target) -> str:
    """Return the module with the product that all convolutions call, ``PRODUCT_NAME``."""
    return module_text(product_functions(PRODUCT_NAME, target, packed=True))


def _driver(name: str, blocks: WinogradBlocks, target: Target) -> Emitter:
    """Return the walk of a thread through its blocks, which are nearly equal, and the same for each thread count.

    The blocks of a group follow each other, so that its weights stay near.
    """
    e = kernel_emitter(name)
    args = e.parameter("args")
    own = e.mul(e.parameter("thread"), e.argument(args, SCRATCH_STRIDE))
    v = e.element(e.argument(args, SCRATCH, "ptr"), own, "i8")
    places = [integer(each) for each in blocks.transformed]
    m = e.element(v, PLACES * blocks.transformed[0])
    operand_words = sum(operand.words for operand in blocks.epilogue.operands) if blocks.epilogue else 0
    sizes = (INPUT_ARGUMENTS.count, PRODUCT.count, OUTPUT_ARGUMENTS.epilogue + operand_words)
    transform, product, back = _tables(e, args, sizes)
    v_address, m_address = (e.assign("i64", f"ptrtoint ptr {pointer.text} to i64") for pointer in (v, m))
    _write(e, transform, {INPUT_ARGUMENTS.v: v_address, INPUT_ARGUMENTS.place_stride: places[0]})
    batches = {PRODUCT.a_batch + BATCH_DIMS - 1: places[0], PRODUCT.c_batch + BATCH_DIMS - 1: places[1]}
    _write(e, product, {PRODUCT.a: v_address, PRODUCT.c: m_address, **batches})
    _write(e, back, {OUTPUT_ARGUMENTS.m: m_address, OUTPUT_ARGUMENTS.place_stride: places[1]})
    tiles, multiply = e.argument(args, TILES), e.load("ptr", e.argument(args, PRODUCT_CODE, "ptr"))
    balanced = e.minimum(e.udiv(tiles, LEAST_TILES), -(-BALANCED_BLOCKS // blocks.groups))
    blocks_count = e.maximum(e.maximum(ceil_divide(e, tiles, blocks.tiles), balanced), 1)
    starts = _starts(e, args, (transform, product, back), blocks, target)
    with share_of(e, e.mul(blocks_count, blocks.groups)) as item:
        group, block = divide(e, item, blocks_count) if blocks.groups > 1 else (integer(0), item)
        for table, entry, start, nbytes in starts:
            e.store(e.add(start, e.mul(group, nbytes)), e.element(table, entry, "i64"))
        first, end = (e.udiv(e.mul(tiles, each), blocks_count) for each in (block, e.add(block, 1)))
        count = e.sub(end, first)
        _write(e, transform, {INPUT_ARGUMENTS.tiles: count, INPUT_ARGUMENTS.first: first})
        _write(e, product, {PRODUCT.m: count})
        _write(e, back, {OUTPUT_ARGUMENTS.tiles: count, OUTPUT_ARGUMENTS.first: first})
        share = (integer(0), integer(1), e.parameter("thread"))
        e.call_void(f"{name}.input", transform, *share)
        e.line(f"call void {multiply.text}({', '.join(a.typed for a in (product, *share))})")
        e.call_void(f"{name}.output", back, *share)
    return e


def _tables(e: Emitter, args: IRValue, sizes: Sequence[int]) -> list[IRValue]:
    """Append this thread's own copies of the parts' tables: blocks change addresses and sizes in them."""
    tables, at = [], FIRST_PART
    for words in sizes:
        given, table = e.element(args, at, "i64"), e.variable(f"[{words} x i64]")
        with e.loop(0, integer(words), unroll=False) as i:
            e.store(e.load("i64", e.element(given, i, "i64")), e.element(table, i, "i64"))
        tables.append(table)
        at += words
    return tables


def _write(e: Emitter, table: IRValue, values: dict[int, IRValue]) -> None:
    for entry, value in values.items():
        e.store(value, e.element(table, entry, "i64"))


def _starts(
    e: Emitter, args: IRValue, tables: Sequence[IRValue], blocks: WinogradBlocks, target: Target
) -> list[tuple[IRValue, int, IRValue, int]]:
    """Append loads of all addresses that change with the group: table, entry, address of group 0, bytes of a group."""
    if blocks.groups == 1:
        return []
    transform, product, back = tables
    epilogue, panel = blocks.epilogue, tile_shape(target).columns
    weights = PLACES * math.prod(panels_shape((blocks.inputs, blocks.outputs), panel))
    result_nbytes = FLOAT_NBYTES if epilogue is None or epilogue.stored == "float" else FLOAT_NBYTES // 2
    found = [
        (transform, INPUT_ARGUMENTS.x, FLOAT_NBYTES * blocks.inputs),
        (product, PRODUCT.b, FLOAT_NBYTES * weights),
        (back, OUTPUT_ARGUMENTS.y, result_nbytes * blocks.outputs),
    ]
    for entry in epilogue.entries(OUTPUT_ARGUMENTS.epilogue) if epilogue else ():
        found.append((back, entry, FLOAT_NBYTES * blocks.outputs))
    return [(table, entry, e.load("i64", e.element(table, entry, "i64")), nbytes) for table, entry, nbytes in found]
