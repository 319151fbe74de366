"""Products of integers are exact: as floats where sums stay below 2**24, in int32 elsewhere; weights stay narrow."""

from __future__ import annotations

import numpy as np
import pytest

import ort_core as ort
from ort_core.plugin import Claim, GraphView
from ort_core.testing.claims import request_for
from ort_ep_coreml.capability import find_capability, program_of
from ort_ep_coreml.options import CoreMlOptions

GENERATOR = np.random.default_rng(25)


def integers(low: int, high: int, *shape: int, dtype: type = np.int8) -> np.ndarray:
    """Return integers from ``low`` to ``high``, both of them among the first."""
    found = GENERATOR.integers(low, high, shape, dtype, endpoint=True)
    found.reshape(-1)[:2] = low, high
    return found


def listed(name: str, array: np.ndarray, kind: str) -> str:
    sizes, values = ",".join(map(str, array.shape)), ",".join(map(str, array.reshape(-1).tolist()))
    return f"{kind}[{sizes}] {name} = {{{values}}}" if array.ndim else f"{kind} {name} = {{{values}}}"


CASES = {
    "bounded": (integers(-90, 90, 300, 5), None, True),
    "a zero point for each column": (integers(-60, 60, 40, 6), integers(-128, 127, 6), True),
    "one zero point": (integers(-60, 60, 40, 6), np.array(-7, np.int8), True),
    "several matrices": (integers(-9, 9, 3, 8, 4), None, True),
    "sums beyond 2**24": (np.full((600, 3), 127, np.int8), None, False),
}


@pytest.mark.parametrize("name", CASES)
def test_products_are_exact_for_extreme_factors(name, session):
    weight, zero, _ = CASES[name]
    a = integers(0, 255, 3, 4, weight.shape[-2], dtype=np.uint8)
    a[:, :2] = 255
    found = session(text_of(weight, zero)).run(None, {"a": a})[0]
    wide = weight.astype(np.int64) - (0 if zero is None else zero.astype(np.int64))
    np.testing.assert_array_equal(found, (a.astype(np.int64) - 3) @ wide)


@pytest.mark.parametrize("name", CASES)
def test_weights_of_exact_products_of_floats_stay_narrow(name, view):
    weight, zero, is_float = CASES[name]
    text = program_text(view(text_of(weight, zero)), CoreMlOptions())
    assert ("constexpr_affine_dequantize" in text) == is_float


def test_half_precision_computes_in_int32(view):
    weight, zero, _ = CASES["bounded"]
    assert "constexpr" not in program_text(view(text_of(weight, zero)), CoreMlOptions(Precision="FLOAT16"))


def test_convolution_is_claimed_by_the_sums_that_its_filters_allow(session):
    x, few, many = (
        integers(0, 255, 1, 70, 9, 9, dtype=np.uint8),
        integers(-3, 3, 2, 70, 3, 3),
        np.full((2, 70, 3, 3), 127),
    )
    x[..., :5, :] = 255
    text = "g (uint8[1,70,9,9] x) => (int32[1,2,7,7] y) <{}, uint8 z = {{5}}> {{ y = ConvInteger(x, w, z) }}"
    found = session(text.format(listed("w", few, "int8"))).run(None, {"x": x})[0]
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.int64) - 5, (3, 3), (2, 3))
    np.testing.assert_array_equal(found, np.einsum("nchwij,ocij->nohw", windows, few.astype(np.int64)))
    with pytest.raises(ort.OrtError, match="sums of these 630 products are not exact"):
        session(text.format(listed("w", many, "int8")))


def program_text(seen: GraphView, options: CoreMlOptions) -> str:
    (claim,) = [each for each in find_capability(seen, options) if isinstance(each, Claim)]
    return program_of(request_for(seen, claim), options).text()


def text_of(weight: np.ndarray, zero: np.ndarray | None) -> str:
    rows, columns = weight.shape[-2:]
    held = [listed("w", weight, "int8"), "uint8 az = {3}"]
    if zero is not None:
        held.append(listed("z", zero, "int8"))
    product = f"y = MatMulInteger(a, w, az{'' if zero is None else ', z'})"
    return f"g (uint8[3,4,{rows}] a) => (int32[3,4,{columns}] y) <{', '.join(held)}> {{ {product} }}"
