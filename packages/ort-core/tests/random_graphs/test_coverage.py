"""Each operator that has a kernel is named by a family of random graphs, or stands here with the reason."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path

from ort_core.cpu.lowering.rule_table import RULES
from ort_core.environment import default_environment
from ort_core.ir.rejection import Rejection
from ort_core.kernels.reference_registry import reference_kernels
from random_graphs import families
from random_graphs.families.reductions import REDUCTIONS

RANDOM = "its results are random: tests of distributions hold it"

_REASONS: Mapping[str, str] = {
    RANDOM: "Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike",
    "it takes a sparse tensor, and feeds of graphs are dense": "com.microsoft:SparseToDenseMatMul",
    "bfloat16 alone, whose roundings in a row of products leave no truth": "com.microsoft:Mamba2Verify",
    "encoded bytes of images, which no operator makes": "ImageDecoder",
    "it refuses each graph": "ai.onnx.preview.training:Gradient",
    "a whole search over subgraphs; other searches are drawn": "com.microsoft:WhisperBeamSearch",
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


_UNDRAWN: Mapping[str, str] = {
    "it has no other value that CPUs take": (
        "com.microsoft:Attention.past_present_share_buffer com.microsoft:QAttention.past_present_share_buffer "
        "com.microsoft:MatMulNBits.weight_prepacked com.microsoft:PagedAttention.kv_cache_layout "
        "com.microsoft:PagedAttention.k_cache_dtype com.microsoft:PagedAttention.v_cache_dtype "
        "com.microsoft:PagedAttention.v_head_size com.microsoft:RotaryEmbedding.is_packed_batching "
        "com.microsoft:QMoE.quant_type com.microsoft:QMoE.weights_prepacked"
    ),
    "compiled code leaves it to the kernel, whose tests have it": (
        "Attention.qk_matmul_output_mode Attention.softmax_precision GRU.layout LSTM.input_forget LSTM.layout "
        "RNN.layout com.microsoft:DecoderMaskedMultiHeadAttention.output_qk "
        "com.microsoft:GroupQueryAttention.k_norm_epsilon com.microsoft:GroupQueryAttention.q_norm_epsilon "
        "com.microsoft:GroupQueryAttention.qk_norm_epsilon com.microsoft:GroupQueryAttention.qk_output "
        "com.microsoft:GroupQueryAttention.sliding_window_cache com.microsoft:PagedAttention.qk_norm_epsilon "
        "com.microsoft:MoE.use_sparse_mixer com.microsoft:QMoE.use_sparse_mixer"
    ),
    "onnxruntime refuses it on CPUs": (
        "com.microsoft:MoE.swiglu_limit_after_activation com.microsoft:QMoE.swiglu_limit_after_activation"
    ),
    "it lets onnxruntime round to 8 bits, and changes nothing here": "com.microsoft:QMoE.accuracy_level",
    "onnxruntime counts places by columns in another order": "MaxPool.storage_order",
    "of 8-bit scales alone, which no family makes": "Cast.round_mode CastLike.round_mode CastLike.saturate",
    "sums of families have no room for another precision": (
        "GroupNormalization.stash_type LayerNormalization.stash_type RMSNormalization.stash_type Range.stash_type "
        "SimplifiedLayerNormalization.stash_type"
    ),
    "a number of a formula, of which others are drawn": (
        "EyeLike.dtype GRU.activation_alpha GRU.activation_beta LSTM.activation_alpha LSTM.activation_beta "
        "RNN.activation_alpha RNN.activation_beta ReduceLogSumExp.noop_with_empty_axes RoiAlign.spatial_scale "
        "com.microsoft:DecoderMaskedMultiHeadAttention.mask_filter_value "
        "com.microsoft:EmbedLayerNormalization.epsilon "
        "com.microsoft:EmbedLayerNormalization.mask_index_type com.microsoft:GroupNorm.epsilon "
        "com.microsoft:GroupQueryAttention.causal com.microsoft:MultiHeadAttention.mask_filter_value "
        "com.microsoft:PagedAttention.rotary_interleaved com.microsoft:PagedAttention.rotary_offset "
        "com.microsoft:QAttention.mask_filter_value com.microsoft:SkipGroupNorm.epsilon"
    ),
}
"""By reason, attributes of compiled operators that no family sets."""


def _words_by_module() -> Mapping[str, tuple[set[str], set[str]]]:
    """Return by module the texts and keywords that it has, and those with what it imports of other families."""
    own: dict[str, set[str]] = {}
    imported: dict[str, set[str]] = {}
    for path in Path(families.__file__).parent.glob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
        own[path.stem] = {node.arg for node in nodes if isinstance(node, ast.keyword) and node.arg}
        for node in nodes:
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                own[path.stem].update(node.value.split())
        modules = [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module]
        imported[path.stem] = {module.rpartition(".")[2] for module in modules}
    return {
        name: (words, words.union(*(own.get(each, set()) for each in imported[name]))) for name, words in own.items()
    }


def test_each_attribute_of_a_compiled_operator_is_drawn_or_has_its_reason():
    modules, schemas = _words_by_module(), default_environment().schemas
    undrawn = set()
    for domain, name in RULES:
        schema = schemas.find(domain, name, 1 if domain else 28)
        if domain == "ai.onnx.ml" or isinstance(schema, Rejection):  # ensembles' names are made of parts
            continue
        drawn = set[str]().union(*(reached for own, reached in modules.values() if name in own))
        prefix = f"{domain}:{name}" if domain else name
        undrawn.update(f"{prefix}.{each}" for each in schema.attributes if each not in drawn)
    listed = [each for text in _UNDRAWN.values() for each in text.split()]
    assert len(set(listed)) == len(listed), "each has one reason"
    assert undrawn == set(listed), "let a family set what is missing, or give a reason above; drop what is drawn now"
