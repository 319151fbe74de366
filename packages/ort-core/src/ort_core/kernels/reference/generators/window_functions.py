"""Window functions: sums of cosines over one period.

Of one point without a period the definition divides nothing by nothing, and so does its result: no number.
"""

from __future__ import annotations

import numpy as np

from ort_core.errors import InvalidArgument
from ort_core.kernels.kernel import KernelContext, KernelFunction, kernel
from ort_core.kernels.reference.arrays.axes import check_size
from ort_core.kernels.reference.arrays.element_conversion import convert
from ort_core.kernels.reference.elementwise.cast import element_type


def _cosine_sum(op_type: str, coefficients: tuple[float, ...]) -> KernelFunction:
    @kernel(op_type, since=17)
    def run(
        size: np.ndarray, *, output_datatype: int = 1, periodic: int = 1, ctx: KernelContext | None = None
    ) -> np.ndarray:
        if size.size != 1 or size.min() < 0:
            raise InvalidArgument(f"{op_type}: input size is {size.tolist()}; expected one length of at least 0")
        count = int(size.reshape(()))
        check_size((count,), np.dtype(np.float64), op_type, ctx)
        period = count if periodic else count - 1
        with np.errstate(invalid="ignore"):
            angle = np.arange(count) * (2 * np.pi) / np.float64(period)
        signed = [(-1) ** order * weight * np.cos(order * angle) for order, weight in enumerate(coefficients)]
        return convert(np.sum(signed, axis=0), element_type(op_type, output_datatype))

    return run


hann_window = _cosine_sum("HannWindow", (0.5, 0.5))
hamming_window = _cosine_sum("HammingWindow", (25 / 46, 21 / 46))
blackman_window = _cosine_sum("BlackmanWindow", (0.42, 0.5, 0.08))
