"""TextCalls: direct calls of a model that begins with a text pipeline: strings to counts, counts to outputs.

    counts = TfIdfVectorizer(Tokenizer(StringNormalizer(texts)));  label = LinearClassifier(counts)

A run of a few rows costs less than checking and carrying its values from step to step in Python: here each step is
called with what it needs. The ordinary run does whatever is not a plain array of ``str`` or takes more memory than
``LARGEST``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from ort_core.cpu.direct.postprocessed_calls import finished
from ort_core.cpu.program.program import UNGUARDED
from ort_core.plugin.ir import DataType, TensorType, Value

if TYPE_CHECKING:
    from ort_core.cpu.direct.direct_calls import DirectStep
    from ort_core.cpu.direct.postprocessed_calls import Made
    from ort_core.plugin import DirectFunction
    from ort_core.plugin.kernels import RunGuard, RuntimeValue

LARGEST = 1 << 20  # bytes of counts: far above, a run takes milliseconds, and a limit of memory is to be asked


class TextPipeline(Protocol):
    """What makes counts of strings: ``TextCounts``."""

    @property
    def width(self) -> int:
        """The columns of the counts."""

    def run(self, arguments: Sequence[RuntimeValue], guard: RunGuard) -> list[np.ndarray] | None:
        """Return the counts, ``None`` where the reference must run."""


class TextCalls:
    """The direct calls of a pipeline and the program behind it: ``plugin.DirectCalls``.

    Args:
        name: of the feed.
        declared: its type.
        pipeline: makes counts of it.
        step: the program's direct calls; the ordinary run lets it know its signatures.
        reads: for each input of the program the constant that it is, ``None`` for the counts.
        outputs: for each output which of the program's results it is, and what makes it of that.
    """

    def __init__(
        self, name: str, declared: TensorType, pipeline: TextPipeline, step: DirectStep,
        reads: Sequence[np.ndarray | None], outputs: Sequence[Made],
    ) -> None:  # fmt: skip
        self._name, self._pipeline, self._step = name, pipeline, step
        self._shape = tuple(size if isinstance(size, int) else None for size in declared.shape or ())
        self._most_rows = max(1, LARGEST // (4 * pipeline.width or 1))
        self._rows = 0
        self._reads, self._outputs = tuple(reads), tuple(outputs)

    @property
    def call(self) -> DirectFunction:
        """The one function; what the step knows changes beneath it."""
        return self._call

    def learn(self, feeds: Mapping[str, object], *, is_limited: bool = False) -> None:
        """Take note of how many texts an ordinary run took within the session's limit of memory.

        The program's step has taken note of its arrays in that run, or in one with a limit of its own.
        """
        texts = feeds.get(self._name)
        if isinstance(texts, np.ndarray):
            self._rows = min(self._most_rows, max(self._rows, texts.size))

    def _call(self, feeds: object, outputs: object) -> list[RuntimeValue] | None:
        if outputs is not None or type(feeds) is not dict or len(feeds) != 1:
            return None
        texts = feeds.get(self._name)
        if type(texts) is not np.ndarray or not self._fits(texts):
            return None
        counts = self._pipeline.run([texts], UNGUARDED)
        if counts is None:
            return None
        results = self._step.call(*[counts[0] if constant is None else constant for constant in self._reads])
        if results is None:
            return None
        return finished(results, self._outputs)

    def _fits(self, texts: np.ndarray) -> bool:
        if len(texts.shape) != len(self._shape) or not 0 < texts.size <= self._rows:
            return False
        if any(wanted is not None and size != wanted for size, wanted in zip(texts.shape, self._shape, strict=True)):
            return False
        if texts.dtype != object:
            return False
        return set(map(type, texts.reshape(-1).tolist())) == {str}


def is_text(value: Value) -> bool:
    """Return whether a value is a tensor of strings with a known rank."""
    return isinstance(value.type, TensorType) and value.type.dtype is DataType.STRING and value.type.shape is not None
