"""The truth of a graph: its nodes in float64, thrice, so that the window of every result is known with it.

A value is a ``Triple``: the result in float64, and two twins with every rounding replaced by a disturbance of one
window (``element_types``) up or down. What lies between the twins cannot be told apart by an engine that rounds; what
lies far outside is wrong. A question whose answer hangs on a last bit (a comparison, a rounding to integers) shows as
twins that disagree: the generator does not ask it. A result that a small disturbance changes much is ill-conditioned:
the generator drops that node.

Control flow is interpreted here; all other operators are run by the numpy kernels, in float64.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from ort_core.ir.nodes import Node
from ort_core.ir.types import DataType, TensorType
from ort_core.kernels.kernel import KernelContext, KernelSpec, Unguarded
from ort_core.kernels.preconditions.conditions import ArrayConditions
from ort_core.kernels.preconditions.table import find_precondition
from ort_core.kernels.reference_registry import reference_kernels
from ort_core.onnx_io.load import model_from_proto
from ort_core.ops.contrib_schemas import find_contrib_schema
from random_graphs import element_types
from random_graphs.disturbances import is_kept, moved_apart, twin_of, wider, with_rounding
from random_graphs.element_types import BOOL, F32, ROUNDED_F32, ElementType, of_array
from random_graphs.triples import NoTruth, Triple, allowed, exact

MOVES_AND_DECIDES = frozenset(
    [
        "Abs",
        "And",
        "ArgMax",
        "ArgMin",
        "BitShift",
        "BitwiseAnd",
        "BitwiseNot",
        "BitwiseOr",
        "BitwiseXor",
        "Ceil",
        "CenterCropPad",
        "Clip",
        "Col2Im",
        "Compress",
        "Concat",
        "ConcatFromSequence",
        "Constant",
        "ConstantOfShape",
        "DepthToSpace",
        "Equal",
        "Expand",
        "EyeLike",
        "Flatten",
        "Floor",
        "Gather",
        "GatherElements",
        "GatherND",
        "GlobalMaxPool",
        "Greater",
        "GreaterOrEqual",
        "Hardmax",
        "Identity",
        "IsInf",
        "IsNaN",
        "LabelEncoder",
        "Less",
        "LessOrEqual",
        "Max",
        "MaxPool",
        "Min",
        "Neg",
        "NonZero",
        "Not",
        "OneHot",
        "Optional",
        "OptionalGetElement",
        "OptionalHasElement",
        "Or",
        "Pad",
        "Range",
        "ReduceMax",
        "ReduceMin",
        "Relu",
        "Reshape",
        "ReverseSequence",
        "Round",
        "ScatterElements",
        "ScatterND",
        "SequenceAt",
        "SequenceConstruct",
        "SequenceEmpty",
        "SequenceErase",
        "SequenceInsert",
        "SequenceLength",
        "Shape",
        "Sign",
        "Size",
        "Slice",
        "SpaceToDepth",
        "Split",
        "SplitToSequence",
        "Squeeze",
        "TensorScatter",
        "Tile",
        "TopK",
        "Transpose",
        "Trilu",
        "Unique",
        "Unsqueeze",
        "Where",
        "Xor",
    ]
)
"""Operators that round nothing: what comes out went in, or is a decision about exact values."""
KEEPS_STEPS = frozenset([
    "QuantizeLinear", "Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Slice", "Gather",
    "Concat", "Split", "MaxPool",
])  # fmt: skip
"""Operators whose integers may hang on a last bit by one: dequantized, they lie within one scale of the truth."""
RANKINGS = ("ArgMax", "ArgMin", "Hardmax", "TopK")
COMPARISONS = ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")
ROUNDS_INSIDE = frozenset(
    [
        "DynamicQuantizeMatMul",
        "TreeEnsemble",
        "TreeEnsembleRegressor",
        "TreeEnsembleClassifier",
        "LinearClassifier",
        "QLinearSoftmax",
        "QMoE",
        "DynamicQuantizeLSTM",
    ]
)
"""Operators whose float results hang on decisions inside: a decision on a last bit shows as a leap of the twins."""
ASKS_FOR_FLOAT32 = frozenset(["QLinearConcat", "GatherBlockQuantized", "ConvStateReplay"])
"""Operators whose kernels take float32 only: scales, which round once, or places that are counted in bytes."""
CLOSING_GATES = frozenset(["Gelu", "FastGelu", "BiasGelu", "QuickGelu", "Gated"])
"""Operators that multiply by one and a number close to minus one, as their texts say."""
CENTERED = frozenset([
    "GroupNormalization", "GroupNorm", "InstanceNormalization", "LayerNormalization", "SkipLayerNormalization",
    "SkipGroupNorm", "EmbedLayerNormalization", "BatchNormalization", "LogSoftmax", "Softmax", "RowRange",
])  # fmt: skip
"""Operators that take a mean or a maximum away from what is near it: of large numbers their roundings are left."""
_TYPE_ATTRIBUTES = ("to", "dtype", "output_dtype", "softmax_precision", "stash_type")
LARGEST = {"f16": 500.0}
LARGEST_OF_OTHERS = 1e5
SENSITIVITY = 4096  # times its window a result may move under a disturbance of one window
_RARE = 32  # at most one integer of so many hangs on a last bit where a chain of quantized steps goes on
_SUMS = frozenset({"Add", "Sub", "BiasAdd", "BiasDropout", "BitmaskBiasDropout"})  # of their first three inputs
_SUMS_ALONG = frozenset({"ReduceSum", "ReduceMean", "CumSum"})  # their terms may have been rounded one like another
_TO_INTEGERS = ("Cast", "CastLike", "QuantizeLinear", "DynamicQuantizeLinear")
DISCRETE = "the answer hangs on a last bit"


# nodes ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Interpreter:
    """Runs nodes on triples: the opset of the model's own domain, kernels of users' operators, what float32 is."""

    opset: int
    custom: Mapping[str, Callable[..., Any]]
    float32: ElementType = F32

    def node(self, node: NodeProto, inputs: Sequence[Triple | None], scope: Mapping[str, Triple]) -> list[Triple]:
        """Return the outputs of a node.

        Raises:
            NoTruth: it fails, or its result is ill-conditioned, too large, or undetermined.
        """
        if node.op_type in ("If", "Loop", "Scan", "SequenceMap") and not node.domain:
            return getattr(self, f"_{node.op_type.lower()}")(node, inputs, scope)
        given = [v for v in inputs if v is not None]
        if node.op_type in ("Unique", "Imputer", "NonZero") and not given[0].is_exact:  # equality decides
            raise NoTruth(DISCRETE)  # two sums that are one number by the formula differ by their order
        if node.op_type in COMPARISONS and not all(v.is_exact for v in given) and _meet(*given):
            raise NoTruth(DISCRETE)
        if node.op_type in ("Resize", "Upsample"):
            self._check_neighbors(node, inputs)
        if node.op_type == "DynamicQuantizeLinear":
            self._check_in_float32(node, given[0].truth)
        if node.op_type == "DynamicQuantizeMatMul":  # asks first which bytes its operand becomes
            self.node(helper.make_node("DynamicQuantizeLinear", [""], ["q", "s", "z"]), inputs[:1], scope)
        types = self._output_types(node, inputs)
        rounds = node.op_type not in MOVES_AND_DECIDES
        truths = self._plain(node, [None if v is None else v.truth for v in inputs])
        if not rounds and all(v is None or v.is_exact for v in inputs):
            return [_finished(node, inputs, t, t, t, types(t)) for t in truths]
        if node.op_type in RANKINGS:
            self._check_equals(node, inputs, truths)
        twins = []
        for side in (1, -1):
            given = [
                None if v is None else twin_of(v, side, rounds and not is_kept(node, place, v))
                for place, v in enumerate(inputs)
            ]
            twins.append(self._plain(node, given))
        if node.op_type in CENTERED:
            moved = self._plain(node, [None if v is None else moved_apart(v) for v in inputs])
            twins = [[wider(*each) for each in zip(truths, twin, moved, strict=True)] for twin in twins]
        if node.op_type in _SUMS_ALONG and inputs[0] is not None and inputs[0].is_rounded:
            assert inputs[0].dtype is not None
            roundings = np.abs(inputs[0].truth) * (min(inputs[0].dtype.window, F32.window) / 64)
            (most,) = self._plain(node, [roundings, *(None if v is None else v.truth for v in inputs[1:])])
            twins = [[with_rounding(twin[0], truths[0], most, side)] for side, twin in zip((1, -1), twins, strict=True)]
        if node.op_type == "QuantizeLinear":
            twins = [
                self._with_other_division(node, inputs, twin, side) for side, twin in zip((1, -1), twins, strict=True)
            ]
        else:
            self._check_last_scale(node, inputs, truths)
        always = _always_float32(node.domain, node.op_type)
        found = [
            _finished(node, inputs, t, a, b, self.float32 if place in always else types(t))
            for place, (t, a, b) in enumerate(zip(truths, *twins, strict=True))
        ]
        return self._or_in_floats(inputs, node, found) if node.op_type == "DynamicQuantizeLSTM" else found

    def _or_in_floats(self, inputs: Sequence[Triple | None], node: NodeProto, found: Sequence[Triple]) -> list[Triple]:
        """Widen the results of a DynamicQuantizeLSTM to those of the LSTM whose weights are its levels' floats.

        An engine may keep what the operator rounds to 8 bits in each step: that is nearer to the model that was
        quantized.
        """
        arrays = [None if v is None else v.truth for v in (*inputs, *[None] * (12 - len(inputs)))]
        plain = helper.make_node("LSTM", list(node.input[:8]), list(node.output))
        plain.attribute.extend(node.attribute)
        floats = [_real_weights(arrays[place], arrays[scale], arrays[scale + 1]) for place, scale in ((1, 8), (2, 10))]
        others = self._plain(plain, [arrays[0], *floats, *arrays[3:8]])
        return [_or_other(triple, other) for triple, other in zip(found, others, strict=True)]

    def _check_equals(self, node: NodeProto, inputs: Sequence[Triple | None], truths: Sequence[Any]) -> None:
        """Rank what the element type holds: numbers apart may be equal there.

        Raises:
            NoTruth: another one is first then.
        """
        rounded = self._plain(node, [None if v is None else exact(v.native()).truth for v in inputs])
        pairs = zip(truths, rounded, strict=True)
        if node.op_type in ("ArgMax", "ArgMin") and _have_ties(node, inputs[0]):
            raise NoTruth(DISCRETE)
        if not all(np.array_equal(a, b) for a, b in pairs if a.dtype.kind in "iu" or node.op_type == "Hardmax"):
            raise NoTruth(DISCRETE)

    def _check_neighbors(self, node: NodeProto, inputs: Sequence[Triple | None]) -> None:
        """Ask for the places of elements: coordinates are numbers of float32, and of float64 for doubles alone.

        Raises:
            NoTruth: in one of them an output stands between two elements, and takes another one than in the other.
        """
        first, *rest = inputs
        mode = next((each.s for each in node.attribute if each.name == "mode"), b"nearest")
        if first is not None and mode == b"nearest":
            places = np.arange(1.0, first.truth.size + 1).reshape(first.truth.shape)
            self._check_in_float32(node, places, *(None if each is None else each.truth for each in rest))

    def _check_in_float32(self, node: NodeProto, array: np.ndarray, *rest: Any) -> None:
        """Take scales and coordinates in float32, as engines do, and in float64.

        Raises:
            NoTruth: the first result is another one then.
        """
        single, double = (self._plain(node, [array.astype(each), *rest])[0] for each in (np.float32, np.float64))
        if not np.array_equal(single, double):
            raise NoTruth(DISCRETE)

    def _check_last_scale(self, node: NodeProto, inputs: Sequence[Triple | None], truths: Sequence[Any]) -> None:
        """Disturb the last float alone: beside it the same disturbance of a dividend leaves quotients as they are.

        Raises:
            NoTruth: an integer hangs on it.
        """
        floats = [i for i, v in enumerate(inputs) if v is not None and v.dtype is not None and v.dtype.is_float]
        wholes = [i for i, truth in enumerate(truths) if isinstance(truth, np.ndarray) and truth.dtype.kind in "iu"]
        if len(floats) < 2 or not wholes or node.op_type in MOVES_AND_DECIDES:
            return
        for side in (1, -1):
            given = [None if v is None else v.truth for v in inputs]
            given[floats[-1]] = twin_of(inputs[floats[-1]], side, rounds=True)  # type: ignore[arg-type]  # is a float
            moved = self._plain(node, given)
            if not all(np.array_equal(moved[i], truths[i]) for i in wholes):
                raise NoTruth(DISCRETE)

    def _with_other_division(
        self, node: NodeProto, inputs: Sequence[Triple | None], twins: Sequence[Any], side: int
    ) -> list[Any]:
        """Return twins of integers that hang on how a quotient is rounded, beside those that hang on its dividend."""
        given = [None if v is None else v.truth for v in inputs]
        truth = self._plain(node, given)
        given[1] = twin_of(inputs[1], side, rounds=True)  # type: ignore[arg-type]  # the scale is given
        return [
            np.where(each == plain, other, each)
            for each, other, plain in zip(twins, self._plain(node, given), truth, strict=True)
        ]

    def given(self, value: Triple) -> Triple:
        """Return a value that a graph is given, in the window of this interpreter."""
        return replace(value, dtype=self.float32) if value.dtype is F32 else value

    def graph(self, graph: GraphProto, scope: Mapping[str, Triple]) -> list[Triple]:
        """Return the outputs of a graph whose inputs and captured values stand in ``scope``."""
        values = self.values(graph, scope)
        return [values[output.name] for output in graph.output]

    def values(self, graph: GraphProto, scope: Mapping[str, Triple]) -> dict[str, Triple]:
        """Return every value of a graph, as ``graph``."""
        values = dict(scope)
        for tensor in graph.initializer:
            values.setdefault(tensor.name, self.given(exact(array_of(tensor))))
        for node in graph.node:
            found = self.node(node, [values[name] if name else None for name in node.input], values)
            values.update({name: value for name, value in zip(node.output, found, strict=False) if name})
        return values

    def _plain(self, node: NodeProto, arrays: Sequence[Any]) -> list[Any]:
        custom = self.custom.get(node.op_type) if node.domain == "test.random" else None
        try:
            with np.errstate(all="ignore"):
                if custom is not None:
                    found = custom(*arrays)
                else:
                    if node.op_type in ASKS_FOR_FLOAT32:
                        arrays = [a.astype(np.float32) if a is not None and a.dtype.kind == "f" else a for a in arrays]
                    opset = self.opset if node.domain == "" else 1
                    if (precondition := find_precondition(node.domain, node.op_type, opset)) is not None:
                        precondition(ArrayConditions(_ir_node(node.SerializeToString(), self.opset), opset, arrays))
                    given = {name: self._runner(each) for name, each in _attributes(node, self.opset).items()}
                    found = _kernel(node.domain, node.op_type, self.opset)(*arrays, **given)
        except Exception as error:  # whatever a kernel says of a node, the generator takes another one
            raise NoTruth(f"{node.op_type}: {type(error).__name__}: {error}") from error
        results = found if isinstance(found, tuple) else (found,)
        results = [np.asarray(r) if isinstance(r, np.generic) else r for r in results]
        return results[: len(node.output)]

    def _runner(self, attribute: Any) -> Any:
        """Return what runs a graph on arrays, any other attribute as it is."""
        if not isinstance(attribute, GraphProto):
            return attribute
        return _Body(self, attribute)

    def _output_types(self, node: NodeProto, inputs: Sequence[Triple | None]) -> Callable[[Any], ElementType | None]:
        """Return what tells the type of an output from its array in float64."""
        named = _named_type(node)
        places = [_FLOAT_LIKE[node.op_type]] if node.op_type in _FLOAT_LIKE else range(len(inputs))
        given = [inputs[i] for i in places if i < len(inputs)]
        like = next((v.dtype for v in given if v is not None and v.dtype is not None and v.dtype.is_float), F32)
        if node.domain == "ai.onnx.ml" and node.op_type != "ArrayFeatureExtractor":
            like = F32

        def type_of(array: Any) -> ElementType | None:
            found = type_in(array)
            return self.float32 if found is F32 else found

        def type_in(array: Any) -> ElementType | None:
            if isinstance(array, list) and not array:
                return _type_of_empty(node, inputs)
            if isinstance(array, list):
                array = array[0]
            if not isinstance(array, np.ndarray):
                return None
            return named or like if array.dtype.kind == "f" and array.dtype.itemsize >= 4 else of_array(array)

        return type_of

    # control flow -----------------------------------------------------------------------------------------------------

    def _if(self, node: NodeProto, inputs: Sequence[Triple | None], scope: Mapping[str, Triple]) -> list[Triple]:
        bodies = {attribute.name: attribute.g for attribute in node.attribute}
        assert inputs[0] is not None
        return self.graph(bodies["then_branch" if inputs[0].truth.all() else "else_branch"], scope)

    def _loop(self, node: NodeProto, inputs: Sequence[Triple | None], scope: Mapping[str, Triple]) -> list[Triple]:
        body = node.attribute[0].g
        limit = 1000 if inputs[0] is None else int(inputs[0].truth.reshape(()))
        going = inputs[1] is None or bool(inputs[1].truth.all())
        carried = [value for value in inputs[2:] if value is not None]
        rows: list[list[Triple]] = []
        turn = 0
        while going and turn < limit:
            given = [exact(np.array(turn, np.int64)), exact(np.array(going)), *carried]
            names = [each.name for each in body.input]
            found = self.graph(body, {**scope, **dict(zip(names, given, strict=True))})
            going, carried = bool(found[0].truth.all()), found[1 : 1 + len(carried)]
            rows.append(found[1 + len(carried) :])
            turn += 1
        count = len(body.output) - 1 - len(carried)
        if count and not rows:
            raise NoTruth("a Loop without turns has stacked outputs of unknown shape")
        return [*carried, *(_stacked([row[i] for row in rows]) for i in range(count))]

    def _scan(self, node: NodeProto, inputs: Sequence[Triple | None], scope: Mapping[str, Triple]) -> list[Triple]:
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        body, count = attributes["body"], attributes["num_scan_inputs"]
        given = [value for value in inputs if value is not None]
        states, scanned = given[: len(given) - count], given[len(given) - count :]
        backwards = attributes.get("scan_input_directions", [0] * count)
        length = scanned[0].truth.shape[0]
        rows: list[list[Triple]] = []
        for turn in range(length):
            items = [_item(v, length - 1 - turn if b else turn) for v, b in zip(scanned, backwards, strict=True)]
            names = [each.name for each in body.input]
            found = self.graph(body, {**scope, **dict(zip(names, [*states, *items], strict=True))})
            states = found[: len(states)]
            rows.append(found[len(states) :])
        outputs = len(body.output) - len(states)
        if outputs and not rows:
            raise NoTruth("a Scan without turns has stacked outputs of unknown shape")
        reversed_out = attributes.get("scan_output_directions", [0] * outputs)
        stacks = [[row[i] for row in rows] for i in range(outputs)]
        return [*states, *(_stacked(s[::-1] if b else s) for s, b in zip(stacks, reversed_out, strict=True))]

    def _sequencemap(
        self, node: NodeProto, inputs: Sequence[Triple | None], scope: Mapping[str, Triple]
    ) -> list[Triple]:
        (body,), (given,) = [a.g for a in node.attribute], [value for value in inputs if value is not None]
        found = []
        for item in zip(given.truth, given.above, given.below, strict=True):
            is_exact = given.above is given.truth
            one = Triple(item[0], *((item[0],) * 2 if is_exact else item[1:]), given.dtype)
            found.append(self.graph(body, {**scope, body.input[0].name: one})[0])
        sides = [[getattr(each, side) for each in found] for side in ("truth", "above", "below")]
        return [Triple(*sides, found[0].dtype if found else given.dtype, is_tensor=False)]


def _type_of_empty(node: NodeProto, inputs: Sequence[Triple | None]) -> ElementType | None:
    """Return the element type of a sequence without elements."""
    named = next((element_types.of_number(a.i) for a in node.attribute if a.name == "dtype"), None)
    return named or next((v.dtype for v in inputs if v is not None), F32 if node.op_type == "SequenceEmpty" else None)


def _named_type(node: NodeProto) -> ElementType | None:
    """Return the float type that an attribute names, if one does."""
    numbers = [a.i for a in node.attribute if a.name in ("to", "dtype", "output_dtype") and a.i]
    numbers += [a.t.data_type for a in node.attribute if a.name == "value" and a.type == AttributeProto.TENSOR]
    named = element_types.of_number(numbers[0]) if numbers else None
    return named if named is not None and named.is_float else None


_FLOAT_LIKE = {
    "QuantizeLinear": 1, "DequantizeLinear": 1, "Where": 1, "CastLike": 1, "OneHot": 2, "GemmaRotaryEmbedding": 1,
}  # fmt: skip
"""Which input gives outputs their float type, where it is not the first float."""


def _size_of_roundings(
    node: NodeProto, inputs: Sequence[Triple | None], truth: np.ndarray, dtype: ElementType
) -> np.ndarray:
    """Return how much a node rounds: a window of its result, of its operand where a gate that closes multiplies it.

    A number below the least that engines keep may be nothing in them, and what multiplies it later as well.
    """
    unit = min(dtype.window, F32.window)
    with np.errstate(all="ignore"):
        size = dtype.window * np.abs(truth)
        if node.op_type in CLOSING_GATES and inputs[0] is not None and inputs[0].truth.shape == truth.shape:
            size = size + unit / 64 * np.abs(inputs[0].truth)
        if node.op_type == "GemmFastGelu" and inputs[0] is not None and inputs[1] is not None:
            size = size + unit / 64 * np.abs(inputs[0].truth @ inputs[1].truth)
        if node.op_type == "MeanVarianceNormalization" and inputs[0] is not None:
            share = _share_of_squares(node, inputs[0].truth)
            if (share * F32.window**2 > 1).any():
                raise NoTruth("a deviation that roundings make: what they leave of equal numbers is scaled up to one")
            size = size + unit / 8 * share * np.abs(truth)
        if node.op_type in _SUMS:  # operands of one size are disturbed alike: what cancels would seem exact
            rounding = max(unit / 64, dtype.window / 4 if dtype.name in ("f16", "bf16") else 0.0)
            size = size + rounding * sum(np.abs(v.truth) for v in inputs[:3] if v is not None)
        if node.op_type in ("ComplexMul", "ComplexMulConj"):
            lengths = [np.sqrt((v.truth**2).sum(-1, keepdims=True)) for v in inputs if v is not None]
            size = size + unit / 32 * lengths[0] * lengths[1]
        if node.op_type == "Det" and inputs[0] is not None:  # of rows that are alike a rounding is left
            size = size + unit / 16 * np.prod(np.sqrt((inputs[0].truth ** 2).sum(-1)), axis=-1)
        if node.op_type.endswith("Window"):
            size = size + unit / 64  # a sum of cosines, which cancel
        if node.op_type == "SoftmaxCrossEntropyLoss":  # the logarithm of a number near one, of each row that it sums
            size = size + unit / 64 * _rows_and_largest_weight(inputs)
        if node.op_type == "MatMulNBits":
            size = size + _rounded_rows(node, inputs)
        if node.op_type in ("SVMClassifier", "SVMRegressor"):  # a sum of products whose signs differ
            size = size + unit / 64 * _largest_sum(node)
        return size + np.where(truth == 0, 0.0, np.where(np.abs(truth) < 4 * dtype.least, 2.0, 0.5) * dtype.least)


def _moves_or_decides(node: NodeProto) -> bool:
    """Return whether a node rounds nothing: updates that are scattered are added or multiplied where it says so."""
    reduces = any(attribute.name == "reduction" and attribute.s in (b"add", b"mul") for attribute in node.attribute)
    return node.op_type in MOVES_AND_DECIDES and not (node.op_type.startswith("Scatter") and reduces)


def _may_round_together(value: Triple) -> bool:
    """Return whether two of a value's numbers are so near that roundings decide whether they are one."""
    if value.is_exact or value.dtype is None or not value.dtype.is_float:
        return False
    order = np.argsort(value.truth, axis=None)
    numbers, moved = value.truth.ravel()[order], np.abs(value.above - value.truth).ravel()[order]
    gaps = np.diff(numbers)
    near = moved[1:] + moved[:-1] + value.dtype.window * np.abs(numbers[1:])
    return bool(((gaps > 0) & (gaps <= near)).any())


def _have_ties(node: NodeProto, value: Triple | None) -> bool:
    """Return whether roundings decide which element along the axis is the greatest or least."""
    if value is None or not value.is_rounded:
        return False
    axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
    numbers = value.truth if node.op_type == "ArgMax" else -value.truth
    near = np.where((value.above == value.truth) & (value.below == value.truth), 0.0, allowed(value))
    with np.errstate(invalid="ignore"):
        others = numbers + near >= (numbers - near).max(axis, keepdims=True)
    return bool((np.count_nonzero(others, axis) > 1).any())


def _largest_sum(node: NodeProto) -> float:
    """Return the most that terms of a sum over support vectors add up to, for kernels of one at most; else nothing."""
    given = {a.name: a for a in node.attribute}
    is_bounded = "kernel_type" in given and given["kernel_type"].s in (b"RBF", b"SIGMOID")
    return float(np.abs(given["coefficients"].floats).sum()) if is_bounded and "coefficients" in given else 0.0


def _rows_and_largest_weight(inputs: Sequence[Triple | None]) -> float:
    """Return how many rows a loss sums up at most, times the largest weight of a class."""
    weights = inputs[2].truth if len(inputs) > 2 and inputs[2] is not None else np.ones(1)
    assert inputs[1] is not None
    return float(max(inputs[1].truth.size, 1) * np.abs(weights).max(initial=0))


def _share_of_squares(node: NodeProto, array: np.ndarray) -> np.ndarray:
    """Return the mean of squares over the variance: onnx's function takes their difference, where they cancel."""
    axes = tuple(next((a.ints for a in node.attribute if a.name == "axes"), (0, 2, 3)))
    if not array.size:
        return np.ones_like(array.sum(axes, keepdims=True))
    variance = np.maximum(array.var(axes, keepdims=True), np.finfo(np.float32).tiny)
    return (array**2).mean(axes, keepdims=True) / variance


def _finished(
    node: NodeProto, inputs: Sequence[Triple | None], truth: Any, above: Any, below: Any, dtype: ElementType | None
) -> Triple:
    """Return the triple of an output, with its own rounding; refuse what is not determined or too large."""
    if not isinstance(truth, np.ndarray) or node.op_type == "Optional":
        return Triple(truth, above, below, dtype, is_tensor=False)
    if dtype is None:
        raise NoTruth(f"an output of type {truth.dtype}")
    is_unsure = node.op_type == "Unique" and inputs[0] is not None and _may_round_together(inputs[0])
    if is_unsure or above.shape != truth.shape or below.shape != truth.shape:
        raise NoTruth(DISCRETE)
    if not dtype.is_float:
        if node.op_type in _TO_INTEGERS and not np.isfinite(np.asarray(inputs[0].truth, np.float64)).all():
            raise NoTruth("integers of what is not finite")
        if node.op_type in ("Cast", "CastLike") and dtype is BOOL and _may_be_zero(inputs[0]):
            raise NoTruth(DISCRETE)
        if above is not truth and not (np.array_equal(above, truth) and np.array_equal(below, truth)):
            if node.op_type in KEEPS_STEPS and _is_a_step(truth, above) and _is_a_step(truth, below):
                return Triple(truth, above, below, dtype)  # dequantized, it lies within one scale of the truth
            raise NoTruth(DISCRETE)
        return Triple(truth, truth, truth, dtype)
    truth, above, below = (np.asarray(each, np.float64) for each in (truth, above, below))
    largest = np.abs(truth[np.isfinite(truth)]).max(initial=0.0)
    if largest > LARGEST.get(dtype.name, LARGEST_OF_OTHERS):
        raise NoTruth("a value too large")
    if not _moves_or_decides(node):
        size = _size_of_roundings(node, inputs, truth, dtype)
        above, below = (with_rounding(t, truth, size, s) for t, s in ((above, 1), (below, -1)))
    elif np.array_equal(above, truth, equal_nan=True) and np.array_equal(below, truth, equal_nan=True):
        return Triple(truth, truth, truth, dtype)
    for twin in (above, below):
        if not np.array_equal(np.isfinite(twin), np.isfinite(truth)):
            raise NoTruth("finite or not hangs on a last bit")
        moved = np.abs(twin[np.isfinite(truth)] - truth[np.isfinite(truth)]).max(initial=0.0)
        most = 16 if node.op_type in ROUNDS_INSIDE else SENSITIVITY
        unit = dtype.window / 256 if dtype is ROUNDED_F32 else min(dtype.window, F32.window)
        if moved > most * unit * max(largest, 1e-3):
            raise NoTruth("ill-conditioned")
    return Triple(truth, above, below, dtype)


@functools.lru_cache(maxsize=1024)
def _always_float32(domain: str, op_type: str) -> frozenset[int]:
    """Return the places of outputs that are float32 whatever half type an operator of com.microsoft computes in."""
    schema = find_contrib_schema(domain, op_type, 1) if domain == "com.microsoft" else None
    if schema is None:
        return frozenset()
    only = {name for name, texts in schema.type_constraints.items() if texts == {"tensor(float)"}}
    return frozenset(place for place, each in enumerate(schema.outputs) if each.type_text in only)


def _real_weights(levels: np.ndarray, scale: np.ndarray, point: np.ndarray) -> np.ndarray:
    """Return (directions, rows, K) floats of (directions, K, rows) levels; scales are by direction, or by row too."""
    along = (len(levels), 1, -1)
    shifted = levels.astype(np.float64) - point.reshape(along)
    return np.ascontiguousarray((shifted * scale.reshape(along)).transpose(0, 2, 1))


def _or_other(triple: Triple, other: np.ndarray) -> Triple:
    """Return a triple whose twins reach another result that is right as well."""
    twins = [
        np.where(np.abs(other - triple.truth) > np.abs(t - triple.truth), other, t)
        for t in (triple.above, triple.below)
    ]
    return Triple(triple.truth, *twins, triple.dtype)


@dataclass(frozen=True)
class _Body:
    """A graph within a node, which its kernel runs on arrays."""

    run: Interpreter
    graph: GraphProto

    @property
    def input_count(self) -> int:
        """The number of its inputs."""
        return len(self.graph.input)

    @property
    def output_types(self) -> tuple[TensorType, ...]:
        """Types of its outputs, as they are declared."""
        found = [each.type.tensor_type for each in self.graph.output]
        shapes = [tuple(dim.dim_value or None for dim in each.shape.dim) for each in found]
        return tuple(TensorType(DataType(t.elem_type), shape) for t, shape in zip(found, shapes, strict=True))

    def __call__(self, *arrays: np.ndarray) -> tuple[Any, ...]:
        """Run it once."""
        names = [each.name for each in self.graph.input]
        scope = {name: exact(array) for name, array in zip(names, arrays, strict=True)}
        return tuple(each.truth for each in self.run.graph(self.graph, scope))


def _is_a_step(truth: np.ndarray, twin: np.ndarray) -> bool:
    """Return whether few integers differ, by one."""
    apart = np.abs(truth.astype(np.int64) - twin.astype(np.int64))
    return bool(apart.max(initial=0) <= 1 and np.count_nonzero(apart) * _RARE <= apart.size)


def _may_be_zero(value: Triple) -> bool:
    """Return whether a number that is rounded lies so near zero that an engine may have zero: both twins may not."""
    is_rounded = value.dtype is not None and value.dtype.is_float and not value.is_exact
    return is_rounded and bool(((value.truth != 0) & (np.abs(value.truth) <= allowed(value))).any())


def _meet(left: Triple, right: Triple) -> bool:
    """Return whether some numbers of two values lie within each other's windows."""
    reach = allowed(left) + allowed(right)
    with np.errstate(invalid="ignore"):
        return bool((np.abs(left.truth - right.truth) <= reach).any())


def _item(value: Triple, index: int) -> Triple:
    if value.is_exact:
        part = value.truth[index]
        part = np.asarray(part)
        return Triple(part, part, part, value.dtype)
    return Triple(*(np.asarray(each[index]) for each in (value.truth, value.above, value.below)), value.dtype)


def _stacked(values: Sequence[Triple]) -> Triple:
    if len({v.truth.shape for v in values}) > 1:
        raise NoTruth("turns of different shapes")
    truth = np.stack([v.truth for v in values])
    if all(v.is_exact for v in values):
        return Triple(truth, truth, truth, values[0].dtype)
    return Triple(truth, np.stack([v.above for v in values]), np.stack([v.below for v in values]), values[0].dtype)


# kernels --------------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=4096)
def _ir_node(content: bytes, opset: int) -> Node:
    """Return a node as preconditions read it."""
    node = NodeProto.FromString(content)
    infos = [
        [ValueInfoProto(name=name) for name in dict.fromkeys(names) if name] for names in (node.input, node.output)
    ]
    graph = helper.make_graph([node], "node", *infos)
    opsets = [helper.make_opsetid("", opset), *([helper.make_opsetid(node.domain, 1)] if node.domain else [])]
    (read,) = model_from_proto(helper.make_model(graph, opset_imports=opsets, ir_version=10)).graph
    return read


@functools.lru_cache(maxsize=4096)
def _kernel(domain: str, op_type: str, opset: int) -> Callable[..., Any]:
    version = opset if domain == "" else {"ai.onnx.ml": 5 if op_type == "TreeEnsemble" else 3}.get(domain, 1)
    spec = reference_kernels().find(domain, op_type, version)
    if not isinstance(spec, KernelSpec):
        raise NoTruth(str(spec))
    return spec.function


def _attributes(node: NodeProto, opset: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for attribute in node.attribute:
        found[attribute.name] = _attribute_value(attribute)
    from ort_core.kernels.registry import wants_context

    if wants_context(_kernel(node.domain, node.op_type, opset)):
        present = tuple(bool(name) for name in node.output)
        found["ctx"] = KernelContext(
            node.op_type, node.domain, opset, node.name, present, (None,) * len(present), {}, Unguarded(), 0
        )
    return found


def _attribute_value(attribute: AttributeProto) -> Any:
    value = helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, TensorProto):
        array = array_of(value)
        return array.astype(np.float64) if (t := of_array(array)) is not None and t.is_float else array
    if attribute.name in _TYPE_ATTRIBUTES and isinstance(value, int):
        named = element_types.of_number(value)
        return TensorProto.DOUBLE if named is not None and named.is_float else value
    if isinstance(value, (list, tuple)) or attribute.type in (
        AttributeProto.INTS,
        AttributeProto.FLOATS,
        AttributeProto.STRINGS,
    ):
        return tuple(item.decode() if isinstance(item, bytes) else item for item in value)
    return value


def array_of(tensor: TensorProto) -> np.ndarray:
    """Return the array of an initializer, narrow types as ``ml_dtypes`` has them, text as str objects."""
    array = numpy_helper.to_array(tensor)
    if tensor.data_type == TensorProto.STRING:
        return np.array([item.decode() if isinstance(item, bytes) else item for item in array.ravel()], object).reshape(
            array.shape
        )
    return array


def _rounded_rows(node: NodeProto, inputs: Sequence[Triple | None]) -> np.ndarray | float:
    """Return what a product may lose where its accuracy level lets rows be signed bytes with a scale for each block.

    At level 2 a number is two bytes.
    """
    given = {attribute.name: attribute.i for attribute in node.attribute}
    rows, scales = inputs[0], inputs[2]
    level = given.get("accuracy_level", 0)
    if level < 2 or rows is None or scales is None:
        return 0.0
    numbers = min(given["block_size"], given["K"])
    weights = np.abs(scales.truth.reshape(given["N"], -1)).sum(axis=1) * 2.0 ** given.get("bits", 4) * numbers
    return np.abs(rows.truth).max(axis=-1, keepdims=True) * weights / (254.0**2 if level == 2 else 254.0)
