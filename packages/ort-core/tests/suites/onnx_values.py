"""Values of ONNX test data: protobufs decoded to run-time values, and their comparison by the case's own tolerances."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

BFLOAT16_RTOL = 2.0**-6  # two of its steps, as onnx's own runner allows
FLOAT16_RTOL = 2.0**-9  # two of its steps: where a processor does not convert it, each node of a function rounds


def decode(value: object) -> object:
    """Return the run-time value of what a test case holds: protobufs are decoded, numpy scalars become arrays."""
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    if isinstance(value, onnx.SequenceProto):
        return numpy_helper.to_list(value)
    if isinstance(value, onnx.OptionalProto):
        return numpy_helper.to_optional(value)
    if isinstance(value, onnx.MapProto):
        return numpy_helper.to_dict(value)
    return np.asarray(value) if isinstance(value, np.generic) else value


def read_value(path: Path, declared: onnx.TypeProto) -> tuple[str, object]:
    """Return the name and the value that a ``.pb`` file of a test data set holds."""
    kinds = {
        "sequence_type": onnx.SequenceProto,
        "optional_type": onnx.OptionalProto,
        "map_type": onnx.MapProto,
    }
    proto = kinds.get(declared.WhichOneof("value"), onnx.TensorProto)()
    proto.ParseFromString(path.read_bytes())
    return proto.name, decode(proto)


def assert_same_values(
    found: Sequence[object], expected: Sequence[object], rtol: float, atol: float, where: str = "output"
) -> None:
    """Compare lists of values, element types and shapes included."""
    assert len(found) == len(expected), f"{where}: {len(found)} values, expected {len(expected)}"
    for index, (left, right) in enumerate(zip(found, expected, strict=True)):
        assert_same_value(left, right, rtol, atol, f"{where} {index}")


def assert_same_value(found: object, expected: object, rtol: float, atol: float, where: str) -> None:
    """Compare two values; raises AssertionError that names the place."""
    if isinstance(expected, (list, tuple)):
        assert isinstance(found, (list, tuple)), f"{where}: a {type(found).__name__}, expected a sequence"
        assert_same_values(found, expected, rtol, atol, f"{where}, item")
    elif expected is None or isinstance(expected, dict):
        assert found == expected, f"{where}: {found!r}, expected {expected!r}"
    else:
        assert_same_array(np.asarray(found), np.asarray(expected), rtol, atol, where)


def assert_same_array(found: np.ndarray, expected: np.ndarray, rtol: float, atol: float, where: str) -> None:
    """Compare two arrays: shape, element type, then numbers within the tolerances (text exactly)."""
    assert found.shape == expected.shape, f"{where}: shape {found.shape}, expected {expected.shape}"
    if expected.dtype.kind in "OSUT":
        assert found.tolist() == expected.astype(str).tolist(), f"{where}: text {found!r}, expected {expected!r}"
        return
    assert found.dtype == expected.dtype, f"{where}: {found.dtype}, expected {expected.dtype}"
    if expected.dtype.isbuiltin != 1:  # a type that numpy lacks: compared as float32, which holds all of its values
        rtol = max(rtol, BFLOAT16_RTOL) if expected.dtype.name == "bfloat16" else rtol
        found, expected = found.astype(np.float32), expected.astype(np.float32)
    elif expected.dtype == np.float16:
        rtol = max(rtol, FLOAT16_RTOL)
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=atol, err_msg=where)
