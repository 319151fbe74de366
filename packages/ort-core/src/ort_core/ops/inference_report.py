"""InferenceReport: what shape and type inference found besides the types: contradictions, refusals, gaps, contents."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import field

from ort_core.errors import Fail, InvalidGraph, OrtError
from ort_core.frozen import frozen
from ort_core.ir.dims import KnownDim
from ort_core.ir.nodes import Node
from ort_core.ir.types import ValueType
from ort_core.ir.values import Value
from ort_core.ops.earlier_inference import EarlierInference
from ort_core.ops.symbolic_values import SymbolicValue

_FAILURES = ("does not match expected type", "bound to different types")  # code 1 in onnxruntime, others code 10


class NoteKind(enum.Enum):
    """What a note is about."""

    TYPE = "type"  # an element type or kind contradicts a declaration or the schema
    SHAPE = "shape"  # an inferred rank or size contradicts a declaration
    REFUSAL = "refusal"  # a rule found the node impossible
    GAP = "gap"  # nothing is known of the operator


@frozen
class InferenceNote:
    """One finding, and the node it is about (``None``: an input of the graph)."""

    kind: NoteKind
    message: str
    node: Node | None = None

    def __str__(self) -> str:
        return self.message

    def error(self) -> OrtError:
        """Return the error that onnxruntime raises for this when it loads a model, for callers that want its classes.

        It takes contradicting shapes (``SHAPE``) as warnings only.
        """
        is_failure = self.kind is NoteKind.REFUSAL or any(words in self.message for words in _FAILURES)
        if is_failure:
            return Fail(self.message)
        return InvalidGraph(f"This is an invalid model. {self.message}")


@frozen
class InferenceReport:
    """The findings of one run of ``infer_types``.

    ``values`` holds what is known of the elements of small integer tensors; ``declared`` the types that values had
    before, where the inferred ones differ; ``sizes`` what ``input_shapes`` said of named sizes; ``earlier`` what a
    later run over the same model may take over.
    """

    notes: tuple[InferenceNote, ...]
    values: Mapping[Value, SymbolicValue] = field(default_factory=dict)
    declared: Mapping[Value, ValueType | None] = field(default_factory=dict)
    sizes: Mapping[str, KnownDim] = field(default_factory=dict)
    earlier: EarlierInference | None = None

    def of_kind(self, *kinds: NoteKind) -> tuple[InferenceNote, ...]:
        """Return the notes of some kinds."""
        return tuple(note for note in self.notes if note.kind in kinds)

    def raise_first(self, *kinds: NoteKind) -> None:
        """Raise for the first note of some kinds (of any but GAP when none is named).

        Raises:
            InvalidGraph: there is such a note.
        """
        wanted = kinds or (NoteKind.TYPE, NoteKind.SHAPE, NoteKind.REFUSAL)
        for note in self.notes:
            if note.kind in wanted:
                raise InvalidGraph(f"This is an invalid model. {note.message}")
