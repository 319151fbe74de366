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
    OPEN = 26  # address of what takes signatures that no entry has, or 0
    NUMBERS = 27  # inputs that are one int32 each, which belongs to the signature
    NUMBER_COUNT = 28
    COUNT = 29


class Entry(enum.IntEnum):
    """Words of an entry: one signature, with the one run state that it owns; or a table of ``Open``."""

    BUSY = 0  # of a table nobody asks: ``Open`` has one
    STEPS = 1
    STEP_COUNT = 2
    WANTED = 3
    ERROR = 4  # address of the word that kernels set when data is out of bounds
    PATCHES = 5  # address of three words each: a word of the argument table, what to add to an address, which array's
    PATCH_COUNT = 6
    SIGNATURE = 7  # address of: for each input, its rank, its sizes and its bytes; then the numbers
    OUTPUTS = 8  # address of OUTPUT_WORDS words for each output
    HOLDS_LOCK = 9
    TABLE = 10  # address of the argument table; this and what follows only of a table of ``Open``
    STAMP = 11  # when it was used last
    MAKERS = 12  # address of what makes each large output
    COUNT = 13


class Open(enum.IntEnum):
    """Words of what takes any signature: see ``open_program``; lists are addresses of rows of words.

    What is written in a run belongs to the thread that has set ``BUSY``.
    """

    BUSY = 0
    CLOCK = 1  # counts runs
    TABLES = 2  # the entries
    TABLE_COUNT = 3
    ROWS = 4  # operation, a, b
    ROW_COUNT = 5
    REGISTERS = 6
    RANKS = 7  # of the inputs of the call
    ITEM_SIZES = 8  # of its inputs, then of its outputs
    SHAPES = 9  # registers of the sizes of its outputs, one after the other
    BASED = 10  # position, register, address
    BASED_COUNT = 11
    ARENA = 12  # position, register, slot
    ARENA_COUNT = 13
    SLOTS = 14  # register, how many of it, whether limits count it
    SLOT_COUNT = 15
    OFFSETS = 16  # of the slots
    PATCHED = 17  # for each patch of a table the register of what it adds
    START = 18  # of the arena
    CAPACITY = 19
    NEEDED = 20
    RESIZE = 21  # a function of Python that makes the arena as large as is needed
    NBYTES = 22  # that the run takes, as limits count it
    MOST_NBYTES = 23
    LEASED = 24  # bytes of large outputs of the run
    WORK = 25  # registers
    WORK_COUNT = 26
    IS_SHARED = 27  # whether there are several threads
    ORDERS = 28  # addresses of the least work of each step, of the most, and of the flags for work between them
    ORDER_COUNT = 29
    COUNT = 30


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
