"""Lowered: a claim that the parser has read, or the nodes that keep it from being read, with reasons.

The parser is handed the claim as it is. Nodes that it names are handed over again in their operators' own parts, where
the specification gives these; what it names then is refused in its words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from ort_core.plugin import GraphView
from ort_core.plugin.ir import Node, border_of
from ort_ep_tensorrt._sdk import Sdk
from ort_ep_tensorrt.lowering.decomposition import has_parts
from ort_ep_tensorrt.lowering.editing import LoweringRefusal
from ort_ep_tensorrt.lowering.fixed_inputs import fixed_inputs, sample_of
from ort_ep_tensorrt.lowering.legalization import Changes
from ort_ep_tensorrt.lowering.likely_sizes import element_count
from ort_ep_tensorrt.network import Network, knows, parse, unsupported
from ort_ep_tensorrt.program import Program, program_of, question_of
from ort_ep_tensorrt.rules import built_in_parts
from ort_ep_tensorrt.settings import BuildSettings

Group = tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Lowered:
    """A claim that TensorRT takes.

    Attributes:
        program: what the parser is handed.
        network: what it made of that.
        fixed: inputs that are constants of the program.
    """

    program: Program
    network: Network
    fixed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LowerRefusal:
    """Why a claim is not taken, by the places of nodes; a text for the whole of it where no node is named."""

    nodes: Mapping[int, str]
    text: str = ""


def lower(
    view: GraphView,
    nodes: Group,
    sdk: Sdk,
    settings: BuildSettings,
    values: Mapping[str, np.ndarray] | None = None,
) -> Lowered | LowerRefusal:
    """Lower a claim.

    Args:
        view: the graph.
        nodes: the claim.
        sdk: whose parser reads it.
        settings: how it is to be built.
        values: of fixed inputs, by name; by default some that fit what is known of shapes.

    Raises:
        SdkError: the SDK failed outside of its parser.
    """
    fixed = fixed_inputs(border_of(nodes).inputs, nodes)
    chosen: dict[str, np.ndarray] = dict(values or {})
    for value, reader in fixed.items():
        if value.name in chosen:
            continue
        sample = sample_of(value, reader)
        if sample is None:
            missing = "its length is open" if element_count(value) is None else "nothing tells which ones would fit"
            reason = f"TensorRT must know the values of {value.name!r} when it builds, and {missing}"
            return LowerRefusal({nodes.index(reader): reason})
        chosen[value.name] = sample
    names = tuple(value.name for value in fixed)
    return _attempt(view, nodes, sdk, settings, {name: chosen[name] for name in names})


def _attempt(
    view: GraphView, nodes: Group, sdk: Sdk, settings: BuildSettings, values: Mapping[str, np.ndarray]
) -> Lowered | LowerRefusal:
    in_parts = {place for place, node in enumerate(nodes) if built_in_parts(node, is_rtx=sdk.is_rtx)}
    said: dict[int, str] = {}
    is_known = knows(sdk)
    while True:
        changes = Changes(
            frozenset(in_parts), lambda op_type: not is_known(op_type), values,
            settings.precision, settings.keeps_normalizations,
        )  # fmt: skip
        try:
            program = program_of(view, nodes, changes)
            parsed = parse(sdk, program)
            if isinstance(parsed, Network):
                return Lowered(program, parsed, tuple(values))
            named = {**unsupported(sdk, question_of(view, nodes, changes)), **parsed.nodes}
            found = {program.places[place]: words for place, words in named.items() if place < len(program.places)}
            text = f"TensorRT's parser: {parsed.text}"
            words_of = {
                place: _words(nodes[place], words, is_known, parts=has_parts(nodes[place], view.context))
                for place, words in found.items()
            }
        except LoweringRefusal as refusal:
            words_of, text = {refusal.place: refusal.reason}, refusal.reason
        fresh = {place for place in words_of if place not in in_parts and has_parts(nodes[place], view.context)}
        if not fresh:
            return LowerRefusal({place: _joined(said.get(place), words) for place, words in words_of.items()}, text)
        said.update((place, words_of[place]) for place in fresh)
        in_parts |= _alike(nodes, fresh)


def _words(node: Node, words: str, is_known: Callable[[str], bool], *, parts: bool) -> str:
    if is_known(node.op_type):
        return f"TensorRT's parser: {words}"
    lacks = f"TensorRT's parser has no importer for {node.op_type}, and no plugin of that name"
    return f"{lacks}; and of its parts it says: {words}" if parts else lacks


def _alike(nodes: Group, places: Iterable[int]) -> set[int]:
    """Return the places of all nodes that are like the named ones, so that none of them is asked about by itself."""
    kinds = {_kind(nodes[place]) for place in places}
    return {place for place, node in enumerate(nodes) if _kind(node) in kinds}


def _kind(node: Node) -> tuple[object, ...]:
    inputs = tuple(value is not None for value in node.inputs)
    return (node.domain, node.op_type, len(node.outputs), inputs, repr(sorted(node.attributes)))


def _joined(first: str | None, second: str) -> str:
    return second if first is None or first == second else f"{first}; and in its parts: {second}"
