"""One attention in all of its forms: each reads the same heads, gives what the definition gives, and is inferred so."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import ort_core
from ort_core.ir.nodes import Node
from ort_core.ops.attention import AttentionFeature, Growth, Layout, ScoreStage
from ort_core.ops.attention_forms import node_attention
from ort_core.testing.claims import typed_model

MS = "com.microsoft"
BATCH, HEADS, LENGTH, SIZE, PAST = 2, 4, 3, 8, 5
Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Form:
    """A node with what it reads, and the heads that it is to attend with: [batch, heads, length, size]."""

    op_type: str
    domain: str
    names: tuple[str, ...]
    arrays: Arrays
    heads: tuple[np.ndarray, np.ndarray, np.ndarray]
    attributes: dict[str, object] = field(default_factory=dict)
    outputs: int = 1
    is_causal: bool = False
    is_packed: bool = False  # [tokens, width] of sequences that are all as long
    presents: tuple[np.ndarray, ...] = ()

    def model(self, *, is_named: bool) -> bytes:
        """Return the model; each size of an input that is not its last has a name of its own where ``is_named``."""
        infos = []
        for name, array in self.arrays.items():
            sizes = [f"{name}{axis}" if is_named and axis < array.ndim - 1 else s for axis, s in enumerate(array.shape)]
            infos.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), sizes))
        outputs = [f"out{number}" for number in range(self.outputs)]
        node = helper.make_node(self.op_type, self.names, outputs, domain=self.domain, **self.attributes)
        results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
        imports = [helper.make_opsetid("", 24)] + ([helper.make_opsetid(MS, 1)] if self.domain else [])
        graph = helper.make_graph([node], "g", infos, results)
        return helper.make_model(graph, opset_imports=imports, ir_version=11).SerializeToString()


def random(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def rows(heads: np.ndarray) -> np.ndarray:
    """[batch, heads, length, size] as [batch, length, heads * size]."""
    batch, count, length, size = heads.shape
    return np.ascontiguousarray(heads.transpose(0, 2, 1, 3)).reshape(batch, length, count * size)


def split(packed: np.ndarray, count: int) -> np.ndarray:
    return packed.reshape(*packed.shape[:2], count, -1).transpose(0, 2, 1, 3)


def parts(*heads: np.ndarray) -> np.ndarray:
    """Heads as [batch, length, heads, parts, size]."""
    return np.stack([each.transpose(0, 2, 1, 3) for each in heads], axis=3)


Q, K, V = (random(seed, BATCH, HEADS, LENGTH, SIZE) for seed in (1, 2, 3))
WIDE = random(4, BATCH, HEADS, LENGTH, 6)  # values of another size
FEW_K, FEW_V = K[:, :2], V[:, :2]
OLD_K, OLD_V = (random(seed, BATCH, HEADS, PAST, SIZE) for seed in (5, 6))
LONG_K, LONG_V = np.concatenate([OLD_K, K], axis=2), np.concatenate([OLD_V, V], axis=2)
ONE = (Q[:, :, :1], K[:, :, :1], V[:, :, :1])
LATER = tuple(np.concatenate([old, new], axis=2) for old, new in ((OLD_K, ONE[1]), (OLD_V, ONE[2])))
NUMBER = {"num_heads": HEADS}
X, W = random(7, BATCH, LENGTH, 5), random(8, 5, 3 * HEADS * SIZE)
PROJECTED = tuple(split(part, HEADS) for part in np.split(X.astype(np.float64) @ W, 3, axis=-1))
TALL = random(9, 5, HEADS * (SIZE + SIZE + 6))
UNEVEN = tuple(
    split(part, HEADS)
    for part in np.split(X.astype(np.float64) @ TALL, [HEADS * SIZE, 2 * HEADS * SIZE], axis=-1)
)  # fmt: skip
BIAS = random(10, 3 * HEADS * SIZE)
SHIFTS = [split(np.broadcast_to(part, (BATCH, 1, HEADS * SIZE)), HEADS) for part in np.split(BIAS, 3)]
COUNTS: Arrays = {"n": np.full(BATCH, LENGTH - 1, np.int32), "t": np.array(LENGTH, np.int32)}
ENDS: Arrays = {
    "o": np.arange(BATCH * LENGTH, dtype=np.int32).reshape(BATCH, LENGTH),
    "e": np.arange(0, BATCH * LENGTH + 1, LENGTH, dtype=np.int32),
}
FORMS: dict[str, Form] = {
    "four axes": Form("Attention", "", ("q", "k", "v"), {"q": Q, "k": K, "v": WIDE}, (Q, K, WIDE)),
    "rows, fewer heads of keys, causal": Form(
        "Attention", "", ("q", "k", "v"), {"q": rows(Q), "k": rows(FEW_K), "v": rows(FEW_V)}, (Q, FEW_K, FEW_V),
        {"q_num_heads": HEADS, "kv_num_heads": 2, "is_causal": 1}, is_causal=True,
    ),
    "four axes behind a past, causal": Form(
        "Attention", "", ("q", "k", "v", "", "pk", "pv"), {"q": Q, "k": K, "v": V, "pk": OLD_K, "pv": OLD_V},
        (Q, LONG_K, LONG_V), {"is_causal": 1}, 3, is_causal=True, presents=(LONG_K, LONG_V),
    ),
    "MultiHeadAttention of rows": Form(
        "MultiHeadAttention", MS, ("q", "k", "v"), {"q": rows(Q), "k": rows(K), "v": rows(WIDE)}, (Q, K, WIDE), NUMBER
    ),
    "MultiHeadAttention of rows with a bias": Form(
        "MultiHeadAttention", MS, ("q", "k", "v", "b"), {"q": rows(Q), "k": rows(K), "v": rows(V), "b": BIAS},
        (Q + SHIFTS[0], K + SHIFTS[1], V + SHIFTS[2]), NUMBER,
    ),
    "MultiHeadAttention of one packed input": Form(
        "MultiHeadAttention", MS, ("q",), {"q": parts(Q, K, V)}, (Q, K, V), NUMBER
    ),
    "MultiHeadAttention of packed keys and values": Form(
        "MultiHeadAttention", MS, ("q", "k"), {"q": rows(Q), "k": parts(K, V)}, (Q, K, V), NUMBER
    ),
    "MultiHeadAttention to the keys of another sequence": Form(
        "MultiHeadAttention", MS, ("q", "k", "v"), {"q": rows(Q), "k": LONG_K, "v": LONG_V}, (Q, LONG_K, LONG_V), NUMBER
    ),
    "MultiHeadAttention behind a past, causal": Form(
        "MultiHeadAttention", MS, ("q", "k", "v", "", "", "", "pk", "pv"),
        {"q": rows(Q), "k": rows(K), "v": rows(V), "pk": OLD_K, "pv": OLD_V}, (Q, LONG_K, LONG_V),
        {**NUMBER, "unidirectional": 1}, 3, is_causal=True, presents=(LONG_K, LONG_V),
    ),
    "DecoderMaskedMultiHeadAttention of one packed input": Form(
        "DecoderMaskedMultiHeadAttention", MS, ("q",), {"q": np.concatenate([rows(each) for each in ONE], axis=-1)},
        ONE, NUMBER,
    ),
    "DecoderMaskedMultiHeadAttention behind a past": Form(
        "DecoderMaskedMultiHeadAttention", MS, ("q", "k", "v", "", "", "pk", "pv"),
        {**dict(zip("qkv", map(rows, ONE), strict=True)), "pk": OLD_K, "pv": OLD_V}, (ONE[0], *LATER), NUMBER, 3,
        presents=LATER,
    ),
    "DecoderMaskedSelfAttention behind a past": Form(
        "DecoderMaskedSelfAttention", MS, ("x", "w", "b", "", "p", "", "s"),
        {"x": X[:, :1], "w": W, "b": np.zeros(W.shape[1], np.float32), "p": np.stack([OLD_K, OLD_V]),
         "s": np.array([PAST], np.int32)},
        (PROJECTED[0][:, :, :1], *(np.concatenate([old, new[:, :, :1]], axis=2)
                                   for old, new in ((OLD_K, PROJECTED[1]), (OLD_V, PROJECTED[2])))),
        NUMBER, 2,
    ),
    "Attention with its projection, causal": Form(
        "Attention", MS, ("x", "w"), {"x": X, "w": W}, PROJECTED, {**NUMBER, "unidirectional": 1}, is_causal=True
    ),
    "Attention with wide values": Form(
        "Attention", MS, ("x", "w"), {"x": X, "w": TALL}, UNEVEN,
        {**NUMBER, "qkv_hidden_sizes": [HEADS * SIZE, HEADS * SIZE, HEADS * 6]},
    ),
    "GroupQueryAttention of rows": Form(
        "GroupQueryAttention", MS, ("q", "k", "v", "", "", "n", "t"),
        {"q": rows(Q), "k": rows(FEW_K), "v": rows(FEW_V), **COUNTS}, (Q, FEW_K, FEW_V),
        {**NUMBER, "kv_num_heads": 2}, 3, is_causal=True, presents=(FEW_K, FEW_V),
    ),
    "GroupQueryAttention of one packed input": Form(
        "GroupQueryAttention", MS, ("q", "", "", "", "", "n", "t"),
        {"q": np.concatenate([rows(Q), rows(FEW_K), rows(FEW_V)], axis=-1), **COUNTS}, (Q, FEW_K, FEW_V),
        {**NUMBER, "kv_num_heads": 2}, 3, is_causal=True, presents=(FEW_K, FEW_V),
    ),
    "PackedAttention": Form(
        "PackedAttention", MS, ("x", "w", "b", "o", "e"),
        {"x": X.reshape(-1, 5), "w": W, "b": np.zeros(W.shape[1], np.float32), **ENDS}, PROJECTED, NUMBER,
        is_packed=True,
    ),
    "PackedMultiHeadAttention": Form(
        "PackedMultiHeadAttention", MS, ("q", "k", "v", "", "o", "e"),
        {**{name: rows(each).reshape(BATCH * LENGTH, -1) for name, each in zip("qkv", (Q, K, WIDE), strict=True)},
         **ENDS}, (Q, K, WIDE), NUMBER, is_packed=True,
    ),
    "PackedMultiHeadAttention of one packed input": Form(
        "PackedMultiHeadAttention", MS, ("q", "", "", "", "o", "e"),
        {"q": parts(Q, K, V).reshape(BATCH * LENGTH, HEADS, 3, SIZE), **ENDS}, (Q, K, V), NUMBER, is_packed=True,
    ),
}  # fmt: skip


def attended(form: Form) -> np.ndarray:
    """Attend by the definition, in float64; the result lies as the form's does."""
    q, k, v = (each.astype(np.float64) for each in form.heads)
    k, v = (np.repeat(each, q.shape[1] // each.shape[1], axis=1) for each in (k, v))
    scores = q @ k.swapaxes(2, 3) / np.sqrt(q.shape[3])
    if form.is_causal:
        places = np.arange(k.shape[2]) - (k.shape[2] - q.shape[2])
        scores = np.where(places <= np.arange(q.shape[2])[:, None], scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    y = weights / weights.sum(axis=-1, keepdims=True) @ v
    if form.op_type == "Attention" and not form.domain and form.arrays["q"].ndim == 4:
        return y
    merged = rows(y)
    return merged.reshape(-1, merged.shape[2]) if form.is_packed else merged


@pytest.mark.parametrize("provider", ["ReferenceExecutionProvider", "CPUExecutionProvider"])
@pytest.mark.parametrize("name", FORMS)
def test_every_form_attends_as_the_definition_says(name: str, provider: str) -> None:
    form = FORMS[name]
    session = ort_core.InferenceSession(form.model(is_named=True), providers=[provider])
    y, *presents = session.run(None, form.arrays)
    np.testing.assert_allclose(y, attended(form), rtol=1e-4, atol=1e-5)
    for found, expected in zip(presents, form.presents, strict=False):
        np.testing.assert_array_equal(found, expected.astype(np.float32))


@pytest.mark.parametrize("name", FORMS)
def test_the_shapes_of_every_form_are_inferred_as_its_results_have_them(name: str) -> None:
    form = FORMS[name]
    (node,) = typed_model(form.model(is_named=False)).graph
    session = ort_core.InferenceSession(form.model(is_named=False), providers=["ReferenceExecutionProvider"])
    for value, found in zip(node.present_outputs(), session.run(None, form.arrays), strict=True):
        inferred = [size if isinstance(size, int) else None for size in value.shape]
        known = [None if size is None else actual for size, actual in zip(inferred, found.shape, strict=True)]
        assert inferred == known, value.name
        assert None not in inferred or form.op_type == "GroupQueryAttention", "whose cache is as long as an input says"


@pytest.mark.parametrize("name", FORMS)
def test_every_form_says_how_many_heads_of_which_size_it_has(name: str) -> None:
    form = FORMS[name]
    (node,) = typed_model(form.model(is_named=False)).graph
    record = node_attention(node)
    for source, heads in zip((record.query, record.key, record.value), form.heads, strict=True):
        assert (source.heads, source.size) == (heads.shape[1], heads.shape[3])
    assert record.factor(SIZE) == pytest.approx(SIZE**-0.5)
    assert record.is_causal == form.is_causal


def record_of(op_type: str, inputs: int, domain: str = "", **attributes: object):
    from ort_core.ir.values import Value

    return node_attention(Node(op_type, [Value(str(n)) for n in range(inputs)], 4, attributes, domain=domain))


def test_of_nodes_without_types_roles_are_known_and_sizes_are_not() -> None:
    record = record_of("Attention", 7, is_causal=1, left_window_size=3, right_window_size=2, softcap=-1.0)
    assert (record.mask, record.cache.key, record.cache.value, record.lengths.input) == (3, 4, 5, 6)
    assert (record.is_causal, record.left, record.right, record.ahead) == (True, 3, None, 0)
    assert (record.query.layout, record.query.size, record.total) == (None, None, None)
    assert record.softcap == 0
    assert record.scores is ScoreStage.RAW


def test_a_window_of_grouped_queries_counts_the_query_itself() -> None:
    record = record_of("GroupQueryAttention", 7, MS, num_heads=4, kv_num_heads=2, local_window_size=3, scale=0.0)
    assert (record.left, record.ahead, record.scale, record.lengths.rest) == (2, 0, None, 1)
    assert record.cache.growth is Growth.FILLED


@pytest.mark.parametrize(
    ("feature", "make"),
    [
        (AttentionFeature.BEAMS, lambda: record_of("MultiHeadAttention", 10, MS, num_heads=2)),
        (AttentionFeature.BUFFER, lambda: record_of("MultiHeadAttention", 9, MS, num_heads=2)),
        (AttentionFeature.NORMALIZED, lambda: record_of("GroupQueryAttention", 16, MS, num_heads=2, kv_num_heads=1)),
        (AttentionFeature.SMOOTH, lambda: record_of("GroupQueryAttention", 7, MS, num_heads=2, smooth_softmax=1)),
        (AttentionFeature.QUANTIZED, lambda: record_of("GroupQueryAttention", 7, MS, k_quant_type="PER_TENSOR")),
        (AttentionFeature.DOUBLE, lambda: record_of("Attention", 3, softmax_precision=TensorProto.DOUBLE)),
        (AttentionFeature.WINDOW, lambda: record_of("Attention", 3, right_window_size=0)),
        (AttentionFeature.TOKENS, lambda: record_of("PackedAttention", 5, MS, num_heads=2)),
        (AttentionFeature.PAGES, lambda: record_of("PagedAttention", 8, MS, num_heads=2, kv_num_heads=2)),
        (AttentionFeature.ROTARY, lambda: record_of("Attention", 2, MS, num_heads=2, do_rotary=1)),
    ],
)
def test_what_a_node_asks_for_is_a_feature_with_words(feature: AttentionFeature, make: Callable) -> None:
    record = make()
    others = frozenset(AttentionFeature) - {feature}
    assert record.beyond(*others) == feature.value
    assert record.beyond(*AttentionFeature) is None


def test_keys_of_four_axes_are_past_their_bias() -> None:
    (node,) = typed_model(FORMS["MultiHeadAttention to the keys of another sequence"].model(is_named=True)).graph
    assert (node_attention(node).biased, node_attention(node).key.layout) == (1, Layout.HEADS)


NAMES = (
    "is_causal", "left_window_size", "local_window_size", "mask_filter_value",
    "past_present_share_buffer", "qk_matmul_output_mode", "qkv_hidden_sizes", "right_window_size",
    "smooth_softmax", "softcap", "unidirectional",
)  # fmt: skip


_ROTARY = "RotaryEmbedding, which is no attention"
READERS_OF_HEADS = {
    "ops/attribute_rules_contrib.py": _ROTARY,
    "ops/bodies/rotary.py": _ROTARY,
    "lowering/rules/attention/rotary.py": _ROTARY,
    "ort_ep_coreml/lowering/attention.py": _ROTARY,
    "ort_ep_coreml/lowering/grouped_attention.py": _ROTARY,
    "ort_ep_directml/lowering/attention.py": _ROTARY,
    "ops/infer/contrib_attention.py": "operators without a record: SparsePagedAttention, DecoderAttention",
    "kernels/preconditions/attention.py": "the attribute itself is checked, as the caller wrote it",
    "kernels/preconditions/packed.py": "an operator without a record: GatedRelativePositionBias",
}
"""Files that read ``num_heads`` and why they may."""


def _readers(names: Collection[str]) -> set[str]:
    """Return the files of all packages that read one of some attributes, as far as the packages lie here."""
    package = Path(ort_core.__file__).parent
    reads = re.compile(rf'(?:attribute|_of|whole|number|integer|real)\(\s*"(?:{"|".join(names)})"')
    folders = [package, *package.parents[2].glob("ort-ep-*/src")]
    return {
        path.as_posix()
        for each in folders
        for path in each.rglob("*.py")
        if reads.search(path.read_text(encoding="utf-8"))
    }


def test_no_other_file_reads_what_attributes_of_attention_say() -> None:
    """Who attends asks ``ops.attention_forms``."""
    found = _readers(NAMES)
    assert {name.rpartition("/")[2] for name in found} == {"attention_forms.py"}, found


def test_who_reads_the_number_of_heads_has_a_reason() -> None:
    found = {name for name in _readers(["num_heads"]) if not name.endswith("ops/attention_forms.py")}
    without = {name for name in found if not any(name.endswith(known) for known in READERS_OF_HEADS)}
    assert not without, "ask ops.attention_forms"
    own = {known for known in READERS_OF_HEADS if not known.startswith("ort_ep_")}
    assert {known for known in own if any(name.endswith(known) for name in found)} == own, "a reason that is not needed"
