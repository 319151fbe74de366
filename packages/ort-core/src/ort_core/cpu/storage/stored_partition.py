"""A partition that is one native program as bytes: what ``CpuPartition.remember`` gives and ``recall`` takes."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ort_core.cpu.storage.recalled import RecalledPartition
from ort_core.cpu.storage.stored_program import ALIGNMENT, decode_program, encode_program
from ort_core.cpu.threads.pool import shared_pool
from ort_core.plugin import CompiledPartition, Rejection, ThreadOptions

if TYPE_CHECKING:
    from ort_core.cpu.program.program import NativeProgram

_COUNTS = struct.Struct("<QQ")


def encode_partition(program: NativeProgram, reads: Sequence[int], writes: Sequence[int]) -> list[bytes | memoryview]:
    """Return the bytes: how many reads and writes, their numbers, and, aligned, the program."""
    start = _COUNTS.pack(len(reads), len(writes)) + struct.pack(f"<{len(reads) + len(writes)}q", *reads, *writes)
    return [start + bytes(-len(start) % ALIGNMENT), *encode_program(program)]


def decode_partition(
    content: memoryview, threads: ThreadOptions, compile_anew: Callable[[], CompiledPartition]
) -> CompiledPartition | Rejection:
    """Return the partition, or why the bytes do not fit."""
    try:
        read_count, write_count = _COUNTS.unpack_from(content)
        numbers = struct.unpack_from(f"<{read_count + write_count}q", content, _COUNTS.size)
        at = -(-(_COUNTS.size + 8 * len(numbers)) // ALIGNMENT) * ALIGNMENT
        program = decode_program(content[at:], shared_pool(threads))
    except (OSError, ValueError, KeyError, TypeError, IndexError, struct.error) as error:
        return Rejection(f"the bytes are not a remembered partition: {error}")
    if program is None:
        return Rejection("the program was compiled for another processor or compiler")
    return RecalledPartition(program, numbers[:read_count], numbers[read_count:], compile_anew)
