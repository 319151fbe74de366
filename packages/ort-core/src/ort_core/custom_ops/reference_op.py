"""Subclasses of ``onnx.reference.OpRun`` as operators: written for ONNX's evaluator, they run here as they are."""

from __future__ import annotations

import functools
from typing import Any

from ort_core.custom_ops.border import GuardedKernel, guarded, lent
from ort_core.custom_ops.definition import OpDefinition
from ort_core.custom_ops.traceback_text import place_of
from ort_core.kernels.kernel import KernelFunction


def is_reference_op(candidate: object) -> bool:
    """Return whether something is a subclass of ``OpRun``. Does not import onnx's evaluator: such a class has."""
    if not isinstance(candidate, type):
        return False
    bases = candidate.__mro__[1:]
    return any(base.__name__ == "OpRun" and base.__module__.startswith("onnx.reference") for base in bases)


def reference_definition(candidate: object, since_version: int = 1) -> OpDefinition:
    """Return the operator that an ``OpRun`` subclass defines, from ``since_version`` of its ``op_domain`` on.

    With an ``op_schema`` types and results are checked; without one nothing is known of them before a run.
    """
    from ort_core.onnx_io.op_run import OpRunAdapter  # imports onnx's evaluator, which the class has done

    adapter = OpRunAdapter(candidate)
    kernel = adapter.kernel()
    schema = adapter.schema
    if schema is not None:
        since_version = schema.since_version
        kernel = guarded(GuardedKernel(kernel, schema, dict, frozenset({"ctx"})))
    else:
        kernel = _lending(kernel)
    return OpDefinition(
        adapter.domain, adapter.op_type, since_version, schema, kernel, origin=place_of(adapter.run_function)
    )


def _lending(kernel: KernelFunction) -> KernelFunction:
    """Return a kernel that cannot write into its inputs."""

    @functools.wraps(kernel)
    def run(*inputs: Any, **arguments: Any) -> Any:  # Any: run-time values
        return kernel(*lent(inputs), **arguments)

    return run
