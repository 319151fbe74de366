"""Values without a session: every way to make an OrtValue or a sparse tensor, and what it says of itself."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import feeds
import numpy as np
import onnxruntime as ort

ELEMENT_TYPES = [*feeds.TYPES, "string"]
QUESTIONS = (
    "device_name",
    "shape",
    "data_type",
    "element_type",
    "tensor_size_in_bytes",
    "has_value",
    "is_tensor",
    "is_sparse_tensor",
    "is_tensor_sequence",
)


def described(value: ort.OrtValue) -> list[object]:
    """Return what a value says of itself."""
    asked = [
        question for question in QUESTIONS if question != "tensor_size_in_bytes" or "string" not in value.data_type()
    ]
    return [getattr(value, question)() for question in asked]


def with_array(value: ort.OrtValue) -> list[object]:
    """Return what a value says of itself, and its elements where both engines show them as arrays of one type."""
    return [described(value), value.numpy() if value.element_type() < 16 else None]


def _array(draw: Random) -> np.ndarray:
    element_type = draw.choice([each for each in ELEMENT_TYPES if each not in ("int4", "uint4")])
    shape = draw.choice([(), (0,), (1,), (3,), (2, 3), (0, 4), (2, 1, 3)])
    form = draw.choice([each for each in feeds.FITTING if each not in (feeds.listed, feeds.tupled, feeds.rows)])
    return form(draw, feeds.plain(draw, element_type, shape))


def from_numpy(draw: Random) -> object:
    """Take an array in any form."""
    array = _array(draw)
    return with_array(ort.OrtValue.ortvalue_from_numpy(array))


def from_bits(draw: Random) -> object:
    """Take the bits of an array as another type."""
    array = np.arange(6, dtype=draw.choice(["u1", "u2", "i2", "u4", "f4", "u8"])).reshape(draw.choice([(6,), (2, 3)]))
    return described(
        ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array, draw.choice([1, 2, 3, 6, 7, 10, 11, 16, 17, 20]))
    )


def from_shape(draw: Random) -> object:
    """Make a tensor of a shape."""
    shape = draw.choice([[], [0], [2, 3], (2,), [1, 0, 2], np.array([2, 2])])
    kind = draw.choice([np.float32, np.dtype("int64"), "float32", "int8", 1, 7, 10, np.bool_, np.float16, np.uint8])
    return described(ort.OrtValue.ortvalue_from_shape_and_type(shape, kind))


def updated(draw: Random) -> object:
    """Write into a tensor."""
    target = np.zeros((2, 3), np.float32)
    value = ort.OrtValue.ortvalue_from_numpy(target)
    source = draw.choice([np.ones((2, 3), np.float32), np.ones((3, 2), np.float32).T, np.ones(6, np.float32)])
    value.update_inplace(source)
    return [target, value.numpy()]


def exchanged(draw: Random) -> object:
    """Hand a tensor over by DLPack, and take it back."""
    array = np.arange(6, dtype=draw.choice(["f4", "f8", "i8", "u1", "f2", "?"])).reshape(
        draw.choice([(6,), (2, 3), (1, 6)])
    )
    value = ort.OrtValue.from_dlpack(ort.OrtValue.ortvalue_from_numpy(array)._ortvalue)
    return with_array(value)


def sparse(draw: Random) -> object:
    """Make a sparse tensor, and read it."""
    device = ort.OrtDevice.make("cpu", 0)
    values = np.array([1, 2], draw.choice(["f4", "f8", "i4", "i8"]))
    if draw.random() < 0.5:
        indices = draw.choice([np.array([1, 5]), np.array([[0, 1], [1, 2]]), np.array([0, 1, 1, 2])])
        made = ort.SparseTensor.sparse_coo_from_numpy(np.array([3, 3], np.int64), values, indices, device)
        parts = [made.as_coo_view().indices()]
    else:
        made = ort.SparseTensor.sparse_csr_from_numpy(
            np.array([3, 3], np.int64), values, np.array([1, 1]), np.array([0, 1, 2, 2]), device
        )
        parts = [made.as_csrc_view().inner(), made.as_csrc_view().outer()]
    value = ort.OrtValue.ort_value_from_sparse_tensor(made)
    shown = [value.is_sparse_tensor(), value.data_type(), value.as_sparse_tensor().format().name]
    return [
        made.values(),
        parts,
        list(made.dense_shape()),
        made.data_type(),
        made.format().name,
        made.device_name(),
        shown,
    ]


CALLS: tuple[Callable[[Random], object], ...] = (
    from_numpy,
    from_numpy,
    from_bits,
    from_shape,
    updated,
    exchanged,
    sparse,
)
