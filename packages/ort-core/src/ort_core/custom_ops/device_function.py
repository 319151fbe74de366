"""Functions over a device's arrays, CuPy's say, inside the same border as numpy kernels.

They are called as numpy kernels are: inputs by position, the node's attributes by name, ``ctx`` and ``state`` where
they have such a parameter. What they return is held against the signature, the model and, where no input has integers
whose elements it may ask for, the shape function. Nothing here waits for the device.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import replace

from ort_core.custom_ops.border import DEVICE_ARRAYS, GuardedKernel, guarded
from ort_core.custom_ops.op_signature import HANDED_IN
from ort_core.kernels.kernel import KernelFunction


def device_kernel(function: KernelFunction, host: GuardedKernel, defaults: Mapping[str, object]) -> KernelFunction:
    """Return a user's function over device arrays inside the border.

    Args:
        function: the user's.
        host: what the operator's numpy kernel is guarded by: its schema, shape function, state and turns count here.
        defaults: the operator's attributes that have one; given where the function names them and the node does not.
    """
    keywords = _keywords(function)
    known = {name: value for name, value in defaults.items() if name in keywords}
    taken = keywords.intersection(HANDED_IN)

    def convert(attributes: Mapping[str, object]) -> dict[str, object]:
        return {**known, **host.convert(attributes)}

    return guarded(replace(host, function=function, convert=convert, handed_in=taken, arrays=DEVICE_ARRAYS))


def _keywords(function: KernelFunction) -> frozenset[str]:
    """Return the names of a function's keyword-only parameters; none where it has no signature, as compiled ones."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return frozenset()
    return frozenset(each.name for each in parameters if each.kind is each.KEYWORD_ONLY)
