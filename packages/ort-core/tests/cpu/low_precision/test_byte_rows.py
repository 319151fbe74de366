"""The kernel that writes rows as bytes: what tiles read behind the last row are zeros, and nothing else is touched."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_calls import BYTE_TARGETS

from ort_core.cpu.codegen.llvm_ir.emitter import module_text
from ort_core.cpu.codegen.machine_code.jit import compile_module
from ort_core.cpu.codegen.quantized.byte_rows import ARGUMENTS, HEAD_NBYTES, ByteRows, byte_rows_kernel
from ort_core.cpu.codegen.quantized.nbits_product import most_rows_of_tiles
from ort_core.cpu.threads.pool import ThreadPool

MARK = 0x01  # as a float of four: denormal
SPECS = {
    "one byte": ByteRows(96, 32, 4, True),
    "two bytes": ByteRows(96, 32, 4, True, 2),
    "part of a block": ByteRows(77, 16, 8, False, 2),
    "one block": ByteRows(8, 32, 8, False),
}


@pytest.mark.parametrize("machine", BYTE_TARGETS)
@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("threads", [1, 2, 4])
def test_heads_behind_the_last_row_are_zeros(machine: str, name: str, threads: int) -> None:
    target, spec = BYTE_TARGETS[machine](), SPECS[name]
    module = compile_module(module_text([byte_rows_kernel("byte_rows", spec, target)]), target)
    most, pool = most_rows_of_tiles(target, spec.parts), ThreadPool(threads)
    for rows in (1, 2, 3, 5, 7, 8, 9, 16, 17, 21):
        x = np.random.default_rng(rows).standard_normal((rows, spec.depth)).astype(np.float32)
        memory = np.full((rows + most, spec.pitch), MARK, np.uint8)
        words = [x.ctypes.data, memory.ctypes.data, rows, most, 1, 1, rows, 0, 0, spec.depth]
        assert len(words) == ARGUMENTS.count
        table = np.array(words, np.int64)
        steps = np.array([module.address("byte_rows"), table.ctypes.data, 1, 0], np.int64)
        pool.run(int(steps.ctypes.data), 1)
        blocks = memory.reshape(rows + most, spec.parts * spec.blocks, HEAD_NBYTES + spec.block)
        behind = min(2 * rows - 1, most) - 1
        assert not blocks[rows : rows + behind, :, :HEAD_NBYTES].any(), f"{rows} rows"
        assert (blocks[rows:, :, HEAD_NBYTES:] == MARK).all()
        assert (blocks[rows + behind :] == MARK).all()
        scales = blocks[:rows, : spec.blocks, 4:HEAD_NBYTES].copy().view(np.float32)[..., 0]
        padded = np.zeros((rows, spec.blocks * spec.block), np.float32)
        padded[:, : spec.depth] = x
        largest = np.abs(padded.reshape(rows, spec.blocks, spec.block)).max(axis=2)
        np.testing.assert_array_equal(scales, largest / np.float32(127))
    pool.close()


@pytest.mark.parametrize("most", [1, 2, 4, 8, 16])
def test_no_tile_reads_more_rows_than_have_heads(most: int) -> None:
    """A tile is taken where more rows are left than the next smaller one has, whatever part of the rows it is for."""
    widths = [1 << place for place in range(most.bit_length())]
    for rows in range(1, 3 * most):
        for left in range(1, rows + 1):  # what a thread has to the end
            tail = left % most or most
            width = next(each for each in widths if each >= tail)
            assert width - tail <= min(2 * rows - 1, most) - 1
