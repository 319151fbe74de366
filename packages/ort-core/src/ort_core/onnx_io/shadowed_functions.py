"""Model-local functions that have the name of an operator: the operator is meant, and the function is left out.

ONNX leaves it to the runtime which of the two wins. onnxruntime and onnx.reference take the operator, where the version
that the model imports has it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

import onnx.defs

from ort_core.ir.model import Function, FunctionKey

log = logging.getLogger(__name__)


def without_shadowed(
    functions: Mapping[FunctionKey, Function], imports: Mapping[str, int]
) -> dict[FunctionKey, Function]:
    """Return the functions that calls reach, with a warning for each of the others."""
    found = {}
    for key, function in functions.items():
        version = imports.get(function.domain)
        if not function.overload and version is not None and _is_operator(function.domain, function.name, version):
            log.warning(
                "the model's function %s::%s has the name of an operator of version %d, which nodes of that name mean: "
                "the function is left out", function.domain or "ai.onnx", function.name, version,
            )  # fmt: skip
        else:
            found[key] = function
    return found


def _is_operator(domain: str, op_type: str, version: int) -> bool:
    from ort_core.ops.contrib_schemas import find_contrib_schema  # few models need it

    try:
        return not onnx.defs.get_schema(op_type, version, domain).deprecated
    except onnx.defs.SchemaError:
        return find_contrib_schema(domain, op_type, version) is not None
