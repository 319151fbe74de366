"""Attention operators: ranks and sizes of query, key, value, biases, masks and caches."""

from __future__ import annotations

from ort_core.ir.dims import KnownDim, ceil_div, floor_div
from ort_core.kernels.preconditions.conditions import Conditions, Sizes
from ort_core.ops.attention_forms import node_attention


def attention(c: Conditions) -> None:
    """ai.onnx: Q, K, V all of three dimensions, or all of four."""
    q, k, v = c.rank(0, "Q", 3, 4), c.rank(1, "K", 3, 4), c.rank(2, "V", 3, 4)
    if q is None or k is None or v is None:
        return
    c.require(len(q) == len(k) == len(v), f"Q, K and V have {len(q)}, {len(k)} and {len(v)} dimensions, not as many")
    for other, name in ((k, "K"), (v, "V")):
        c.equal(q[0], other[0], f"inconsistent batch_size (between Q and {name}): {q[0]} and {other[0]}")
    if len(q) == 4:
        for attribute, shape, name in (("q_num_heads", q, "Q"), ("kv_num_heads", k, "K")):
            stated = c.node.int_attribute(attribute, 0)
            if stated > 0:
                c.equal(shape[1], stated, f"{attribute} ({stated}) is different from {name}.shape[1] ({shape[1]})")
        c.positive(q[1], "Q must have at least one head")
        c.positive(v[3], "V must have heads of at least one element")
    _mask(c, q[2] if len(q) == 4 else q[1])


def _mask(c: Conditions, queries: KnownDim) -> None:
    """A mask has two to four dimensions, from opset 25 on one, too: a row for each query or one for all."""
    mask = c.rank(3, "attn_mask", *((1, 2, 3, 4) if c.opset >= 25 else (2, 3, 4)))
    if mask is not None and len(mask) > 1 and isinstance(mask[-2], int) and mask[-2] != 1:
        text = f"inconsistent q_sequence_length (between attn_mask and Q): {mask[-2]} and {queries}"
        c.equal(mask[-2], queries, text)
    keys, past = c.shape(1), c.shape(4)
    if mask is None or keys is None or (past is None and c.has(4)):
        return
    own = keys[2] if len(keys) == 4 else keys[1]
    total = own if past is None else own + past[-2]
    if isinstance(mask[-1], int) and isinstance(total, int):
        c.require(mask[-1] <= total, f"attn_mask has {mask[-1]} columns for {total} keys")


def flexible_attention(c: Conditions) -> None:
    """ai.onnx.preview: Q, K and V of four dimensions and one batch."""
    q, k, v = c.rank(0, "Q", 4), c.rank(1, "K", 4), c.rank(2, "V", 4)
    for other, name in ((k, "K"), (v, "V")):
        if q is not None and other is not None:
            c.equal(q[0], other[0], f"inconsistent batch_size (between Q and {name}): {q[0]} and {other[0]}")


def attention_of_com_microsoft(c: Conditions) -> None:
    """Input [batch, sequence, hidden], weights [hidden, columns], bias [columns]."""
    x, weights = c.rank(0, "input", 3), c.rank(1, "weights", 2)
    if x is not None and weights is not None:
        c.equal(weights[0], x[2], "weights must have as many rows as the input's last dimension")
    bias = c.rank(2, "bias", 1)
    if bias is not None and weights is not None:
        c.equal(bias[0], weights[1], "bias must be as long as a row of weights")
    mask = c.at_least(3, "mask_index", 1)
    if mask is not None and len(mask) == 3 and x is not None:
        text = f"mask_index of three dimensions must have shape batch_size x sequence_length x keys, got {mask}"
        c.equal(mask[0], x[0], text)
        c.equal(mask[1], x[1], text)
    added = c.rank(5, "attention_bias", 4)
    if added is not None and x is not None:
        c.equal(added[2], x[1], f"Input 'attention_bias' dimension 2 should be same as sequence_length, got {added[2]}")


def multi_head(c: Conditions) -> None:
    """Query of 3 or 5 dimensions; key and value of 3 or 4 both, or absent."""
    q, k, v = c.rank(0, "query", 3, 5), c.rank(1, "key", 3, 4, 5), c.rank(2, "value", 3, 4)
    heads = c.node.int_attribute("num_heads", 0)
    for shape, name in ((q, "query"), (k, "key")):
        if shape is not None and len(shape) == 5:
            c.equal(
                shape[2], heads, f"packed {name} must have num_heads ({heads}) heads in dimension 2, got {shape[2]}"
            )
    if q is not None and k is not None and len(k) != 5:
        c.equal(q[0], k[0], f"query and key shall have same dim 0 (batch_size), got {q[0]} and {k[0]}")
        if v is not None:
            c.require(len(k) == len(v), "expect rank of key and value be same, and either 3 or 4")
            axis = 1 if len(k) == 3 else 2
            c.equal(k[axis], v[axis], f"key and value shall have same kv_sequence_length, got {k[axis]} and {v[axis]}")
            c.equal(q[0], v[0], f"query and value shall have same dim 0 (batch_size), got {q[0]} and {v[0]}")
        if len(k) == 3 and len(q) == 3:
            c.equal(q[2], k[2], f"query and key shall have same dim 2 (hidden_size), got {q[2]} and {k[2]}")
        if v is not None and len(v) == 3 and len(q) == 3 and len(k) == 3:
            c.sized(3, "bias", 2 * q[2] + v[2])


def group_query(c: Conditions) -> None:
    """Query, key and value of three dimensions, equal sequences, caches of equal lengths."""
    q, k, v = c.rank(0, "query", 3), c.rank(1, "key", 3, 4), c.rank(2, "value", 3, 4)
    if k is not None and v is not None:
        c.require(len(k) == len(v), "key and value must have as many dimensions")
    if q is not None and k is not None and v is not None and len(k) == 3:
        for other, name in ((k, "key"), (v, "value")):
            c.equal(q[0], other[0], f"query and {name} shall have same dim 0 (batch size)")
        c.equal(k[1], v[1], "key and value shall have same dim 1 (sequence length)")
        c.equal(k[2], v[2], "value is expected to have same hidden size as key")
        if not c.has(3) or (isinstance(k[1], int) and k[1] != 0):
            c.equal(q[1], k[1], "query and key must have the same sequence length, or key none where caches are shared")
        c.positive(q[2], "query must have heads of at least one element")
        parts = c.node.int_attribute("kv_num_heads", 0)
        if isinstance(k[2], int) and parts > 0:
            c.require(k[2] % parts == 0, f"key's hidden size {k[2]} must be a multiple of kv_num_heads {parts}")
            _same_heads(c, q[2], k[2], parts)
    past_key, past_value = c.shape(3), c.shape(4)
    if past_key is not None and past_value is not None and len(past_key) == len(past_value) == 4:
        c.equal(past_key[2], past_value[2], "past_key and past_value should have same dimension 2 (sequence length)")
    record = node_attention(c.node, c.shape_of_rank)
    in_bytes = record.quantized is not None and record.quantized.bits == 4
    for past, source, name in ((past_key, record.key, "past_key"), (past_value, record.value, "past_value")):
        if past is None or len(past) != 4:
            continue
        if source.heads is not None:
            c.equal(past[1], source.heads, f"{name} must have kv_num_heads ({source.heads}) heads, got {past[1]}")
        if isinstance(source.size, int):
            width = ceil_div(source.size, 2) if in_bytes else source.size
            c.equal(past[3], width, f"{name} must have heads of {width} elements, as the query has, got {past[3]}")
    _caches_of_a_batch(c, q, 3)
    c.at_least(5, "seqlens_k", 1)
    c.scalar(6, "total_sequence_length")


def _caches_of_a_batch(c: Conditions, query: Sizes | None, index: int) -> None:
    """Require past_key and past_value both or none, and one row of a batch in them for each of the queries'."""
    c.require(c.has(index) == c.has(index + 1), "past_key and past_value must be given together or left out together")
    for place, name in ((index, "past_key"), (index + 1, "past_value")):
        past = c.shape(place)
        if past is not None and query is not None and len(past) == 4:
            c.equal(past[0], query[0], f"{name} must have as many batches as the query ({query[0]}), got {past[0]}")


def one_step(c: Conditions) -> None:
    """DecoderMaskedMultiHeadAttention: query [batch, 1, hidden], key and value like it, caches of one shape."""
    q, k, v = c.rank(0, "query", 3), c.rank(1, "key", 3, 4), c.rank(2, "value", 3, 4)
    for other, name in ((k, "key"), (v, "value")):
        if q is not None and other is not None:
            c.equal(q[0], other[0], f"query and {name} shall have same dim 0 (batch_size), got {q[0]} and {other[0]}")
    c.same_shape(5, 6, "'past_key' and 'past_value'")
    _caches_of_a_batch(c, q, 5)


def paged(c: Conditions) -> None:
    """PagedAttention: tokens [tokens, columns], caches [blocks, rows, key heads, size], table [sequences, blocks]."""
    q, k, v = c.rank(0, "query", 2), c.rank(1, "key", 2), c.rank(2, "value", 2)
    if k is None or v is None:
        c.require(not (c.has(1) or c.has(2)), "key and value must be given together or left out together")
    for other, name in ((k, "key"), (v, "value")):
        if q is not None and other is not None:
            c.equal(q[0], other[0], f"query and {name} must have as many tokens, got {q[0]} and {other[0]}")
    record = node_attention(c.node, c.shape_of_rank)
    heads, groups = record.query.heads, record.key.heads
    if q is not None and isinstance(heads, int) and isinstance(groups, int):
        columns = heads if c.has(1) else heads + 2 * groups
        text = f"query has {q[1]} columns, which are no heads of equal size for {columns} of them"
        c.require(not isinstance(q[1], int) or (q[1] > 0 and q[1] % columns == 0), text)
        for other, name in ((k, "key"), (v, "value")):
            if other is not None and isinstance(record.query.size, int):
                c.equal(other[1], groups * record.query.size, f"{name} must have {groups} heads of {record.query.size}")
    key, value = c.rank(3, "key_cache", 4), c.rank(4, "value_cache", 4)
    if key is not None and groups is not None:
        c.equal(key[2], groups, f"key_cache must have {groups} heads, got {key[2]}")
        if isinstance(record.key.size, int):
            c.equal(key[3], record.key.size, f"key_cache must have heads of {record.key.size} elements, got {key[3]}")
    if value is not None:
        c.same_shape(3, 4, "'key_cache' and 'value_cache'")
    ends, table = c.rank(5, "cumulative_sequence_length", 1), c.rank(7, "block_table", 2)
    if ends is not None and table is not None:
        text = f"cumulative_sequence_length must have one number more than block_table has rows: {ends[0]}, {table[0]}"
        c.equal(ends[0], table[0] + 1, text)
        c.sized(6, "past_seqlens", table[0])
    if q is not None:
        c.sized(10, "slot_mapping", q[0])
    c.same_shape(8, 9, "'cos_cache' and 'sin_cache'")
    if record.norms is None:
        c.require(not (c.has(12) or c.has(13)), "q_norm_weight and k_norm_weight must be given together")


def sparse(c: Conditions) -> None:
    """SparseAttention: query [batch, sequence, hidden], caches of one shape."""
    q = c.rank(0, "query", 3)
    c.same_shape(1, 2, "'key' and 'value'")
    c.same_shape(3, 4, "'past_key' and 'past_value'")
    _caches_of_a_batch(c, q, 3)


def _same_heads(c: Conditions, query: KnownDim, key: int, own: int) -> None:
    heads = c.node.int_attribute("num_heads", 0)
    if isinstance(query, int) and heads > 0:
        text = f"heads of query ({query} / {heads}) and of key ({key} / {own}) must have the same size"
        c.require(query * own == key * heads, text)


def rotary(c: Conditions) -> None:
    """ai.onnx: X, cos_cache, sin_cache, position_ids [batch, sequence]."""
    x, ids = c.rank(0, "X", 3, 4), c.rank(3, "position_ids", 2)
    c.same_shape(1, 2, "'cos_cache' and 'sin_cache'")
    if x is not None:
        c.require(len(x) == 4 or c.node.int_attribute("num_heads", 0) > 0, "X of rank 3 needs num_heads greater than 0")
        _turned_part(c, x)
    cache = c.shape(1)
    if x is not None and cache and len(x) == 4 and not c.node.int_attribute("rotary_embedding_dim", 0):
        c.equal(2 * cache[-1], x[3], f"heads of {x[3]} elements need caches of half that width, got {cache[-1]}")
    if x is not None and cache and len(cache) == 3:
        c.equal(cache[0], x[0], f"caches without position_ids must have X's batches, {x[0]}, got {cache[0]}")
    if x is not None and cache and ids is None and not c.has(3):
        c.require(len(cache) == 3, f"caches without position_ids must have 3 dimensions, got {len(cache)}")
    if x is not None and ids is not None:
        sequence = x[2] if len(x) == 4 else x[1]
        c.sized(3, "position_ids", x[0], sequence)


def rotary_of_com_microsoft(c: Conditions) -> None:
    """Input, position_ids, cos_cache, sin_cache."""
    x = c.rank(0, "input", 3, 4)
    if x is not None:
        _turned_part(c, x)
    cache, turned = c.rank(2, "cos_cache", 2), c.node.int_attribute("rotary_embedding_dim", 0)
    c.rank(3, "sin_cache", 2)
    c.same_shape(2, 3, "'cos_cache' and 'sin_cache'")
    if cache is not None and turned > 0:
        text = (
            f"cos_cache must have half of the rotary_embedding_dim ({turned}) elements that are turned, got {cache[1]}"
        )
        c.equal(2 * cache[1], turned, text)


def multimodal_rotary(c: Conditions) -> None:
    """MRotaryEmbedding: rows of several heads say how many, and caches have half of the elements that are turned."""
    x, cache = c.rank(0, "input", 3, 4), c.rank(2, "cos_cache", 2)
    c.same_shape(2, 3, "'cos_cache' and 'sin_cache'")
    if x is None or cache is None:
        return
    c.require(
        len(x) == 4 or c.node.int_attribute("num_heads", 0) > 0, "num_heads must be greater than 0 for rank-3 input"
    )
    head = _turned_part(c, x)
    turned = c.node.int_attribute("rotary_embedding_dim", 0) or head
    if turned is not None:
        c.equal(
            2 * cache[1], turned, f"cos_cache must have half of the {turned} elements that are turned, got {cache[1]}"
        )


def _turned_part(c: Conditions, x: Sizes) -> KnownDim | None:
    """Require that no more of a head is turned than it has; return its size where the node says it."""
    heads, part = c.node.int_attribute("num_heads", 0), c.node.int_attribute("rotary_embedding_dim", 0)
    size = x[3] if len(x) == 4 else floor_div(x[2], heads) if heads > 0 else None
    if isinstance(size, int):
        c.require(
            part <= size, f"rotary_embedding_dim must be less than or equal to the head size {size}, found {part}"
        )
    return size


def scatter(c: Conditions) -> None:
    """TensorScatter: write_indices [batch]."""
    past = c.at_least(0, "past_cache", 2)
    if past is not None:
        c.sized(2, "write_indices", past[0])
