"""What tests of this project and of plugin packages share: models from text, comparisons, and fake providers."""

from ort_core.testing.custom_op_cases import OpCase
from ort_core.testing.custom_ops import OpReport, check_custom_op
from ort_core.testing.passes import check_pass

__all__ = ["OpCase", "OpReport", "check_custom_op", "check_pass"]
