"""Einsum compiled: letters as strides, matrix products, sums; every kind of equation against numpy in float64."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper
from test_groups import model_of, run, session

N = helper.make_node
FLOAT = TensorProto.FLOAT
SIZES = {"a": 3, "b": 2, "c": 5, "d": 4, "e": 7}


pytestmark = pytest.mark.usefixtures("nothing_runs_by_numpy")


EQUATIONS = (
    "ab,bc->ac", "ab,cb->ca", "bad,bcd->bac", "bade,bcde->bdac", "abc,cd->abd", "abcd,cde->abe", "abc,dbc->ad",
    "be,eacd->bacd", "bd,cd,bcad->bca", "ab,bc,cd->ad", "a,b->ba", "ab,ab->", "ab,ab->ab", "ab,a->b", "ab->ba", "ab->a",
    "aab->ab", "aa->a", "aab,bc->ac", "ab,cd->ac", "abe,bce", "ab,bc", "...ab,...bc->...ac", "...a,a->...",
    "...a->a...", "a...b,bc->...ac",
)  # fmt: skip


def shapes_of(equation: str, sizes: dict[str, int], hidden: tuple[int, ...] = (2, 3)) -> list[list[int]]:
    """Return shapes of the operands; the second operand has fewer axes behind its dots."""
    found = []
    for number, term in enumerate(equation.split("->")[0].split(",")):
        before, dots, after = term.partition("...")
        middle = hidden[number:] if dots else ()
        found.append([*(sizes[letter] for letter in before), *middle, *(sizes[letter] for letter in after)])
    return found


@pytest.mark.parametrize("equation", EQUATIONS)
def test_einsum_equals_numpy_in_float64(equation: str) -> None:
    numbers = np.random.default_rng(1)
    shapes = shapes_of(equation, SIZES)
    inputs = {f"x{n}": (FLOAT, [f"{n}_{axis}" for axis in range(len(shape))]) for n, shape in enumerate(shapes)}
    model = model_of([N("Einsum", list(inputs), ["y"], equation=equation)], inputs, {"y": FLOAT})
    compiled = session(model, "CPUExecutionProvider")
    for sizes in (SIZES, {**SIZES, "b": 1}, {**SIZES, "b": 33, "c": 17}):
        arrays = [numbers.standard_normal(shape).astype(np.float32) for shape in shapes_of(equation, sizes)]
        (found,) = run(compiled, dict(zip(inputs, arrays, strict=True)))
        expected = np.einsum(equation, *(each.astype(np.float64) for each in arrays))
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * max(1.0, float(np.abs(expected).max())))
