"""Tensors of 2**31 elements and more: kernels count in 64 bits there, and in 32 bits, which are faster, below."""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np
import pytest

from ort_core.plugin.ir import DataType
from ort_core.plugin.loops import Scalar, exp, row_sum
from ort_core.testing.cuda_emulation import emulate, find_compiler
from ort_ep_cuda.kernel_cache import module_source
from ort_ep_cuda.lowering.attention.few_row_attention import FewRows, attend_few_rows
from ort_ep_cuda.lowering.attention.tiled_attention import attend_in_tiles
from ort_ep_cuda.lowering.program import Launch, Pointer
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


class _Recorded:
    """Takes the launches of a lowering, as a builder of programs does."""

    def __init__(self) -> None:
        self.launches: list[Launch] = []

    def add(self, launch: Launch) -> None:
        self.launches.append(launch)

    def run(self, addresses: list[int], folder: Path) -> None:
        for launch in self.launches:
            kernel = emulate(module_source([launch.kernel]), [launch.kernel.name], folder)[launch.kernel.name]
            words = [
                np.uint64(addresses[each.buffer] + each.offset_nbytes) if isinstance(each, Pointer) else each
                for each in launch.arguments
            ]
            kernel.launch(launch.grid, launch.block, words)


def _far_memory() -> np.ndarray:
    """Return more elements of float16 than 32 bits count; pages that nobody touches take no memory."""
    try:
        return np.frombuffer(mmap.mmap(-1, 2 * (LIMIT + 4096)), np.float16)
    except OSError as error:
        pytest.skip(f"4 GiB of addresses are not to be had: {error}")


@pytest.mark.skipif(find_compiler() is None, reason="CUDA is emulated by a C++ compiler; none is here")
@pytest.mark.parametrize("attends", [attend_few_rows, attend_in_tiles])
def test_attention_reads_keys_and_values_that_lie_more_than_32_bits_apart(attends, tmp_path) -> None:
    (keys, size), far = (64, 8), _far_memory()
    random = np.random.default_rng(3)
    q, k, v = (random.standard_normal((2, rows, size)).astype("f2") for rows in (2, keys, keys))
    out = np.zeros_like(q)
    cached = np.lib.stride_tricks.as_strided(far, (2, 2, keys, size), (2 * LIMIT, 2 * keys * size, 2 * size, 2))
    cached[:, 0], cached[:, 1] = k, v  # the second entry of the batch lies 2**31 elements behind the first

    dense = TensorView.dense(0, DataType.FLOAT16, (2, 1, 2, size))
    k_view, v_view = (
        TensorView(1, DataType.FLOAT16, (2, 1, keys, size), (LIMIT, LIMIT, size, 1), n * keys * size) for n in range(2)
    )
    recorded = _Recorded()
    attends(
        recorded,
        FewRows(dense, k_view, v_view, keys, 0.5, is_causal=False),
        TensorView.dense(2, dense.dtype, dense.shape),
    )
    recorded.run([each.ctypes.data for each in (q, far, out)], tmp_path)

    scores = 0.5 * q.astype("f8") @ k.astype("f8").transpose(0, 2, 1)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    np.testing.assert_allclose(out, weights / weights.sum(-1, keepdims=True) @ v.astype("f8"), atol=2e-3)
