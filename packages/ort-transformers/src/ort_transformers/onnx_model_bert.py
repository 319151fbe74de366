"""BertOnnxModel: a model that is fused and then asked what was fused; all other model types build on it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import ClassVar

from onnx import ModelProto, TensorProto

from ort_transformers.convert_to_packing_mode import PackingMode
from ort_transformers.fusing.fusion_report import FusionReport
from ort_transformers.fusing.fusions import fuse_model
from ort_transformers.fusion_options import FusionOptions
from ort_transformers.onnx_model import OnnxModel

log = logging.getLogger(__name__)

_INDEX_INPUTS = (0, 1, 7)  # of EmbedLayerNormalization: ids, segments, mask
_ALL_OFF = ("enable_gelu", "enable_layer_norm", "enable_attention", "enable_rotary_embeddings",
            "enable_skip_layer_norm", "enable_embed_layer_norm", "enable_bias_skip_layer_norm",
            "enable_bias_gelu", "enable_gelu_approximation")  # fmt: skip

_OURS = frozenset({"GroupQueryAttention", "MultiHeadAttention", "PackedMultiHeadAttention", "QuickGelu",
                   "RMSNormalization", "RotaryEmbedding", "SimplifiedLayerNormalization",
                   "SkipSimplifiedLayerNormalization"})  # fmt: skip


class BertOnnxModel(OnnxModel):
    """A model to fuse.

    Args:
        model: not changed; ``self.model`` is another object behind each fusion.
        num_heads: taken for onnxruntime's programs: fusions prove the number of heads by inferred shapes.
        hidden_size: likewise.

    ``report`` is what the last call of ``optimize`` fused, ``None`` before.
    """

    default_type: ClassVar[str] = "bert"
    counted: ClassVar[tuple[str, ...]] = (
        "EmbedLayerNormalization", "Attention", "MultiHeadAttention", "Gelu", "FastGelu", "BiasGelu", "GemmFastGelu",
        "LayerNormalization", "SimplifiedLayerNormalization", "SkipLayerNormalization",
        "SkipSimplifiedLayerNormalization", "RotaryEmbedding", "QOrderedAttention", "QOrderedGelu",
        "QOrderedLayerNormalization", "QOrderedMatMul",
    )  # fmt: skip

    def __init__(self, model: ModelProto, num_heads: int = 0, hidden_size: int = 0) -> None:
        super().__init__(model)
        self.num_heads = num_heads
        self.hidden_size = hidden_size
        self.report: FusionReport | None = None

    # ------------------------------------------------------------------ all fusions, and single ones
    def optimize(self, options: FusionOptions | None = None, add_dynamic_axes: bool = False) -> None:
        """Run the fusions that options ask for.

        Args:
            options: by default those of this model type.
            add_dynamic_axes: give the inputs' first axes names in place of numbers afterwards.

        Raises:
            OrtError: the model cannot be loaded.
        """
        fused, self.report = fuse_model(self.model, options or FusionOptions(self.default_type))
        self.initialize(fused)
        if add_dynamic_axes:
            self.use_dynamic_axes()
        log.info("%s", self.report)

    def _only(self, *switches: str) -> None:
        options = FusionOptions(self.default_type)
        for name in _ALL_OFF:
            setattr(options, name, name in switches)
        self.initialize(fuse_model(self.model, options)[0])

    def fuse_attention(self) -> None:
        """Fuse attentions."""
        self._only("enable_attention")

    def fuse_gelu(self) -> None:
        """Fuse GELUs of all forms."""
        self._only("enable_gelu")

    def fuse_bias_gelu(self, is_fastgelu: bool) -> None:
        """Fuse biases into GELUs; those of FastGelu are fused with it."""
        self._only(*(() if is_fastgelu else ("enable_bias_gelu",)))

    def gelu_approximation(self) -> None:
        """Let GELUs be computed by tanh."""
        self._only("enable_gelu_approximation")

    def fuse_layer_norm(self) -> None:
        """Fuse layer norms, and RMS norms."""
        self._only("enable_layer_norm")

    def fuse_simplified_layer_norm(self) -> None:
        """Fuse RMS norms, and layer norms."""
        self._only("enable_layer_norm")

    def fuse_skip_layer_norm(self, shape_infer: bool = True) -> None:
        """Fuse additions into the norms behind them; shapes are inferred in any case."""
        self._only("enable_skip_layer_norm")

    def fuse_skip_simplified_layer_norm(self) -> None:
        """Fuse additions into the norms behind them."""
        self._only("enable_skip_layer_norm")

    def fuse_add_bias_skip_layer_norm(self) -> None:
        """Fuse biases into the norms that have a skip already."""
        self._only("enable_bias_skip_layer_norm")

    def fuse_embed_layer(self, use_mask_index: bool = False) -> None:
        """Fuse embeddings with the norm behind them."""
        self._only("enable_embed_layer_norm")

    def fuse_rotary_embeddings(self) -> None:
        """Fuse rotations of queries and keys."""
        self._only("enable_rotary_embeddings")

    def fuse_constant_fold(self) -> None:
        """Fold constants, with the other basic passes."""
        self._only()

    def preprocess(self) -> None:
        """Do nothing: fusions bring the model into their own form."""

    def postprocess(self) -> None:
        """Remove what nothing needs."""
        self.prune_graph(allow_remove_graph_inputs=False)

    def clean_graph(self) -> None:
        """Run the basic passes."""
        self._only()

    # ------------------------------------------------------------------ inputs
    def get_graph_inputs_from_node_type(self, op_type: str, input_indices: Sequence[int], casted: bool) -> list[str]:
        """Return inputs of the graph that operators of a type read at some places, directly or through a Cast."""
        makers = self.output_name_to_node()
        inputs = {each.name for each in self.get_graph_inputs_excluding_initializers()}
        found: list[str] = []
        for node in self.get_nodes_by_op_type(op_type):
            for place in (each for each in input_indices if each < len(node.input)):
                name = node.input[place]
                parent = makers.get(name)
                if casted and parent is not None and parent.op_type == "Cast":
                    name = parent.input[0]
                elif casted:
                    continue
                if name in inputs and name not in found:
                    found.append(name)
        return found

    def get_graph_inputs_from_fused_nodes(self, casted: bool) -> list[str]:
        """Return inputs of the graph that fused embeddings and attentions read as numbers, maybe through a Cast."""
        embedded = self.get_graph_inputs_from_node_type("EmbedLayerNormalization", _INDEX_INPUTS, casted)
        return embedded + self.get_graph_inputs_from_node_type("Attention", [3], casted)

    def change_graph_inputs_to_int32(self) -> None:
        """Let inputs that fused operators read be int32, where they are int64."""
        for name in self.get_graph_inputs_from_fused_nodes(casted=False) + self.get_graph_inputs_from_fused_nodes(True):
            found = self.find_graph_input(name)
            if found is not None and found.type.tensor_type.elem_type == TensorProto.INT64:
                self.change_graph_input_type(found, TensorProto.INT32)

    def use_dynamic_axes(
        self, dynamic_batch_dim: str | int = "batch_size", dynamic_seq_len: str | int = "max_seq_len"
    ) -> None:
        """Name the batch of inputs and outputs, and the length of those inputs that fused operators read."""
        indices = set(self.get_graph_inputs_from_fused_nodes(True) + self.get_graph_inputs_from_fused_nodes(False))
        for each in (*self.model.graph.input, *self.model.graph.output):
            sizes = each.type.tensor_type.shape.dim
            for size, name in zip(
                sizes[: 2 if each.name in indices else 1], (dynamic_batch_dim, dynamic_seq_len), strict=False
            ):
                if isinstance(name, int):
                    size.dim_value = name
                else:
                    size.dim_param = name

    # ------------------------------------------------------------------ what was fused
    def get_fused_operator_statistics(self) -> dict[str, int]:
        """Return how many there are of each operator that onnxruntime's fusions of this type write, and of ours."""
        statistics = self.get_operator_statistics()
        ours = {name: count for name, count in statistics.items() if name in _OURS}
        return {name: statistics.get(name, 0) for name in self.counted} | ours

    def is_fully_optimized(self, fused_op_count: dict[str, int] | None = None) -> bool:
        """Return whether embeddings, attentions, GELUs and norms were fused, one layer at least of each."""
        count = fused_op_count or self.get_fused_operator_statistics()

        def total(*names: str) -> int:
            return sum(count.get(name, 0) for name in names)

        embeddings = total("EmbedLayerNormalization")
        attentions = total("Attention", "MultiHeadAttention", "GroupQueryAttention", "QOrderedAttention")
        gelus = total("Gelu", "BiasGelu", "FastGelu")
        norms = total("LayerNormalization", "SkipLayerNormalization", "QOrderedLayerNormalization")
        rms = total("SimplifiedLayerNormalization", "SkipSimplifiedLayerNormalization")
        is_full = attentions > 0 and ((embeddings > 0 and attentions == gelus and norms >= 2 * attentions) or rms > 0)
        if not is_full and self.report is not None:
            log.warning("not everything was fused: %s", self.report)
        return is_full

    def convert_to_packing_mode(self, use_symbolic_shape_infer: bool = True) -> None:
        """Leave padding out between attentions; where that cannot be, log why and stay as it is."""
        PackingMode(self).convert(use_symbolic_shape_infer)
