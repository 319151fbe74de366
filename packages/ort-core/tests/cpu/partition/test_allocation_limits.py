"""What a native program may take: counted are the sizes of the model and its inputs, never those of the machine."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import parser

import ort_core as ort
from ort_core.errors import AllocationLimitExceeded

WIDTH = 64
MODEL = f"""
<ir_version: 8, opset_import: ["" : 17]>
g (float[N,{WIDTH}] x) => (float[N,{WIDTH}] y) <float[{WIDTH},{WIDTH}] w = {{{", ".join(["0.5"] * WIDTH**2)}}}> {{
    product = MatMul(x, w)
    y = Exp(product)
}}"""


def _session(threads: int, limit: int) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.max_allocation_bytes = threads, limit
    return ort.InferenceSession(parser.parse_model(MODEL).SerializeToString(), options)


@pytest.mark.parametrize("threads", [1, 2, 64])
def test_a_small_run_keeps_to_a_small_limit_on_any_number_of_threads(threads: int) -> None:
    (result,) = _session(threads, 16_384).run(None, {"x": np.full((1, WIDTH), 1 / 16, np.float32)})
    np.testing.assert_allclose(result, np.full((1, WIDTH), np.exp(2.0)), rtol=1e-5)


@pytest.mark.parametrize("threads", [1, 2, 64])
def test_a_run_whose_rows_pass_the_limit_is_refused(threads: int) -> None:
    rows = np.zeros((100, WIDTH), np.float32)  # 25,600 bytes of results
    with pytest.raises(AllocationLimitExceeded, match="limit of 16384 bytes"):
        _session(threads, 16_384).run(None, {"x": rows})
