"""Values for an input: what fits, in every form that a program may hold it, and what does not."""

from __future__ import annotations

import array
from collections import OrderedDict, UserDict
from random import Random

import ml_dtypes
import numpy as np

TYPES = {
    "float": np.float32,
    "double": np.float64,
    "float16": np.float16,
    "bool": np.bool_,
    "bfloat16": ml_dtypes.bfloat16,
    "float8e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8e5m2": ml_dtypes.float8_e5m2,
    "int4": ml_dtypes.int4,
    "uint4": ml_dtypes.uint4,
    **{
        name: np.dtype(name).type for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
    },
}
TEXTS = ["", "a", "ä€😀", "a\0b", "a\0", " ", "x" * 100, "line\nline"]


class Own(np.ndarray):
    """A subclass of arrays."""


class Exporter:
    """An array that shows its memory by DLPack only."""

    def __init__(self, held: np.ndarray) -> None:
        self.held = held

    def __dlpack__(self, **arguments: object) -> object:
        return self.held.__dlpack__(**arguments)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


class Arrayish:
    """An object with ``__array__`` only."""

    def __init__(self, held: np.ndarray) -> None:
        self.held = held

    def __array__(self, dtype: object = None, copy: bool | None = None) -> np.ndarray:
        return self.held


def plain(draw: Random, element_type: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return an ordinary array of small numbers or of texts."""
    count = int(np.prod(shape))
    if element_type == "string":
        made = np.empty(count, object)
        made[:] = [draw.choice(TEXTS) for _ in range(count)]
        return made.reshape(shape)
    numbers = np.array([draw.randint(0, 6) for _ in range(count)], np.float64)
    return numbers.astype(TYPES[element_type]).reshape(shape)


def as_it_is(draw, value):
    return value


def fortran(draw, value):
    return np.asfortranarray(value)


def strided(draw, value):
    return np.repeat(value, 2, axis=-1)[..., ::2] if value.ndim else value


def backward(draw, value):
    return np.ascontiguousarray(value[::-1])[::-1] if value.ndim else value


def broadcast(draw, value):
    return np.broadcast_to(value.reshape(-1)[:1].reshape((1,) * value.ndim), value.shape) if value.size else value


def read_only(draw, value):
    made = value.copy()
    made.flags.writeable = False
    return made


def swapped(draw, value):
    return value.astype(value.dtype.newbyteorder(">"))


def subclass(draw, value):
    return value.view(Own)


def masked(draw, value):
    return np.ma.masked_array(value, mask=np.zeros(value.shape, bool))


def matrix(draw, value):
    return np.matrix(value) if value.ndim == 2 else value


def memory(draw, value):
    return memoryview(np.ascontiguousarray(value)) if value.dtype.isbuiltin == 1 else value


def listed(draw, value):
    return value.tolist()


def tupled(draw, value):
    return tuple(value.tolist()) if value.ndim else value.tolist()


def rows(draw, value):
    return list(value) if value.ndim else value


def numpy_scalar(draw, value):
    return value[()] if value.ndim == 0 else value


def objects(draw, value):
    return value.astype(object)


def unaligned(draw, value):
    if value.dtype == object:
        return value
    room = np.zeros(value.nbytes + 1, np.uint8)
    made = room[1:].view(value.dtype).reshape(value.shape)
    made[...] = value
    return made


def field(draw, value):
    room = np.zeros(value.shape, [("a", np.int8), ("b", value.dtype)])
    room["b"] = value
    return room["b"]


def unicode_array(draw, value):
    return value.astype("U") if value.dtype == object else value


def bytes_array(draw, value):
    if value.dtype != object:
        return value
    return np.array([each.encode() for each in value.reshape(-1)], "S").reshape(value.shape) if value.size else value


def bytes_objects(draw, value):
    if value.dtype != object:
        return value
    made = np.empty(value.size, object)
    made[:] = [each.encode() for each in value.reshape(-1)]
    return made.reshape(value.shape)


def string_dtype(draw, value):
    return value.astype(np.dtypes.StringDType()) if value.dtype == object else value


def surrogate(draw, value):
    if value.dtype != object or not value.size:
        return value
    made = value.copy()
    made.reshape(-1)[0] = draw.choice(["\ud800", "a\udcff"])
    return made


def bad_bytes(draw, value):
    if value.dtype != object or not value.size:
        return value
    made = value.copy()
    made.reshape(-1)[0] = b"\xff\xfe"
    return made


def mixed_objects(draw, value):
    made = value.astype(object)
    if made.size:
        made.reshape(-1)[0] = draw.choice([None, 1, 2.5, "a", b"b", True, np.float32(3), np.str_("s"), [1]])
    return made


def exporter(draw, value):
    return Exporter(value)


def arrayish(draw, value):
    return Arrayish(value)


def other_type(draw, value):
    wanted = draw.choice([np.float32, np.float64, np.int64, np.int32, np.uint8, np.bool_, np.complex64, np.float16])
    return np.ones(value.shape, wanted)


def longdouble(draw, value):
    return np.ones(value.shape, np.longdouble)


def dates(draw, value):
    return np.zeros(value.shape, draw.choice(["M8[s]", "m8[s]"]))


def bits(draw, value):
    return value.view(f"u{value.itemsize}") if value.dtype != object and value.itemsize < 3 else value


def record(draw, value):
    return np.zeros(value.shape, [("a", np.int8), ("b", np.float32)])


def void(draw, value):
    return np.zeros(value.shape, "V4")


def one_axis_more(draw, value):
    return value[None]


def one_axis_less(draw, value):
    return value[0] if value.ndim and value.shape[0] else value.reshape(-1)


def longer(draw, value):
    return np.concatenate([value, value], axis=-1) if value.ndim else value


def nothing(draw, value):
    return None


def python_object(draw, value):
    return draw.choice(
        [object(), 3, 2.5, True, "abc", b"abc", {}, {"a": 1}, [], (), set(), range(3), 1j, np.float32, [None]]
    )


def array_module(draw, value):
    return array.array("f", [1.0, 2.0, 3.0])


def ragged(draw, value):
    return [[1.0], [1.0, 2.0]]


def generator(draw, value):
    return (each for each in [1.0, 2.0])


FITTING = (
    as_it_is,
    as_it_is,
    as_it_is,
    fortran,
    strided,
    backward,
    broadcast,
    read_only,
    subclass,
    masked,
    matrix,
    listed,
    tupled,
    rows,
    numpy_scalar,
    unaligned,
    field,
    unicode_array,
    bytes_array,
    bytes_objects,
)
ODD = (
    memory,
    objects,
    string_dtype,
    surrogate,
    bad_bytes,
    mixed_objects,
    exporter,
    arrayish,
    other_type,
    longdouble,
    dates,
    bits,
    record,
    void,
    one_axis_more,
    one_axis_less,
    longer,
    nothing,
    python_object,
    array_module,
    ragged,
    generator,
)


def tensor(draw: Random, element_type: str, sizes: list[int], is_odd: bool) -> tuple[str, object]:
    """Return the name of a form and a value in it."""
    form = draw.choice(ODD if is_odd else FITTING)
    return form.__name__, form(draw, plain(draw, element_type, tuple(sizes)))


def sequence(draw: Random, element_type: str, sizes: list[int], is_odd: bool) -> tuple[str, object]:
    """Return arrays in a list, or what is none."""
    arrays = [plain(draw, element_type, (draw.choice([0, 1, 3]),)) for _ in range(draw.choice([0, 1, 2, 3]))]
    kind = draw.choice(["tuple", "array", "lists", "none", "mixed", "numbers", "generator"] if is_odd else ["list"])
    made = {
        "list": arrays,
        "tuple": tuple(arrays),
        "array": np.zeros((2, 3), np.float32),
        "none": None,
        "lists": [each.tolist() for each in arrays],
        "mixed": [*arrays, None],
        "numbers": [1, 2, 3],
        "generator": iter(arrays),
    }
    return kind, made[kind]


def optional(draw: Random, element_type: str, sizes: list[int], is_odd: bool) -> tuple[str, object]:
    """Return nothing or a tensor."""
    return ("none", None) if draw.random() < 0.3 else tensor(draw, element_type, sizes, is_odd)


def mapping(draw: Random, element_type: str, sizes: list[int], is_odd: bool) -> tuple[str, object]:
    """Return a dict of texts and numbers, or what is none."""
    fitting = {"a": 1.5, "b": 2.0, "zz": 3.0}
    odd = ["integers", "texts", "list", "none", "user", "bytes"]
    kind = draw.choice(odd if is_odd else ["dict", "dict", "part", "empty", "ordered", "numpy"])
    made = {
        "dict": fitting,
        "part": {"b": np.float32(1)},
        "empty": {},
        "ordered": OrderedDict(fitting),
        "integers": {1: 2.0},
        "texts": {"a": "b"},
        "numpy": {np.str_("a"): np.float64(3)},
        "list": [fitting],
        "none": None,
        "user": UserDict(fitting),
        "bytes": {b"a": 1.0},
    }
    return kind, made[kind]


KINDS = {"tensor": tensor, "sequence": sequence, "optional": optional, "map": mapping}
