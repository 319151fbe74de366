"""SymbolicShapeInferenceHelper: the shapes of a model whose named sizes were given numbers."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import onnx
from onnx import ModelProto

from ort_core.model_types import infer_proto

log = logging.getLogger(__name__)

_OLDEST_OPSET = 7


class SymbolicShapeInferenceHelper:
    """Shapes of a model's values.

    Args:
        model: not changed.
        verbose: taken for onnxruntime's programs, as are the three that follow.
        int_max: largest size.
        auto_merge: let one of two sizes that must be equal stand for both.
        guess_output_rank: no guesses are made.
    """

    def __init__(
        self,
        model: ModelProto,
        verbose: int = 0,
        int_max: int = 2**31 - 1,
        auto_merge: bool = True,
        guess_output_rank: bool = False,
    ) -> None:
        self.model_ = model
        self.all_shapes_inferred_ = False
        self.is_inferred_ = False
        self.dynamic_axis_mapping_: dict[str, int] = {}
        self._types: dict[str, onnx.TypeProto] = {}

    def infer(self, dynamic_axis_mapping: Mapping[str, int], max_runs: int = 200) -> bool:
        """Infer all shapes, with numbers for named sizes of the inputs.

        Args:
            dynamic_axis_mapping: ``{"batch_size": 4}``.
            max_runs: taken for onnxruntime's programs: one run is enough.

        Returns:
            Whether every value has a shape of numbers now.
        """
        mapping = dict(dynamic_axis_mapping)
        if self.is_inferred_ and mapping == self.dynamic_axis_mapping_:
            return self.all_shapes_inferred_
        self.dynamic_axis_mapping_ = mapping
        model = ModelProto()
        model.CopyFrom(self.model_)
        del model.graph.value_info[:]  # what the model states of values follows from its inputs
        for each in model.graph.input:
            for size in each.type.tensor_type.shape.dim:
                if size.dim_param in mapping:
                    size.dim_value = mapping[size.dim_param]
        typed = infer_proto(model).model.graph
        values = (*typed.input, *typed.output, *typed.value_info)
        self._types = {each.name: each.type for each in values}
        self._types |= {
            each.name: onnx.helper.make_tensor_type_proto(each.data_type, each.dims) for each in typed.initializer
        }
        made = [name for node in typed.node for name in node.output if name]
        self.all_shapes_inferred_ = all(name in self._types and _is_known(self._types[name]) for name in made)
        self.is_inferred_ = True
        return self.all_shapes_inferred_

    @staticmethod
    def infer_shapes(
        in_mp: ModelProto, int_max: int = 2**31 - 1, auto_merge: bool = False, guess_output_rank: bool = False,
        verbose: int = 0,
    ) -> ModelProto | None:  # fmt: skip
        """Return a model with every type that is known; ``None``, with a warning, where its opset is below 7.

        Args:
            in_mp: the model, which is not changed.
            int_max: as in the class.
            auto_merge: let one of two named sizes that must be equal stand for both.
            guess_output_rank: take results of operators that nobody knows to have the rank of their first input.
            verbose: as in the class.

        Raises:
            OrtError: the model cannot be loaded.
        """
        opset = next((each.version for each in in_mp.opset_import if each.domain in ("", "ai.onnx")), 0)
        if opset < _OLDEST_OPSET:
            log.warning("Only support models of onnx opset 7 and above.")
            return None
        return infer_proto(in_mp, merges_sizes=auto_merge, guesses_ranks=guess_output_rank).model

    def get_edge_shape(self, edge: str) -> list[int | str | None] | None:
        """Return the sizes of a value: numbers, names, ``None`` where nothing is known; ``None`` without a shape."""
        found = self._types.get(edge)
        if found is None or not found.tensor_type.HasField("shape"):
            return None
        return [
            size.dim_value if size.HasField("dim_value") else (size.dim_param or None)
            for size in found.tensor_type.shape.dim
        ]

    def compare_shape(self, edge: str, edge_other: str) -> bool:
        """Return whether two values have one shape.

        Raises:
            ValueError: the shape of one is not known.
        """
        found = {name: self.get_edge_shape(name) for name in (edge, edge_other)}
        for name, shape in found.items():
            if shape is None:
                raise ValueError(f"the shape of {name!r} is not known; call infer() with numbers for the named sizes")
        return found[edge] == found[edge_other]


def _is_known(found: onnx.TypeProto) -> bool:
    kind = found.tensor_type
    return kind.HasField("shape") and all(size.HasField("dim_value") for size in kind.shape.dim)
