"""The fusions inside the CPU provider's partitions: those whose operators the compiler lowers."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ort_core.cpu.fusions.byte_tables import ByteTables
from ort_core.cpu.fusions.channel_products import ChannelProducts
from ort_core.cpu.fusions.channels_last_parts import ChannelsLastConvolutions
from ort_core.cpu.fusions.constant_pads import ConstantPads
from ort_core.cpu.fusions.dynamic_lstm import DynamicLstmAsLstm
from ort_core.cpu.fusions.microsoft_parts import MicrosoftInParts
from ort_core.cpu.fusions.quantized_parts import MeanInParts, SoftmaxInParts, WhereInParts
from ort_core.cpu.fusions.string_labels import SplitStringLabels
from ort_core.plugin.ir import DataType
from ort_core.plugin.passes import EXTENDED_PASSES, AttentionFusion, ConvAddFusion, GroupNormFusion, Level, RulePass

if TYPE_CHECKING:
    from ort_core.plugin import Pass

FUSIONS = frozenset(
    {
        "ClipQuantRewrite", "ReluQuantRewrite", "GeluFusionL2", "LayerNormFusionL2", "SimplifiedLayerNormFusion",
        "GatherSliceToSplitFusion", "GatherToSliceFusion", "BiasGeluFusion", "SkipLayerNormFusion",
        "BiasSkipLayerNormFusion", "FastGeluFusion", "QuickGeluFusion", "MatMulScaleFusion", "MatMulNBitsFusion",
    }
)  # fmt: skip
ATTENTION = RulePass("AttentionFusion", [AttentionFusion(frozenset({DataType.FLOAT}))], Level.EXTENDED)
BIASES = RulePass(ConvAddFusion.name, [ConvAddFusion()], Level.EXTENDED)
GROUPS = RulePass(GroupNormFusion.name, [GroupNormFusion()], Level.EXTENDED)
RECURRENT = RulePass(DynamicLstmAsLstm.name, [DynamicLstmAsLstm()], Level.EXTENDED)
QUANTIZED = RulePass("QuantizedInParts", [SoftmaxInParts(), MeanInParts(), WhereInParts()], Level.EXTENDED)
CHANNELS_LAST = RulePass(ChannelsLastConvolutions.name, [ChannelsLastConvolutions()], Level.EXTENDED)
PADS = RulePass(ConstantPads.name, [ConstantPads()], Level.EXTENDED)
LABELS = RulePass(SplitStringLabels.name, [SplitStringLabels()], Level.EXTENDED)


@functools.cache
def chosen_fusions() -> Sequence[Pass]:
    """Return the passes in order; the other extended ones would take nodes away from the compiler."""
    passes: list[Pass] = []
    for each in EXTENDED_PASSES:
        if each.name == ATTENTION.name:
            passes += (ATTENTION, ChannelProducts(), BIASES)  # behind it: attentions are known by transposed heads
        elif each.name in FUSIONS:
            passes.append(each)
    return (
        MicrosoftInParts(),
        CHANNELS_LAST,
        *passes,
        GROUPS,
        RECURRENT,
        PADS,
        QUANTIZED,
        LABELS,
        ByteTables(),
    )
