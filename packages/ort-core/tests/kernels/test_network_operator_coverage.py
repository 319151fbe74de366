"""Every version of each network operator has a kernel whose attributes are the schema's, with the same defaults."""

import importlib

import onnx.defs
import pytest
from onnx import helper

from ort_core.kernels.registry import KernelRegistry, attribute_names, signature

FAMILIES = [
    "attention.attention",
    "images.convolution",
    "images.deformable",
    "images.detection",
    "generators.dropout",
    "images.grid_sample",
    "images.image_decoder",
    "normalization.normalization",
    "images.pooling",
    "attention.position_and_cache",
    "movement.rearrangement",
    "recurrent.recurrent",
    "images.regions",
    "images.resize",
    "signals.signal",
]
REGISTRY = KernelRegistry.of(importlib.import_module(f"ort_core.kernels.reference.{name}") for name in FAMILIES)
OPERATORS = {(domain, op_type) for domain, op_type, _ in REGISTRY.operators()}
SCHEMAS = [s for s in onnx.defs.get_all_schemas_with_history() if (s.domain, s.name) in OPERATORS]
# Attributes whose default the schema states in words only.
IN_WORDS = {"activations", "kv_num_heads", "q_num_heads"}


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda s: f"{s.name}-{s.since_version}")
def test_kernel_takes_the_attributes_of_each_version_with_their_defaults(schema):
    spec = REGISTRY.find(schema.domain, schema.name, schema.since_version)
    assert spec, f"no kernel for {schema.name} since {schema.since_version}"
    assert set(schema.attributes) <= attribute_names(spec.function)
    for name, attribute in schema.attributes.items():
        default = signature(spec.function).parameters[name].default
        if attribute.default_value.name and name not in IN_WORDS:
            stated = helper.get_attribute_value(attribute.default_value)
            stated = stated.decode() if isinstance(stated, bytes) else stated
            stated = tuple(stated) if isinstance(stated, list) else stated
            if (schema.name, schema.since_version, name) == ("GRU", 1, "direction"):
                stated = "forward"  # misspelled in the schema
            assert default == (pytest.approx(stated, rel=1e-6) if isinstance(stated, float) else stated), name


def test_kernels_cover_every_operator_of_the_families():
    expected = [
        "Attention",
        "AveragePool",
        "BatchNormalization",
        "CausalConvWithState",
        "Col2Im",
        "Conv",
        "ConvTranspose",
        "DFT",
        "DeformConv",
        "Dropout",
        "GRU",
        "GlobalAveragePool",
        "GlobalLpPool",
        "GlobalMaxPool",
        "GridSample",
        "AffineGrid",
        "GroupNormalization",
        "ImageDecoder",
        "InstanceNormalization",
        "LRN",
        "LSTM",
        "LayerNormalization",
        "LinearAttention",
        "LpNormalization",
        "LpPool",
        "MaxPool",
        "MaxRoiPool",
        "MaxUnpool",
        "MeanVarianceNormalization",
        "MelWeightMatrix",
        "NonMaxSuppression",
        "RMSNormalization",
        "RNN",
        "Resize",
        "RoiAlign",
        "RotaryEmbedding",
        "TensorScatter",
        "DepthToSpace",
        "SpaceToDepth",
        "CenterCropPad",
        "STFT",
        "Upsample",
    ]
    assert {name for domain, name in OPERATORS if not domain} >= set(expected)
    assert ("ai.onnx.preview", "FlexAttention") in OPERATORS
