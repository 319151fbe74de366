"""Each operator that has a kernel is named by a family of random graphs, or stands here with the reason."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path

from ort_core.kernels.reference_registry import reference_kernels
from random_graphs import families
from random_graphs.families.reductions import REDUCTIONS

RANDOM = "its results are random: tests of distributions hold it"
FED = "what it takes is no tensor, and feeds of graphs are tensors"
NOT_YET = "no family yet: cases of the operator hold it"

_REASONS: Mapping[str, str] = {
    RANDOM: "Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike",
    FED: "ai.onnx.ml:CastMap ai.onnx.ml:DictVectorizer",
    "encoded bytes of images, which no operator makes": "ImageDecoder",
    "it refuses each graph": "ai.onnx.preview.training:Gradient",
    "a whole search over subgraphs; other searches are drawn": "com.microsoft:WhisperBeamSearch",
    NOT_YET: "Affine Crop DynamicSlice ImageScaler ParametricSoftplus Scale ScaledTanh "
    "com.microsoft:AttnLSTM "
    "com.microsoft:ConvStateReplay com.microsoft:DecoderMaskedSelfAttention "
    "com.microsoft:DequantizeWithOrder com.microsoft:DynamicTimeWarping "
    "com.microsoft:GatedDeltaNet com.microsoft:GatedDeltaNetStateReplay "
    "com.microsoft:GatedRelativePositionBias com.microsoft:GatherPacked com.microsoft:GemmFloat8 "
    "com.microsoft:GemmaRotaryEmbedding com.microsoft:HyperConnectionLowRankMix "
    "com.microsoft:Mamba2Verify com.microsoft:MatMulBlockQuantizedFp4Weight "
    "com.microsoft:MatMulBlockQuantizedFp8Weight com.microsoft:MatMulFpQ4 com.microsoft:MatMulNBitsQLoRA "
    "com.microsoft:MatMulPacked com.microsoft:MoEGroupRouter com.microsoft:MoEPacked "
    "com.microsoft:PackedSparseAttentionIndexerMerge "
    "com.microsoft:QOrderedGelu com.microsoft:QOrderedLayerNormalization com.microsoft:QuantizeWithOrder "
    "com.microsoft:SparseToDenseMatMul "
    "com.microsoft:VarlenCausalConvWithState com.microsoft:VarlenNGramHashMapping",
}
"""By reason, operators that no family draws."""


def _named() -> set[str]:
    """Return the texts of the families' modules: names of operators among them."""
    found = {f"Reduce{each}" for each in REDUCTIONS}
    for path in Path(families.__file__).parent.glob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
        docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        for node in nodes:
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
                found.update(node.value.split())
    return found


def _split(text: str) -> list[tuple[str, str]]:
    return [(domain, name) for domain, _, name in (each.rpartition(":") for each in text.split())]


def test_each_operator_with_a_kernel_is_drawn_or_has_its_reason():
    named = _named()
    undrawn = {each for each in reference_kernels().names() if each[1] not in named}
    listed = [each for text in _REASONS.values() for each in _split(text)]
    assert len(set(listed)) == len(listed), "each has one reason"
    missing = sorted(undrawn - set(listed))
    assert not missing, f"give each a family (families/__init__.py says how), or a reason above: {missing}"
    stale = sorted(set(listed) - undrawn)
    assert not stale, f"families draw these now: {stale}"
