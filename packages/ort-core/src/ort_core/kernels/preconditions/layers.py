"""Layers of com.microsoft and of recurrent networks: shapes of biases, weights and companions."""

from __future__ import annotations

from ort_core.ir.dims import KnownDim
from ort_core.kernels.preconditions.conditions import Conditions


def bias_activation(c: Conditions) -> None:
    """BiasGelu and FastGelu: the bias is a vector as long as the last dimension; without one, a scalar will do."""
    if not c.has(1):
        return
    x = c.at_least(0, "input", 1)
    if x is not None:
        c.sized(1, "bias", x[-1])


def embedding(c: Conditions) -> None:
    """EmbedLayerNormalization: ids, segments and mask [batch, sequence], tables [rows, hidden], gamma and beta."""
    ids, words = c.rank(0, "input_ids", 2), c.rank(2, "word_embedding", 2)
    if ids is None or words is None:
        return
    for index, name in ((1, "segment_ids"), (7, "mask")):
        c.sized(index, name, *ids)
    for index, name in ((3, "position_embedding"), (4, "segment_embedding")):
        c.sized(index, name, None, words[1])
    for index, name in ((5, "gamma"), (6, "beta")):
        c.sized(index, name, words[1])
    positions = c.rank(8, "position_ids", 2)
    if positions is not None:
        c.sized(8, "position_ids", 1 if positions[0] == 1 else ids[0], ids[1])


def recurrent(c: Conditions) -> None:
    """X [seq, batch, input], W [dirs, gates * hidden, input], R [dirs, gates * hidden, hidden], B [dirs, 2 * that]."""
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[c.node.op_type]
    x, w, r = c.rank(0, "X", 3), c.rank(1, "W", 3), c.rank(2, "R", 3)
    if x is None or w is None or r is None:
        return
    stated = c.node.attribute("hidden_size") is not None
    hidden = c.node.int_attribute("hidden_size", 0) if stated else r[2]
    directions = 2 if c.node.string_attribute("direction", "forward").lower() == "bidirectional" else 1
    rows = gates * hidden
    c.sized(1, "W", directions, rows, x[2])
    c.sized(2, "R", directions, rows, hidden)
    c.sized(3, "B", directions, 2 * rows)
    batch = x[0] if c.node.int_attribute("layout", 0) else x[1]
    c.sized(4, "sequence_lens", batch)
    if c.node.op_type == "LSTM":
        c.sized(7, "P", directions, 3 * hidden)


def attention_lstm(c: Conditions) -> None:
    """AttnLSTM: as LSTM, its input wider by the attention, and the layers of its attention for each direction."""
    x, w, memory = c.rank(0, "X", 3), c.rank(1, "W", 3), c.rank(11, "M", 3)
    if x is None or w is None:
        return
    hidden = c.node.int_attribute("hidden_size", 0)
    directions = 2 if c.node.string_attribute("direction", "forward").lower() == "bidirectional" else 1
    c.sized(1, "W", directions, 4 * hidden, None)
    c.sized(2, "R", directions, 4 * hidden, hidden)
    c.sized(3, "B", directions, 8 * hidden)
    c.sized(4, "sequence_lens", x[1])
    c.sized(7, "P", directions, 3 * hidden)
    own = c.sized(9, "ML", directions, None, None)
    if own is not None:
        c.sized(8, "QW", directions, hidden, own[2])
        c.sized(10, "V", directions, own[2])
        if memory is not None:
            c.equal(own[1], memory[2], "the attention's memory layer must take what the memory has")
    c.sized(12, "memory_seq_lens", x[1])
    c.sized(13, "AW", directions, None, None)


def crop_and_resize(c: Conditions) -> None:
    """X [N, C, H, W], rois [count, 4], batch_indices [count], crop_size [2]."""
    c.rank(0, "X", 4)
    rois = c.sized(1, "rois", None, 4)
    if rois is not None:
        c.sized(2, "batch_indices", rois[0])


def grid_sample(c: Conditions) -> None:
    """X [N, C, spatial...], grid [N, spatial..., number of spatial axes]."""
    x, grid = c.shape(0), c.shape(1)
    if x is not None and grid is not None:
        c.require(len(grid) == len(x), f"X has {len(x)} dimensions and grid {len(grid)}: they must have as many")
        c.equal(grid[0], x[0], "the grid's batch size does not match the input's")
        c.equal(grid[-1], len(x) - 2, f"the grid's last dimension must be {len(x) - 2}")


def causal_convolution(c: Conditions) -> None:
    """Input [batch, channels, ...], weight [channels, 1, kernel...]: depthwise."""
    x, w = c.shape(0), c.shape(1)
    if x is not None and w is not None and len(x) > 1 and w:
        c.equal(w[0], x[1], "weight channels must match input channels")
        c.sized(2, "bias", x[1])


def causal_convolution_of_com_microsoft(c: Conditions) -> None:
    """As ``causal_convolution``, with a state of (kernel - 1) * dilation columns."""
    causal_convolution(c)
    dimensions = c.node.int_attribute("ndim", 1)
    c.require(1 <= dimensions <= 3, f"ndim must be 1, 2, or 3, got {dimensions}")
    w = c.rank(1, "weight", dimensions + 2)
    x, dilation = c.shape(0), c.node.int_attribute("dilation", 1)
    if w is not None and x is not None and dimensions == 1 and len(x) == 3:
        c.sized(3, "past_state", x[0], x[1], (w[2] - 1) * dilation)


def mixture_of_experts(c: Conditions) -> None:
    """MoE: input [..., hidden], router_probs [rows, experts], biases of experts [experts, columns]."""
    x, probabilities, first = (
        c.at_least(0, "input", 2),
        c.rank(1, "router_probs", 2),
        c.rank(2, "fc1_experts_weights", 3),
    )
    second = c.rank(4, "fc2_experts_weights", 3)
    if x is None or probabilities is None or first is None or second is None:
        return
    _chosen_experts(c, first[0])
    rows = x[0] * x[1] if len(x) == 3 else x[0]
    c.sized(1, "router_probs", rows, first[0])
    c.sized(3, "fc1_experts_bias", first[0], first[1])
    c.equal(second[0], first[0], "fc1_experts_weights and fc2_experts_weights must be of as many experts")
    c.equal(second[1], x[-1], "fc2_experts_weights must give what the input has")
    c.sized(5, "fc2_experts_bias", first[0], second[1])


def quantized_experts(c: Conditions) -> None:
    """QMoE: router_probs [rows, experts], scales of 2 or 3 dimensions, biases [experts, columns]."""
    x, first, second = (
        c.at_least(0, "input", 2),
        c.rank(2, "fc1_experts_weights", 3),
        c.rank(5, "fc2_experts_weights", 3),
    )
    if x is None or first is None or second is None:
        return
    _chosen_experts(c, first[0])
    rows = x[0] * x[1] if len(x) == 3 else x[0]
    c.sized(1, "router_probs", rows, first[0])
    block = c.node.int_attribute("block_size", 0)
    for index, name in ((3, "fc1_scales"), (6, "fc2_scales")):
        c.rank(index, name, 3 if block > 0 else 2)
    c.sized(4, "fc1_experts_bias", first[0], None)
    c.sized(7, "fc2_experts_bias", first[0], x[-1])
    c.sized(14, "router_weights", rows, first[0])


def _chosen_experts(c: Conditions, experts: KnownDim) -> None:
    chosen = c.node.int_attribute("k", 1)
    c.require(not isinstance(experts, int) or chosen <= experts, f"'k' must be <= num_experts: {chosen} of {experts}")


def skip_normalization(c: Conditions) -> None:
    """Input [batch, sequence, hidden] or [rows, hidden], gamma, beta and bias [hidden]."""
    x = c.rank(0, "input", 2, 3)
    if x is None:
        return
    skip = c.rank(1, "skip", 2, 3)
    if skip is not None:
        text = "last two dimensions of skip needs to be same as input, its batch 1, that of input or left out"
        c.require(len(skip) <= len(x), text)
        for left, right in zip(skip[::-1][:2], x[::-1][:2], strict=True):
            c.equal(left, right, text)
    names = ("gamma", "bias") if "Simplified" in c.node.op_type else ("gamma", "beta", "bias")
    for index, name in enumerate(names, start=2):
        shape = c.rank(index, name, 1)
        if shape is not None:
            c.equal(shape[0], x[-1], f"Last dimension of {name} and input does not match: {shape[0]} and {x[-1]}")


def linear_attention_gate(c: Conditions) -> None:
    """a [..., heads], dt_bias and decay_scale of as many elements as heads, b like a."""
    a = c.at_least(0, "a", 1)
    if a is not None:
        for index, name in ((1, "dt_bias"), (2, "decay_scale")):
            c.sized(index, name, a[-1])
        c.same_shape(0, 3, "'a' and 'b'")


def linear_attention(c: Conditions) -> None:
    """Query, key and value [batch, sequence, hidden], decay and beta likewise, a state of four dimensions."""
    query = c.rank(0, "query", 3)
    for index, name in enumerate(("key", "value"), start=1):
        c.rank(index, name, 3)
    c.rank(3, "past_state", 4)
    for index, name in ((4, "decay"), (5, "beta")):
        shape = c.rank(index, name, 3)
        if shape is not None and query is not None:
            for axis in (0, 1):
                c.equal(shape[axis], query[axis], f"{name} must have the batch and the sequence of query")


def triangle(c: Conditions) -> None:
    """Input of at least two dimensions, k a scalar."""
    c.at_least(0, "input", 2)
    c.scalar(1, "k")


def pads(c: Conditions) -> None:
    """Pads [2 * axes], the value one element."""
    c.rank(1, "pads", 1, 2)
    shape = c.shape(1)
    if shape is not None and len(shape) == 2:
        c.equal(shape[0], 1, "pads must be a vector, or one row")
    c.scalar(2, "value")


def vector(c: Conditions) -> None:
    """The first input has one dimension."""
    c.rank(0, "input", 1)
