"""PagedAttention beside float64, beside GroupQueryAttention on the same rows, and what it refuses."""

from __future__ import annotations

from dataclasses import dataclass, field

import ml_dtypes
import numpy as np
import pytest
from one_node import Array, model_of
from onnx import ModelProto

import ort_core as ort
from ort_core.errors import InvalidArgument, NotImplemented, OrtError

HEADS, GROUPS, SIZE, ROWS, BLOCKS, WIDTH = 4, 2, 8, 4, 23, 6
FLOAT, FLOAT16, BFLOAT16, INT8 = 1, 10, 16, 3
KINDS = {np.float32: FLOAT, np.float16: FLOAT16, ml_dtypes.bfloat16: BFLOAT16, np.int8: INT8}
ENGINES = ("CPU", "Reference")
NAMES = (
    "query", "key", "value", "key_cache", "value_cache", "ends", "past", "table", "cos", "sin", "slots", "sink",
    "q_norm", "k_norm", "k_scale", "v_scale",
)  # fmt: skip
DECODE, PROMPT, MIXED = ([1, 1, 1], [5, 0, 9]), ([13], [0]), ([1, 7, 1, 0, 16], [10, 3, 0, 4, 5])


@dataclass
class Case:
    """Inputs and attributes of a node."""

    inputs: dict[str, Array | None]
    attributes: dict[str, object] = field(default_factory=dict)


def case(
    steps: tuple[list[int], list[int]] = MIXED,
    dtype: type = np.float32,
    cache: type | None = None,
    **attributes: object,
) -> Case:
    """Return a step of sequences with so many new tokens behind so many, in blocks that lie anywhere."""
    random = np.random.default_rng(7)
    fresh, past = steps
    tokens, of_cache = sum(fresh), cache or dtype

    def numbers(*shape: int) -> Array:
        return random.standard_normal(shape).astype(dtype)

    blocks = random.permutation(BLOCKS)[: len(fresh) * WIDTH // 2 * 2].astype(np.int32)
    table = np.full((len(fresh), WIDTH), -1, np.int32)
    given = iter(blocks)
    for row, length in zip(table, np.add(fresh, past), strict=True):
        used = -(-int(length) // ROWS)
        row[:used] = [next(given) for _ in range(used)]
    shape = (BLOCKS, ROWS, GROUPS, SIZE)
    caches = [
        random.integers(-100, 100, shape, np.int8) if of_cache is np.int8
        else random.standard_normal(shape).astype(of_cache)
        for _ in range(2)
    ]  # fmt: skip
    inputs: dict[str, Array | None] = dict.fromkeys(NAMES)
    inputs |= {
        "query": numbers(tokens, HEADS * SIZE), "key": numbers(tokens, GROUPS * SIZE),
        "value": numbers(tokens, GROUPS * SIZE), "key_cache": caches[0], "value_cache": caches[1],
        "ends": np.cumsum([0, *fresh]).astype(np.int32), "past": np.array(past, np.int32), "table": table,
    }  # fmt: skip
    return Case(inputs, {"num_heads": HEADS, "kv_num_heads": GROUPS, **attributes})


def with_rotary(given: Case, pairs: int = SIZE // 2) -> Case:
    angles = np.outer(np.arange(32), 10.0 ** -np.arange(pairs))
    dtype = given.inputs["query"].dtype
    given.inputs |= {"cos": np.cos(angles).astype(dtype), "sin": np.sin(angles).astype(dtype)}
    given.attributes["do_rotary"] = 1
    return given


def model(given: Case) -> bytes:
    """Return a model of the node; sizes of heads are known in it, and numbers of tokens and of blocks are not."""
    kinds = [KINDS[given.inputs[name].dtype.type] for name in ("query", "key_cache", "value_cache")]
    made = ModelProto.FromString(model_of("PagedAttention", given.inputs, tuple(kinds), **given.attributes))
    for info in made.graph.input:
        fixed = {"query": [1], "key": [1], "value": [1], "key_cache": [1, 2, 3], "value_cache": [1, 2, 3], "cos": [1],
                 "sin": [1], "k_scale": [0, 1, 2], "v_scale": [0, 1, 2]}.get(info.name, [])  # fmt: skip
        for axis, size in enumerate(given.inputs[info.name].shape):
            if axis in fixed:
                info.type.tensor_type.shape.dim[axis].dim_value = size
            else:
                info.type.tensor_type.shape.dim[axis].dim_param = f"{info.name} {axis}"
    return made.SerializeToString()


def run(given: Case, engine: str = "CPU", *, is_in_place: bool = False) -> list[Array]:
    """Return the output and both caches; in place they are the caches that were given."""
    content = model(given)
    session = ort.InferenceSession(content, providers=[f"{engine}ExecutionProvider"])
    feeds = {name: array for name, array in given.inputs.items() if array is not None}
    if not is_in_place:
        return session.run(None, feeds)
    binding = session.io_binding()
    caches = {name: ort.OrtValue.ortvalue_from_numpy(feeds.pop(name)) for name in ("key_cache", "value_cache")}
    for name, array in feeds.items():
        binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(array))
    for (name, value), output in zip(caches.items(), ("y1", "y2"), strict=True):
        binding.bind_ortvalue_input(name, value)
        binding.bind_ortvalue_output(output, value)
    binding.bind_output("y0")
    session.run_with_iobinding(binding)
    return [binding.get_outputs()[2].numpy(), *(value.numpy() for value in caches.values())]


def turned(x: Array, given: Case, positions: Array) -> Array:
    cos, sin = (given.inputs[name].astype(np.float64)[positions][:, None] for name in ("cos", "sin"))
    pairs = cos.shape[-1]
    if given.attributes.get("rotary_interleaved"):
        a, b = x[..., 0 : 2 * pairs : 2], x[..., 1 : 2 * pairs : 2]
        found = np.stack([a * cos - b * sin, a * sin + b * cos], -1).reshape(*x.shape[:-1], 2 * pairs)
    else:
        a, b = x[..., :pairs], x[..., pairs : 2 * pairs]
        found = np.concatenate([a * cos - b * sin, a * sin + b * cos], -1)
    return np.concatenate([found, x[..., 2 * pairs :]], -1)


def normal_heads(x: Array, weight: Array, epsilon: float) -> Array:
    return x / np.sqrt(np.square(x).mean(-1, keepdims=True) + epsilon) * weight


def expected(given: Case) -> Array:
    """Return the output, token by token in float64, of caches as they are with what is written into them."""
    inputs, said = given.inputs, given.attributes
    heads = [HEADS, GROUPS, GROUPS]
    if inputs["key"] is None:
        split = np.split(inputs["query"].astype(np.float64).reshape(-1, HEADS + 2 * GROUPS, SIZE), np.cumsum(heads), 1)
        query, key, value = split[:3]
    else:
        parts = (inputs[name].astype(np.float64) for name in ("query", "key", "value"))
        query, key, value = (x.reshape(len(x), count, SIZE) for x, count in zip(parts, heads, strict=True))
    if inputs["q_norm"] is not None:
        epsilon = said["qk_norm_epsilon"]
        query, key = (
            normal_heads(x, inputs[name].astype(np.float64), epsilon)
            for x, name in ((query, "q_norm"), (key, "k_norm"))
        )
    ends, past = inputs["ends"].tolist(), inputs["past"].tolist()
    positions = np.concatenate([p + np.arange(e - b) for b, e, p in zip(ends, ends[1:], past, strict=False)])
    if said.get("do_rotary"):
        query, key = (turned(x, given, positions) for x in (query, key))
    caches = []
    for name, factor, new in (("key_cache", "k_scale", key), ("value_cache", "v_scale", value)):
        scale = 1.0 if inputs[factor] is None else inputs[factor].astype(np.float64)
        scale = scale.reshape(GROUPS, SIZE) if np.size(scale) > 1 else scale
        stored = np.rint(new / scale).clip(-128, 127) if inputs[name].dtype == np.int8 else new
        kept = stored.astype(inputs[name].dtype).astype(np.float64)
        caches.append((inputs[name].astype(np.float64), kept, scale))
    rows: dict[tuple[int, int], list[Array]] = {}
    slots = inputs["slots"]
    for sequence, (begin, end, before) in enumerate(zip(ends, ends[1:], past, strict=False)):
        for token in range(begin, end):
            place = before + token - begin
            slot = int(inputs["table"][sequence, place // ROWS]) * ROWS + place % ROWS
            slot = slot if slots is None else int(slots[token])
            if slot >= 0:
                rows[divmod(slot, ROWS)] = [kept[token] for _, kept, _ in caches]
    found = np.zeros((len(query), HEADS, SIZE))
    factor = said.get("scale") or 1 / np.sqrt(SIZE)
    window, cap = said.get("local_window_size", -1), said.get("softcap", 0.0)
    for sequence, (begin, end, before) in enumerate(zip(ends, ends[1:], past, strict=False)):
        for token in range(begin, end):
            own, total = before + token - begin, before + end - begin
            last = own if said.get("is_causal", 1) else total - 1
            first = max(0, own - window + 1) if window > 0 else 0
            places = [(int(inputs["table"][sequence, p // ROWS]), p % ROWS) for p in range(first, last + 1)]
            keys, values = (
                np.stack([rows[p][which] if p in rows else caches[which][0][p] for p in places]) * caches[which][2]
                for which in range(2)
            )
            for head in range(HEADS):
                group = head // (HEADS // GROUPS)
                scores = keys[:, group] @ query[token, head] * factor
                scores = np.tanh(scores / cap) * cap if cap else scores
                sink = -np.inf if inputs["sink"] is None else float(inputs["sink"][head])
                weights = np.exp(scores - max(scores.max(), sink))
                total_weight = weights.sum() + np.exp(sink - max(scores.max(), sink))
                found[token, head] = weights @ values[:, group] / total_weight
    return found.reshape(len(found), -1)


VARIANTS = {
    "plain": lambda given: given,
    "scaled and capped": lambda given: Case(given.inputs, {**given.attributes, "scale": 0.4, "softcap": 2.0}),
    "windows": lambda given: Case(given.inputs, {**given.attributes, "local_window_size": 3}),
    "not causal": lambda given: Case(given.inputs, {**given.attributes, "is_causal": 0}),
    "a window, not causal": lambda g: Case(g.inputs, {**g.attributes, "is_causal": 0, "local_window_size": 2}),
    "rotary": with_rotary,
    "rotary, a part": lambda given: with_rotary(given, 2),
    "rotary, interleaved": lambda g: with_rotary(Case(g.inputs, {**g.attributes, "rotary_interleaved": 1})),
    "sinks": lambda g: Case({**g.inputs, "sink": np.array([0.5, -1, 2, 0], g.inputs["query"].dtype)}, g.attributes),
    "normalized": lambda g: with_rotary(
        Case(
            {**g.inputs, "q_norm": g.inputs["query"][0, :SIZE] + 1, "k_norm": g.inputs["key"][0, :SIZE] + 1},
            {**g.attributes, "qk_norm_epsilon": 1e-5},
        )
    ),
    "packed": lambda g: Case(
        {**g.inputs, "query": np.concatenate([g.inputs[n] for n in NAMES[:3]], 1), "key": None, "value": None},
        g.attributes,
    ),
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("steps", [DECODE, PROMPT, MIXED], ids=["a token each", "a prompt", "both"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_results_are_those_in_float64(variant: str, steps: tuple[list[int], list[int]], engine: str) -> None:
    given = VARIANTS[variant](case(steps))
    found = run(given, engine)
    np.testing.assert_allclose(found[0], expected(given), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("dtype", "cache"),
    [(np.float16, np.float16), (ml_dtypes.bfloat16, ml_dtypes.bfloat16), (np.float16, ml_dtypes.bfloat16)],
    ids=["float16", "bfloat16", "both"],
)
def test_halves_are_kept_as_they_are(dtype: type, cache: type, engine: str) -> None:
    tolerance = 2e-3 if cache is np.float16 else 2e-2
    given = with_rotary(case(MIXED, dtype, cache))
    found = run(given, engine)
    assert [each.dtype for each in found] == [dtype, cache, cache]
    np.testing.assert_allclose(found[0].astype(np.float64), expected(given), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", ["PER_TENSOR", "PER_CHANNEL"])
def test_caches_of_int8_are_scaled(kind: str, engine: str) -> None:
    given = case(MIXED, np.float32, np.int8, k_quant_type=kind, v_quant_type=kind)
    shape = (1,) if kind == "PER_TENSOR" else (GROUPS, 1, SIZE)
    scales = np.random.default_rng(2).uniform(0.01, 0.04, shape).astype(np.float32)
    given.inputs |= {"k_scale": scales, "v_scale": scales * 2}
    np.testing.assert_allclose(run(given, engine)[0], expected(given), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("is_in_place", [False, True], ids=["copied", "in place"])
def test_new_rows_lie_where_the_table_has_them_and_all_others_stay(engine: str, is_in_place: bool) -> None:
    given = case(MIXED)
    before = [given.inputs[name].copy() for name in ("key_cache", "value_cache")]
    _, *caches = run(given, engine, is_in_place=is_in_place)
    ends, past = given.inputs["ends"], given.inputs["past"]
    for cache, old, name in zip(caches, before, ("key", "value"), strict=True):
        wanted = old.copy()
        for sequence in range(len(past)):
            for token in range(ends[sequence], ends[sequence + 1]):
                block, row = divmod(past[sequence] + token - ends[sequence], ROWS)
                wanted[given.inputs["table"][sequence, block], row] = given.inputs[name][token].reshape(GROUPS, SIZE)
        np.testing.assert_array_equal(cache, wanted)
    is_same = [np.array_equal(given.inputs[name], old) for name, old in zip(NAMES[3:5], before, strict=True)]
    assert is_same == [not is_in_place] * 2


@pytest.mark.parametrize("engine", ENGINES)
def test_tokens_without_a_slot_are_not_written(engine: str) -> None:
    given = case(DECODE)
    table = given.inputs["table"]
    given.inputs["slots"] = np.array([table[0, 1] * ROWS + 1, -1, -1], np.int32)
    found = run(given, engine)
    np.testing.assert_allclose(found[0], expected(given), rtol=1e-5, atol=1e-5)
    changed = np.argwhere((found[1] != given.inputs["key_cache"]).any(axis=(2, 3)))
    assert changed.tolist() == [[table[0, 1], 1]]


@pytest.mark.parametrize("engine", ENGINES)
def test_no_token_at_all_gives_no_row(engine: str) -> None:
    found = run(case(([0, 0], [3, 0])), engine)
    assert [each.shape for each in found] == [(0, HEADS * SIZE), *[(BLOCKS, ROWS, GROUPS, SIZE)] * 2]


def test_a_step_of_equal_rows_is_group_query_attention() -> None:
    given = with_rotary(case(([3, 3], [5, 5])))
    inputs, batch = given.inputs, 2
    pasts = []
    for name in ("key_cache", "value_cache"):
        rows = inputs[name][inputs["table"][:, :2]].reshape(batch, -1, GROUPS, SIZE)[:, :5]
        pasts.append(np.ascontiguousarray(rows.swapaxes(1, 2)))
    grouped = {
        **{name: inputs[name].reshape(batch, 3, -1) for name in ("query", "key", "value")},
        "past_key": pasts[0], "past_value": pasts[1], "lengths": np.full(batch, 7, np.int32),
        "total": np.array([8], np.int32), "cos": inputs["cos"], "sin": inputs["sin"],
    }  # fmt: skip
    content = model_of("GroupQueryAttention", grouped, (FLOAT, FLOAT, FLOAT), **given.attributes)
    wanted = ort.InferenceSession(content, providers=["CPUExecutionProvider"]).run(None, grouped)
    np.testing.assert_allclose(run(given)[0], wanted[0].reshape(6, -1), rtol=1e-6, atol=1e-6)


def broken(name: str, place: object, value: int) -> Case:
    given = with_rotary(case(MIXED)) if name == "cos" else case(MIXED)
    if name == "cos":
        given.inputs |= {each: given.inputs[each][:value] for each in ("cos", "sin")}
        return given
    if name == "slots":
        given.inputs["slots"] = np.full(len(given.inputs["query"]), -1, np.int32)
    given.inputs[name][place] = value
    return given


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("name", "place", "value", "message"),
    [
        ("table", (0, 2), BLOCKS, rf"block_table\[0, 2\] = {BLOCKS} is out of range \[0, {BLOCKS - 1}\]"),
        ("table", (1, 0), -1, r"block_table\[1, 0\] = -1 is out of range"),
        ("table", (1, 0), -(1 << 31), r"block_table\[1, 0\] = -2147483648 is out of range"),
        ("past", 0, 24, r"past_seqlens\[0\] = 24 and 1 new tokens; expected 0 or more, and no more than 6 blocks of 4"),
        ("past", 2, -1, r"past_seqlens\[2\] = -1"),
        ("past", 1, (1 << 31) - 1, r"past_seqlens\[1\] = 2147483647"),
        ("ends", 0, 1, "must start at 0 and end at 25"),
        ("ends", -1, 26, "must start at 0 and end at 25"),
        ("ends", 2, 0, "must rise by 0 or more"),
        ("slots", 3, BLOCKS * ROWS, r"slot_mapping\[3\] = 92 is out of range \[-1, 91\]"),
        ("slots", 0, -2, r"slot_mapping\[0\] = -2 is out of range"),
        ("cos", None, 12, r"position \d+ is out of range for rotary cache dimension 0 \(12\)"),
    ],
)
def test_numbers_that_lead_outside_are_refused(name: str, place: object, value: int, message: str, engine: str) -> None:
    given = broken(name, place, value)
    caches = [given.inputs[each] for each in ("key_cache", "value_cache")]
    outside = [each.copy() for each in caches]
    with pytest.raises(InvalidArgument, match=message):
        run(given, engine, is_in_place=True)
    used = set(given.inputs["table"].ravel().tolist())
    for cache, old in zip(caches, outside, strict=True):
        free = [block for block in range(BLOCKS) if block not in used]
        np.testing.assert_array_equal(cache[free], old[free])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"value": None}, "key and value must be given together"),
        ({"key": np.zeros((24, GROUPS * SIZE), np.float32)}, "as many tokens"),
        ({"key_cache": np.zeros((BLOCKS, ROWS, GROUPS, SIZE + 1), np.float32)}, "heads of 8 elements, got 9"),
        ({"value_cache": np.zeros((BLOCKS, ROWS + 1, GROUPS, SIZE), np.float32)}, "the same shape|the same blocks"),
        ({"table": np.zeros((4, WIDTH), np.int32)}, "one number more than block_table has rows"),
        ({"past": np.zeros(4, np.int32)}, "past_seqlens must have shape|expected past_seqlens"),
        ({"q_norm": np.ones(SIZE, np.float32)}, "q_norm_weight and k_norm_weight must be given together"),
    ],
    ids=["a value", "tokens", "heads", "rows", "table", "past", "norms"],
)
def test_shapes_that_do_not_fit_are_refused(change: dict[str, Array], message: str) -> None:
    given = case(MIXED)
    given.inputs |= change
    with pytest.raises(OrtError, match=message):
        run(given)


def test_what_is_not_computed_is_refused_in_a_sentence() -> None:
    given = case(MIXED, kv_cache_layout="LATENT")
    given.attributes["kv_num_heads"] = 2
    with pytest.raises(NotImplemented, match="kv_cache_layout = 'LATENT'"):
        run(given)
