"""Layers of transformers, each part in a spelling drawn by chance: what exporters write, and what none of them did yet.

A layer is: a norm, projections, maybe norms of heads, a rotation, a cache, keys repeated for groups, an attention with
a scale, a bound and a mask, the residual addition, another norm, and a gated or a plain MLP.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HIDDEN, SIZE, BATCH, LENGTH, PAST = 32, 8, 2, 5, 3
LOWEST = float(np.finfo(np.float32).min)


@dataclass
class LayerState:
    """The nodes, constants and inputs of a layer that is being written; ``drawn`` are the spellings so far."""

    random: np.random.Generator
    nodes: list[onnx.NodeProto]
    constants: list[onnx.TensorProto]
    inputs: dict[str, np.ndarray]
    drawn: list[str]

    def choose(self, *names: str) -> str:
        """Draw a spelling."""
        name = names[int(self.random.integers(len(names)))]
        self.drawn.append(name)
        return name

    def op(self, op_type: str, *inputs: str, outputs: int = 1, **attributes: object) -> str:
        """Add a node and return its first output; others are called so with a number behind."""
        name = f"v{len(self.nodes)}"
        names = [name, *(f"{name}_{number}" for number in range(1, outputs))]
        self.nodes.append(helper.make_node(op_type, list(inputs), names, name=f"{op_type}_{name}", **attributes))
        return name

    def constant(self, array: object, dtype: type = np.float32) -> str:
        """Add a constant and return its name."""
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.array(array, dtype), name))
        return name

    def ints(self, *numbers: int) -> str:
        """Add a list of integers."""
        return self.constant(numbers, np.int64)

    def weight(self, *shape: int) -> str:
        """Add random weights."""
        return self.constant(self.random.standard_normal(shape) / np.sqrt(shape[0]))

    def swapped(self, op_type: str, left: str, right: str) -> str:
        """Add a node with its two operands in either order."""
        pair = (left, right) if self.random.integers(2) else (right, left)
        return self.op(op_type, *pair)


def spelled_layer(seed: int) -> tuple[onnx.ModelProto, dict[str, np.ndarray], list[str]]:
    """Return a layer, its feeds, and the spellings that were drawn."""
    state = LayerState(np.random.default_rng(seed), [], [], {}, [])
    x = state.random.standard_normal((BATCH, LENGTH, HIDDEN)).astype(np.float32)
    state.inputs["x"] = x
    attended = _attention(state, _norm(state, "x"))
    total = state.swapped("Add", "x", state.op("MatMul", attended, state.weight(HIDDEN, HIDDEN)))
    result = state.swapped("Add", total, _mlp(state, _norm(state, total)))
    state.nodes[-1].output[0] = "y"
    assert result == f"v{len(state.nodes) - 1}"
    inputs = [_input_of(name, array) for name, array in state.inputs.items()]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["B", "L", HIDDEN])
    graph = helper.make_graph(state.nodes, "layer", inputs, [output], state.constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    onnx.checker.check_model(model, full_check=True)
    return model, state.inputs, state.drawn


def _input_of(name: str, array: np.ndarray) -> onnx.ValueInfoProto:
    names = {BATCH: "B", LENGTH: "L", PAST: "P", LENGTH + PAST: "T"}
    fixed = name.startswith("past")
    shape = [size if fixed and axis in (1, 3) else names.get(size, size) for axis, size in enumerate(array.shape)]
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), shape)


def _norm(state: LayerState, x: str) -> str:
    kind, last = state.choose("layer norm", "rms norm"), state.ints(-1)
    if kind == "layer norm":
        x = state.op("Sub", x, state.op("ReduceMean", x, last))
    square = (
        state.op("Mul", x, x) if state.choose("x * x", "x ** 2") == "x * x" else state.op("Pow", x, state.constant(2))
    )
    safe = state.swapped("Add", state.op("ReduceMean", square, last), state.constant(1e-5))
    root = state.op("Sqrt", safe)
    if state.choose("divided", "times reciprocal") == "divided":
        normal = state.op("Div", x, root)
    else:
        normal = state.swapped("Mul", x, state.op("Reciprocal", root))
    scaled = state.swapped("Mul", normal, state.weight(HIDDEN))
    return state.swapped("Add", scaled, state.weight(HIDDEN)) if kind == "layer norm" else scaled


def _heads(state: LayerState, x: str, count: int) -> str:
    flat = state.op("MatMul", x, state.weight(HIDDEN, count * SIZE))
    if state.choose("bias", "no bias") == "bias":
        flat = state.swapped("Add", flat, state.weight(count * SIZE))
    split = state.op("Reshape", flat, state.ints(0, 0, count, SIZE))
    return state.op("Transpose", split, perm=[0, 2, 1, 3])


def _attention(state: LayerState, x: str) -> str:
    groups = {"own heads": 4, "two groups": 2, "one group": 1}[state.choose("own heads", "two groups", "one group")]
    q, k, v = (_heads(state, x, count) for count in (4, groups, groups))
    q, k = _rotated(state, q, k)
    length = LENGTH
    if state.choose("past", "no past") == "past":
        length += PAST
        k, v = (_joined(state, name, each, groups) for name, each in (("past_key", k), ("past_value", v)))
    k, v = (_repeated(state, each, groups) for each in (k, v))
    weights = state.op("Softmax", _masked(state, _scores(state, q, k), length), axis=-1)
    merged = state.op("Transpose", state.op("MatMul", weights, v), perm=[0, 2, 1, 3])
    return state.op("Reshape", merged, state.ints(0, 0, HIDDEN))


def _joined(state: LayerState, name: str, new: str, groups: int) -> str:
    state.inputs[name] = state.random.standard_normal((BATCH, groups, PAST, SIZE)).astype(np.float32)
    return state.op("Concat", name, new, axis=2)


def _rotated(state: LayerState, *heads: str) -> list[str]:
    form = state.choose("no rotation", "halves", "twins", "apart", "first features")
    if form == "no rotation":
        return list(heads)
    pairs = SIZE // 4 if form == "first features" else SIZE // 2
    shape = state.op("Shape", "x", start=1, end=2)
    length = state.op("Squeeze", shape, state.ints(0))
    places = state.op("Range", state.constant(0, np.int64), length, state.constant(1, np.int64))
    column = state.op("Unsqueeze", state.op("Cast", places, to=TensorProto.FLOAT), state.ints(1))
    angles = state.swapped("Mul", column, state.constant(0.3 ** np.arange(pairs)))
    if form in ("halves", "first features"):
        angles = state.op("Concat", angles, angles, axis=-1)
    elif form == "twins":
        lifted = state.op("Unsqueeze", angles, state.ints(2))
        angles = state.op("Reshape", state.op("Expand", lifted, state.ints(1, 1, 2)), state.ints(0, -1))
    cos, sin = (state.op("Unsqueeze", state.op(name, angles), state.ints(0, 1)) for name in ("Cos", "Sin"))
    return [_turned(state, each, form, cos, sin) for each in heads]


def _turned(state: LayerState, x: str, form: str, cos: str, sin: str) -> str:
    last, one = state.ints(3), state.ints(1)
    if form == "first features":
        first, rest = (
            state.op("Slice", x, state.ints(a), state.ints(b), last, one)
            for a, b in ((0, SIZE // 2), (SIZE // 2, SIZE))
        )
        return state.op("Concat", _halves_turned(state, first, SIZE // 4, cos, sin), rest, axis=-1)
    if form == "twins":
        pair = _twins_of(state, x)
        other = state.op("Reshape", state.op("Concat", *pair, axis=-1), state.ints(0, 0, 0, SIZE))
        return state.swapped("Add", state.swapped("Mul", x, cos), state.swapped("Mul", other, sin))
    if form == "halves":
        return _halves_turned(state, x, SIZE // 2, cos, sin)
    low = state.op("Split", x, outputs=2, axis=3, num_outputs=2)
    high = f"{low}_1"
    first = state.op("Sub", state.swapped("Mul", low, cos), state.swapped("Mul", high, sin))
    second = state.swapped("Add", state.swapped("Mul", high, cos), state.swapped("Mul", low, sin))
    return state.op("Concat", first, second, axis=-1)


def _twins_of(state: LayerState, x: str) -> list[str]:
    """Return the odd elements, negated, and the even ones, each as (…, pairs, 1)."""
    form = state.choose("strides", "pairs", "unbound pairs")
    if form == "strides":
        last, two, end = state.ints(3), state.ints(2), state.ints(1 << 60)
        even, odd = (state.op("Slice", x, state.ints(at), end, last, two) for at in (0, 1))
        return [state.op("Unsqueeze", each, state.ints(4)) for each in (state.op("Neg", odd), even)]
    five = state.op("Reshape", x, state.ints(0, 0, 0, SIZE // 2, 2))
    even, odd = (state.op("Slice", five, state.ints(at), state.ints(at + 1), state.ints(-1)) for at in (0, 1))
    if form == "unbound pairs":  # as dynamo exports torch.unbind and torch.stack
        squeezed = state.op("Squeeze", odd, state.ints(-1))
        return [state.op("Unsqueeze", state.op("Neg", squeezed), state.ints(-1)), even]
    return [state.op("Neg", odd), even]


def _halves_turned(state: LayerState, x: str, pairs: int, cos: str, sin: str) -> str:
    low = state.op("Slice", x, state.ints(0), state.ints(pairs), state.ints(-1))
    high = state.op("Slice", x, state.ints(pairs), state.ints(2 * pairs), state.ints(3))
    other = state.op("Concat", state.op("Neg", high), low, axis=-1)
    return state.swapped("Add", state.swapped("Mul", x, cos), state.swapped("Mul", other, sin))


def _repeated(state: LayerState, heads: str, groups: int) -> str:
    if groups == 4:
        return heads
    form = state.choose("expand", "tile", "concat")
    times, lifted = 4 // groups, state.op("Unsqueeze", heads, state.ints(2))
    if form == "concat":
        wide = state.op("Concat", *[lifted] * times, axis=2)
    else:
        wide = state.op(form.capitalize(), lifted, state.ints(1, 1, times, 1, 1))
    merge = state.op("Reshape", wide, state.ints(0, 4, -1, SIZE))
    return merge


def _scores(state: LayerState, q: str, k: str) -> str:
    form = state.choose("scores times", "scores by", "query times", "both times", "unscaled")
    k = state.op("Transpose", k, perm=[0, 1, 3, 2])
    if form in ("query times", "both times"):
        q = state.swapped("Mul", q, state.constant(0.4))
    if form == "both times":
        k = state.swapped("Mul", k, state.constant(0.7))
    scores = state.op("MatMul", q, k)
    if form == "scores times":
        scores = state.swapped("Mul", scores, state.constant(0.35))
    if form == "scores by":
        scores = state.op("Div", scores, state.constant(2.8))
    if state.choose("unbounded", "unbounded", "bounded") == "bounded":
        scores = state.op("Tanh", state.op("Div", scores, state.constant(1.5)))
        scores = state.swapped("Mul", scores, state.constant(1.5))
    return scores


def _masked(state: LayerState, scores: str, length: int) -> str:
    form = state.choose("no mask", "addend", "allowed", "hidden", "made addend")
    if form == "no mask":
        return scores
    keep = state.random.random((BATCH, 1, LENGTH, length)) < 0.7
    keep[0, 0, 1] = False  # a row that sees nothing has equal shares
    if form == "addend":
        state.inputs["mask"] = np.where(keep, 0, -1e9).astype(np.float32)
        return state.swapped("Add", scores, "mask")
    state.inputs["mask"] = ~keep if form == "hidden" else keep
    low, zero = state.constant(LOWEST), state.constant(0)
    if form == "made addend":
        return state.swapped("Add", scores, state.op("Where", "mask", zero, low))
    return state.op("Where", "mask", *((low, scores) if form == "hidden" else (scores, low)))


def _mlp(state: LayerState, x: str) -> str:
    up = state.op("MatMul", x, state.weight(HIDDEN, 48))
    active = _active(state, up)
    if state.choose("gated", "plain") == "gated":
        active = state.swapped("Mul", active, state.op("MatMul", x, state.weight(HIDDEN, 48)))
    return state.op("MatMul", active, state.weight(48, HIDDEN))


def _active(state: LayerState, x: str) -> str:
    form = state.choose("silu", "quick gelu", "gelu", "tanh gelu", "sigmoid gelu")
    if form in ("silu", "quick gelu"):
        scaled = x if form == "silu" else state.swapped("Mul", x, state.constant(1.702))
        return state.swapped("Mul", x, state.op("Sigmoid", scaled))
    if form == "gelu":
        more = state.swapped("Add", state.op("Erf", state.op("Div", x, state.constant(2**0.5))), state.constant(1))
        return state.swapped("Mul", state.swapped("Mul", x, more), state.constant(0.5))
    cube = state.swapped("Mul", state.op("Pow", x, state.constant(3)), state.constant(0.044715))
    factor = (2 / np.pi) ** 0.5 * (2 if form == "sigmoid gelu" else 1)
    inner = state.swapped("Mul", state.swapped("Add", x, cube), state.constant(factor))
    if form == "sigmoid gelu":
        return state.swapped("Mul", x, state.op("Sigmoid", inner))
    more = state.swapped("Add", state.op("Tanh", inner), state.constant(1))
    return state.swapped("Mul", state.swapped("Mul", x, state.constant(0.5)), more)
