"""What a direct call reads: the words of its records, and where the fields of Python's and numpy's objects lie."""

from __future__ import annotations

import enum

from ort_core.plugin import frozen


class Head(enum.IntEnum):
    """Words of the head: fixed ones, then the names and the element types of the inputs, then the entries."""

    INPUTS = 0
    OUTPUTS = 1
    ENTRIES = 2
    NONE = 3
    DICT_TYPE = 4
    TUPLE_TYPE = 5
    ARRAY_TYPE = 6
    DICT_SIZE = 7
    DICT_GET = 8  # returns what it lends; on builds without an interpreter lock it gives a reference away, by address
    INCREF = 9
    DECREF = 10
    CLEAR_ERROR = 11
    NEW_LIST = 12
    SET_ITEM = 13
    TUPLE_SIZE = 14
    TUPLE_ITEM = 15
    RELEASE_LOCK = 16
    TAKE_LOCK = 17
    NEW_ARRAY = 18
    POOL_RUN = 19
    POOL = 20
    NAMES = 21  # addresses of the three lists below
    TYPES = 22
    LIST = 23
    CALL = 24
    ERROR_SET = 25
    COUNT = 26


class Entry(enum.IntEnum):
    """Words of an entry: one signature, with the one run state that it owns."""

    BUSY = 0
    STEPS = 1
    STEP_COUNT = 2
    WANTED = 3
    ERROR = 4  # address of the word that kernels set when data is out of bounds
    PATCHES = 5  # address of three words each: a word of the argument table, what to add to an address, which array's
    PATCH_COUNT = 6
    SIGNATURE = 7  # address of: for each input, its rank, its sizes and its bytes
    OUTPUTS = 8  # address of OUTPUT_WORDS words for each output
    HOLDS_LOCK = 9
    COUNT = 10


# numpy's type number, its dtype, rank, address of sizes, bytes, which input may lie there (or -1), what makes it (or 0)
OUTPUT_WORDS = 7
MAX_ARRAYS = 160  # inputs and outputs of one call


@frozen
class ArrayLayout:
    """Offsets in bytes into objects: the type in every object, fields of numpy's arrays, the last two of its dtypes."""

    type: int
    data: int
    rank: int
    sizes: int
    dtype: int
    flags: int
    byte_order: int
    type_number: int
