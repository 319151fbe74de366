"""A native program as bytes, its constants and machine code inside: what a session is recalled from without a graph.

Layout: the length of a JSON head, the head, and, aligned, arrays: tables of numbers, constants in the order in which
kernels read them, object files. Constants stay where the bytes lie, so a recalled program packs and copies nothing.
Large ones that no kernel wanted in an order of its own lie in the model's file: tables of which a run picks few rows.
They stay there; the program knows which file it was, and in which state.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ort_core.cpu.codegen.machine_code.code_cache import adopt, names_of
from ort_core.cpu.codegen.machine_code.code_table import CodeTable, code_table
from ort_core.cpu.codegen.machine_code.host_key import host_key
from ort_core.cpu.guarded.choose import new_program
from ort_core.cpu.program.order import StepOrder
from ort_core.cpu.program.program_record import ProgramRecord
from ort_core.cpu.program.relocations import Relocations
from ort_core.cpu.program.sizes import Binding, SizeProgram, Types
from ort_core.plugin.ir import DataType, KnownDim, dim_from_data, dim_to_data
from ort_core.plugin.memory import map_few_pages, map_place, place_of

if TYPE_CHECKING:
    import numpy.typing as npt

    from ort_core.cpu.codegen.machine_code.compiled_module import CompiledModule
    from ort_core.cpu.program.program import NativeProgram
    from ort_core.cpu.threads.pool import ThreadPool

ALIGNMENT = 64
MIN_PICKED_NBYTES = 1 << 21  # a large page
_LENGTH = struct.Struct("<Q")
PlainData = Any  # Any: nested lists and dicts, as JSON has them


def encode_program(program: NativeProgram) -> tuple[bytes | memoryview, ...]:
    """Return a program as bytes, in parts to be joined; constants are not copied."""
    record, blob = program.record, _Blob()
    relocations = record.relocations
    tables = [each for each in relocations.arrays if isinstance(each, CodeTable)]
    named = names_of([*program.modules, *(table.module for table in tables)])
    numbers = {id(module): number for number, module in enumerate(named.values())}
    head = {
        "host": host_key(),
        "inputs": [record.inputs, _types_to_data(record.input_types)],
        "outputs": [record.outputs, _types_to_data(record.output_types)],
        "bindings": [[b.atom, b.index, b.axis, b.sign, dim_to_data(b.rest)] for b in record.bindings],
        "equal": [[dim_to_data(left), dim_to_data(right)] for left, right in record.equal],
        "declared": record.declared.to_data(),
        "sizes": record.sizes.to_data(),
        "counts": [record.argument_count, record.outputs_at, record.work_at],
        "per_thread": record.per_thread,
        "fixed": record.fixed,
        "order": [[sorted(each) for each in sets] for sets in (record.order.reads, record.order.writes)],
        "whole": sorted(record.order.whole),
        "parts": record.order.parts,
        "bounded": record.order.bounded,
        "least_pieces": list(record.order.least_pieces.items()),
        "in_place": list(record.in_place.items()),
        "kernels": [[numbers[id(program.modules[module])], name] for module, name in program.kernels],
        "starts": blob.add(record.starts),
        "input_places": [blob.add(each) for each in relocations.inputs],
        "output_places": [[blob.add(each) for each in groups] for groups in relocations.outputs],
        "places": [
            blob.add(each)
            for each in (
                relocations.errors, relocations.arena, relocations.arena_slots, relocations.constants,
                relocations.constant_numbers,
            )
        ],
        "constants": [
            [numbers[id(each.module)], each.names] if isinstance(each, CodeTable) else _constant_to_data(each, blob)
            for each in relocations.arrays
        ],
        "modules": [[name.hex(), blob.add(np.frombuffer(m.object_code, np.uint8))] for name, m in named.items()],
    }  # fmt: skip
    text = json.dumps(head).encode()
    start = _LENGTH.pack(len(text)) + text
    return (start + bytes(-len(start) % ALIGNMENT), *blob.parts)


def decode_program(content: memoryview, pool: ThreadPool) -> NativeProgram | None:
    """Return the program in bytes that lie aligned; ``None`` when it was compiled for another host.

    Raises:
        OSError: the file of the model is another.
        ValueError, KeyError, TypeError, IndexError: the content is not what ``encode_program`` gave.
    """
    (length,) = _LENGTH.unpack_from(content)
    head = json.loads(bytes(content[_LENGTH.size : _LENGTH.size + length]))
    if head["host"] != host_key():
        return None
    blob = content[-(-(_LENGTH.size + length) // ALIGNMENT) * ALIGNMENT :]
    modules = [adopt(bytes.fromhex(name), bytes(_bytes_at(blob, where))) for name, where in head["modules"]]
    return new_program(
        _record(head, blob, modules), pool, modules, [(int(m), str(name)) for m, name in head["kernels"]]
    )


def _record(head: dict[str, PlainData], blob: memoryview, modules: Sequence[CompiledModule]) -> ProgramRecord:
    def words(where: PlainData) -> np.ndarray:
        return _array_at(blob, where, np.int64)

    errors, arena, arena_slots, constants, constant_numbers = map(words, head["places"])
    arrays = tuple(_constant(each, blob, modules) for each in head["constants"])
    relocations = Relocations.with_arrays(
        tuple(words(each) for each in head["input_places"]),
        tuple(tuple(words(each) for each in groups) for groups in head["output_places"]),
        errors, arena, arena_slots, constants, constant_numbers,
        arrays,
    )  # fmt: skip
    argument_count, outputs_at, work_at = head["counts"]
    reads, writes = head["order"]
    (inputs, input_types), (outputs, output_types) = head["inputs"], head["outputs"]
    return ProgramRecord(
        tuple(inputs),
        _types_from_data(input_types),
        tuple(outputs),
        _types_from_data(output_types),
        tuple(Binding(atom, index, axis, sign, _size(rest)) for atom, index, axis, sign, rest in head["bindings"]),
        tuple((_size(left), _size(right)) for left, right in head["equal"]),
        SizeProgram.from_data(head["declared"]),
        SizeProgram.from_data(head["sizes"]),
        words(head["starts"]),
        argument_count,
        outputs_at,
        work_at,
        tuple(head["per_thread"]),
        tuple(head["fixed"]),
        relocations,
        StepOrder(reads, writes, head["parts"], head["whole"], head["bounded"], dict(head["least_pieces"])),
        dict(head["in_place"]),
    )


def _constant_to_data(array: np.ndarray, blob: _Blob) -> PlainData:
    """Return where a constant lies: among the bytes, or, with the file's name and state, in the file of the model."""
    is_large = array.nbytes >= MIN_PICKED_NBYTES and array.flags.c_contiguous
    place = place_of(array) if is_large else None
    return blob.add(array) if place is None else [*place, array.nbytes]


class _Blob:
    """Takes arrays, each on a boundary of its own; ``add`` returns where one lies: offset and length."""

    def __init__(self) -> None:
        self.parts: list[bytes | memoryview] = []
        self._nbytes = 0

    def add(self, array: np.ndarray) -> tuple[int, int]:
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        place = (self._nbytes, len(data))
        padding = bytes(-len(data) % ALIGNMENT)
        self.parts.extend((data, padding))
        self._nbytes += len(data) + len(padding)
        return place


def _bytes_at(blob: memoryview, where: Sequence[int]) -> memoryview:
    offset, length = where
    if not 0 <= offset <= offset + length <= len(blob):
        raise ValueError(f"{length} bytes at {offset} lie outside of {len(blob)}")
    return blob[offset : offset + length]


def _array_at(blob: memoryview, where: Sequence[int], dtype: npt.DTypeLike) -> np.ndarray:
    found = _bytes_at(blob, where)
    return np.frombuffer(found, dtype) if len(found) else np.empty(0, dtype)  # frombuffer refuses to see nothing


def _constant(data: PlainData, blob: memoryview, modules: Sequence[CompiledModule]) -> np.ndarray:
    if len(data) == 4:
        path, stamp, offset, nbytes = data
        picked = np.frombuffer(map_place((path, tuple(stamp), offset), nbytes), np.uint8)
        map_few_pages(picked)
        return picked
    first, second = data  # of a table of functions: the number of their module, and their names
    return code_table(modules[first], second) if isinstance(second, list) else _array_at(blob, data, np.uint8)


def _types_to_data(types: Types) -> PlainData:
    return [[int(dtype), [dim_to_data(size) for size in shape]] for dtype, shape in types]


def _types_from_data(data: PlainData) -> Types:
    return [(DataType(dtype), tuple(_size(size) for size in shape)) for dtype, shape in data]


def _size(data: PlainData) -> KnownDim:
    size = dim_from_data(data)
    if size is None:
        raise ValueError("a size is missing")
    return size
