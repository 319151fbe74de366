"""ONNX's own node cases of operators that onnxruntime lacks or computes otherwise, wholly as Core ML programs."""

from __future__ import annotations

import numpy as np
import pytest

import ort_core as ort
from ort_conformance.suites.backend_cases import node_cases
from ort_core.tolerances import compare

CASES = (
    "test_argmax_negative_axis_keepdims_random_select_last_index",
    "test_attention_23_boolmask_fullymasked_row_nan_robustness",
    "test_attention_4d_causal_nonpad_attn_mask_composition",
    "test_attention_4d_with_past_and_present_qk_matmul_bias_3d_mask_causal",
    "test_attention_bidirectional_window",
    "test_attention_local_window_with_past",
    "test_averagepool_3d_dilations_large_count_include_pad_is_0_ceil_mode_is_True",
    "test_causal_conv_with_state_with_bias_and_past_state",
    "test_lppool_2d_same_lower",
    "test_nllloss_NCd1d2_with_weight_reduction_mean",
    "test_sce_mean_no_weight_ii_3d",
    "test_sce_mean_weight_ii_4d_log_prob",
    "test_swiglu_alpha",
)
"""Names of cases, one for each way in which an operator is lowered."""


@pytest.fixture(scope="module")
def cases(sdk):
    """Return the node cases by name."""
    return {case.name: case for case in node_cases(is_ml=False) if case.name in CASES}


@pytest.mark.parametrize("name", CASES)
def test_a_node_case_gives_what_onnx_ships(name, cases, caplog):
    case = cases[name]
    settings = ort.SessionOptions()
    settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    settings.strict_placement = True
    given = case.model().SerializeToString()
    session = ort.InferenceSession(
        given, settings, providers=["CoreMLEvaluationExecutionProvider"], enable_fallback=False
    )
    for data in case.data_sets():
        found = session.run(None, dict(data.feeds))
        for place, (a, b) in enumerate(zip(found, data.expected, strict=True)):
            facts = compare(np.asarray(a), np.asarray(b), "approximate")
            assert facts.passes, f"output {place}: {facts}"
    assert "numpy kernels" not in caplog.text, "the program itself is to be compared"
