"""The passes of each level, in the order in which they run, and how they are chosen by name."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence

from ort_core.errors import InvalidArgument, UnknownOption, did_you_mean
from ort_core.passes.base import Level, Pass, RulePass
from ort_core.passes.choose_small_values import SmallBranches
from ort_core.passes.collect_growing_states import GrowingStates
from ort_core.passes.decide_branches import BranchesByRank
from ort_core.passes.eliminate_casts import CastThereAndBack, SameTypeCast, WideningCastChain
from ort_core.passes.eliminate_common_subexpressions import CommonSubexpressionElimination
from ort_core.passes.eliminate_double_quantization import DoubleQDQPairsRemover
from ort_core.passes.eliminate_dropout import EliminateDropout
from ort_core.passes.eliminate_empty import EmptyPartElimination
from ort_core.passes.eliminate_identity import EliminateIdentity
from ort_core.passes.eliminate_movement import (
    EliminateSlice,
    ExpandElimination,
    PreShapeNodeElimination,
    ReshapeChain,
    ReshapeToSameShape,
    UnsqueezeElimination,
)
from ort_core.passes.eliminate_noop import NoopElimination
from ort_core.passes.extended import EXTENDED_PASSES, STANDARD_FUSIONS
from ort_core.passes.fold_bag_loops import BagLoops
from ort_core.passes.fold_constants import ConstantFolding
from ort_core.passes.fold_into_convolution import ConvAddFusion, ConvBNFusion, ConvMulFusion
from ort_core.passes.fold_pad import PadFusion
from ort_core.passes.fold_shapes import ReshapeFusion, ShapeFolding
from ort_core.passes.fuse_arithmetic import DivMulFusion, NotWhereFusion
from ort_core.passes.fuse_gemm import (
    GemmInputTranspose,
    GemmOutputTranspose,
    GemmSumFusion,
    MatMulAddFusion,
    MatMulBatchNormalizationFusion,
)
from ort_core.passes.fuse_label_encoders import LabelEncoderFusion
from ort_core.passes.fuse_relu_clip import FuseReluClip
from ort_core.passes.fuse_space_to_depth import SliceConcatToSpaceToDepth
from ort_core.passes.gather_from_splits import ElementsOfSplits
from ort_core.passes.gather_rows_of_rounds import RowsOfRounds
from ort_core.passes.gather_strided_slices import SliceOfOne
from ort_core.passes.inline_functions import InlineFunctions
from ort_core.passes.optimize_transposes import TransposeOptimizer
from ort_core.passes.override_free_dimensions import FreeDimensionOverride
from ort_core.passes.release_loop_states import LoopStates
from ort_core.passes.remove_dead_code import DeadCodeElimination
from ort_core.passes.share_constants import ConstantSharing
from ort_core.passes.stack_sequences import StackedSequences


def build_basic_passes() -> list[Pass]:
    """Return the passes that keep to standard operators, whatever will run them."""
    return list(_basic_passes())


@functools.cache
def _basic_passes() -> tuple[Pass, ...]:
    """One set for all sessions: passes keep nothing, and what is known of a rule's pattern is known once."""
    return (
        InlineFunctions(),
        FreeDimensionOverride(),
        RulePass("EliminateIdentity", [EliminateIdentity()]),
        LoopStates(),
        RulePass("EliminateDropout", [EliminateDropout()]),
        RulePass("CastElimination", [SameTypeCast(), WideningCastChain()]),
        RulePass("CastChainElimination", [CastThereAndBack()], is_opt_in=True),
        RulePass("PreShapeNodeElimination", [PreShapeNodeElimination()]),
        ShapeFolding(),
        BranchesByRank(),
        ConstantFolding(),
        SmallBranches(),
        RowsOfRounds(),
        ElementsOfSplits(),
        StackedSequences(),
        GrowingStates(),
        BagLoops(),
        SliceOfOne(),
        ConstantSharing(),
        CommonSubexpressionElimination(),
        RulePass("EliminateSlice", [EliminateSlice()]),
        RulePass("EmptyPartElimination", [EmptyPartElimination()]),
        RulePass("ExpandElimination", [ExpandElimination()]),
        RulePass("UnsqueezeElimination", [UnsqueezeElimination()]),
        RulePass("NoopElimination", [NoopElimination()]),
        ReshapeFusion(),
        RulePass("ReshapeElimination", [ReshapeToSameShape(), ReshapeChain()]),
        RulePass("DoubleQDQPairsRemover", [DoubleQDQPairsRemover()]),
        RulePass("NotWhereFusion", [NotWhereFusion()]),
        RulePass("DivMulFusion", [DivMulFusion()]),
        RulePass("FuseReluClip", [FuseReluClip()]),
        RulePass("Pad_Fusion", [PadFusion()]),
        RulePass("ConvBNFusion", [ConvBNFusion()]),
        RulePass("ConvMulFusion", [ConvMulFusion()]),
        RulePass("ConvAddFusion", [ConvAddFusion()]),
        RulePass("MatMul_BatchNormalization_Fusion", [MatMulBatchNormalizationFusion()]),
        RulePass("MatMulAddFusion", [MatMulAddFusion()]),
        RulePass("GemmSumFusion", [GemmSumFusion()]),
        RulePass("GemmTransposeFusion", [GemmInputTranspose(), GemmOutputTranspose()]),
        RulePass("LabelEncoderFusion", [LabelEncoderFusion()]),
        RulePass("SliceConcatToSpaceToDepthFusion", [SliceConcatToSpaceToDepth()]),
        TransposeOptimizer(),
        *STANDARD_FUSIONS,
        DeadCodeElimination(),
    )


def build_extended_passes() -> list[Pass]:
    """Return the fusions to operators beyond the standard, for targets that have them."""
    return list(EXTENDED_PASSES)


def build_layout_passes() -> list[Pass]:
    """Return the passes that change the layout of data, for targets that prefer another."""
    return []


_BUILDERS = {
    Level.BASIC: build_basic_passes,
    Level.EXTENDED: build_extended_passes,
    Level.LAYOUT: build_layout_passes,
}
RULE_GROUPS = {
    "Level1_RuleBasedTransformer": (
        "EliminateIdentity", "EliminateSlice", "UnsqueezeElimination", "EliminateDropout", "ExpandElimination",
        "CastElimination", "CastChainElimination", "PreShapeNodeElimination", "NoopElimination", "DivMulFusion",
        "FuseReluClip", "GemmSumFusion", "GemmTransposeFusion", "NotWhereFusion", "ConvAddFusion", "ConvMulFusion",
        "ConvBNFusion", "Pad_Fusion", "MatMul_BatchNormalization_Fusion", "LabelEncoderFusion",
    ),
    "Level2_RuleBasedTransformer": ("ClipQuantRewrite", "ReluQuantRewrite", "GemmTransposeFusion"),
}  # fmt: skip
NOTHING_TO_DISABLE = frozenset(
    {
        "Avx2WeightS8ToU8Transformer", "BiasDropoutFusion", "BiasSoftmaxFusion", "CastFloat16Transformer",
        "DQMatMulNBitsFusion", "FuseFp16InitializerToFp32NodeTransformer", "GqaValueLayoutTransformer",
        "GroupQueryAttentionFusion", "GroupQueryAttentionPreNormFusion", "InsertCastTransformer",
        "MatMulActivationFusion", "MatMulNBitsMlpFusion", "MatMulNBitsQkvFusion", "MemcpyTransformer",
        "NchwcTransformer", "NhwcTransformer", "QDQS8ToU8Transformer", "RemoveDuplicateCastTransformer",
        "TransposeOptimizer_CPUExecutionProvider",
    }
)  # fmt: skip  # onnxruntime's names for what has no counterpart here: programs may name them, to no effect


def pipeline_for(
    level: Level,
    *,
    disabled: Iterable[str] = (),
    enabled: Iterable[str] = (),
    extra: Sequence[Pass] = (),
) -> tuple[Pass, ...]:
    """Return the passes of one level in order.

    Args:
        level: which list; a caller that wants several levels runs one pipeline after the other.
        disabled: names of passes, or of onnxruntime's groups of rules, to leave out at any level.
        enabled: names of opt-in passes to run.
        extra: a user's passes; those of this level take part, placed by their ``after`` and ``before``, else last.

    Raises:
        UnknownOption: a name is not known.
        InvalidArgument: the constraints of passes contradict each other.
    """
    names = set(known_names(extra))
    for name in (*disabled, *enabled):
        if name not in names and name not in NOTHING_TO_DISABLE:
            raise UnknownOption(
                f"no optimizer pass is called {name!r}.{did_you_mean(name, sorted(names))} "
                f"`ort optimize --list` shows all {len(names)}."
            )
    off = {member for name in disabled for member in RULE_GROUPS.get(name, (name,))}
    builder = _BUILDERS.get(level)
    passes = [*(builder() if builder else ()), *(each for each in extra if each.level == level)]
    asked = set(enabled)
    chosen = [p for p in passes if p.name not in off and (not p.is_opt_in or p.name in asked)]
    return order_passes(chosen)


def known_names(extra: Sequence[Pass] = ()) -> tuple[str, ...]:
    """Return the names of all passes of all levels and of the groups that stand for several."""
    own = [each.name for builder in _BUILDERS.values() for each in builder()]
    return tuple(dict.fromkeys([*own, *(each.name for each in extra), *RULE_GROUPS]))


def order_passes(passes: Sequence[Pass]) -> tuple[Pass, ...]:
    """Return passes so that ``after`` and ``before`` hold, keeping the given order where it is free.

    Raises:
        InvalidArgument: the constraints form a cycle.
    """
    position = {id(each): index for index, each in enumerate(passes)}
    needs: dict[int, set[int]] = {id(each): set() for each in passes}
    for each in passes:
        for other in passes:
            if other.name in each.after:
                needs[id(each)].add(id(other))
            if other.name in each.before:
                needs[id(other)].add(id(each))
    ordered: list[Pass] = []
    done: set[int] = set()
    waiting = list(passes)
    while waiting:
        ready = next((each for each in waiting if needs[id(each)] <= done), None)
        if ready is None:
            stuck = ", ".join(each.name for each in sorted(waiting, key=lambda p: position[id(p)]))
            raise InvalidArgument(f"the ordering constraints (after, before) of these passes form a cycle: {stuck}")
        waiting.remove(ready)
        done.add(id(ready))
        ordered.append(ready)
    return tuple(ordered)
