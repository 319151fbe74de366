"""Attentions of few and of many queries, drawn: every form of GroupQueryAttention, and long keys cut into parts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

ARRAYS = {"float": np.dtype("f4"), "float16": np.dtype("f2")}


class Drawn(NamedTuple):
    """A graph, its inputs, and its opset."""

    name: str
    body: str
    feeds: dict[str, np.ndarray]
    opset: int = 21


def drawn_attentions() -> Iterator[Drawn]:
    """Yield the same graphs each time."""
    rng = np.random.default_rng(20)
    for number in range(28):
        yield _grouped(number, rng)
    for name, keys, mask in (
        ("few", 7, ""),
        ("parts", 300, ""),
        ("masked_parts", 200, "bool"),
        ("added", 130, "float"),
    ):
        yield _plain(name, keys, mask, rng)
    for simplified in ("", "Simplified"):
        for dtype in ARRAYS:
            yield _skip(simplified, dtype, rng)
    yield _tiles("capped", "softcap = 2.0", rng)
    yield _tiles("causal", "is_causal = 1", rng, rows=70, width=128)
    yield _tiles("masked", "scale = 0.3", rng, mask="bool")
    yield _tiles("added", "softcap = 3.0", rng, mask="float", heads=4, size=128)
    yield _tiles("half", "scale = 0.2", rng, mask="float", dtype="float16", size=24, width=8)


def _grouped(number: int, rng: np.random.Generator) -> Drawn:
    """Draw a GroupQueryAttention; each feature comes several times, and each with each other one some time."""
    dtype = "float16" if number % 4 == 3 else "float"
    array, size = ARRAYS[dtype], (16, 24, 8)[number % 3]
    groups, shared = ((1, 2), (2, 2), (3, 1))[number % 3]
    heads, batch, rows = groups * shared, int(rng.integers(1, 3)), int(rng.choice([1, 1, 2, 5, 18]))
    is_buffer, is_packed = rng.random() < 0.4, rng.random() < 0.5
    before = int(rng.integers(1, 9)) if number % 7 else 150
    lengths = np.full(batch, before + rows) if rng.random() < 0.5 else rng.integers(rows, before + rows + 1, batch)
    if number % 9 == 4:
        lengths[0] = max(rows - 1, 1)  # a prompt that is padded on its right
    is_first = number % 8 == 6  # of a text: nothing is cached
    if is_first:
        before, is_buffer, lengths = 0, False, np.maximum(lengths - before, 1)
    total = int(max(lengths.max(), 1)) if is_buffer else before + rows
    capacity = total + int(rng.integers(0, 5)) if is_buffer else before
    width = max(capacity, total)
    inputs: list[str] = []
    names: list[str] = []
    feeds: dict[str, np.ndarray] = {}

    def add(name: str, content: np.ndarray | None, of: str = dtype) -> None:
        names.append("" if content is None else name)
        if content is not None:
            feeds[name] = content
            inputs.append(f"{of}[{','.join(map(str, content.shape))}] {name}")

    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(array)

    columns = [heads * size, shared * size, shared * size]
    add("query", normal(batch, rows, sum(columns) if is_packed else columns[0]))
    add("key", None if is_packed else normal(batch, rows, columns[1]))
    add("value", None if is_packed else normal(batch, rows, columns[2]))
    add("past_key", None if is_first else normal(batch, shared, capacity, size))
    add("past_value", None if is_first else normal(batch, shared, capacity, size))
    add("lengths", (lengths - 1).astype("i4"), "int32")
    add("total", np.array(total, "i4"), "int32")
    turns = rng.random() < 0.6
    pairs = size // (4 if turns and number % 5 == 2 else 2)
    add("cosines", normal(width + rows, pairs) if turns else None)
    add("sines", normal(width + rows, pairs) if turns else None)
    places = rng.integers(0, width, (batch, rows)) if turns and rng.random() < 0.4 else None
    add("places", places, "int64")
    has_bias, has_sink, has_norms = rng.random(3) < 0.3
    add("bias", normal(rng.choice([1, batch]), rng.choice([1, heads]), rows, width) if has_bias else None)
    add("sink", normal(heads) if has_sink else None)
    add("key_scale", None)
    add("value_scale", None)
    add("query_weight", normal(size) if has_norms else None)
    add("key_weight", normal(size) if has_norms else None)
    is_causal = rng.random() < 0.8
    attributes = [f"num_heads = {heads}", f"kv_num_heads = {shared}", f"causal = {int(is_causal)}"]
    attributes += [f"do_rotary = {int(turns)}", f"rotary_interleaved = {int(turns and rng.random() < 0.5)}"]
    attributes += ["softcap = 1.5"] if rng.random() < 0.3 else []
    attributes += ["scale = 0.3"] if rng.random() < 0.3 else []
    attributes += ["smooth_softmax = 1"] if not has_sink and rng.random() < 0.3 else []
    attributes += [f"local_window_size = {rng.integers(1, 6)}"] if is_causal and rng.random() < 0.4 else []
    cache = f"{dtype}[{batch},{shared},{width},{size}]"
    call = f"com.microsoft.GroupQueryAttention<{', '.join(attributes)}>({', '.join(names).rstrip(', ')})"
    outputs = f"{dtype}[{batch},{rows},{heads * size}] y, {cache} new_key, {cache} new_value"
    body = f"g ({', '.join(inputs)}) => ({outputs}) {{ y, new_key, new_value = {call} }}"
    return Drawn(f"grouped_query_{number}", body, feeds)


def _plain(name: str, keys: int, mask: str, rng: np.random.Generator) -> Drawn:
    q, k, v = (rng.standard_normal(shape).astype("f4") for shape in ((2, 4, 3, 40), (2, 2, keys, 40), (2, 2, keys, 9)))
    feeds, more, argument = {"q": q, "k": k, "v": v}, "", ""
    if mask:
        allowed = rng.random((2, 1, 3, keys)) < 0.5
        allowed[1, 0, 2] = False
        feeds["m"] = (
            allowed if mask == "bool" else np.where(allowed, rng.standard_normal(allowed.shape), -np.inf).astype("f4")
        )
        more, argument = f", {mask}[2,1,3,{keys}] m", ", m"
    body = (
        f"g (float[2,4,3,40] q, float[2,2,{keys},40] k, float[2,2,{keys},9] v{more}) => (float[2,4,3,9] y) "
        f"{{ y = Attention<softcap = 3.0, is_causal = {int(not mask)}>(q, k, v{argument}) }}"
    )
    return Drawn(f"attention_of_few_rows_{name}", body, feeds, 23)


def _tiles(
    name: str,
    attributes: str,
    rng: np.random.Generator,
    *,
    mask: str = "",
    dtype: str = "float",
    rows: int = 40,
    heads: int = 2,
    size: int = 40,
    width: int = 33,
) -> Drawn:
    """Draw an attention of more queries than few, over keys that fill no tile."""
    shapes = {"q": (1, heads, rows, size), "k": (1, 2, 70, size), "v": (1, 2, 70, width)}
    feeds = {each: rng.standard_normal(shape).astype(ARRAYS[dtype]) for each, shape in shapes.items()}
    if mask:
        allowed = rng.random((1, 1, rows, 70)) < 0.5
        allowed[0, 0, 3] = False
        feeds["m"] = allowed if mask == "bool" else np.where(allowed, rng.standard_normal(allowed.shape), -np.inf)
        feeds["m"] = feeds["m"].astype(bool if mask == "bool" else np.float32)
    inputs = [f"{dtype}[{','.join(map(str, shape))}] {each}" for each, shape in shapes.items()]
    inputs += [f"{mask}[1,1,{rows},70] m"] if mask else []
    call = f"Attention<{attributes}>({', '.join(feeds)})"
    body = f"g ({', '.join(inputs)}) => ({dtype}[1,{heads},{rows},{width}] y) {{ y = {call} }}"
    return Drawn(f"attention_in_tiles_{name}", body, feeds, 23)


def _skip(simplified: str, dtype: str, rng: np.random.Generator) -> Drawn:
    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(ARRAYS[dtype])

    feeds = {"x": normal(2, 3, 40), "s": normal(1, 3, 40), "g": normal(40), "b": normal(40), "c": normal(40)}
    arguments = "x, s, g, c" if simplified else "x, s, g, b, c"
    if simplified:
        del feeds["b"]
    inputs = ", ".join(f"{dtype}[{','.join(map(str, value.shape))}] {name}" for name, value in feeds.items())
    body = (
        f"g ({inputs}) => ({dtype}[2,3,40] y, {dtype}[2,3,40] t) "
        f"{{ y, , , t = com.microsoft.Skip{simplified}LayerNormalization({arguments}) }}"
    )
    return Drawn(f"skip_{simplified.lower() or 'layer'}_norm_of_{dtype}", body, feeds)
