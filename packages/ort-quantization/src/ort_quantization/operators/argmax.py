"""ArgMax: the classes of onnxruntime's module of this name."""

from __future__ import annotations

from ort_quantization.operators import movement
from ort_quantization.operators.built_in import WrittenOperator


class QArgMax(WrittenOperator):
    """Lets ArgMax read quantized numbers."""

    writer = movement.write_arg_max
