"""Which operand the sums of an epilogue may begin with."""

from __future__ import annotations

import pytest

from ort_core.cpu.codegen.quantized.initial_sums import first_operand
from ort_core.cpu.codegen.quantized.integer_convolution_plan import IntegerOperand
from ort_core.plugin.ir import DataType
from ort_core.plugin.loops import Scalar, cast, element, structure

I32, F32 = DataType.INT32, DataType.FLOAT
SUM, BIAS, SCALE = element(0, I32), element(1, I32), element(2, F32)
OPERANDS = (IntegerOperand("channel", I32), IntegerOperand("channel", F32))


@pytest.mark.parametrize("total", [SUM + BIAS, BIAS + SUM], ids=["sum first", "sum second"])
def test_sums_begin_with_what_is_added_to_them_alone(total: Scalar) -> None:
    found = first_operand(cast(total, F32) * SCALE, OPERANDS)
    assert found is not None
    assert found[0] == 0
    assert structure(found[1]) == structure(cast(SUM, F32) * SCALE)


@pytest.mark.parametrize(
    ("expression", "kind"),
    [
        (cast(SUM, F32) * SCALE, "channel"),
        (cast(SUM - BIAS, F32) * SCALE, "channel"),
        (cast(SUM + BIAS, F32) * cast(SUM, F32), "channel"),
        (cast(SUM + SUM, F32) * SCALE, "channel"),
        (cast(SUM + BIAS * 2, F32) * SCALE, "channel"),
        (cast(SUM + BIAS, F32) * SCALE, "row"),
        (cast(SUM + BIAS, F32) * SCALE, "tensor"),
    ],
    ids=["nothing", "taken off", "read again", "twice", "a product", "of each row", "of each element"],
)
def test_sums_begin_with_0_where_they_are_read_otherwise(expression: Scalar, kind: str) -> None:
    assert first_operand(expression, (IntegerOperand(kind, I32), OPERANDS[1])) is None
