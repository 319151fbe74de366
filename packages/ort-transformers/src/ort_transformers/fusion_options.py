"""FusionOptions: which fusions are asked for, by onnxruntime's names and command line flags."""

from __future__ import annotations

import argparse
from enum import Enum

IMAGE_MODELS = ("unet", "vae", "clip")  # they alone have the options of convolution stems and group norms
_NO_MASK_TYPES = ("vit", "qwen3")


class AttentionMaskFormat:
    """How an Attention operator is to get its mask."""

    MaskIndexEnd = 0
    MaskIndexEndAndStart = 1
    AttentionMask = 2
    NoMask = 3


class AttentionOpType(Enum):
    """The operators that an attention can become."""

    Attention = "Attention"
    MultiHeadAttention = "MultiHeadAttention"
    GroupQueryAttention = "GroupQueryAttention"
    PagedAttention = "PagedAttention"

    def __str__(self) -> str:
        return self.value


class FusionOptions:
    """Which fusions run. Attributes are switched after construction.

    Args:
        model_type: one of ``optimizer.MODEL_TYPES``; defaults differ between them.
    """

    def __init__(self, model_type: str) -> None:
        self.enable_gelu = True
        self.enable_layer_norm = True
        self.enable_attention = True
        self.enable_rotary_embeddings = True
        self.use_multi_head_attention = False
        self.disable_multi_head_attention_bias = False
        self.enable_skip_layer_norm = True
        self.enable_embed_layer_norm = model_type not in ("clip", "qwen3")
        self.enable_bias_skip_layer_norm = True
        self.enable_bias_gelu = True
        self.enable_gelu_approximation = False
        self.enable_qordered_matmul = True
        self.enable_shape_inference = True
        self.enable_gemm_fast_gelu = False
        self.group_norm_channels_last = True
        self.attention_mask_format = AttentionMaskFormat.AttentionMask
        self.attention_op_type: AttentionOpType | None = None
        self.enable_experts = True  # not onnxruntime's
        self.use_standard_operators = False  # not onnxruntime's: write ai.onnx's operators, at opset 23 or later
        self.use_gpu_operators = False  # not onnxruntime's: write what onnxruntime runs on GPUs alone
        if model_type == "bert":
            self.attention_mask_format = AttentionMaskFormat.MaskIndexEnd
        elif model_type in _NO_MASK_TYPES:
            self.attention_mask_format = AttentionMaskFormat.NoMask
        if model_type in IMAGE_MODELS:
            self.enable_nhwc_conv = True
            self.enable_group_norm = True
            self.enable_skip_group_norm = True
            self.enable_bias_splitgelu = True
            self.enable_packed_qkv = True
            self.enable_packed_kv = True
            self.enable_bias_add = True

    def use_raw_attention_mask(self, use_raw_mask: bool = True) -> None:
        """Ask for masks as they are, or for the number of valid tokens of each row."""
        self.attention_mask_format = (
            AttentionMaskFormat.AttentionMask if use_raw_mask else AttentionMaskFormat.MaskIndexEnd
        )

    def disable_attention_mask(self) -> None:
        """Ask for no mask."""
        self.attention_mask_format = AttentionMaskFormat.NoMask

    def set_attention_op_type(self, attn_op_type: AttentionOpType) -> None:
        """Ask for one kind of attention operator."""
        self.attention_op_type = attn_op_type

    @staticmethod
    def parse(args: argparse.Namespace) -> FusionOptions:
        """Return the options of a parsed command line.

        A program that makes the namespace itself has the flags that it knows; those it lacks are not set.
        """
        flags = {name for name, value in vars(args).items() if value}
        options = FusionOptions(args.model_type)
        for flag, attribute in _SWITCHED_OFF.items():
            if flag in flags:
                setattr(options, attribute, False)
        for flag, attribute in _SWITCHED_ON.items():
            if flag in flags:
                setattr(options, attribute, True)
        if "use_mask_index" in flags:
            options.use_raw_attention_mask(False)
        if "use_raw_attention_mask" in flags:
            options.use_raw_attention_mask(True)
        if "no_attention_mask" in flags:
            options.disable_attention_mask()
        if args.model_type in IMAGE_MODELS:
            for flag, attribute in _SWITCHED_OFF_OF_IMAGES.items():
                if flag in flags:
                    setattr(options, attribute, False)
            if "use_group_norm_channels_first" in flags:
                options.group_norm_channels_last = False
        return options

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        """Give a parser the flags."""
        for flag, text in _FLAGS.items():
            parser.add_argument(f"--{flag}", required=False, action="store_true", help=text)
            parser.set_defaults(**{flag: False})


_SWITCHED_OFF = {
    "disable_gelu": "enable_gelu", "disable_layer_norm": "enable_layer_norm",
    "disable_rotary_embeddings": "enable_rotary_embeddings", "disable_attention": "enable_attention",
    "disable_skip_layer_norm": "enable_skip_layer_norm", "disable_embed_layer_norm": "enable_embed_layer_norm",
    "disable_bias_skip_layer_norm": "enable_bias_skip_layer_norm", "disable_bias_gelu": "enable_bias_gelu",
    "disable_shape_inference": "enable_shape_inference", "disable_experts": "enable_experts",
}  # fmt: skip
_SWITCHED_ON = {
    "enable_gelu_approximation": "enable_gelu_approximation", "enable_gemm_fast_gelu": "enable_gemm_fast_gelu",
    "use_multi_head_attention": "use_multi_head_attention",
    "use_standard_operators": "use_standard_operators", "use_gpu_operators": "use_gpu_operators",
}  # fmt: skip
_SWITCHED_OFF_OF_IMAGES = {
    "disable_group_norm": "enable_group_norm", "disable_skip_group_norm": "enable_skip_group_norm",
    "disable_packed_kv": "enable_packed_kv", "disable_packed_qkv": "enable_packed_qkv",
    "disable_bias_add": "enable_bias_add", "disable_bias_splitgelu": "enable_bias_splitgelu",
    "disable_nhwc_conv": "enable_nhwc_conv",
}  # fmt: skip
_FLAGS = {
    "disable_attention": "leave attentions as they are",
    "disable_skip_layer_norm": "leave additions in front of norms as they are",
    "disable_embed_layer_norm": "leave embeddings as they are",
    "disable_bias_skip_layer_norm": "leave biases in front of skips as they are",
    "disable_bias_gelu": "leave biases in front of GELUs as they are",
    "disable_experts": "leave mixtures of experts as they are",
    "disable_layer_norm": "leave norms as they are",
    "disable_gelu": "leave GELUs as they are",
    "enable_gelu_approximation": "compute GELUs by tanh",
    "disable_shape_inference": "taken, to no effect: fusions prove what they do by inferred shapes",
    "enable_gemm_fast_gelu": "taken, to no effect: no operator here joins a product and a FastGelu",
    "use_mask_index": "give attentions the number of valid tokens of each row",
    "use_raw_attention_mask": "give attentions their masks as they are",
    "no_attention_mask": "taken for onnxruntime's programs: a mask that the model has is never left out",
    "use_multi_head_attention": "write MultiHeadAttention where Attention would do",
    "use_standard_operators": "write operators of ai.onnx alone, converting the model to opset 23 where it is older",
    "use_gpu_operators": "write operators that onnxruntime runs on GPUs alone, as --use_gpu does for unet and vae",
    "disable_group_norm": "leave group norms as they are (unet, vae, clip)",
    "disable_skip_group_norm": "with GPU operators: leave additions in front of group norms (unet, vae, clip)",
    "disable_packed_kv": "with GPU operators: keep keys and values apart (unet, vae, clip)",
    "disable_packed_qkv": "with GPU operators: keep queries, keys and values apart (unet, vae, clip)",
    "disable_bias_add": "with GPU operators: leave biases as they are (unet, vae, clip)",
    "disable_bias_splitgelu": "with GPU operators: leave gated GELUs as they are (unet, vae, clip)",
    "disable_nhwc_conv": "with GPU operators: leave convolutions as they are (unet, vae, clip)",
    "use_group_norm_channels_first": "with GPU operators: leave the channels of group norms first (unet, vae, clip)",
    "disable_rotary_embeddings": "leave rotations of queries and keys as they are",
}
