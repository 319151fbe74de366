"""What to say of an operator that nobody knows: where the name is known, which names are near, how to bring it in."""

from __future__ import annotations

from ort_core.errors import did_you_mean
from ort_core.kernels.registry import KernelRegistry

REGISTER = (
    "An operator of your own is made known by SessionOptions.register_custom_ops_library (on the command line --ops): "
    "give it a Python file, a module or an OpLibrary."
)


def unknown_operator_hint(domain: str, op_type: str, opset: int, kernels: KernelRegistry) -> str:
    """Return sentences for the end of an error; they begin with a space."""
    names = kernels.names()
    if (domain, op_type) in names:
        covered = kernels.first_version(domain, op_type)
        return f" {domain or 'ai.onnx'} has {op_type} since version {covered}, the model imports {opset}."
    domains = sorted(other or "ai.onnx" for other, name in names if name == op_type)
    near = f" {' and '.join(domains)} has an operator of that name." if domains else ""
    near = near or did_you_mean(op_type, sorted(name for other, name in names if other == domain))
    return f"{near} {REGISTER}"
