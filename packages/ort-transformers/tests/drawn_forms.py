"""Attentions and norms as repositories write them by hand, drawn by chance.

Attentions: heads that share keys as an axis of their own, one head for all, windows beside the batch; products as
Einsums; softmaxes of exponentials, quiet ones, ones beside a sink. Norms: over channels, sums over their count, squares
less the square of the mean, scaled before they are normalized.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper
from spelled_layers import LOWEST, LayerState

HIDDEN, CHANNELS = 24, 6
Drawn = tuple[onnx.ModelProto, dict[str, np.ndarray], list[str]]


def _model(state: LayerState, opset: int, shapes: dict[str, list[int | str]]) -> onnx.ModelProto:
    state.nodes[-1].output[0] = "y"
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), shapes[name])
        for name, array in state.inputs.items()
    ]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(state.nodes, "form", inputs, [output], state.constants)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    inferred = onnx.shape_inference.infer_shapes(made, strict_mode=True)
    made.graph.output[0].CopyFrom(inferred.graph.output[0])
    onnx.checker.check_model(made, full_check=True)
    return made


def drawn_attention(seed: int) -> Drawn:
    """Return a model of one attention, its feeds, and what was drawn."""
    state = LayerState(np.random.default_rng(seed), [], [], {}, [])
    return _Attention(state).model()


class _Attention:
    """One attention: the axes of its heads, its products, its mask and its softmax."""

    def __init__(self, state: LayerState) -> None:
        self.state, draw = state, state.random
        self.axes = state.choose("own heads", "one head", "groups", "groups behind", "windows", "stacked queries")
        self.size = int(draw.choice([3, 8, 8]))
        self.groups, self.repeats = int(draw.choice([2, 3])), int(draw.choice([2, 3]))
        self.batch, self.windows = int(draw.choice([1, 2])), int(draw.choice([2, 3]))
        self.queries = int(draw.choice([4, 5]))
        self.keys = self.queries if draw.integers(3) else 7
        self.opset = int(draw.choice([13, 17, 18, 21]))
        self.is_einsum = state.choose("MatMul", "Einsum") == "Einsum"

    def model(self) -> Drawn:
        """Return the model."""
        state = self.state
        lead: tuple[int, ...] = (self.batch, self.windows) if self.axes == "windows" else (self.batch,)
        for name, length in (("x", self.queries), ("memory", self.keys)):
            state.inputs[name] = state.random.standard_normal((*lead, length, HIDDEN)).astype(np.float32)
        merged = {
            "own heads": self._own, "one head": self._one, "groups": self._grouped, "groups behind": self._grouped,
            "windows": self._windows, "stacked queries": self._stacked,
        }[self.axes]()  # fmt: skip
        state.op("Identity", merged)
        names: list[int | str] = ["B", self.windows] if self.axes == "windows" else ["B"]
        shapes = {"x": [*names, "L", HIDDEN], "memory": [*names, "M", HIDDEN]}
        shapes["bias"] = ["B", 1, 3, "L", "M"] if self.axes == "windows" else []
        return _model(state, self.opset, shapes), state.inputs, state.drawn

    def _flat(self, x: str, width: int) -> str:
        flat = self.state.op("MatMul", x, self.state.weight(HIDDEN, width))
        return self.state.swapped("Add", flat, self.state.weight(width)) if self.state.random.integers(2) else flat

    def _split(self, x: str, sizes: tuple[int, ...], perm: tuple[int, ...]) -> str:
        numbers = self.state.ints(*[0] * (3 if self.axes == "windows" else 2), *sizes)
        split = self.state.op("Reshape", self._flat(x, int(np.prod(sizes))), numbers)
        return self.state.op("Transpose", split, perm=list(perm))

    def _merged(self, product: str, perm: tuple[int, ...], width: int) -> str:
        turned = self.state.op("Transpose", product, perm=list(perm))
        return self.state.op("Reshape", turned, self.state.ints(*[0] * (3 if self.axes == "windows" else 2), width))

    def _own(self) -> str:
        heads = self.groups
        q, k, v = (self._split(each, (heads, self.size), (0, 2, 1, 3)) for each in ("x", "memory", "memory"))
        product = self._attended(q, k, v, "bhid,bhjd->bhij", "bhij,bhjd->bhid")
        return self._merged(product, (0, 2, 1, 3), heads * self.size)

    def _one(self) -> str:
        heads = self.groups * self.repeats
        q = self._split("x", (heads, self.size), (0, 2, 1, 3))
        k, v = (self._flat("memory", self.size) for _ in range(2))
        if not self.is_einsum:
            k, v = (self.state.op("Unsqueeze", each, self.state.ints(1)) for each in (k, v))
        product = self._attended(q, k, v, "bhid,bjd->bhij", "bhij,bjd->bhid")
        return self._merged(product, (0, 2, 1, 3), heads * self.size)

    def _grouped(self) -> str:
        """Return queries as (batch, groups, repeats, …), or with repeats in front where Einsums name the axes."""
        shared, width = (self.groups, self.size), self.groups * self.repeats * self.size
        k, v = (self._split("memory", shared, (0, 2, 1, 3)) for _ in range(2))
        if self.axes == "groups behind" and self.is_einsum:
            q = self._split("x", (self.groups, self.repeats, self.size), (0, 3, 2, 1, 4))
            product = self._attended(q, k, v, "brgid,bgjd->brgij", "brgij,bgjd->brgid")
            return self._merged(product, (0, 3, 2, 1, 4), width)
        q = self._split("x", (self.groups, self.repeats, self.size), (0, 2, 3, 1, 4))
        if not self.is_einsum:
            k, v = (self.state.op("Unsqueeze", each, self.state.ints(2)) for each in (k, v))
        product = self._attended(q, k, v, "bgrid,bgjd->bgrij", "bgrij,bgjd->bgrid")
        return self._merged(product, (0, 3, 1, 2, 4), width)

    def _windows(self) -> str:
        heads, state = 3, self.state
        q, k, v = (self._split(each, (heads, self.size), (0, 1, 3, 2, 4)) for each in ("x", "memory", "memory"))
        if state.choose("no bias", "bias of pairs") == "bias of pairs":
            shape = (self.batch, 1, heads, self.queries, self.keys)
            state.inputs["bias"] = state.random.standard_normal(shape).astype(np.float32)
        self.is_einsum = False
        return self._merged(self._attended(q, k, v, "", ""), (0, 1, 3, 2, 4), heads * self.size)

    def _stacked(self) -> str:
        """Return an attention with one head of keys, whose queries are (batch, tokens * heads, size)."""
        state, heads = self.state, self.groups * self.repeats
        q = state.op("Reshape", self._flat("x", heads * self.size), state.ints(0, -1, self.size))
        k, v = (self._flat("memory", self.size) for _ in range(2))
        batch, rows, columns = (
            state.op("Slice", state.op("Shape", x), state.ints(axis), state.ints(axis + 1))
            for x, axis in (("x", 0), ("x", 1), ("memory", 1))
        )
        apart = state.op("Concat", batch, rows, state.ints(heads), columns, axis=0)
        scores = state.op("MatMul", state.op("Mul", q, state.constant(0.4)), state.op("Transpose", k, perm=[0, 2, 1]))
        scores = state.op("Reshape", scores, apart)
        if state.choose("no mask", "causal") == "causal":
            places = [self._range(each) for each in (rows, columns)]
            order = (state.op("Unsqueeze", each, state.ints(*axes)) for each, axes in zip(places, ((1, 2), (0, 1))))
            seen = state.op("GreaterOrEqual", *order)
            scores = state.op("Where", seen, scores, state.constant(LOWEST))
        stacked = state.op("Concat", batch, state.op("Mul", rows, state.ints(heads)), columns, axis=0)
        shares = state.op("Reshape", state.op("Softmax", scores, axis=-1), stacked)
        return state.op("Reshape", state.op("MatMul", shares, v), state.ints(0, -1, heads * self.size))

    # ------------------------------------------------------------------ scores and shares
    def _attended(self, q: str, k: str, v: str, scores: str, values: str) -> str:
        state = self.state
        q = state.swapped("Mul", q, state.constant(0.4)) if state.random.integers(2) else q
        rank = 5 if self.axes in ("windows", "groups", "groups behind") else 4
        if not self.is_einsum and "bias" not in state.inputs and state.choose("rows", "columns") == "columns":
            return self._by_columns(q, k, v, [*range(rank - 2), rank - 1, rank - 2])
        if self.is_einsum:
            made = state.op("Einsum", q, k, equation=scores)
        else:
            turned = state.op("Transpose", k, perm=[*range(rank - 2), rank - 1, rank - 2])
            made = state.op("MatMul", q, turned)
        made = self._masked(state.op("Div", made, state.constant(1.7)))
        return self._shared(made, lambda shares: self._weighed(shares, v, values), rank)

    def _by_columns(self, q: str, k: str, v: str, swap: list[int]) -> str:
        """Return an attention whose scores have a row for each key."""
        state = self.state
        made = state.op("MatMul", k, state.op("Transpose", q, perm=swap))
        shares = state.op("Softmax", state.op("Div", made, state.constant(1.7)), axis=-2)
        if state.choose("shares turned", "values turned") == "shares turned":
            return state.op("MatMul", state.op("Transpose", shares, perm=swap), v)
        product = state.op("MatMul", state.op("Transpose", v, perm=swap), shares)
        return state.op("Transpose", product, perm=swap)

    def _weighed(self, shares: str, v: str, values: str) -> str:
        if self.is_einsum:
            return self.state.op("Einsum", shares, v, equation=values)
        return self.state.op("MatMul", shares, v)

    def _masked(self, scores: str) -> str:
        state = self.state
        if "bias" in state.inputs:
            return state.swapped("Add", scores, "bias")
        kind = state.choose("no mask", "causal", "replaced", "added")
        if kind == "no mask":
            return scores
        rows = state.op("Slice", state.op("Shape", "x"), state.ints(-2), state.ints(-1))
        columns = state.op("Slice", state.op("Shape", "memory"), state.ints(-2), state.ints(-1))
        places = [self._range(each) for each in (rows, columns)]
        seen = state.op(
            "GreaterOrEqual", state.op("Unsqueeze", places[0], state.ints(1)),
            state.op("Unsqueeze", places[1], state.ints(0)),
        )  # fmt: skip
        low = state.constant(LOWEST if kind == "replaced" else -np.inf)
        if kind == "replaced":
            return state.op("Where", seen, scores, low)
        return state.swapped("Add", scores, state.op("Where", seen, state.constant(0), low))

    def _range(self, length: str) -> str:
        state = self.state
        return state.op("Range", state.constant(0, np.int64), state.op("Squeeze", length), state.constant(1, np.int64))

    def _shared(self, scores: str, weighed: object, rank: int) -> str:
        state = self.state
        forms = ["operator", "by hand", "shifted"] + (["behind values"] if not self.is_einsum else [])
        form = state.choose(*forms, *(["quiet", "quiet shifted", "sunk", "sunk ones"] if rank == 4 else []))
        assert callable(weighed)
        if form == "operator":
            return weighed(state.op("Softmax", scores, axis=-1))
        if form.startswith("sunk"):
            return weighed(self._sunk(scores, is_equal=form == "sunk ones"))
        largest = self._largest(scores)
        if form == "quiet shifted":
            largest = state.op("Max", largest, state.constant(0))
        is_shifted = form in ("shifted", "quiet shifted", "behind values")
        exponentials = state.op("Exp", state.op("Sub", scores, largest) if is_shifted else scores)
        total = state.op("ReduceSum", exponentials, state.ints(-1))
        if form == "behind values":
            return state.op("Div", weighed(exponentials), total)
        if form.startswith("quiet"):
            more = state.op("Exp", state.op("Neg", largest)) if is_shifted else state.constant(1)
            total = state.swapped("Add", total, more)
        return weighed(state.op("Div", exponentials, total))

    def _sunk(self, scores: str, *, is_equal: bool) -> str:
        state = self.state
        if is_equal:
            pads = state.ints(0, 0, 0, 1, 0, 0, 0, 0)
            shares = state.op("Softmax", state.op("Pad", scores, pads, state.constant(0.3)), axis=-1)
            return state.op("Slice", shares, state.ints(1), state.ints(2**31 - 1), state.ints(3))
        heads = self.groups * self.repeats if self.axes == "one head" else self.groups
        rows = state.op("Slice", state.op("Shape", scores), state.ints(0), state.ints(3))
        shape = state.op("Concat", rows, state.ints(1), axis=0)
        sinks = state.constant(state.random.standard_normal((1, heads, 1, 1)).astype(np.float32))
        joined = state.op("Concat", scores, state.op("Expand", sinks, shape), axis=-1)
        return state.op("Slice", state.op("Softmax", joined, axis=-1), state.ints(0), state.ints(-1), state.ints(-1))

    def _largest(self, scores: str) -> str:
        if self.opset < 18:
            return self.state.op("ReduceMax", scores, axes=[-1])
        return self.state.op("ReduceMax", scores, self.state.ints(-1))


def drawn_norm(seed: int) -> Drawn:
    """Return a model of one norm, its feeds, and what was drawn."""
    state = LayerState(np.random.default_rng(seed), [], [], {}, [])
    axis = {"last": 2, "channels": 1}[state.choose("last", "channels")]
    size, opset = (HIDDEN if axis == 2 else CHANNELS), int(state.random.choice([13, 17, 18, 21]))
    is_centered = state.choose("layer norm", "rms norm") == "layer norm"
    shape = (2, 5, HIDDEN) if axis == 2 else (2, CHANNELS, 5)
    state.inputs["x"] = state.random.standard_normal(shape).astype(np.float32)
    means = _Means(state, axis, size, opset)
    weight_shape = (size,) if axis == 2 else [(size, 1), (1, size, 1)][int(state.random.integers(2))]
    scale = state.constant(state.random.uniform(0.5, 2, weight_shape).astype(np.float32))
    if is_centered:
        mean = means.of("x")
        x = state.op("Sub", "x", mean)
        if state.choose("differences", "squares") == "squares":
            variance = state.op("Sub", means.of(_square(state, "x")), _square(state, mean))
        else:
            variance = means.of(_square(state, x))
    else:
        x, variance = "x", means.of(_square(state, "x"))
    root = state.op("Sqrt", state.swapped("Add", variance, state.constant(1e-5)))
    result = _scaled(state, x, root, scale, is_centered=is_centered)
    if is_centered:
        shift = state.constant(state.random.standard_normal(weight_shape).astype(np.float32))
        result = state.swapped("Add", result, shift)
    names: list[int | str] = ["B", "L", HIDDEN] if axis == 2 else ["B", CHANNELS, "L"]
    return _model(state, opset, {"x": names}), state.inputs, state.drawn


def _scaled(state: LayerState, x: str, root: str, scale: str, *, is_centered: bool) -> str:
    place = state.choose("behind", "behind", "gain") if is_centered else state.choose("behind", "in front", "gain")
    inverse = state.op("Reciprocal", root)
    if place == "gain" and not is_centered:
        return state.swapped("Mul", x, state.swapped("Mul", inverse, scale))
    if place == "in front":
        return state.swapped("Mul", state.swapped("Mul", x, scale), inverse)
    return state.swapped("Mul", state.op("Div", x, root), scale)


def _square(state: LayerState, x: str) -> str:
    return state.op("Mul", x, x) if state.random.integers(2) else state.op("Pow", x, state.constant(2))


class _Means:
    """Means over one axis, each in a form that is drawn."""

    def __init__(self, state: LayerState, axis: int, size: int, opset: int) -> None:
        self.state, self.axis, self.size, self.opset = state, axis, size, opset

    def of(self, x: str) -> str:
        """Return a mean that keeps the axis."""
        state = self.state
        form = state.choose("mean", "mean", "sum by count", "sum times share", "axis put back")
        if form in ("mean", "axis put back"):
            keeps = int(form == "mean")
            given = (state.ints(self.axis),) if self.opset >= 18 else ()
            attributes = {} if given else {"axes": [self.axis]}
            made = state.op("ReduceMean", x, *given, keepdims=keeps, **attributes)
            return made if keeps else state.op("Unsqueeze", made, state.ints(self.axis))
        total = state.op("ReduceSum", x, state.ints(self.axis - 3))
        if form == "sum by count":
            return state.op("Div", total, state.constant(self.size))
        return state.swapped("Mul", total, state.constant(1 / self.size))
