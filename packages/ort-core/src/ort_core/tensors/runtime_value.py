"""What ONNX values are while a model runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ort_core.ir.values import Value

RuntimeValue = Any  # np.ndarray, list, dict, SparseArray or None: what ONNX values are at run time
Scope = Mapping[Value, RuntimeValue]
