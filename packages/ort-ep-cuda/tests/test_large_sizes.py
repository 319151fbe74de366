"""Tensors of 2**31 elements and more: kernels count in 64 bits there, and in 32 bits, which are faster, below."""

from __future__ import annotations

import pytest

from ort_core.plugin.ir import DataType
from ort_core.plugin.loops import Scalar, exp, row_sum
from ort_ep_cuda.lowering.values.views import TensorView
from ort_ep_cuda.lowering.writing.map_kernel import launch_map
from ort_ep_cuda.lowering.writing.row_kernel import launch_rows

X = Scalar("input", DataType.FLOAT)
LIMIT = 2**31


def _views(*strides: int, size: int) -> tuple[TensorView, TensorView]:
    read = TensorView(0, DataType.FLOAT, (2, size), strides)
    return read, TensorView.dense(1, DataType.FLOAT, (2, size))


@pytest.mark.parametrize(
    ("strides", "size", "is_wide"),
    [
        ((1, 2), LIMIT // 2, True),  # as many elements as 32 bits cannot count
        ((1, 2), LIMIT // 2 - 1, False),
        ((LIMIT, 1), 8, True),  # few of them, far from each other
        ((LIMIT - 9, 1), 8, False),
        ((-LIMIT, 1), 8, True),
    ],
)
def test_elements_are_counted_in_as_many_bits_as_the_farthest_one_needs(strides, size, is_wide) -> None:
    x, out = _views(*strides, size=size)
    mapped = launch_map(exp(X), [x], out, {})
    rows = launch_rows([row_sum(X)], [x], [TensorView.dense(1, DataType.FLOAT, (2,))], 1)
    for launch in (mapped, rows):
        found = [text for text in ("typedef long long Index;", "typedef int Index;") if text in launch.kernel.source]
        assert found == ["typedef long long Index;" if is_wide else "typedef int Index;"]
