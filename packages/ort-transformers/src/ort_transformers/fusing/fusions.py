"""fuse_model(): the fusions of ort-core over a model as whatever exporter wrote it, and a report of them.

The basic passes bring exports to one form: constants folded, shapes inferred, copies and empty moves gone. Fusions look
at that form, so that neither the exporter nor the implementation of attention that it traced decides what they find.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import onnx
import onnx.version_converter

from ort_core.errors import Fail
from ort_core.model_graphs import graphs_of, reads_of, without_functions
from ort_core.model_optimization import optimize_proto
from ort_core.plugin.passes import (
    EXTENDED_PASSES,
    AttentionFusion,
    AttentionTarget,
    ChannelNormFusion,
    ExpertFusion,
    GroupNormFusion,
    Level,
    Pass,
    RotaryEmbeddingFusion,
    RulePass,
    pipeline_for,
)
from ort_transformers.fusing.biases_apart import BIASES_APART
from ort_transformers.fusing.column_softmax import COLUMN_SOFTMAX
from ort_transformers.fusing.einsum_forms import EINSUM_FORMS
from ort_transformers.fusing.even_and_odd import EVEN_AND_ODD
from ort_transformers.fusing.five_axes import FIVE_AXES
from ort_transformers.fusing.fusion_report import FusionReport, report_of
from ort_transformers.fusing.joined_axes import JOINED_AXES
from ort_transformers.fusing.nhwc_convolutions import NHWC_CONVOLUTIONS
from ort_transformers.fusing.norm_forms import NORM_FORMS
from ort_transformers.fusing.packed_projections import PACKED_KV, PACKED_QKV
from ort_transformers.fusing.pairs_as_axis import PAIRS_AS_AXIS
from ort_transformers.fusing.row_scales import ROW_SCALES
from ort_transformers.fusing.score_sizes import SCORE_SIZES
from ort_transformers.fusing.sign_forms import SIGN_FORMS
from ort_transformers.fusing.skip_group_norms import SKIP_GROUP_NORMS
from ort_transformers.fusing.softmax_forms import SOFTMAX_FORMS
from ort_transformers.fusing.split_gelus import BIAS_ADDITIONS, SPLIT_GELUS
from ort_transformers.fusing.stacked_queries import STACKED_QUERIES
from ort_transformers.fusing.tensorflow_forms import TENSORFLOW_FORMS
from ort_transformers.fusing.turned_shares import TURNED_SHARES
from ort_transformers.fusing.zero_addends import ZERO_ADDENDS
from ort_transformers.fusion_options import AttentionOpType, FusionOptions

MICROSOFT = "com.microsoft"
ATTENTION = "AttentionFusion"
_SWITCHES = {  # the passes of each option; those without one always run
    "enable_experts": ("ExpertFusion",),
    "enable_gelu": ("GeluFusionL2", "FastGeluFusion", "QuickGeluFusion"),
    "enable_layer_norm": ("LayerNormFusionL2", "SimplifiedLayerNormFusion"),
    "enable_rotary_embeddings": ("RotaryEmbeddingFusion",),
    "enable_attention": ("AttentionFusion",),
    "enable_embed_layer_norm": ("EmbedLayerNormFusion",),
    "enable_bias_gelu": ("BiasGeluFusion",),
    "enable_skip_layer_norm": ("SkipLayerNormFusion",),
    "enable_bias_skip_layer_norm": ("BiasSkipLayerNormFusion",),
    "enable_gelu_approximation": ("GeluApproximation",),
}
_GPU_SWITCHES = {  # options that image models alone have; a BiasAdd is what no norm behind it took
    "enable_bias_splitgelu": SPLIT_GELUS,
    "enable_skip_group_norm": SKIP_GROUP_NORMS,
    "enable_nhwc_conv": NHWC_CONVOLUTIONS,
    "enable_bias_add": BIAS_ADDITIONS,
    "enable_packed_qkv": PACKED_QKV,
    "enable_packed_kv": PACKED_KV,
}
_BASIC_SWITCHES = {"enable_gelu": ("GeluFusionL1",), "enable_layer_norm": ("LayerNormFusionL1",)}


EXPERTS = RulePass("ExpertFusion", [ExpertFusion()], Level.EXTENDED)  # before activations become operators of their own
CHANNEL_NORMS = RulePass(
    "ChannelNormFusion", [ChannelNormFusion(is_centered=True), ChannelNormFusion(is_centered=False)], Level.EXTENDED
)
_MERGING = frozenset({"ReshapeElimination", "TransposeOptimizer"})
_CLEANING = frozenset({"ReshapeElimination", "DeadCodeElimination", "TransposeOptimizer"})
STANDARD_OPSET = 23
GROUP_NORM = "GroupNormFusion"
GPU_GROUP_NORMS = {
    is_last: RulePass(GROUP_NORM, [GroupNormFusion(is_standard=False, is_channels_last=is_last)], Level.EXTENDED)
    for is_last in (True, False)
}
STANDARD_PASSES: tuple[Pass, ...] = (  # that write operators of the standard; GELUs and layer norms are basic ones
    RulePass(GROUP_NORM, [GroupNormFusion()], Level.EXTENDED),
    *(each for each in EXTENDED_PASSES if each.name == "SimplifiedLayerNormFusion"),
    RulePass("RotaryEmbeddingFusion", [RotaryEmbeddingFusion(is_standard=True)], Level.EXTENDED),
    RulePass(ATTENTION, [AttentionFusion(targets=[AttentionTarget.STANDARD])], Level.EXTENDED),
)


def fuse_model(
    source: str | os.PathLike | onnx.ModelProto,
    options: FusionOptions | None = None,
    *,
    checks: bool = False,
    feeds: Mapping[str, object] | None = None,
) -> tuple[onnx.ModelProto, FusionReport]:
    """Fuse attentions, norms, GELUs, embeddings and rotations.

    Args:
        source: a path, or a model, which is not changed.
        options: which fusions run; by default those of BERT.
        checks: evaluate the model by the reference kernels around each pass that changed it.
        feeds: inputs for that; others are made up.

    Returns:
        The fused model, and what was fused and what was not, with the first reason.

    Raises:
        OrtError: the model cannot be loaded.
        Fail: a fusion changed a result (with ``checks``), or the model has no form in the opset of standard operators.
    """
    options = options or FusionOptions("bert")
    if options.use_standard_operators:
        source = at_standard_opset(source)
    basic = basic_passes(options)
    pipelines = [basic, form_passes(basic, options), fusion_passes(options), *gpu_pipelines(basic, options)]
    done = optimize_proto(source, pipelines, explains=True, checks=checks, feeds=feeds)
    for graph in graphs_of(done.model.graph):
        drop_unread_tensors(graph)
    return done.model, report_of(done)


def drop_unread_tensors(graph: onnx.GraphProto) -> None:
    """Remove tensors that nothing reads, in place: onnxruntime warns of each. Defaults of inputs stay."""
    read = {name for node in graph.node for name in reads_of(node)}
    read |= {each.name for values in (graph.input, graph.output) for each in values}
    for place in reversed(range(len(graph.initializer))):
        if graph.initializer[place].name not in read:
            del graph.initializer[place]


def at_standard_opset(source: str | os.PathLike | onnx.ModelProto) -> onnx.ModelProto:
    """Return a model of at least the opset that brought Attention, RotaryEmbedding and RMSNormalization.

    Raises:
        Fail: an operator of the model has no form in that opset.
    """
    model = source if isinstance(source, onnx.ModelProto) else onnx.load(source)
    found = next((each.version for each in model.opset_import if each.domain in ("", "ai.onnx")), STANDARD_OPSET)
    if found >= STANDARD_OPSET:
        return model
    try:
        return onnx.version_converter.convert_version(without_functions(model), STANDARD_OPSET)
    except Exception as error:
        raise Fail(
            f"the model is of opset {found}, standard operators for attentions need {STANDARD_OPSET}, and it cannot be "
            f"converted: {error}. Export it at that opset, or leave use_standard_operators out."
        ) from error


def basic_passes(options: FusionOptions) -> Sequence[Pass]:
    """Return the passes that bring a model to the form in which fusions look for what they know."""
    disabled = [name for switch, names in _BASIC_SWITCHES.items() if not getattr(options, switch) for name in names]
    return pipeline_for(Level.BASIC, disabled=disabled)


def form_passes(basic: Sequence[Pass], options: FusionOptions) -> Sequence[Pass]:
    """Return the passes that bring TensorFlow's forms, Einsums, sizes and scales to those of others, and clean up."""
    named = {each.name: each for each in basic}
    once = [named[name] for name in ("CommonSubexpressionElimination", "LayerNormFusionL1") if name in named]
    norms = [NORM_FORMS, *once, CHANNEL_NORMS]
    return [
        *((PAIRS_AS_AXIS, SIGN_FORMS, EVEN_AND_ODD, *once[:1]) if options.enable_rotary_embeddings else ()),
        TENSORFLOW_FORMS,
        ZERO_ADDENDS,
        *(norms if options.enable_layer_norm else ()),
        SOFTMAX_FORMS,
        EINSUM_FORMS,
        BIASES_APART,
        SCORE_SIZES,
        ROW_SCALES,
        COLUMN_SOFTMAX,
        TURNED_SHARES,
        STACKED_QUERIES,
        FIVE_AXES,
        *(each for each in basic if each.name in _MERGING),
        JOINED_AXES,
        *(each for each in basic if each.name in _CLEANING),
    ]


def fusion_passes(options: FusionOptions) -> Sequence[Pass]:
    """Return the fusions that options ask for, in their order."""
    wanted = {name for switch, names in _SWITCHES.items() if getattr(options, switch) for name in names}
    if getattr(options, "enable_group_norm", options.enable_layer_norm):  # only options of image models have it
        wanted.add(GROUP_NORM)
    if options.use_standard_operators:
        return [each for each in STANDARD_PASSES if each.name in wanted]
    chosen = {ATTENTION: RulePass(ATTENTION, [AttentionFusion(targets=attention_targets(options))], Level.EXTENDED)}
    groups = GPU_GROUP_NORMS[options.group_norm_channels_last]
    first = (groups, EXPERTS) if options.use_gpu_operators else (EXPERTS,)
    return [chosen.get(each.name, each) for each in (*first, *EXTENDED_PASSES) if each.name in wanted]


def gpu_pipelines(basic: Sequence[Pass], options: FusionOptions) -> Sequence[Sequence[Pass]]:
    """Return the fusions that images alone have, which onnxruntime runs on GPUs alone, and a pipeline to clean up."""
    if not options.use_gpu_operators or options.use_standard_operators:
        return []
    wanted = [each for switch, each in _GPU_SWITCHES.items() if getattr(options, switch, False)]
    return [wanted, [each for each in basic if each.name in _CLEANING]] if wanted else []


def attention_targets(options: FusionOptions) -> frozenset[AttentionTarget]:
    """Return the operators that attentions may become.

    GroupQueryAttention takes the cache only where options ask for that operator: onnxruntime's kernel refuses a past
    beside several new tokens of several sentences, which the model as exported runs.
    """
    asked = options.attention_op_type
    multi_head = frozenset({AttentionTarget.MULTI_HEAD, AttentionTarget.MULTI_HEAD_OF_MADE_KEYS})
    if asked is None:
        return multi_head | {AttentionTarget.GROUPED}
    if asked is AttentionOpType.GroupQueryAttention:
        return multi_head | {AttentionTarget.GROUPED, AttentionTarget.GROUPED_PAST}
    return multi_head
