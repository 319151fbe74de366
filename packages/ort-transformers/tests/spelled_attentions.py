"""Attentions alone, of drawn sizes and spellings: where heads come from, what is scaled, masked, cast and merged.

Sizes are odd as often as not: one head, heads of three or five elements, one token, values narrower than keys, keys of
other tokens. Projections may be one matrix that is split, biases may be missing, the length may be the first axis, and
several heads may be read from one value. Products are Einsums as often, batch and heads one axis, and scores shifted.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper
from spelled_layers import LOWEST, LayerState

HIDDEN = 24
AXES_AS_INPUT = 18  # of ReduceMax


def spelled_attention(seed: int) -> tuple[onnx.ModelProto, dict[str, np.ndarray], list[str]]:
    """Return a model of one attention, or of two with the same mask, its feeds, and what was drawn."""
    state = LayerState(np.random.default_rng(seed), [], [], {}, [])
    return _Drawing(state).model()


class _Drawing:
    """One attention that is being drawn: its sizes first, then its nodes."""

    def __init__(self, state: LayerState) -> None:
        self.state = state
        self.heads = int(state.random.choice([1, 2, 3, 4, 5, 8]))
        self.size = int(state.random.choice([2, 3, 4, 5, 8, 16]))
        self.value_size = self.size if state.random.integers(4) else int(state.random.choice([1, 3, 8]))
        self.batch = int(state.random.choice([1, 2, 3]))
        self.length = int(state.random.choice([1, 4, 7]))
        self.is_crossed = state.choose("self", "self", "cross") == "cross"
        self.keys = int(state.random.choice([1, 3, 9])) if self.is_crossed else self.length
        self.is_length_first = state.choose("batch first", "batch first", "length first") == "length first"
        self.merge = state.choose("merged", "merged", "merged", "heads", "turned")
        self.opset = int(state.random.choice([13, 17, 18, 21]))
        self.is_open = state.choose("open sizes", "open sizes", "fixed sizes") == "open sizes"
        state.drawn.append(f"heads {self.heads}x{self.size}/{self.value_size}, {self.length} of {self.keys}")

    def model(self) -> tuple[onnx.ModelProto, dict[str, np.ndarray], list[str]]:
        """Return the model."""
        state = self.state
        x = self._input("x", self.length)
        memory = self._input("memory", self.keys) if self.is_crossed else x
        mask = self._mask()
        result = self._attention(x, memory, mask)
        if state.choose("one", "one", "two") == "two":  # another one reads the same values and the same mask
            result = state.op("Concat", result, self._attention(x, memory, mask), axis=-1)
        state.op("Identity", result)
        state.nodes[-1].output[0] = "y"
        inputs = [self._declared(name, array) for name, array in state.inputs.items()]
        output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
        graph = helper.make_graph(state.nodes, "attention", inputs, [output], state.constants)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=10)
        inferred = onnx.shape_inference.infer_shapes(made, strict_mode=True)
        made.graph.output[0].CopyFrom(inferred.graph.output[0])
        onnx.checker.check_model(made, full_check=True)
        return made, state.inputs, state.drawn

    def _declared(self, name: str, array: np.ndarray) -> onnx.ValueInfoProto:
        dtype = helper.np_dtype_to_tensor_dtype(array.dtype)
        return helper.make_tensor_value_info(name, dtype, self._shape(name, array))

    def _shape(self, name: str, array: np.ndarray) -> list[int | str]:
        if not self.is_open:
            return list(array.shape)
        length = "M" if name == "memory" or (name == "mask" and self.is_crossed) else "L"
        if name in ("x", "memory"):
            return [length, "B", HIDDEN] if self.is_length_first else ["B", length, HIDDEN]
        return ["B", length] if array.ndim == 2 else list(array.shape)

    def _input(self, name: str, length: int) -> str:
        shape = (length, self.batch, HIDDEN) if self.is_length_first else (self.batch, length, HIDDEN)
        self.state.inputs[name] = self.state.random.standard_normal(shape).astype(np.float32)
        return name

    # ------------------------------------------------------------------ heads
    def _projected(self, x: str, width: int) -> str:
        state = self.state
        flat = state.op("MatMul", x, state.weight(HIDDEN, width))
        if state.choose("bias", "bias", "no bias") == "bias":
            flat = state.swapped("Add", flat, state.weight(width))
        return state.op("Identity", flat) if state.random.integers(8) == 0 else flat

    def _split(self, flat: str, size: int) -> str:
        """Return (batch, heads, length, size)."""
        state = self.state
        if self.is_length_first:
            sizes = state.ints(0, 0, self.heads, size)
            return state.op("Transpose", state.op("Reshape", flat, sizes), perm=[1, 2, 0, 3])
        sizes = state.ints(0, 0, self.heads, size)
        if state.choose("zeros", "minus one") == "minus one":
            sizes = state.ints(0, 0, -1, size)
        return state.op("Transpose", state.op("Reshape", flat, sizes), perm=[0, 2, 1, 3])

    def _heads_of(self, x: str, memory: str) -> tuple[str, str, str]:
        state, width = self.state, self.heads * self.size
        if self.is_crossed or self.size != self.value_size or state.choose("apart", "packed") == "apart":
            return (
                self._split(self._projected(x, width), self.size),
                self._split(self._projected(memory, width), self.size),
                self._split(self._projected(memory, self.heads * self.value_size), self.value_size),
            )
        packed = self._projected(x, 3 * width)
        how = state.choose("split", "slices", "five axes")
        if how == "five axes" and not self.is_length_first:
            five = state.op("Reshape", packed, state.ints(0, 0, 3, self.heads, self.size))
            turned = state.op("Transpose", five, perm=[2, 0, 3, 1, 4])
            q, k, v = (state.op("Gather", turned, state.constant(place, np.int64), axis=0) for place in range(3))
            return q, k, v
        if how == "slices":
            flats = [
                state.op("Slice", packed, state.ints(start * width), state.ints((start + 1) * width), state.ints(2))
                for start in range(3)
            ]
        else:
            first = state.op("Split", packed, state.ints(width, width, width), outputs=3, axis=-1)
            flats = [first, f"{first}_1", f"{first}_2"]
        q, k, v = (self._split(each, self.size) for each in flats)
        return q, k, v

    # ------------------------------------------------------------------ mask
    def _mask(self) -> str | None:
        """Return what is added to the scores, or, of bool, what may be seen."""
        state = self.state
        kind = state.choose("no mask", "padding", "causal", "both", "given", "bool padding", "bool given")
        self.mask_kind = kind
        if kind == "no mask":
            return None
        if kind in ("given", "bool given"):
            shape = [self.batch, self.heads, self.length, self.keys]
            drops = [(), (0,), (1,), (0, 1)][int(state.random.integers(4))]
            shape = [1 if axis in drops else size for axis, size in enumerate(shape)]
            allowed = state.random.random(shape) < 0.7
            allowed[..., 0] = True
            state.inputs["given"] = (
                allowed if kind == "bool given" else state.random.standard_normal(shape).astype(np.float32)
            )
            return "given"
        lowest = state.constant([-1e4, LOWEST, -np.inf][int(state.random.integers(3))])
        allowed = self._allowed(kind)
        if kind == "bool padding":
            return allowed
        if state.choose("where", "product") == "where":
            return state.op("Where", allowed, state.constant(0.0), lowest)
        hidden = state.op("Cast", state.op("Not", allowed), to=TensorProto.FLOAT)
        return state.swapped("Mul", hidden, state.constant(-1e4 if state.random.integers(2) else LOWEST))

    def _allowed(self, kind: str) -> str:
        state = self.state
        causal = state.constant(np.tril(np.ones((self.length, self.keys), bool))[None, None], bool)
        if kind == "causal":
            return causal
        ones = np.ones((self.batch, self.keys), np.int64)
        ones[-1, 1 + self.keys // 2 :] = 0
        state.inputs["mask"] = ones
        four = state.op("Unsqueeze", state.op("Cast", "mask", to=TensorProto.BOOL), state.ints(1, 2))
        return state.op("And", four, causal) if kind == "both" else four

    # ------------------------------------------------------------------ the attention
    def _attention(self, x: str, memory: str, mask: str | None) -> str:
        state = self.state
        q, k, v = self._heads_of(x, memory)
        where = state.choose("scores", "queries", "keys", "both roots", "weights")
        scale = float(1 / np.sqrt(self.size)) if state.random.integers(3) else 0.37
        if where == "queries":
            q = state.swapped("Mul", q, state.constant(scale))
        if where == "keys":
            k = state.op("Div", k, state.constant(1 / scale))
        if where == "both roots":
            q, k = (state.swapped("Mul", each, state.constant(np.sqrt(scale))) for each in (q, k))
        is_stacked = mask is None and not self.is_open and state.choose("apart", "apart", "stacked") == "stacked"
        if is_stacked:
            q, k, v = (self._stacked(*each) for each in ((q, self.length, self.size), (k, self.keys, self.size),
                                                         (v, self.keys, self.value_size)))  # fmt: skip
        product = "MatMul" if is_stacked else state.choose("MatMul", "MatMul", "Einsum")
        if product == "Einsum":
            scores = state.op("Einsum", q, k, equation="bhid,bhjd->bhij")
        else:
            scores = state.op("MatMul", q, state.op("Transpose", k, perm=[0, 2, 1] if is_stacked else [0, 1, 3, 2]))
        factors = state.choose("one scale", "one scale", "scale of each head") if not is_stacked else "one scale"
        if factors == "scale of each head":
            scores = state.swapped("Mul", scores, self._scale_of_heads())
        if where == "scores":
            scores = (
                state.op("Div", scores, state.constant(1 / scale))
                if state.random.integers(2)
                else state.swapped("Mul", scores, state.constant(scale))
            )
        if mask is not None and self.mask_kind.startswith("bool"):
            low = state.choose("lowest", "lowest", "replaced")
            scores = state.op("Where", mask, scores, state.constant(LOWEST if low == "lowest" else -1e4))
        elif mask is not None:
            scores = (
                state.op("Sub", scores, state.op("Neg", mask))
                if state.choose("added", "added", "subtracted") == "subtracted"
                else state.swapped("Add", scores, mask)
            )
        is_shifted = state.choose("as they are", "as they are", "shifted") == "shifted"
        if is_shifted:
            scores = state.op("Sub", scores, self._largest(scores))
        shares = state.op("Softmax", scores, axis=-1 if state.random.integers(2) else 2 if is_stacked else 3)
        if mask is not None and self.mask_kind.startswith("bool") and not is_shifted:
            shares = self._blanked(shares, mask)
        if state.choose("plain", "plain", "dropout") == "dropout":
            shares = state.op("Dropout", shares)
        if is_stacked:
            four = state.ints(self.batch, self.heads, self.length, self.value_size)
            return self._merged(state.op("Reshape", state.op("MatMul", shares, v), four))
        if product == "Einsum":
            return self._merged(state.op("Einsum", shares, v, equation="bhij,bhjd->bhid"))
        return self._merged(state.op("MatMul", shares, v))

    def _scale_of_heads(self) -> str:
        scales = self.state.random.uniform(0.5, 2.0, (self.heads, 1, 1))
        return self.state.constant(scales.astype(np.float32))

    def _blanked(self, shares: str, mask: str) -> str:
        """Return shares with zeros where scores were replaced; with the mask of each head rows are not told apart."""
        shape = self.state.inputs["given"].shape if mask == "given" else (1, 1)
        if shape[1] != 1 or self.state.choose("shares", "zeros") == "shares":
            return shares
        return self.state.op("Where", mask, shares, self.state.constant(0.0))

    def _largest(self, scores: str) -> str:
        if self.opset < AXES_AS_INPUT:
            return self.state.op("ReduceMax", scores, axes=[-1])
        return self.state.op("ReduceMax", scores, self.state.ints(-1))

    def _stacked(self, four: str, length: int, size: int) -> str:
        return self.state.op("Reshape", four, self.state.ints(-1, length, size))

    def _merged(self, four: str) -> str:
        state, width = self.state, self.heads * self.value_size
        how = self.merge
        if how == "heads":
            return four
        turned = state.op("Transpose", four, perm=[2, 0, 1, 3] if self.is_length_first else [0, 2, 1, 3])
        return turned if how == "turned" else state.op("Reshape", turned, state.ints(0, 0, width))
