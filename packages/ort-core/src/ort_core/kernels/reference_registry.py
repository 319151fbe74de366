"""The reference registry: every numpy kernel of ``kernels/reference``, from one literal list of families."""

from __future__ import annotations

import functools
import importlib

from ort_core.kernels.registry import KernelRegistry

FAMILIES: tuple[str, ...] = (
    "activations",
    "arithmetic",
    "attention",
    "cast",
    "contrib_activation",
    "contrib_attention",
    "contrib_block_quantized",
    "contrib_convolution",
    "contrib_embedding",
    "contrib_group_query_attention",
    "contrib_hashing",
    "contrib_hyper_connections",
    "contrib_image",
    "contrib_linear_attention",
    "contrib_matmul",
    "contrib_mixture_of_experts",
    "contrib_normalization",
    "contrib_pooling",
    "contrib_qlinear",
    "contrib_quantized_attention",
    "contrib_quantized_product",
    "contrib_recurrent",
    "contrib_rotary",
    "contrib_sparse_attention",
    "contrib_tensor",
    "contrib_text",
    "control_flow",
    "convolution",
    "cumulative",
    "deformable",
    "detection",
    "dropout",
    "gather",
    "generators",
    "grid_sample",
    "image_decoder",
    "legacy_experimental",
    "logic",
    "losses",
    "matrix_products",
    "ml_features",
    "ml_linear",
    "ml_maps",
    "ml_svm",
    "ml_trees",
    "movement",
    "normalization",
    "pad",
    "pooling",
    "position_and_cache",
    "quantization",
    "quantized_convolution",
    "quantized_matmul",
    "random_numbers",
    "rearrangement",
    "recurrent",
    "reductions",
    "regions",
    "resize",
    "scatter",
    "selection",
    "sequences",
    "shapes",
    "signal",
    "softmax",
    "text",
    "tfidf",
    "training",
    "unary_math",
    "window_functions",
)


@functools.cache
def reference_kernels() -> KernelRegistry:
    """Return the registry of all reference kernels (built once; not to be changed, extend a copy)."""
    package = "ort_core.kernels.reference"
    return KernelRegistry.of(importlib.import_module(f"{package}.{family}") for family in FAMILIES)
