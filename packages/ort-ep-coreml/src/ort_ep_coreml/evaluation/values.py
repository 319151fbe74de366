"""What values of operations are computed from and by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Inputs = Mapping[str, Any]
"""Operands by parameter; values are numpy arrays, numbers and texts, in whatever form coremltools keeps them."""
Value = Callable[[Inputs], "np.ndarray | tuple[np.ndarray, ...]"]
"""Computes one operation."""
