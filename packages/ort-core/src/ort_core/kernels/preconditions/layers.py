"""Layers of com.microsoft and of recurrent networks: shapes of biases, weights and companions."""

from __future__ import annotations

from ort_core.ir.dims import KnownDim, ceil_div
from ort_core.kernels.preconditions.conditions import Conditions, Sizes
from ort_core.ops.expert_shapes import find_declared_shapes


def bias_activation(c: Conditions) -> None:
    """BiasGelu and FastGelu: the bias is a vector as long as the last dimension; without one, a scalar will do."""
    if not c.has(1):
        return
    x = c.at_least(0, "input", 1)
    if x is not None:
        c.sized(1, "bias", x[-1])


def split_gelu(c: Conditions) -> None:
    """BiasSplitGelu: X [batch, sequence, 2 * hidden], bias [2 * hidden]."""
    x = c.rank(0, "X", 3)
    if x is not None:
        c.sized(1, "bias", x[-1])


def bias_addition(c: Conditions) -> None:
    """BiasAdd: X [..., channels], bias [channels], skip like X."""
    x = c.at_least(0, "X", 1)
    if x is not None:
        c.sized(1, "bias", x[-1])
        c.same_shape(0, 2, "X and skip")


def gated_norm(c: Conditions) -> None:
    """GatedRMSNorm: scale [width], a gate like X, whose rows are of groups of that width."""
    c.rank(1, "scale", 1)
    c.at_least(0, "X", 1)
    c.same_shape(0, 2, "'X' and 'gate'")


def words_of_characters(c: Conditions) -> None:
    """WordConvEmbedding: words [words, characters], W [filters, 1, window, width], B [filters], C [letters, width]."""
    c.rank(0, "Sequence", 2)
    w = c.sized(1, "W", None, 1, None, None)
    if w is not None:
        c.sized(2, "B", w[0])
        c.sized(3, "C", None, w[3])


def quantized_layer(c: Conditions) -> None:
    """DynamicQuantizeLSTM: X [steps, batch, size], W [directions, size, 4 * hidden], R of as many columns."""
    x, weights = c.rank(0, "X", 3), c.rank(2, "R", 3)
    hidden = c.node.int_attribute("hidden_size", 0) or (weights[1] if weights is not None else None)
    if hidden is None:
        return
    directions = 2 if c.node.string_attribute("direction", "forward") == "bidirectional" else 1
    c.sized(1, "W", directions, None if x is None else x[2], 4 * hidden)
    c.sized(2, "R", directions, hidden, 4 * hidden)
    c.sized(3, "B", directions, 8 * hidden)
    for index, name in ((8, "W_scale"), (9, "W_zero_point"), (10, "R_scale"), (11, "R_zero_point")):
        shape = c.rank(index, name, 1, 2)
        if shape is not None:
            c.sized(index, name, *((directions,) if len(shape) == 1 else (directions, 4 * hidden)))


def embedding(c: Conditions) -> None:
    """EmbedLayerNormalization: ids, segments and mask [batch, sequence], tables [rows, hidden], gamma and beta."""
    ids, words = c.rank(0, "input_ids", 2), c.rank(2, "word_embedding", 2)
    if ids is None or words is None:
        return
    c.require(c.has(1) == c.has(4), "segment_ids and segment_embedding must be provided together or left out together")
    for index, name in ((1, "segment_ids"), (7, "mask")):
        c.sized(index, name, *ids)
    for index, name in ((3, "position_embedding"), (4, "segment_embedding")):
        c.sized(index, name, None, words[1])
    for index, name in ((5, "gamma"), (6, "beta")):
        c.sized(index, name, words[1])
    positions = c.rank(8, "position_ids", 2)
    if positions is not None:
        c.sized(8, "position_ids", 1 if positions[0] == 1 else ids[0], ids[1])


def quantized_embedding(c: Conditions) -> None:
    """As ``embedding``, with tables of 8 bits; what belongs to segments is there or left out together."""
    segments = [c.has(index) for index in (1, 4, 10, 15)]
    c.require(
        all(segments) or not any(segments),
        "segment_ids, segment_embedding, segment_embedding_scale, and segment_embedding_zero_point must either all be "
        "provided or all be omitted",
    )
    ids, words = c.rank(0, "input_ids", 2), c.rank(2, "word_embedding", 2)
    if ids is None or words is None:
        return
    c.sized(1, "segment_ids", *ids)
    c.sized(7, "mask", *ids)
    for index, name in ((3, "position_embedding"), (4, "segment_embedding")):
        c.sized(index, name, None, words[1])
    for index, name in ((5, "gamma"), (6, "beta")):
        c.sized(index, name, words[1])
    for index in range(8, 18):
        c.scalar(index, "scale or zero point")


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
    layer = c.sized(13, "AW", directions, None, None)
    if memory is not None:
        c.equal(memory[0], x[1], "the attention's memory must be of as many sequences as X")
        c.positive(memory[1], "the attention's memory must have steps")
        _attended_input(c, x[2], w[2], memory[2], None if layer is None else layer[1:])


def _attended_input(c: Conditions, own: KnownDim, taken: KnownDim, depth: KnownDim, layer: Sizes | None) -> None:
    """W takes X's elements and the attention's: as the memory has them, or the attention's layer, which takes both."""
    attended = depth
    if layer is not None:
        both = depth + c.node.int_attribute("hidden_size", 0)
        c.equal(layer[0], both, "AW must take what the memory and the cell have")
        attended = layer[1]
    c.equal(taken, own + attended, "W must take what X and the attention have together")


def grid_sample(c: Conditions) -> None:
    """X [N, C, spatial...], grid [N, spatial..., number of spatial axes]."""
    x, grid = c.shape(0), c.shape(1)
    if x is not None and grid is not None:
        c.require(len(grid) == len(x), f"X has {len(x)} dimensions and grid {len(grid)}: they must have as many")
        c.equal(grid[0], x[0], "the grid's batch size does not match the input's")
        c.equal(grid[-1], len(x) - 2, f"the grid's last dimension must be {len(x) - 2}")
        for size in x[2:]:
            c.positive(size, "X must have something to take from along each axis")


def causal_convolution(c: Conditions) -> None:
    """Input [batch, channels, ...] or channels last, weight [channels, 1, kernel...]: depthwise."""
    x, w = c.at_least(0, "input", 2), c.at_least(1, "weight", 2)
    if x is None or w is None:
        return
    channels = x[1]
    if c.node.int_attribute("channels_last", 0) == 1:
        channels = 1
        for size in x[2:]:
            channels = channels * size
    else:
        c.require(len(x) == len(w), f"input has {len(x)} dimensions and weight {len(w)}: they must have as many")
    c.equal(w[0], channels, "weight channels must match input channels")
    c.equal(w[1], 1, "weight must have one row for each channel")
    c.sized(2, "bias", channels)


def causal_convolution_with_state(c: Conditions) -> None:
    """As ``causal_convolution``, with a state of kernel - 1 columns."""
    causal_convolution(c)
    x, w = c.shape(0), c.shape(1)
    if x is not None and w is not None and len(x) == len(w) == 3:
        c.sized(3, "past_state", x[0], x[1], w[2] - 1)


def causal_convolution_of_com_microsoft(c: Conditions) -> None:
    """As ``causal_convolution``, with a state of (kernel - 1) * dilation columns, or several behind one another."""
    causal_convolution(c)
    dimensions = c.node.int_attribute("ndim", 1)
    c.require(1 <= dimensions <= 3, f"ndim must be 1, 2, or 3, got {dimensions}")
    w = c.rank(1, "weight", dimensions + 2)
    x, dilation = c.shape(0), c.node.int_attribute("dilation", 1)
    if w is None or x is None:
        return
    columns = (w[-1] - 1) * dilation
    is_last = c.node.int_attribute("channels_last", 0) == 1
    one = (x[0], columns, *x[2:]) if is_last else (*x[:-1], columns)
    c.sized(3, "past_state", *_windowed_states(c), *one)


def _windowed_states(c: Conditions) -> tuple[int, ...]:
    """Return the axis before the states, where a window of several is kept."""
    window = c.node.int_attribute("state_window", 0)
    return (window,) if window > 0 else ()


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
    first, second = _declared_experts(c, x[-1], first, second)
    _chosen_experts(c, first[0])
    rows = x[0] * x[1] if len(x) == 3 else x[0]
    c.sized(1, "router_probs", rows, first[0])
    c.sized(3, "fc1_experts_bias", first[0], first[1])
    c.equal(second[0], first[0], "fc1_experts_weights and fc2_experts_weights must be of as many experts")
    c.equal(first[2], x[-1], "fc1_experts_weights must take what the input has")
    c.equal(second[1], x[-1], "fc2_experts_weights must give what the input has")
    _inner_columns(c, first[1], second[2])
    c.sized(5, "fc2_experts_bias", first[0], second[1])


def _declared_experts(c: Conditions, hidden: KnownDim, first: Sizes, second: Sizes) -> tuple[Sizes, Sizes]:
    """Return shapes of fc1 and fc2 as the schema has them; fc3 has no earlier form."""
    numbers = [size for size in (hidden, *first, *second) if isinstance(size, int)]
    if len(numbers) < 7 or c.has(6):
        return first, second
    is_fused = c.node.string_attribute("activation_type", "relu") == "swiglu" and c.node.int_attribute(
        "swiglu_fusion", 0
    )
    found = find_declared_shapes(numbers[0], numbers[1:4], numbers[4:], is_fused=bool(is_fused))
    return (first, second) if found is None else found


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
        shape = c.rank(index, name, *((3,) if block > 0 else (2, 3)))
        if block <= 0 and shape is not None and len(shape) == 3:
            c.equal(shape[2], 1, f"input '{name}' must have one scale for each row where block_size is 0")
    c.equal(second[0], first[0], "fc1_experts_weights and fc2_experts_weights must be of as many experts")
    packed = 8 // (c.node.int_attribute("expert_weight_bits", 4) or 8)
    if c.holds_bytes(2) and packed in (1, 2, 4):
        c.equal(first[2] * packed, x[-1], "fc1_experts_weights must take what the input has")
        c.equal(second[1], x[-1], "fc2_experts_weights must give what the input has")
        _inner_columns(c, first[1], second[2] * packed)
        if block > 0:
            c.sized(3, "fc1_experts_scales", first[0], first[1], ceil_div(x[-1], block))
            c.sized(6, "fc2_experts_scales", second[0], second[1], ceil_div(second[2] * packed, block))
    c.sized(4, "fc1_experts_bias", first[0], None)
    c.sized(7, "fc2_experts_bias", first[0], x[-1])
    c.sized(14, "router_weights", rows, first[0])


def _inner_columns(c: Conditions, given: KnownDim, taken: KnownDim) -> None:
    """What the first product gives the second takes: all, or one half times the other."""
    if isinstance(given, int) and isinstance(taken, int):
        text = f"fc2_experts_weights must take the {given} columns that fc1 gives, or half of them; found {taken}"
        c.require(given in (taken, 2 * taken), text)


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
    """Query, key and value [batch, sequence, heads * width], decay and beta likewise, a state of each head."""
    query, key, value = (c.rank(index, name, 3) for index, name in enumerate(("query", "key", "value")))
    if query is None or key is None or value is None:
        return
    others = [(1, "key"), (2, "value"), (4, "decay"), (5, "beta")]
    for index, name in others:
        shape = c.rank(index, name, 3)
        if shape is not None:
            for axis in (0, 1):
                c.equal(shape[axis], query[axis], f"{name} must have the batch and the sequence of query")
    heads, own = c.node.int_attribute("q_num_heads", 0), c.node.int_attribute("kv_num_heads", 0)
    c.require(heads > 0 and own > 0, f"q_num_heads and kv_num_heads must be positive, found {heads} and {own}")
    c.positive(value[2], "value hidden size must be positive")
    if isinstance(query[2], int) and isinstance(value[2], int) and isinstance(key[2], int):
        _linear_heads(c, (query[0], query[2]), key[2], value[2], (heads, own))


def _linear_heads(c: Conditions, query: tuple[KnownDim, int], key: int, value: int, heads: tuple[int, int]) -> None:
    """Heads of query and key are equally wide; state, decay and beta fit them."""
    batch, hidden = query
    count, own = heads
    c.require(hidden > 0 and hidden % count == 0, f"query hidden size {hidden} must divide into {count} heads")
    c.require(value % own == 0, f"value hidden size {value} must divide into {own} heads")
    width = hidden // count
    fits = key > 0 and key % width == 0 and own % (key // width) == 0
    c.require(fits, f"key hidden size {key} must be heads of {width} elements, of which {own} are a multiple")
    c.sized(3, "past_state", *_windowed_states(c), batch, own, width, value // own)
    decay, rate = c.shape(4), c.shape(5)
    if decay is not None and isinstance(decay[2], int):
        c.require(decay[2] in (own, own * width), f"decay must have {own} or {own * width} elements, got {decay[2]}")
    if rate is not None and isinstance(rate[2], int):
        c.require(rate[2] in (1, own), f"beta must have 1 or {own} elements, got {rate[2]}")


def triangle(c: Conditions) -> None:
    """Input of at least two dimensions, k a scalar."""
    c.at_least(0, "input", 2)
    c.scalar(1, "k")


def vector(c: Conditions) -> None:
    """The first input has one dimension."""
    c.rank(0, "input", 1)


def warping(c: Conditions) -> None:
    """Costs [M, N] or [1, M, N], of which none is 0."""
    x = c.rank(0, "input", 2, 3)
    if x is not None:
        if len(x) == 3:
            c.equal(x[0], 1, "the costs must be one matrix")
        for size in x[-2:]:
            c.positive(size, "the costs must have rows and columns")
