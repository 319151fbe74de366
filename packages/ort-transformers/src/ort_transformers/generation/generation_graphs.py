"""Graphs with one node that generates text: BeamSearch, GreedySearch or Sampling over bodies that are decoders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from onnx import GraphProto, ModelProto, TensorProto, helper

Value = tuple[int, Sequence[int | str]]  # element type and shape
_OPERATORS = {"beam_search": "BeamSearch", "greedy_search": "GreedySearch", "sampling": "Sampling"}
_NUMBERS: dict[str, Value] = {
    "input_ids": (TensorProto.INT32, ("batch_size", "sequence_length")),
    "max_length": (TensorProto.INT32, (1,)),
    "min_length": (TensorProto.INT32, (1,)),
}
_BEAMS: dict[str, Value] = {
    "num_beams": (TensorProto.INT32, (1,)),
    "num_return_sequences": (TensorProto.INT32, (1,)),
    "length_penalty": (TensorProto.FLOAT, (1,)),
}


@dataclass(frozen=True)
class Search:
    """What a search is built of.

    Attributes:
        kind: ``"beam_search"``, ``"greedy_search"`` or ``"sampling"``.
        model_type: ``"gpt2"``, ``"t5"`` or ``"mt5"``.
        vocab_size: the width of masks of tokens.
        optional: which optional inputs there are: vocab_mask, prefix_vocab_mask, attention_mask, presence_mask, seed.
        scores: whether there are outputs of the scores of sequences, and of each token.
        attributes: the node's numbers.
        bodies: the node's graphs.
        initializers: tensors that bodies share.
    """

    kind: str
    model_type: str
    vocab_size: int
    optional: frozenset[str]
    scores: tuple[bool, bool]
    attributes: Mapping[str, Any]
    bodies: Mapping[str, GraphProto]
    initializers: Sequence[TensorProto] = field(default=())

    def inputs(self) -> dict[str, Value | None]:
        """Return the node's inputs in order; an optional one that is not there is ``None``."""
        own = _BEAMS if self.kind == "beam_search" else {}
        masks: dict[str, Value] = {
            "vocab_mask": (TensorProto.INT32, (self.vocab_size,)),
            "prefix_vocab_mask": (TensorProto.INT32, ("batch_size", self.vocab_size)),
            "attention_mask": (TensorProto.INT32, ("batch_size", "sequence_length")),
        }
        if self.kind == "sampling":
            masks["presence_mask"] = (TensorProto.INT32, ("batch_size", self.vocab_size))
            masks["seed"] = (TensorProto.INT32, (1,))
        given = {name: value if name in self.optional else None for name, value in masks.items()}
        return {**_NUMBERS, **own, "repetition_penalty": (TensorProto.FLOAT, (1,)), **given}

    def outputs(self) -> dict[str, Value]:
        """Return the node's outputs in order."""
        several = ("num_return_sequences",) if self.kind == "beam_search" else ()
        found: dict[str, Value] = {"sequences": (TensorProto.INT32, ("batch_size", *several, "max_length"))}
        if self.scores[0]:
            found["sequences_scores"] = (TensorProto.FLOAT, ("batch_size", "num_return_sequences"))
        if self.scores[1]:
            shape = ("max_length - sequence_length", "batch_size", "num_beams", self.vocab_size)
            found["scores"] = (TensorProto.FLOAT, shape)
        return found


def build_search(search: Search, like: ModelProto) -> ModelProto:
    """Return a model of one search, with the opsets and the IR version of ``like``."""
    inputs, outputs = search.inputs(), search.outputs()
    names = [name if value is not None else "" for name, value in inputs.items()]
    while not names[-1]:
        names.pop()
    operator = _OPERATORS[search.kind]
    node = helper.make_node(
        operator, names, list(outputs), name=f"{operator}_{search.model_type}", domain="com.microsoft",
        **search.attributes, **search.bodies,
    )  # fmt: skip
    graph = helper.make_graph(
        [node],
        f"{search.model_type} {search.kind.replace('_', ' ')}",
        [helper.make_tensor_value_info(name, *value) for name, value in inputs.items() if value is not None],
        [helper.make_tensor_value_info(name, *value) for name, value in outputs.items()],
        list(search.initializers),
    )
    imports = {each.domain: each.version for each in like.opset_import} | {"com.microsoft": 1}
    opsets = [helper.make_opsetid(domain, version) for domain, version in imports.items()]
    return helper.make_model(
        graph, producer_name="ort-core.transformers", opset_imports=opsets, ir_version=like.ir_version
    )
