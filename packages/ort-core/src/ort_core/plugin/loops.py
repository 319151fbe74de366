"""The loop language for plugin authors (provisional): scalar expressions, meanings of operators, polynomials."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ort_core.lazy_names import lazy_names

if TYPE_CHECKING:
    from ort_core.loops.cuda_printer import (
        PREAMBLE,
        THREADS_PER_BLOCK,
        InputLayout,
        PrintedExpression,
        PrintedKernel,
        print_elementwise_kernel,
        print_expression,
    )
    from ort_core.loops.cuda_row_printer import RowAccess, cuda_schedule, print_row_kernel, print_rows, row_blocks
    from ort_core.loops.float64_circular import CIRCULAR, MOST_CIRCULAR
    from ort_core.loops.meanings import MEANINGS, SUPPORTED, ElementMeaning, meaning_of
    from ort_core.loops.numpy_evaluation import evaluate, evaluate_rows
    from ort_core.loops.polynomials import (
        MAX_ULP,
        erf,
        exp,
        exp2_of_negative,
        exp_of_negative,
        expm1_of_negative,
        log,
        log1p_of_fraction,
        sigmoid,
        tanh,
    )
    from ort_core.loops.row_operators import (
        REDUCTIONS,
        Normalized,
        RowFunctions,
        log_softmax,
        lp_normalized,
        masked_softmax,
        mean_variance_normalized,
        normalized,
        normalizer,
        reduction_of,
        softmax,
        value_range,
    )
    from ort_core.loops.rows import (
        OpMeaning,
        RowMeaning,
        RowPass,
        RowReduction,
        RowSchedule,
        is_of_row,
        neutral_value,
        reads_rows,
        row_length,
        row_max,
        row_mean,
        row_min,
        row_peak,
        row_prod,
        row_sum,
        row_values,
        scheduled,
    )
    from ort_core.loops.scalar import (
        COMPARISONS,
        Scalar,
        binary,
        bitcast,
        cast,
        element,
        fma,
        integer_range,
        lift,
        maximum,
        minimum,
        operations,
        rebuilt,
        row_value,
        select,
        structure,
        substitute,
        unary,
    )
    from ort_core.loops.small_types import SMALL_TYPES, converted, packed, unpacked

__all__ = [
    "CIRCULAR", "COMPARISONS", "MAX_ULP", "MEANINGS", "MOST_CIRCULAR", "PREAMBLE", "REDUCTIONS", "SMALL_TYPES",
    "SUPPORTED", "THREADS_PER_BLOCK", "ElementMeaning", "InputLayout", "Normalized", "OpMeaning", "PrintedExpression",
    "PrintedKernel", "RowAccess", "RowFunctions", "RowMeaning", "RowPass", "RowReduction", "RowSchedule", "Scalar",
    "binary", "bitcast", "cast", "converted", "cuda_schedule", "element", "erf", "evaluate", "evaluate_rows", "exp",
    "exp2_of_negative", "exp_of_negative", "expm1_of_negative", "fma", "integer_range", "is_of_row", "lift", "log",
    "log1p_of_fraction", "log_softmax", "lp_normalized", "masked_softmax", "maximum", "mean_variance_normalized",
    "meaning_of", "minimum", "neutral_value", "normalized", "normalizer", "operations", "packed",
    "print_elementwise_kernel", "print_expression", "print_row_kernel", "print_rows", "reads_rows", "rebuilt",
    "reduction_of", "row_blocks", "row_length", "row_max", "row_mean", "row_min", "row_peak", "row_prod", "row_sum",
    "row_value", "row_values", "scheduled", "select", "sigmoid", "softmax", "structure", "substitute", "tanh", "unary",
    "unpacked", "value_range",
]  # fmt: skip

__getattr__, __dir__ = lazy_names(  # no plugin pays for names that it does not use
    __name__,
    {
        "ort_core.loops.cuda_printer": (
            "PREAMBLE", "THREADS_PER_BLOCK", "InputLayout", "PrintedExpression", "PrintedKernel",
            "print_elementwise_kernel", "print_expression",
        ),
        "ort_core.loops.cuda_row_printer": (
            "RowAccess", "cuda_schedule", "print_row_kernel", "print_rows", "row_blocks",
        ),
        "ort_core.loops.float64_circular": ("CIRCULAR", "MOST_CIRCULAR"),
        "ort_core.loops.meanings": ("MEANINGS", "SUPPORTED", "ElementMeaning", "meaning_of"),
        "ort_core.loops.numpy_evaluation": ("evaluate", "evaluate_rows"),
        "ort_core.loops.polynomials": (
            "MAX_ULP", "erf", "exp", "exp2_of_negative", "exp_of_negative", "expm1_of_negative", "log",
            "log1p_of_fraction", "sigmoid", "tanh",
        ),
        "ort_core.loops.row_operators": (
            "REDUCTIONS", "Normalized", "RowFunctions", "log_softmax", "lp_normalized", "masked_softmax",
            "mean_variance_normalized", "normalized", "normalizer", "reduction_of", "softmax", "value_range",
        ),
        "ort_core.loops.rows": (
            "OpMeaning", "RowMeaning", "RowPass", "RowReduction", "RowSchedule", "is_of_row", "neutral_value",
            "reads_rows", "row_length", "row_max", "row_mean", "row_min", "row_peak", "row_prod", "row_sum",
            "row_values", "scheduled",
        ),
        "ort_core.loops.scalar": (
            "COMPARISONS", "Scalar", "binary", "bitcast", "cast", "element", "fma", "integer_range", "lift", "maximum",
            "minimum", "operations", "rebuilt", "row_value", "select", "structure", "substitute", "unary",
        ),
        "ort_core.loops.small_types": ("SMALL_TYPES", "converted", "packed", "unpacked"),
    },
)  # fmt: skip
