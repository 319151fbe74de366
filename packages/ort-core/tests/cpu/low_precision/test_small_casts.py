"""Cast from and to 8-bit floats and integers of 4 and 2 bits, compiled: the bits are those of the specification.

Of every float16, of every bfloat16 with what lies beside and between two of them, of every code of the small types.
"""

from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes
import numpy as np
import pytest
from beside_reference import every_kind_of_number, run_all, run_both
from onnx import ModelProto, TensorProto, helper
from onnx.reference import ReferenceEvaluator

from ort_core.cpu.partition.partition import CpuPartition

N = helper.make_node
FLOAT8 = ("FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ")
INTEGERS = ("INT4", "UINT4", "INT2", "UINT2")
WIDE = ("FLOAT", "FLOAT16", "BFLOAT16", "DOUBLE", "BOOL", "INT8", "UINT8", "INT32", "UINT32", "INT64", "UINT64")


def every_code(name: str) -> np.ndarray:
    count = 256 if name in FLOAT8 else 4 if "INT2" in name else 16
    return np.arange(count, dtype=np.uint8).view(dtype_of(name))


def dtype_of(name: str) -> np.dtype:
    return np.dtype(helper.tensor_dtype_to_np_dtype(getattr(TensorProto, name)))


def numbers_of(name: str) -> np.ndarray:
    """Return every float16 or bfloat16, every kind of float32, those and neighbors as float64, integers around 0."""
    if name == "FLOAT16":
        return np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    if name == "BFLOAT16":
        return np.arange(1 << 16, dtype=np.uint16).view(ml_dtypes.bfloat16)
    if name == "FLOAT":
        return every_kind_of_number()
    if name == "DOUBLE":
        with np.errstate(invalid="ignore"):  # signalling NaN
            wide = every_kind_of_number()[::5].astype(np.float64)
        return np.concatenate([wide, np.nextafter(wide, np.inf), np.nextafter(wide, -np.inf)])
    if name == "BOOL":
        return np.array([False, True])
    limits = np.iinfo(dtype_of(name))
    around_zero = np.arange(max(limits.min, -300), min(limits.max, 300) + 1)
    return np.concatenate([around_zero.astype(limits.dtype), np.array([limits.min, limits.max - 3], limits.dtype)])


def cast_beside_reference(
    partitions: list[CpuPartition], source: str, target: str, x: np.ndarray, saturate: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    to = getattr(TensorProto, target)
    attributes = {"saturate": saturate} if target in FLOAT8 else {}
    nodes = [N("Cast", ["x"], ["y"], to=to, **attributes)]
    return run_both(partitions, nodes, {}, x, getattr(TensorProto, source), to)


def cast_to_each(
    partitions: list[CpuPartition], source: str, targets: Sequence[str], x: np.ndarray
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return as ``cast_beside_reference``, of one model that casts to each target."""
    kinds = {target: getattr(TensorProto, target) for target in targets}
    nodes = [N("Cast", ["x"], [target], to=kind) for target, kind in kinds.items()]
    return dict(zip(targets, run_all(partitions, nodes, {}, x, getattr(TensorProto, source), kinds), strict=True))


def cast_by_onnx(x: np.ndarray, target: str, saturate: int) -> np.ndarray:
    """Return what ONNX's own reference evaluator makes of ``x``."""
    to = getattr(TensorProto, target)
    source = helper.np_dtype_to_tensor_dtype(x.dtype)
    info = helper.make_tensor_value_info
    node = N("Cast", ["x"], ["y"], to=to, saturate=saturate)
    graph = helper.make_graph([node], "cast", [info("x", source, ["N"])], [info("y", to, ["N"])])
    model: ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=12)
    [found] = ReferenceEvaluator(model).run(None, {"x": x})
    return np.asarray(found)


@pytest.mark.parametrize("saturate", [0, 1])
@pytest.mark.parametrize("source", ["FLOAT16", "FLOAT", "BFLOAT16"])
@pytest.mark.parametrize("target", FLOAT8)
@np.errstate(all="ignore")  # of signalling NaN, and of what lies beyond the range
def test_every_float_becomes_the_8_bit_float_of_onnx_and_of_ml_dtypes(
    partitions: list[CpuPartition], target: str, source: str, saturate: int
) -> None:
    x = numbers_of(source)
    found, expected = cast_beside_reference(partitions, source, target, x, saturate)
    np.testing.assert_array_equal(found.view(np.uint8), expected.view(np.uint8))
    np.testing.assert_array_equal(found.view(np.uint8), cast_by_onnx(x, target, saturate).view(np.uint8))
    limit = np.float32(ml_dtypes.finfo(dtype_of(target)).max)
    wide = x.astype(np.float32)
    limited = np.clip(wide, -limit, limit) if saturate else wide
    np.testing.assert_array_equal(found.view(np.uint8), limited.astype(dtype_of(target)).view(np.uint8))
    number = found.astype(np.float32)
    inside = np.abs(wide) <= limit
    assert np.isnan(number[np.isnan(wide)]).all(), "NaN stays NaN"
    assert (np.sign(number[inside]) * np.sign(wide[inside]) >= 0).all(), "no sign is lost but that of a zero"


@pytest.mark.parametrize("source", WIDE)
def test_numbers_become_the_elements_of_the_reference(partitions: list[CpuPartition], source: str) -> None:
    for target, (found, expected) in cast_to_each(partitions, source, (*FLOAT8, *INTEGERS), numbers_of(source)).items():
        np.testing.assert_array_equal(found.view(np.uint8), expected.view(np.uint8), f"{source} to {target}")


@pytest.mark.sweep
@pytest.mark.parametrize("source", [*FLOAT8, *INTEGERS])
def test_every_code_becomes_the_element_of_the_reference(partitions: list[CpuPartition], source: str) -> None:
    codes = every_code(source)
    targets = [each for each in (*WIDE, *FLOAT8, *INTEGERS) if each != source]
    for target, (found, expected) in cast_to_each(partitions, source, targets, codes).items():
        if target in (*FLOAT8, *INTEGERS):
            np.testing.assert_array_equal(found.view(np.uint8), expected.view(np.uint8), f"{source} to {target}")
            continue
        # What becomes of NaN and infinity as an unsigned integer is nowhere specified.
        specified = np.isfinite(codes.astype(np.float32)) | (target not in ("UINT32", "UINT64"))
        left, right = found.astype(np.float64)[specified], expected.astype(np.float64)[specified]
        np.testing.assert_array_equal(left, right, f"{source} to {target}")
        is_zero = right == 0
        np.testing.assert_array_equal(np.signbit(left[is_zero]), np.signbit(right[is_zero]), "the sign of zero")


@pytest.mark.parametrize("source", [*FLOAT8, *INTEGERS])
def test_every_code_stands_for_the_number_of_ml_dtypes(partitions: list[CpuPartition], source: str) -> None:
    codes = every_code(source)
    found, _ = cast_beside_reference(partitions, source, "FLOAT", codes)
    np.testing.assert_array_equal(found, codes.astype(np.float32))


def test_halves_between_two_small_integers_go_away_from_zero_and_large_ones_wrap(
    partitions: list[CpuPartition],
) -> None:
    x = np.array([-8.5, -2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 6.5, 7.49, 7.5, 17.0], np.float32)
    found, _ = cast_beside_reference(partitions, "FLOAT", "INT4", x)
    assert found.astype(np.int8).tolist() == [7, -3, -2, -1, 1, 2, 3, 7, 7, -8, 1]


@pytest.mark.parametrize(("target", "saturate"), [("FLOAT8E4M3FN", 0), ("FLOAT8E5M2FNUZ", 1), ("INT4", 1)])
def test_a_cast_like_is_compiled_as_the_cast(partitions: list[CpuPartition], target: str, saturate: int) -> None:
    kind = getattr(TensorProto, target)
    like = helper.make_tensor("like", kind, [], [0.0])
    nodes = [N("CastLike", ["x", "like"], ["y"], saturate=saturate)]
    found, expected = run_both(partitions, nodes, {"like": like}, numbers_of("FLOAT16"), TensorProto.FLOAT16, kind)
    np.testing.assert_array_equal(found.view(np.uint8), expected.view(np.uint8))


@pytest.mark.parametrize("target", [*FLOAT8, *INTEGERS])
def test_casts_there_and_back_are_fused_with_what_stands_around_them(
    partitions: list[CpuPartition], target: str
) -> None:
    nodes = [
        N("Add", ["x", "x"], ["a"]), N("Cast", ["a"], ["b"], to=getattr(TensorProto, target)),
        N("Cast", ["b"], ["c"], to=TensorProto.FLOAT), N("Neg", ["c"], ["y"]),
    ]  # fmt: skip
    x = (np.random.default_rng(5).standard_normal((3, 5, 37)) * 3).astype(np.float32)
    found, expected = run_both(partitions, nodes, {}, x, TensorProto.FLOAT, TensorProto.FLOAT)
    np.testing.assert_array_equal(found, expected)
    [program] = [program for each in partitions for program in each.native_programs]
    assert len(program.steps) == 1, "one pass over the numbers"
