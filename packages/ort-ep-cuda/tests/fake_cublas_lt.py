"""cuBLASLt as its documentation defines it, over this machine's memory, in the form of nvmath-python's binding.

Matrices lie column by column. Attributes are refused where their sizes are not those of the real library, algorithms
where they are none of those that heuristics have given.
"""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np

TYPES = {0: np.dtype(np.float32), 2: np.dtype(np.float16), 14: np.dtype(ml_dtypes.bfloat16)}
RECORD = np.dtype(
    [("algo", [("data_", "<u8", (8,))]), ("workspace_size", "<u8"), ("state", "<i4"), ("waves_count", "<f4"),
     ("reserved", "<i4", (4,))]
)  # fmt: skip
DESCRIPTION_SIZES = {3: 4, 4: 4, 7: 4, 8: 8}
LAYOUT_SIZES = {5: 4, 6: 8}
PREFERENCE_SIZES = {1: 8, 3: 4, 5: 4, 6: 4, 7: 4, 8: 4}


class FakeLtError(Exception):
    """As cuBLASLtError: no RuntimeError."""


@dataclass
class Thing:
    """A descriptor: what it was made of, and its attributes."""

    facts: tuple
    attributes: dict[int, int] = field(default_factory=dict)


class Results:
    """MatmulHeuristicResult: records in memory."""

    def __init__(self, count: int = 1) -> None:
        self.records = np.zeros(count, RECORD)
        self.ptr = self.records.ctypes.data


class FakeCublasLt:
    """The library. ``algorithms``: number and scratch bytes of what heuristics find; none of ``refused`` epilogues."""

    cuBLASLtError = FakeLtError  # noqa: N815 - the binding's name
    MatmulHeuristicResult = Results
    matmul_heuristic_result_dtype = RECORD

    def __init__(self, algorithms=((7, 0), (8, 4096)), refused=()) -> None:
        self.algorithms, self.refused = dict(algorithms), set(refused)
        self.failing: set[int] = set()
        self.alive: dict[int, Thing] = {}
        self.preferences: list[dict[int, int]] = []
        self.calls: list[dict] = []
        self._next = 100

    def get_version(self) -> int:
        return 131000

    def create(self) -> int:
        return self._make("handle")

    def destroy(self, made: int) -> None:
        del self.alive[made]

    matmul_desc_destroy = matrix_layout_destroy = matmul_preference_destroy = destroy

    def matmul_desc_create(self, compute: int, scale: int) -> int:
        return self._make("description", compute, scale)

    def matrix_layout_create(self, kind: int, rows: int, columns: int, leading: int) -> int:
        assert leading >= rows, "columns of a matrix overlap"
        return self._make("layout", kind, rows, columns, leading)

    def matmul_preference_create(self) -> int:
        made = self._make("preference")
        self.preferences.append(self.alive[made].attributes)
        return made

    def matmul_desc_set_attribute(self, made: int, attribute: int, address: int, nbytes: int) -> None:
        self._set(made, attribute, address, nbytes, DESCRIPTION_SIZES)

    def matrix_layout_set_attribute(self, made: int, attribute: int, address: int, nbytes: int) -> None:
        self._set(made, attribute, address, nbytes, LAYOUT_SIZES)

    def matmul_preference_set_attribute(self, made: int, attribute: int, address: int, nbytes: int) -> None:
        self._set(made, attribute, address, nbytes, PREFERENCE_SIZES)

    def matmul_algo_get_heuristic(self, handle, description, a, b, c, d, preference, wanted, results, count) -> None:
        assert [self.alive[x].facts[0] for x in (handle, description, a, b, c, d, preference)] == [
            "handle", "description", *["layout"] * 4, "preference",
        ]  # fmt: skip
        found = [] if self.alive[description].attributes[7] in self.refused else list(self.algorithms.items())[:wanted]
        records = _memory(results, RECORD, wanted)
        for record, (number, scratch) in zip(records, found, strict=False):
            record["algo"]["data_"][:2] = (number, 0xABCD)
            record["workspace_size"] = scratch
        _memory(count, np.dtype(np.int32), 1)[0] = len(found)

    def matmul_algo_check(self, handle, description, a, b, c, d, algorithm, result) -> None:
        number = int(_memory(algorithm, np.dtype(np.uint64), 8)[0])
        if number not in self.algorithms:
            raise FakeLtError("an unsupported value or parameter was passed to the function")
        _memory(result, RECORD, 1)[0]["workspace_size"] = self.algorithms[number]

    def matmul(
        self, handle, description, alpha, a, a_layout, b, b_layout, beta, c, c_layout, d, d_layout, algorithm, scratch,
        scratch_nbytes, stream,
    ) -> None:  # fmt: skip
        code = _memory(algorithm, np.dtype(np.uint64), 8)
        number, attributes = int(code[0]), self.alive[description].attributes
        assert code[1] == 0xABCD, "the algorithm's bytes are not those that heuristics gave"
        assert scratch_nbytes == self.algorithms[number]
        assert bool(scratch) == bool(scratch_nbytes)
        if number in self.failing:
            raise FakeLtError("the algorithm does not run here")
        compute, _ = self.alive[description].facts[1:]
        self.calls.append({"algorithm": number, "epilogue": attributes[7], "compute": compute, "stream": stream})
        scale, keep = (float(_memory(place, np.dtype(np.float32), 1)[0]) for place in (alpha, beta))
        batch = self.alive[d_layout].attributes.get(5, 1)
        for step in range(batch):
            left, right = self._matrix(a, a_layout, step), self._matrix(b, b_layout, step)
            left = left.T if attributes.get(3, 0) else left
            right = right.T if attributes.get(4, 0) else right
            result = scale * (left.astype(np.float32) @ right.astype(np.float32))
            if keep:
                result = result + keep * self._matrix(c, c_layout, step).astype(np.float32)
            self._matrix(d, d_layout, step)[...] = self._finished(result, attributes)

    def _finished(self, result: np.ndarray, attributes: dict[int, int]) -> np.ndarray:
        """The epilogue: 4 adds a bias along rows, 2 is ReLU, 32 the GELU with ``tanh``."""
        epilogue = attributes[7]
        if epilogue & 4:
            bias = _memory(attributes[8], self.out_type, result.shape[0]).astype(np.float32)
            result = result + bias[:, None]
        if epilogue & 2:
            result = np.maximum(result, 0)
        if epilogue & 32:
            result = result * (1 + np.tanh(math.sqrt(2 / math.pi) * (result + 0.044715 * result**3))) / 2
        return result

    def _matrix(self, address: int, layout: int, step: int) -> np.ndarray:
        """The matrix of a batch as a view, rows first."""
        kind, rows, columns, leading = self.alive[layout].facts[1:]
        dtype, attributes = TYPES[kind], self.alive[layout].attributes
        self.out_type = dtype
        first = address + step * attributes.get(6, 0) * dtype.itemsize
        flat = _memory(first, dtype, (columns - 1) * leading + rows)
        item = dtype.itemsize
        return np.lib.stride_tricks.as_strided(flat, (rows, columns), (item, leading * item))

    def _make(self, *facts) -> int:
        self._next += 1
        self.alive[self._next] = Thing(facts)
        return self._next

    def _set(self, made: int, attribute: int, address: int, nbytes: int, sizes: dict[int, int]) -> None:
        if sizes.get(attribute) != nbytes:
            raise FakeLtError(f"attribute {attribute} has {sizes.get(attribute)} bytes, not {nbytes}")
        kind = np.int64 if nbytes == 8 else np.int32
        self.alive[made].attributes[attribute] = int(_memory(address, np.dtype(kind), 1)[0])


def _memory(address: int, dtype: np.dtype, count: int) -> np.ndarray:
    return np.ctypeslib.as_array((ctypes.c_uint8 * (count * dtype.itemsize)).from_address(address)).view(dtype)
