"""States: pairs of an input and an output of one shape that a Core ML model keeps inside, such as caches of a decoder.

Core ML keeps states in half precision only, and from iOS18 on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ort_core.plugin.claims import dtype_of, is_static
from ort_core.plugin.ir import DataType, Value
from ort_ep_coreml.lowering.lowering_context import LoweringContext
from ort_ep_coreml.mil import MilState

TARGET = "iOS18"


def states_of(
    context: LoweringContext, pairs: Mapping[str, str], inputs: Sequence[Value], outputs: Sequence[Value]
) -> dict[Value, MilState]:
    """Return the states of a program by the input of its claim; ``feature`` is the input's name still.

    Raises:
        ValueError: a pair is none of this claim, or Core ML cannot keep it.
    """
    found: dict[Value, MilState] = {}
    by_name = {value.name: (index, value) for index, value in enumerate(inputs)}
    results = {value.name: (index, value) for index, value in enumerate(outputs)}
    for source, target in pairs.items():
        if source not in by_name or target not in results:
            raise ValueError(
                f"option 'States' names {source!r} and {target!r}, which are not an input and an output of "
                f"one program; its inputs are {', '.join(by_name)}; its outputs are {', '.join(results)}"
            )
        (place, value), (result_place, result) = by_name[source], results[target]
        reason = _refusal(context, value, result)
        if reason is not None:
            raise ValueError(f"option 'States' names {source!r} and {target!r}: {reason}")
        sizes = tuple(size for size in value.shape or () if isinstance(size, int))
        dtype = dtype_of(value)
        assert dtype is not None, "_refusal was asked"
        found[value] = MilState(source, dtype, sizes, place, result_place)
    return found


def _refusal(context: LoweringContext, value: Value, result: Value) -> str | None:
    if context.target != TARGET:
        return f"Core ML has states from {TARGET} on; set DeploymentTarget={TARGET}"
    if not is_static(value) or value.shape != result.shape or not value.shape:
        return (
            f"their shapes {value.shape} and {result.shape} must be one and fixed; a cache that grows by what is "
            "joined to it is exported as an input and an output"
        )
    if dtype_of(value) is not dtype_of(result) or dtype_of(value) not in (DataType.FLOAT, DataType.FLOAT16):
        return f"they are {value.type} and {result.type}; states hold floats"
    if dtype_of(value) is DataType.FLOAT and context.precision != "FLOAT16":
        return "they are float32, and Core ML keeps states in half precision; allow it by Precision=FLOAT16"
    return None
