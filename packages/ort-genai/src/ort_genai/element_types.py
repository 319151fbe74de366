"""Element types of floats, by the names that sessions give them."""

from __future__ import annotations

import ml_dtypes
import numpy as np

FLOATS: dict[str, type] = {
    "tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(bfloat16)": ml_dtypes.bfloat16,
}  # fmt: skip
CACHES: dict[str, type] = {**FLOATS, "tensor(int8)": np.int8}
