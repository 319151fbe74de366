"""DirectOffer: which direct calls there are for the steps of a partition, or why there are none.

program [, maps and strings]              texts -> counts, program [, maps and strings]            condition, If
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ort_core.cpu.direct.direct_calls import FedNumber
from ort_core.cpu.direct.postprocessed_calls import Made, build_postprocessed_calls, postprocessed_outputs
from ort_core.cpu.partition.conditional import find_conditional
from ort_core.cpu.partition.suppression import Suppression
from ort_core.cpu.rounds.direct_copies import build_copied_calls
from ort_core.cpu.rounds.native_rounds import NativeRounds
from ort_core.cpu.texts.text_calls import TextCalls, is_text
from ort_core.cpu.texts.text_counts import TextCounts
from ort_core.plugin import DirectCalls, Rejection, frozen
from ort_core.plugin.ir import TensorType

if TYPE_CHECKING:
    from ort_core.cpu.direct.direct_calls import FedSource
    from ort_core.cpu.partition.bodies import Compiled, CompiledBody
    from ort_core.cpu.partition.segments import PartitionSegment
    from ort_core.cpu.program.program import NativeProgram
    from ort_core.plugin.ir import Graph
    from ort_core.plugin.kernels import RuntimeValue

_IN_PARTS = "parts of the model run by numpy kernels"


@frozen
class DirectOffer:
    """The steps of the partition of a graph, over slots whose first ones are the graph's inputs.

    ``template`` holds the constants by slot, ``imports`` the versions of operators.
    """

    graph: Graph
    steps: Sequence[PartitionSegment]
    template: Sequence[RuntimeValue]
    imports: Mapping[str, int]

    def of_choice(
        self, deciding: NativeProgram | None, bodies: Sequence[CompiledBody[Compiled]],
        sources: Sequence[str | np.ndarray], order: Sequence[int],
    ) -> DirectCalls | Rejection:  # fmt: skip
        """Return the direct calls of a graph that is an If.

        Args:
            deciding: the program of what makes the condition.
            bodies: the compiled bodies, among them both branches.
            sources: for each input of the graph the name of its feed, or the constant that it always is.
            order: which of the graph's outputs each output of the call is.
        """
        found = find_conditional(self.steps[-1].kernels.graph, deciding, bodies)
        if isinstance(found, Rejection):
            return found
        given = {value.name: source for value, source in zip(self.graph.inputs, sources, strict=True)}
        return found.direct_calls(given, [self.graph.outputs[index].name for index in order])

    def of_steps(self, outputs: Sequence[int], sources: Sequence[str | np.ndarray]) -> DirectCalls | Rejection:
        """Return the direct calls of steps that are one program and what stands around it.

        Args:
            outputs: the slot of each output of the call.
            sources: as for ``of_choice``.
        """
        if len(self.steps) == 1 and self.steps[0].program is None:
            return self._calls_of_one(self.steps[0], outputs, sources)
        texts = [step for step in self.steps[:1] if isinstance(step.call, TextCounts)]
        rest = self.steps[len(texts) :]
        if not rest or rest[0].program is None:
            return Rejection(_IN_PARTS)
        made = self._made(rest)
        if isinstance(made, Rejection):
            return made
        if any(slot not in made for slot in outputs):
            return Rejection("an output is an input of the partition")
        found = [made[slot] for slot in outputs]
        if texts:
            return self._text_calls(texts[0], rest[0], found, sources)
        given: list[FedSource] = [self._source(slot, sources) for slot in rest[0].native_reads]
        for place in rest[0].counted:
            source = given[place]
            if not isinstance(source, str):
                return Rejection("a size is read from a number that a caller may override")
            given[place] = FedNumber(source)
        return build_postprocessed_calls(rest[0].program, given, found)

    def _calls_of_one(
        self, step: PartitionSegment, outputs: Sequence[int], sources: Sequence[str | np.ndarray]
    ) -> DirectCalls | Rejection:
        """Return the direct calls of a step that is no program, but a native call or kernels that only copy."""
        places = {slot: place for place, slot in enumerate(step.writes)}
        if any(slot not in places for slot in outputs):
            return Rejection("an output is an input of the partition")
        order = [places[slot] for slot in outputs]
        if step.call is None:
            return build_copied_calls(step.kernels, [self._source(slot, sources) for slot in step.reads], order)
        if not isinstance(step.call, NativeRounds | Suppression):
            return Rejection(_IN_PARTS)
        given = [self._source(slot, sources) for slot in step.native_reads if slot >= 0]
        return step.call.direct_calls(given, order)

    def _made(self, steps: Sequence[PartitionSegment]) -> dict[int, Made] | Rejection:
        """Return how the values in slots are made of the first step's results."""
        made: dict[int, Made] = {slot: (number, None) for number, slot in enumerate(steps[0].writes)}
        for step in steps[1:]:
            if step.program is not None or step.call is not None:
                return Rejection(_IN_PARTS)
            finished = postprocessed_outputs(step.kernels.graph, (step.reads, step.writes), made, self.imports)
            if isinstance(finished, Rejection):
                return finished
            made.update(finished)
        return made

    def _source(self, slot: int, sources: Sequence[str | np.ndarray]) -> str | np.ndarray:
        source = sources[slot] if slot < len(sources) else self.template[slot]
        assert isinstance(source, (str, np.ndarray))
        return source

    def _text_calls(
        self,
        first: PartitionSegment,
        second: PartitionSegment,
        outputs: Sequence[Made],
        sources: Sequence[str | np.ndarray],
    ) -> DirectCalls | Rejection:
        (slot,) = first.native_reads
        name = sources[slot] if 0 <= slot < len(sources) else None
        if not isinstance(name, str) or not is_text(self.graph.inputs[slot]) or second.direct is None or second.counted:
            return Rejection("the strings are not a feed of known rank, or the program has no direct calls")
        declared = self.graph.inputs[slot].type
        assert isinstance(declared, TensorType)
        assert isinstance(first.call, TextCounts)
        reads: list[np.ndarray | None] = []
        for read in second.native_reads:
            source = None if read in first.writes else self._source(read, sources)
            if isinstance(source, str):
                return Rejection(f"the program reads the feed {source!r} beside the counts")
            reads.append(source)
        return TextCalls(name, declared, first.call, second.direct, reads, outputs)
