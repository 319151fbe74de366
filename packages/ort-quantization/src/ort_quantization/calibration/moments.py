"""Mean and deviation of values, found inside the model: three numbers of each leave it in a run.

Sums of samples are added up; a sample whose sums are not finite (masks, overflows of float16) is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from onnx import GraphProto, TensorProto, helper

from ort_quantization.calibration.tensor_ranges import TensorData

_OPERATORS = ("ReduceMean", "ReduceSumSquare", "Size")


class MomentsState:
    """The sums of the samples so far.

    Attributes:
        sums: by value: how many numbers there were, their sum, and the sum of their squares, float64.
    """

    def __init__(self) -> None:
        self.sums: dict[str, np.ndarray] = {}
        self._results: set[str] = set()

    def add_to(self, graph: GraphProto, name: str, kind: int) -> Iterator[str]:
        """Let a graph give the sums of a value; yield the names of the results."""
        for op_type in _OPERATORS:
            result = f"{name}_{op_type}"
            node = helper.make_node(op_type, [name], [result], result)
            if op_type != "Size":
                node.attribute.append(helper.make_attribute("keepdims", 0))
            graph.node.append(node)
            made = TensorProto.INT64 if op_type == "Size" else kind
            graph.output.append(helper.make_tensor_value_info(result, made, None))
            self._results.add(result)
            yield result

    def is_of(self, result: str) -> bool:
        """Return whether an output of the model is one of these."""
        return result in self._results

    def take(self, name: str, values: Mapping[str, np.ndarray]) -> None:
        """Add a run's sums of a value."""
        mean, squares, count = (float(np.asarray(values[f"{name}_{each}"]).item()) for each in _OPERATORS)
        if count and np.isfinite(mean) and np.isfinite(squares):
            found = np.array([count, mean * count, squares])
            self.sums[name] = self.sums[name] + found if name in self.sums else found

    def with_moments(self, name: str, data: TensorData) -> TensorData:
        """Return what is known of a value with its mean and deviation, where they are known."""
        if name not in self.sums:
            return data
        count, total, squares = self.sums[name]
        mean = total / count
        deviation = np.sqrt(max(squares / count - mean**2, 0.0))
        return TensorData(lowest=data.lowest, highest=data.highest, avg=np.float32(mean), std=np.float32(deviation))
