"""Convolutions that run band by band as one step, because what lies between them is too large to stay in a cache.

Steps that follow each other are joined while each reads what the one before it wrote, and nobody else does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING

from ort_core.cpu.codegen.convolutions.convolution_bands import FIRST_STAGE, Bands, Stage, bands_kernel, fitting_rows
from ort_core.cpu.codegen.convolutions.convolution_plan import ARGUMENTS
from ort_core.cpu.lowering.images.layout_steps import kernel_text
from ort_core.cpu.lowering.steps import Argument, Pointer, Step
from ort_core.cpu.lowering.views import Buffer, Place
from ort_core.plugin.ir import DataType, KnownDim

if TYPE_CHECKING:
    from ort_core.cpu.lowering.lowering import Lowering

FAR_NBYTES = 1 << 19  # of a result for each image, from which on it leaves the second-level caches before it is read
EDGE_NBYTES = 3 << 17  # below, two stages are not joined even if others are: each joint has rows to move and recompute
BAND_NBYTES = 1 << 18  # what stages keep near: a quarter of a usual second-level cache
NEAR_WEIGHTS_NBYTES = 1 << 17  # of all stages; they are read again for each band


def join_stages(lowering: Lowering) -> None:
    """Replace runs of convolutions by one step each, where that pays."""
    readers = Counter(buffer for step in lowering.steps for buffer in set(step.reads))
    steps: list[Step] = []
    at = 0
    while at < len(lowering.steps):
        run = _run(lowering.steps, at, readers)
        steps.append(_joined(lowering, run) if len(run) > 1 else run[0])
        at += len(run)
    lowering.steps = steps


def _run(steps: Sequence[Step], first: int, readers: Counter[Buffer]) -> list[Step]:
    """Return a step and those that are to run together with it."""
    run = [steps[first]]
    for step in islice(steps, first + 1, None) if run[0].images is not None else ():
        if not _follows(run[-1], step, readers):
            break
        run.append(step)
    while len(run) > 1 and not _pays(run):
        run.pop()
    return run


def _follows(before: Step, step: Step, readers: Counter[Buffer]) -> bool:
    """Return whether a step's images are what the step before it makes, and only that step reads them."""
    if before.images is None or step.images is None or len(before.writes) != 1:
        return False
    maker, reader = before.images.stage, step.images.stage
    made, first = before.writes[0], step.arguments[ARGUMENTS.x]
    is_input = isinstance(first, Pointer) and first.buffer is made and step.reads.count(made) == 1
    same = maker.y_size == reader.x_size and maker.spec.out_channels == reader.spec.in_channels
    is_large = maker.nbytes >= EDGE_NBYTES
    return is_input and same and is_large and made.place is Place.ARENA and readers[made] == 1


def _pays(run: Sequence[Step]) -> bool:
    """Return whether what lies between the steps is far and their weights are near.

    The last result must not overwrite what a band to come still reads.
    """
    stages = _stages(run)
    between = max(stage.nbytes for stage in stages[:-1])
    weights = sum(4 * stage.spec.depth * stage.spec.out_channels for stage in stages)
    reads = {buffer for step in run for buffer in step.reads}
    return between >= FAR_NBYTES and weights <= NEAR_WEIGHTS_NBYTES and not reads.intersection(run[-1].writes)


def _stages(run: Sequence[Step]) -> tuple[Stage, ...]:
    return tuple(step.images.stage for step in run if step.images is not None)


def _joined(lowering: Lowering, run: Sequence[Step]) -> Step:
    stages = _stages(run)
    bands = Bands(stages, fitting_rows(stages, BAND_NBYTES))
    machine = lowering.target
    kernel = kernel_text("bands", bands.facts, lambda name: bands_kernel(name, bands, machine), is_vectorized=True)
    lowering.kernels.setdefault(kernel.name, kernel)
    floats = max(bands.starts[-1], BAND_NBYTES // 4)
    scratch = lowering.scratch(DataType.FLOAT, floats)
    assert run[0].images is not None
    words: list[Argument] = [run[0].images.batch, Pointer(scratch), 4 * floats]
    assert len(words) == FIRST_STAGE
    made = {step.writes[0] for step in run[:-1]}
    for step in run:
        words.extend(0 if isinstance(a, Pointer) and a.buffer in made else a for a in step.arguments)
    reads = [buffer for step in run for buffer in step.reads if buffer not in made]
    return Step(
        kernel.name, tuple(words), tuple(reads), (*run[-1].writes, scratch), _total([s.work for s in run]),
        tuple(operator for step in run for operator in step.operators), _total([s.flops for s in run]),
        run[-1].node, _moved(run), is_divisible=False,  # each piece computes the rows around it once more
    )  # fmt: skip


def _moved(run: Sequence[Step]) -> KnownDim | None:
    """Return what the steps read and write, without what stays between them."""
    total: KnownDim = 0
    for step in run:
        if step.nbytes is None:
            return None
        total = total + step.nbytes
    for step in run[:-1]:
        total = total - step.writes[0].count * (2 * step.writes[0].itemsize)
    return total


def _total(parts: Sequence[KnownDim]) -> KnownDim:
    total: KnownDim = 0
    for part in parts:
        total = total + part
    return total
