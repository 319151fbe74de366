"""OrtStableDiffusionOptimizer: one model of a pipeline, fused."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import onnx

from ort_transformers.fusion_options import IMAGE_MODELS, FusionOptions
from ort_transformers.models.stable_diffusion.optimize_pipeline import by_session
from ort_transformers.onnx_model import OnnxModel
from ort_transformers.optimizer import MODEL_TYPES, optimize_model

log = logging.getLogger(__name__)


class OrtStableDiffusionOptimizer:
    """Fuses models of one type: ``"vae"``, ``"unet"`` or ``"clip"``."""

    def __init__(self, model_type: str) -> None:
        if model_type not in IMAGE_MODELS:
            raise ValueError(f"the model type is one of {', '.join(IMAGE_MODELS)}, not {model_type!r}")
        self.model_type = model_type
        self.model_type_class_mapping = {name: MODEL_TYPES[name][0] for name in IMAGE_MODELS}

    def optimize_by_ort(
        self, onnx_model: OnnxModel, use_external_data_format: bool = False, tmp_dir: str | None = None
    ) -> OnnxModel:
        """Return a model as a session runs it; ``tmp_dir`` is not needed."""
        return by_session(onnx_model, self.model_type, is_external=use_external_data_format)

    def optimize(
        self,
        input_fp32_onnx_path: str,
        optimized_onnx_path: str,
        float16: bool = True,
        keep_io_types: bool = False,
        fp32_op_list: Sequence[str] | None = None,
        keep_outputs: Sequence[str] | None = None,
        optimize_by_ort: bool = True,
        optimize_by_fusion: bool = True,
        final_target_float16: bool = True,
        tmp_dir: str | None = None,
    ) -> None:
        """Fuse a file into another one.

        Args:
            input_fp32_onnx_path: the model, in float32.
            optimized_onnx_path: the file to write.
            float16: convert to float16.
            keep_io_types: leave inputs and outputs in float32.
            fp32_op_list: operators that stay in float32.
            keep_outputs: the only outputs to leave.
            optimize_by_ort: write the model as a session runs it.
            optimize_by_fusion: fuse.
            final_target_float16: whether it will be float16, now or later; packed forms are for that.
            tmp_dir: not needed.
        """
        if optimize_by_fusion:
            options = FusionOptions(self.model_type)
            if self.model_type == "unet" and not final_target_float16:
                options.enable_packed_kv = options.enable_packed_qkv = False
            fused = optimize_model(
                input_fp32_onnx_path, self.model_type, opt_level=0, optimization_options=options, use_gpu=True
            )
        else:
            model = onnx.load_model(input_fp32_onnx_path, load_external_data=True)
            fused = self.model_type_class_mapping[self.model_type](model)
        if keep_outputs:
            fused.prune_graph(outputs=list(keep_outputs))
        is_external = fused.model.ByteSize() >= onnx.checker.MAXIMUM_PROTOBUF
        if optimize_by_ort:
            fused = self.optimize_by_ort(fused, is_external, tmp_dir)
        if float16:
            blocked = None if fp32_op_list is None else list(fp32_op_list)
            fused.convert_float_to_float16(keep_io_types=keep_io_types, op_block_list=blocked)
        fused.save_model_to_file(optimized_onnx_path, use_external_data_format=is_external)
        log.info("written: %s", optimized_onnx_path)
