"""SparseAttention: causal attention of which each head sees only some blocks of the past."""

from __future__ import annotations

import numpy as np

from ort_core import errors
from ort_core.kernels.kernel import KernelContext, kernel
from ort_core.kernels.reference.arrays.widening import narrow, widen
from ort_core.kernels.reference.attention.attention_operands import heads_of
from ort_core.kernels.reference.attention.cache_windows import keep, lay_out, stage
from ort_core.kernels.reference.attention.contrib_group_query_attention import rotary_positions, rotate_new
from ort_core.kernels.reference.attention.head_attention import attend, merge_heads
from ort_core.ops.attention_forms import call_attention

Optional = np.ndarray | None


def block_table(rows: np.ndarray, columns: np.ndarray, heads: int) -> np.ndarray:
    """Return the bool (layouts, blocks, blocks) of compressed sparse rows, once they are checked."""
    if rows.ndim != 2 or rows.shape[0] == 0 or rows.shape[1] < 2 or heads % rows.shape[0]:
        raise errors.InvalidArgument(
            "block_row_indices must have shape (num_layout, max_blocks + 1) where num_heads is divisible by "
            f"num_layout. Found {rows.shape} and {heads} heads"
        )
    layouts, blocks = rows.shape[0], rows.shape[1] - 1
    if columns.ndim != 2 or columns.shape[0] != layouts:
        raise errors.InvalidArgument(f"block_col_indices must have shape ({layouts}, max_nnz); found {columns.shape}")
    if (rows[:, 0] != 0).any() or (np.diff(rows, axis=1) < 0).any() or (rows[:, -1] > columns.shape[1]).any():
        raise errors.InvalidArgument(
            "block_row_indices values are not monotonically non-decreasing from 0 to at most the number of columns"
        )
    entry = np.arange(columns.shape[1])
    used = entry < rows[:, -1:]
    wrong = np.argwhere(used & ((columns < 0) | (columns >= blocks)))
    if wrong.size:
        layout, index = wrong[0]
        raise errors.InvalidArgument(
            f"block_col_indices[{layout}][{index}]={columns[layout, index]} is out of valid range [0, {blocks})"
        )
    # The row of an entry is the number of row ends at or before it.
    row_of = (rows[:, 1:, None] <= entry).sum(axis=1)
    table = np.zeros((layouts, blocks, blocks), bool)
    layout_of = np.broadcast_to(np.arange(layouts)[:, None], used.shape)
    table[layout_of[used], row_of[used], columns[used]] = True
    return table


def _check_lengths(lengths: np.ndarray, batch: int, fresh: int, total: int) -> np.ndarray:
    if lengths.shape != (batch,):
        raise errors.InvalidArgument(
            f"key_total_sequence_lengths must have shape (batch_size); found {lengths.shape}, batch {batch}"
        )
    least = 1 if fresh == total else fresh
    for index in np.flatnonzero((lengths < least) | (lengths > total))[:1]:
        raise errors.InvalidArgument(
            f"key_total_sequence_lengths value {int(lengths[index])} at batch index {index} is out of range "
            f"[{least}, {total}]"
        )
    return lengths.astype(np.int64)


@kernel("SparseAttention", domain="com.microsoft")
def sparse_attention(
    query: np.ndarray,
    key: Optional,
    value: Optional,
    past_key: np.ndarray,
    past_value: np.ndarray,
    block_row_indices: np.ndarray,
    block_col_indices: np.ndarray,
    total_sequence_length: np.ndarray,
    key_total_sequence_lengths: np.ndarray,
    cos_cache: Optional = None,
    sin_cache: Optional = None,
    *,
    kv_num_heads: int,
    num_heads: int,
    sparse_block_size: int,
    do_rotary: int = 0,
    rotary_interleaved: int = 0,
    scale: float | None = None,
    ctx: KernelContext,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Attend causally within the blocks that each head's layout names; layouts are used cyclically over heads."""
    inputs = (
        query, key, value, past_key, past_value, block_row_indices, block_col_indices, total_sequence_length,
        key_total_sequence_lengths, cos_cache, sin_cache,
    )  # fmt: skip
    record = call_attention(
        "SparseAttention", "com.microsoft", inputs, do_rotary=do_rotary, kv_num_heads=kv_num_heads,
        num_heads=num_heads, rotary_interleaved=rotary_interleaved, scale=scale,
    )  # fmt: skip
    queries, keys, values = heads_of(record, inputs)
    fresh, total = queries.shape[2], int(total_sequence_length.reshape(()))
    table = block_table(block_row_indices, block_col_indices, num_heads)
    positions_of_blocks = sparse_block_size * table.shape[1]
    if total > positions_of_blocks:
        raise errors.InvalidArgument(
            f"total_sequence_length {total} is beyond the {positions_of_blocks} positions of block_row_indices"
        )
    lengths = _check_lengths(key_total_sequence_lengths, query.shape[0], fresh, total)
    if record.rotary is not None:
        positions = rotary_positions(lengths, fresh, None)
        queries, keys = (rotate_new(each, positions, record.rotary, inputs) for each in (queries, keys))
    layout = lay_out(lengths, fresh, past_key.shape[2])
    stored = [stage(past, narrow(new, past.dtype), layout) for past, new in ((past_key, keys), (past_value, values))]
    own = layout.resident[:, None] + np.arange(fresh)
    column = np.arange(stored[0].shape[2])
    last = table.shape[1] - 1
    blocks = table[:, np.minimum(own // sparse_block_size, last)][..., np.minimum(column // sparse_block_size, last)]
    by_head = np.tile(blocks, (num_heads // table.shape[0], 1, 1, 1)).transpose(1, 0, 2, 3)
    allowed = by_head & (column <= own[:, None, :, None])
    result = attend(
        queries, widen(stored[0]), widen(stored[1]), factor=record.factor(queries.shape[3]), allowed=allowed
    )
    capacity = past_key.shape[2]
    presents = [
        keep(rows, layout, capacity, past, ctx.guard) if capacity else rows
        for rows, past in zip(stored, (past_key, past_value), strict=True)
    ]
    return narrow(merge_heads(result.output), query.dtype), presents[0], presents[1]
