"""Writes one random graph, a node at a time; each node is evaluated as it is added, so that the graph is valid.

Families (``families/``) call ``pick`` for an operand, ``constant`` and ``input`` for others, ``node`` for an operator.
``node`` raises ``Refused`` where an operator has no result worth comparing; the step is undone, another is taken.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, ValueInfoProto, helper, numpy_helper

from random_graphs import element_types as et
from random_graphs.element_types import ElementType
from random_graphs.older_forms import NoOlderForm, in_opset
from random_graphs.schemas import Refused, check_operands, known_attributes
from random_graphs.triples import NoTruth, Triple, exact, exact_feed
from random_graphs.truth import Interpreter

SIZES = (1, 1, 2, 2, 3, 4, 5, 7, 8, 8, 15, 16, 17, 31, 32, 33)
OPSETS = (7, 8, 9, 10, 11, 11, 12, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 21, 22, 23, 23, 24, 25, 26, 27, 28)
GROWING = (0, 1, 2, 3, 5, 8, 16, 17, 33, 64, 65)
MOST_ELEMENTS = 12_000
_FILLED = (et.F32, et.F64)  # of what is one number everywhere
INPUT_TYPES = (*[et.F32] * 12, et.F64, et.F16, et.F16, et.BF16, et.I64, et.I64, et.I32, et.U8, et.I8, et.BOOL)
CUSTOM_DOMAIN = "test.random"
TRAINING = "ai.onnx.preview.training"


@dataclass
class Value:
    """A value of the graph: its triples, one for each assignment of sizes; ``tensor`` where it is constant."""

    name: str
    samples: tuple[Triple, ...]
    tensor: TensorProto | None = None
    uses: int = 0

    @property
    def dtype(self) -> ElementType:
        """The element type."""
        dtype = self.samples[0].dtype
        assert dtype is not None, f"{self.name} is no tensor"
        return dtype

    @property
    def is_tensor(self) -> bool:
        """Whether this is a tensor of a type that graphs here use."""
        return self.samples[0].is_tensor and self.samples[0].dtype is not None

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """The shape under each assignment of sizes."""
        return [sample.truth.shape for sample in self.samples]

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.shapes[0])

    def size(self, axis: int) -> int:
        """Return the size of an axis that is the same under all assignments.

        Raises:
            Refused: it differs.
        """
        sizes = {shape[axis] for shape in self.shapes}
        if len(sizes) != 1:
            raise Refused(f"axis {axis} of {self.name} has several sizes")
        return sizes.pop()

    def sizes(self, *axes: int) -> list[int]:
        """Return the sizes of axes, as ``size``."""
        return [self.size(axis) for axis in axes]

    @property
    def is_empty(self) -> bool:
        """Whether some assignment leaves no element."""
        return any(sample.truth.size == 0 for sample in self.samples)


@dataclass
class GraphWriter:
    """The graph so far, and what steps need to go on."""

    seed: int
    opset: int
    assignments: int
    random: random.Random
    numbers: np.random.Generator
    zero_share: float = 0.0
    values: list[Value] = field(default_factory=list)
    inputs: list[Value] = field(default_factory=list)
    nodes: list[NodeProto] = field(default_factory=list)
    initializers: list[TensorProto] = field(default_factory=list)
    custom: dict[str, Callable[..., Any]] = field(default_factory=dict)
    families: list[str] = field(default_factory=list)
    refused: dict[str, int] = field(default_factory=dict)
    outer: GraphWriter | None = None
    only_outputs: list[Value] = field(default_factory=list)  # that no operator reads
    declared: dict[str, ValueInfoProto] = field(default_factory=dict)  # of what is no tensor
    half: ElementType | None = None  # the type of all floats of some graphs
    _count: int = 0

    def __post_init__(self) -> None:
        self.symbols = [self._symbol() for _ in range(3)]

    @classmethod
    def of_seed(cls, seed: int) -> GraphWriter:
        """Return a writer whose every choice follows from a seed."""
        chooser = random.Random(seed)
        return cls(
            seed,
            chooser.choice(OPSETS),
            chooser.choice((1, 2, 2, 3, 3, 5)),
            chooser,
            np.random.default_rng(seed),
            zero_share=chooser.choice((0, 0, 0, 0.03, 0.1)),
            half=chooser.choice((None,) * 20 + (et.BF16, et.F16)),
        )

    @property
    def ml_version(self) -> int:
        """The version of ai.onnx.ml: 5 has no ensembles for one task only, 3 none for both."""
        return 5 if random.Random(self.seed ^ 0x711).random() < 0.3 else 3

    # what families ask for --------------------------------------------------------------------------------------------

    def chance(self, share: float) -> bool:
        """Return true in a share of cases."""
        return self.random.random() < share

    def choice(self, items: Sequence[Any]) -> Any:
        """Return one of several."""
        return self.random.choice(items)

    def some_size(self) -> int:
        """Return a size: now and then none, often one, often beside a power of two."""
        return 0 if self.random.random() < self.zero_share else self.random.choice(SIZES)

    def numbers_of(self, dtype: ElementType, shape: Sequence[int], low: float = -2, high: float = 2) -> np.ndarray:
        """Return random numbers of a type: floats within bounds, small integers, both truths; texts where it is one."""
        if dtype is et.TEXT:
            return self.numbers.choice(np.array(["", "a", "ab c", "é", "B"], object), shape)
        if dtype is et.BOOL:
            return np.asarray(self.numbers.random(shape) < 0.5)
        if dtype.numpy.kind in "iu":
            limits = np.iinfo(dtype.numpy)
            return np.asarray(self.numbers.integers(max(limits.min, -9), min(limits.max, 10), shape)).astype(
                dtype.numpy
            )
        if dtype in (et.I4, et.U4):
            lowest = -8 if dtype is et.I4 else 0
            return np.asarray(self.numbers.integers(lowest, lowest + 16, shape)).astype(dtype.numpy)
        return np.asarray(self.numbers.uniform(low, high, shape)).astype(dtype.numpy)

    def input(self, dtype: ElementType | None = None, rank: int | None = None) -> Value:
        """Add an input; about half of its sizes are named, and may differ between assignments."""
        chosen = self._float_of(dtype or self.choice(INPUT_TYPES))
        rank = self.choice((0, 1, 2, 2, 3, 3, 4, 4, 5)) if rank is None else rank
        sizes = [
            self.choice(self.symbols) if self.chance(0.5) else [self.some_size()] * self.assignments
            for _ in range(rank)
        ]
        while max((int(np.prod([s[k] for s in sizes])) for k in range(self.assignments)), default=1) > MOST_ELEMENTS:
            sizes[self.random.randrange(rank)] = [self.choice((1, 2, 3))] * self.assignments
        arrays = [self.numbers_of(chosen, [s[k] for s in sizes]) for k in range(self.assignments)]
        if self.outer is not None:
            raise Refused("a body takes its inputs from its node")
        value = Value(self._name("x"), tuple(exact(a) for a in arrays))
        self.inputs.append(value)
        self.values.append(value)
        return value

    def fed(self, samples: Sequence[Any], declared: TypeProto) -> Value:
        """Add an input that is no tensor: lists of arrays for a sequence, or maps, one for each assignment."""
        if self.outer is not None:
            raise Refused("a body takes its inputs from its node")
        value = Value(self._name("x"), tuple(map(exact_feed, samples)))
        self.declared[value.name] = helper.make_value_info(value.name, declared)
        self.inputs.append(value)
        return value

    def constant(self, array: Any, dtype: ElementType | None = None) -> Value:
        """Add an initializer."""
        given = np.asarray(array) if dtype is None else np.asarray(array).astype(dtype.numpy)
        tensor = numpy_helper.from_array(np.ascontiguousarray(given).reshape(given.shape), self._name("c"))
        self.initializers.append(tensor)
        return Value(tensor.name, (exact(given),) * self.assignments, tensor)

    def given(self, array: np.ndarray) -> Value:
        """Add an input of the same elements under each assignment: what is data though a model might state it."""
        if self.outer is not None:
            raise Refused("a body takes its inputs from its node")
        value = Value(self._name("x"), (exact(array),) * self.assignments)
        self.inputs.append(value)
        return value

    def weights(self, dtype: ElementType, *shape: int, low: float = -1, high: float = 1) -> Value:
        """Add an initializer of random numbers, now and then an input instead."""
        array = self.numbers_of(dtype, shape, low, high)
        if self.outer is None and self.chance(0.08):
            return self.given(array)
        return self.constant(array)

    def pick(
        self,
        *dtypes: ElementType,
        rank: int | None = None,
        least: int = 0,
        most: int = 9,
        filled: bool = False,
        where: Callable[[Value], bool] = lambda value: True,
    ) -> Value:
        """Return a value so far, recent ones more often.

        Raises:
            Refused: none is of these types and ranks (``filled``: with elements under every assignment).
        """
        dtypes = tuple(self._float_of(each) for each in dtypes)
        fitting = [
            value
            for value in self.visible()
            if (not dtypes or value.dtype in dtypes)
            and (value.rank == rank if rank is not None else least <= value.rank <= most)
            and not (filled and value.is_empty)
            and where(value)
        ]
        if not fitting and self.outer is None and len(self.inputs) < 4:
            mark = self.mark()
            made = self.input(self.choice(dtypes) if dtypes else None, self._some_rank(rank, least, most))
            if where(made) and not (filled and made.is_empty):
                return made
            self.undo(mark)
        if not fitting:
            raise Refused("no value fits")
        found = self.choice(fitting[-5:] if self.chance(0.7) else fitting)
        is_plain = found.dtype in _FILLED and self.opset >= 9 and found.rank
        return self._filled_like(found, where) if is_plain and self.chance(0.02) else found

    def _filled_like(self, value: Value, where: Callable[[Value], bool]) -> Value:
        """Return one number in the shape of a value: what reads it has no element that is an input's."""
        mark = self.mark()
        number = np.asarray([self.choice((0, 0.5, 1, -2))], value.dtype.numpy)
        made = self.node(
            "ConstantOfShape", [self.node("Shape", [value])], value=numpy_helper.from_array(number, "value")
        )
        if where(made):
            return made
        self.undo(mark)
        return value

    def _float_of(self, dtype: ElementType) -> ElementType:
        return self.half if self.half is not None and dtype.is_float else dtype

    def _some_rank(self, rank: int | None, least: int, most: int) -> int:
        return self.random.randint(least, max(least, min(most, 4))) if rank is None else rank

    def visible(self) -> list[Value]:
        """Return what a node may read: a body's values behind those of the graphs around it."""
        return self.values if self.outer is None else [*self.outer.visible(), *self.values]

    def axis(self, value: Value, *, first: int = 0) -> int:
        """Return an axis, counted from either end."""
        if value.rank <= first:
            raise Refused("no axis")
        axis = self.random.randrange(first, value.rank)
        return axis if self.chance(0.5) else axis - value.rank

    def node(
        self,
        op_type: str,
        inputs: Iterable[Value | None],
        outputs: int | Sequence[bool] = 1,
        *,
        domain: str = "",
        **attributes: Any,
    ) -> Any:
        """Add a node and return its output, or the list of its outputs.

        Args:
            op_type: the operator.
            inputs: operands, ``None`` for one left out.
            outputs: how many, or which of them are named.
            domain: the operator's domain.
            **attributes: the node's attributes; ``None`` leaves one out.

        Raises:
            Refused: the operator has no result worth comparing for these operands.
        """
        operands = list(inputs)
        while operands and operands[-1] is None:
            operands.pop()
        if not domain:
            try:
                operands, attributes = in_opset(op_type, operands, attributes, self.opset)
            except NoOlderForm as reason:
                raise Refused(str(reason)) from reason
        named = [True] * outputs if isinstance(outputs, int) else list(outputs)
        names = [self._name("v") if is_named else "" for is_named in named]
        given = known_attributes(domain, op_type, self.opset, attributes)
        proto = helper.make_node(
            op_type,
            ["" if v is None else v.name for v in operands],
            names,
            domain=domain,
            name=self._name("n"),
            **given,
        )
        check_operands(domain, op_type, self.opset, operands)
        interpreter = Interpreter(self.opset, self._custom())
        found = [self._evaluate(interpreter, proto, operands, k) for k in range(self.assignments)]
        made = [Value(name, tuple(each[i] for each in found)) for i, name in enumerate(names) if name]
        self._check(made)
        for value in operands:
            if value is not None:
                value.uses += 1
        self.nodes.append(proto)
        self.values += [value for value in made if value.is_tensor]
        return made[0] if isinstance(outputs, int) and outputs == 1 else made

    def _evaluate(self, run: Interpreter, proto: NodeProto, operands: list[Value | None], k: int) -> list[Triple]:
        scope = {value.name: value.samples[k] for value in self.visible()} if _has_bodies(proto) else {}
        try:
            found = run.node(proto, [None if v is None else v.samples[k] for v in operands], scope)
        except NoTruth as reason:
            raise Refused(str(reason)) from reason
        if len(found) < len(proto.output):
            raise Refused(f"{proto.op_type} gave {len(found)} outputs")
        return found

    def _check(self, made: list[Value]) -> None:
        for value in made:
            for sample in value.samples:
                if isinstance(sample.truth, np.ndarray) and sample.truth.size > MOST_ELEMENTS * 2:
                    raise Refused("too many elements")
            if len({sample.dtype for sample in value.samples}) > 1:
                raise Refused("types differ between assignments")
            if value.is_tensor and len({len(shape) for shape in value.shapes}) > 1:
                raise Refused("ranks differ between assignments")

    def _custom(self) -> Mapping[str, Callable[..., Any]]:
        return self.custom if self.outer is None else self.outer._custom()

    # bodies of control flow -------------------------------------------------------------------------------------------

    def body(self) -> GraphWriter:
        """Return a writer for a nested graph, which sees all values of this one."""
        inner = GraphWriter(
            self.seed, self.opset, self.assignments, self.random, self.numbers, self.zero_share, outer=self,
            half=self.half,
        )  # fmt: skip
        inner.symbols = self.symbols
        return inner

    def formal(self, samples: Sequence[Triple]) -> Value:
        """Add a formal input of a body, with the values of its first turn."""
        value = Value(self._name("f"), tuple(samples))
        self.inputs.append(value)
        if value.is_tensor:
            self.values.append(value)
        return value

    def as_body(self, name: str, outputs: Sequence[Value]) -> GraphProto:
        """Return the nested graph; ranks of its inputs and outputs are declared half of the time."""
        infos = [
            [typed(v, [None] * v.rank if declared and v.is_tensor else None) for v in values]
            for declared in [self.chance(0.5)]
            for values in (self.inputs, outputs)
        ]
        return helper.make_graph(self.nodes, name, *infos, self.initializers)

    def mark(self) -> tuple[int, ...]:
        """Return what ``undo`` goes back to."""
        return tuple(map(len, self._grown()))

    def undo(self, mark: tuple[int, ...]) -> None:
        """Forget all that was added since ``mark``."""
        for items, count in zip(self._grown(), mark, strict=True):
            del items[count:]

    def _grown(self) -> tuple[list[Any], ...]:
        return self.nodes, self.values, self.inputs, self.initializers, self.only_outputs

    def _name(self, prefix: str) -> str:
        root = self
        while root.outer is not None:
            root = root.outer
        root._count += 1
        return f"{prefix}{root._count}"

    def _symbol(self) -> list[int]:
        if self.assignments > 2 and self.chance(0.2):  # from nothing, and back again
            return sorted(self.random.sample(GROWING, self.assignments), reverse=self.chance(0.3))
        sizes = [self.some_size() for _ in range(self.assignments)]
        return [sizes[0]] * self.assignments if self.chance(0.4) else sizes


def _has_bodies(node: NodeProto) -> bool:
    return any(attribute.HasField("g") for attribute in node.attribute)


def typed(value: Value, shape: Sequence[int | str | None] | None = None) -> ValueInfoProto:
    """Return the declaration of a value; its shape is left open unless given, and always of what is no tensor."""
    if value.is_tensor:
        return helper.make_tensor_value_info(value.name, value.dtype.onnx, shape)
    element = helper.make_tensor_type_proto(value.dtype.onnx, None)
    is_sequence = isinstance(value.samples[0].truth, list)
    wrap = helper.make_sequence_type_proto if is_sequence else helper.make_optional_type_proto
    return helper.make_value_info(value.name, wrap(element))


def model_of(graph: GraphProto, opset: int) -> ModelProto:
    """Return the model around a graph, importing every domain that families use."""
    ml_version = 5 if any(node.op_type == "TreeEnsemble" for node in graph.node) else 3
    imports = {"": opset, "com.microsoft": 1, "ai.onnx.ml": ml_version, "ai.onnx.preview": 1}
    imports |= {TRAINING: 1, CUSTOM_DOMAIN: 1}
    used = {"", *_domains(graph)}
    opsets = [helper.make_opsetid(name, version) for name, version in imports.items() if name in used]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def reads(node: NodeProto) -> list[str]:
    """Return what a node reads, its bodies included."""
    names = list(node.input)
    for attribute in node.attribute:
        if attribute.HasField("g"):
            names += [name for inner in attribute.g.node for name in reads(inner)]
            names += [output.name for output in attribute.g.output]
    return names


def _domains(graph: GraphProto) -> Iterable[str]:
    for node in graph.node:
        yield node.domain
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _domains(attribute.g)
