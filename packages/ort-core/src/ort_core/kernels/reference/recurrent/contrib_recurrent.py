"""LSTM variants: quantized weights with inputs quantized on the fly, and an LSTM wrapped in Bahdanau attention."""

from __future__ import annotations

import numpy as np

from ort_core import errors
from ort_core.kernels.kernel import kernel
from ort_core.kernels.reference.arrays.rounding_to_integers import quantize_by_range
from ort_core.kernels.reference.products.contrib_quantized_product import integer_product
from ort_core.kernels.reference.recurrent.gated_cells import build_cells, direction_count, reverse_within, walk

Optional = np.ndarray | None
Result = tuple[np.ndarray, np.ndarray, np.ndarray]


def _initial(state: Optional, index: int, batch: int, hidden: int, dtype: np.dtype) -> np.ndarray:
    return np.zeros((batch, hidden), dtype) if state is None else state[index]


def _is_reverse(direction: str, index: int) -> bool:
    return direction == "reverse" or index == 1


def _stack(parts: list[Result]) -> Result:
    outputs, last_h, last_c = zip(*parts, strict=True)
    return np.stack(outputs, axis=1), np.stack(last_h), np.stack(last_c)


def _check_weight(name: str, parameter: np.ndarray, directions: int, hidden: int) -> None:
    fits = parameter.ndim in (1, 2) and parameter.shape[0] == directions
    if not fits or parameter.shape[1:] not in ((), (4 * hidden,)):
        raise errors.InvalidArgument(
            f"Input {name} must have shape {{{directions}}} for per-tensor/layer quantization or shape "
            f"{{{directions}, 4*{hidden}}} for per-channel quantization. Actual: {parameter.shape}"
        )


def _check_zero_point(name: str, zero: np.ndarray) -> None:
    if zero.ndim == 2 and zero.dtype == np.int8 and zero.any():
        raise errors.InvalidArgument(f"DynamicQuantizeLSTM : {name}Weight zero point must be zero")
    if zero.ndim == 2 and zero.dtype == np.uint8 and (zero != zero.flat[0]).any():
        raise errors.InvalidArgument(f"DynamicQuantizeLSTM : {name}Weight point must be constant")


def _quantized_product(x: np.ndarray, weight: np.ndarray, scale: np.ndarray, zero: np.ndarray) -> np.ndarray:
    """Quantize x (rows, K) over its range, multiply with weight (K, N), scale back.

    A range without end, or wider than the largest float, has no levels: x is multiplied as it is then.
    """
    if not np.isfinite(np.float32(x.max(initial=0)) - np.float32(x.min(initial=0))):
        return x @ (scale * (weight.astype(np.float32) - zero.astype(np.float32)))
    levels, x_scale, x_zero = quantize_by_range(x)
    return (integer_product(levels, weight, x_zero, zero) * (x_scale * scale.astype(np.float64))).astype(np.float32)


@kernel("DynamicQuantizeLSTM", domain="com.microsoft")
def dynamic_quantize_lstm(
    x: np.ndarray,
    w: np.ndarray,
    r: np.ndarray,
    b: Optional,
    sequence_lens: Optional,
    initial_h: Optional,
    initial_c: Optional,
    p: Optional,
    w_scale: np.ndarray,
    w_zero_point: np.ndarray,
    r_scale: np.ndarray,
    r_zero_point: np.ndarray,
    *,
    activation_alpha: tuple[float, ...] = (),
    activation_beta: tuple[float, ...] = (),
    activations: tuple[str, ...] = (),
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
) -> Result:
    """LSTM with weights (directions, K, 4H) of 8 bits; the input and each hidden state are quantized to uint8."""
    directions, hidden = direction_count(direction), hidden_size or r.shape[1]
    for name, parameter in (("W_zero_point", w_zero_point), ("R_zero_point", r_zero_point)):
        _check_weight(name, parameter, directions, hidden)
    for name, parameter in (("W_scale", w_scale), ("R_scale", r_scale)):
        _check_weight(name, parameter, directions, hidden)
    _check_zero_point("Input", w_zero_point)
    _check_zero_point("Recurrent", r_zero_point)
    steps, batch, _ = x.shape
    lengths = np.full(batch, steps) if sequence_lens is None else sequence_lens.astype(np.int64)
    cells = build_cells(
        directions,
        hidden,
        b,
        p,
        activations=activations,
        alpha=activation_alpha,
        beta=activation_beta,
        clip=clip,
        input_forget=input_forget,
        dtype=x.dtype,
    )
    parts = []
    for index, cell in enumerate(cells):
        backwards = _is_reverse(direction, index)
        data = reverse_within(x, lengths) if backwards else x
        # Steps that no sequence reaches take no part in the range that the input is quantized over.
        reached = data[: lengths.max(initial=0)].reshape(-1, x.shape[2])
        inputs = np.zeros((steps, batch, 4 * hidden), np.float32)
        products = _quantized_product(reached, w[index], w_scale[index], w_zero_point[index])
        inputs.reshape(-1, 4 * hidden)[: products.shape[0]] = products

        def gates_at(t: int, h: np.ndarray, inputs: np.ndarray = inputs, index: int = index) -> np.ndarray:
            return inputs[t] + _quantized_product(h, r[index], r_scale[index], r_zero_point[index])

        h, c = (_initial(state, index, batch, hidden, x.dtype) for state in (initial_h, initial_c))
        y, h, c = walk(cell, gates_at, steps, h, c, lengths)
        parts.append((reverse_within(y, lengths) if backwards else y, h, c))
    return _stack(parts)


class BahdanauAttention:
    """The attention around an LSTM: scores over a memory from the hidden state, and the state that they leave."""

    def __init__(
        self,
        memory: np.ndarray,
        lengths: Optional,
        query_weight: np.ndarray,
        memory_weight: np.ndarray,
        vector: np.ndarray,
        layer_weight: Optional,
    ) -> None:
        """Take one direction's weights, and the memory (B, M, D) with its lengths."""
        longest = memory.shape[1]
        ends = np.full(memory.shape[0], longest) if lengths is None else lengths
        self._valid = np.arange(longest) < ends[:, None]
        self._values = np.where(self._valid[..., None], memory, memory.dtype.type(0))
        self._keys = self._values @ memory_weight
        self._query_weight, self._vector, self._layer_weight = query_weight, vector, layer_weight
        width = memory.shape[2] if layer_weight is None else layer_weight.shape[1]
        self.state = np.zeros((memory.shape[0], width), memory.dtype)

    def update(self, h: np.ndarray) -> None:
        """Set the state from the cell's new hidden state (B, H)."""
        scores = np.tanh(self._keys + (h @ self._query_weight)[:, None]) @ self._vector
        scores = np.where(self._valid, scores, -np.inf)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        weights = weights / weights.sum(axis=1, keepdims=True)
        context = np.einsum("bm,bmd->bd", weights, self._values).astype(h.dtype)
        if self._layer_weight is not None:
            context = np.concatenate([h, context], axis=1) @ self._layer_weight
        self.state = context


def _check_lengths(name: str, lengths: np.ndarray, steps: int) -> None:
    """Raise InvalidArgument unless every length is from 1 to the number of steps."""
    wrong = lengths[(lengths < 1) | (lengths > steps)]
    if wrong.size:
        raise errors.InvalidArgument(f"Invalid value/s in {name}: {int(wrong[0])} is not in (0, {steps}]")


@kernel("AttnLSTM", domain="com.microsoft")
def attention_lstm(
    x: np.ndarray,
    w: np.ndarray,
    r: np.ndarray,
    b: Optional = None,
    sequence_lens: Optional = None,
    initial_h: Optional = None,
    initial_c: Optional = None,
    p: Optional = None,
    qw: Optional = None,
    mw: Optional = None,
    v: Optional = None,
    m: Optional = None,
    memory_seq_lens: Optional = None,
    aw: Optional = None,
    *,
    activation_alpha: tuple[float, ...] = (),
    activation_beta: tuple[float, ...] = (),
    activations: tuple[str, ...] = (),
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
) -> Result:
    """LSTM whose input at each step is the given one joined with the attention's state after the last step."""
    if qw is None or mw is None or v is None or m is None:
        raise errors.InvalidArgument("AttnLSTM needs the inputs QW, MW, V and M of its attention")
    directions, hidden = direction_count(direction), hidden_size or r.shape[2]
    steps, batch, _ = x.shape
    lengths = np.full(batch, steps) if sequence_lens is None else sequence_lens.astype(np.int64)
    _check_lengths("sequence_lens", lengths, steps)
    if memory_seq_lens is not None:
        _check_lengths("memory_seq_lens", memory_seq_lens, m.shape[1])
    cells = build_cells(
        directions,
        hidden,
        b,
        p,
        activations=activations,
        alpha=activation_alpha,
        beta=activation_beta,
        clip=clip,
        input_forget=input_forget,
        dtype=x.dtype,
    )
    parts = []
    for index, cell in enumerate(cells):
        backwards = _is_reverse(direction, index)
        data = reverse_within(x, lengths) if backwards else x
        inner = BahdanauAttention(m, memory_seq_lens, qw[index], mw[index], v[index], None if aw is None else aw[index])

        def gates_at(
            t: int,
            h: np.ndarray,
            data: np.ndarray = data,
            inner: BahdanauAttention = inner,
            index: int = index,
        ) -> np.ndarray:
            return np.concatenate([data[t], inner.state], axis=1) @ w[index].T + h @ r[index].T

        h, c = (_initial(state, index, batch, hidden, x.dtype) for state in (initial_h, initial_c))
        y, h, c = walk(cell, gates_at, steps, h, c, lengths, inner.update)
        parts.append((reverse_within(y, lengths) if backwards else y, h, c))
    return _stack(parts)
