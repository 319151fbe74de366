"""ProgramRecord: all that a native program knows besides its machine code, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ort_core.plugin import frozen

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from ort_core.cpu.program.order import StepOrder
    from ort_core.cpu.program.relocations import Relocations
    from ort_core.cpu.program.sizes import Binding, SizeProgram, Types
    from ort_core.plugin.ir import KnownDim


@frozen
class ProgramRecord:
    """What every signature of a program is planned from.

    Attributes:
        inputs: names of the inputs.
        input_types: their element types and declared sizes.
        outputs: names of the outputs.
        output_types: their element types and sizes.
        bindings: the sizes that are read off the inputs.
        equal: sizes that must be equal.
        declared: evaluates the declared sizes of all inputs, then the difference of each equal pair.
        sizes: evaluates the argument table, then the sizes of the arena's slots, of the outputs, and the steps' work.
        starts: int64[steps], where each step's arguments lie in the table, in bytes.
        argument_count: how many words the argument table has; the slots follow.
        outputs_at: where the sizes of the outputs begin.
        work_at: where the steps' work begins; behind it the most pieces of those steps that have such a bound.
        per_thread: for each slot whether every thread has one of its own.
        fixed: for each slot whether it is scratch of a size that no run changes, which limits of runs do not count.
        relocations: which words are addresses, and of what.
        order: which steps must wait for others.
        in_place: outputs that may be the memory of an input, and of which.
    """

    inputs: tuple[str, ...]
    input_types: Types
    outputs: tuple[str, ...]
    output_types: Types
    bindings: tuple[Binding, ...]
    equal: tuple[tuple[KnownDim, KnownDim], ...]
    declared: SizeProgram
    sizes: SizeProgram
    starts: npt.NDArray[np.int64]
    argument_count: int
    outputs_at: int
    work_at: int
    per_thread: tuple[bool, ...]
    fixed: tuple[bool, ...]
    relocations: Relocations
    order: StepOrder
    in_place: Mapping[int, int]
