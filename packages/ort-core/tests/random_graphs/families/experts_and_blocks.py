"""Attention by blocks and by subgraphs, experts of integers, trees of ai.onnx.ml 5, probabilities by name."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import helper, numpy_helper

from random_graphs import element_types as et
from random_graphs.families.attention import projected, sequence
from random_graphs.families.machine_learning import rows
from random_graphs.families.operands import fixed, lowest
from random_graphs.family import family
from random_graphs.triples import exact
from random_graphs.writer import GraphWriter, Refused, Value

MICROSOFT = "com.microsoft"


def split_heads(g: GraphWriter, value: Value, heads: int, size: int) -> Value:
    """Return rows of heads as (batch, heads, length, size)."""
    shaped = g.node("Reshape", [value, g.constant(np.array([0, 0, heads, size], np.int64))])
    return g.node("Transpose", [shaped], perm=[0, 2, 1, 3])


@family(2)
def flexible(g: GraphWriter) -> Value:
    """FlexAttention, whose scores and weights small graphs change."""
    if g.opset < 26:
        raise Refused("a newer operator")
    value = sequence(g, et.F32)
    heads, size = g.choice((1, 2)), g.choice((4, 8))
    operands = [split_heads(g, projected(g, value, heads * size), heads, size) for _ in range(3)]
    scores = [np.zeros((s[0], heads, s[1], s[1])) for s in value.shapes]
    given: dict[str, Any] = {"scale": g.choice((None, 0.3))}
    if g.chance(0.6):
        given["score_mod"] = _change(g, scores, ("Tanh", "Neg", "Abs"))
    if g.chance(0.4):
        given["prob_mod"] = _change(g, scores, ("Sqrt", "Neg", "Identity"))
    return g.node("FlexAttention", operands, domain="ai.onnx.preview", **given)


def _change(g: GraphWriter, scores: list[np.ndarray], op_types: tuple[str, ...]) -> Any:
    """Return a graph from scores to scores."""
    if g.outer is not None:
        raise Refused("bodies are nested enough")
    body = g.body()
    before = body.formal([exact(each.astype(np.float32)) for each in scores])
    changed = body.node(g.choice(op_types), [before])
    if g.chance(0.5):
        changed = body.node("Mul", [changed, body.constant(np.float32(g.choice((0.5, 2.0))))])
    return body.as_body("change", [changed])


@family()
def sparse(g: GraphWriter) -> Value:
    """A prompt of SparseAttention: each head sees some blocks of the keys before, its own among them."""
    value = sequence(g, et.F32)
    batch, length = value.sizes(0, 1)
    groups, size, block = g.choice((1, 2)), g.choice((8, 16)), 16
    heads = groups * g.choice((1, 2))
    query = projected(g, value, heads * size)
    key, content = (projected(g, value, groups * size) for _ in range(2))
    blocks = -(-length // block)
    table = [sorted({row, *(g.random.randrange(row + 1) for _ in range(2))}) for row in range(blocks)]
    ends = np.cumsum([0, *(len(each) for each in table)])
    columns = [column for each in table for column in each]
    caches = [g.constant(np.zeros((batch, groups, blocks * block, size), np.float32)) for _ in range(2)]
    layout = [g.constant(np.asarray(each, np.int32)[None]) for each in (ends, columns)]
    lengths = [g.constant(np.asarray(length, np.int32)), g.constant(np.full(batch, length, np.int32))]
    return g.node(
        "SparseAttention", [query, key, content, *caches, *layout, *lengths], 3, domain=MICROSOFT, num_heads=heads,
        kv_num_heads=groups, sparse_block_size=block, scale=g.choice((0.3, 0.25)),
    )[0]  # fmt: skip


@family(2)
def integer_experts(g: GraphWriter) -> Value:
    """QMoE: experts of 4 or 8 bits, with a scale for each row, or for each block of it."""
    value = g.pick(et.F32, et.F16, rank=2, filled=True)
    hidden, inner, experts = g.choice((16, 32)), g.choice((16, 32)), g.choice((2, 4))
    bits = g.choice((4, 8))
    block = g.choice((0, 0, 16))
    tokens = g.node("MatMul", [value, g.weights(value.dtype, value.size(1), hidden)])
    scores = g.node("MatMul", [value, g.weights(value.dtype, value.size(1), experts)])

    def weights(outputs: int, depth: int) -> list[Value]:
        packed = g.numbers.integers(0, 256, (experts, outputs, depth * bits // 8)).astype(np.uint8)
        shape = (experts, outputs) if not block else (experts, outputs, depth // block)
        largest = 0.2 if bits == 4 else 0.02
        return [
            g.constant(packed),
            g.constant(g.numbers_of(value.dtype, shape, lowest(g, largest / 4, largest), largest)),
        ]

    kind = g.choice(("relu", "gelu", "silu", "identity", "swiglu"))
    columns = 2 * inner if kind == "swiglu" else inner  # gates and what they open, side by side
    more = {} if kind != "swiglu" else {
        "swiglu_fusion": 1, "swiglu_limit": g.choice((None, 0.5, 7.0)), "activation_alpha": g.choice((None, 1.702)),
        "activation_beta": g.choice((None, 1.0)),
    }  # fmt: skip
    if g.chance(0.2):
        more |= {"fc1_expert_weight_bits": bits, "fc2_expert_weight_bits": bits, "fc3_expert_weight_bits": bits}
    first, second = weights(columns, hidden), weights(hidden, inner)
    sizes = (columns, hidden)
    biases = [g.constant(g.numbers_of(value.dtype, (experts, n))) if g.chance(0.4) else None for n in sizes]
    return g.node(
        "QMoE", [tokens, scores, *first, biases[0], *second, biases[1]], domain=MICROSOFT, k=g.choice((1, 2)),
        expert_weight_bits=bits, block_size=block or None, normalize_routing_weights=g.choice((0, 1)),
        activation_type=kind, **more,
    )  # fmt: skip


@family(3)
def chosen_matrices(g: GraphWriter) -> Value:
    """Each row has the matrix that its index chooses from a constant stack, as exporters write layers of experts."""
    rows, depth, outputs, count = g.pick(et.F32, rank=2, filled=True), 32, g.choice((32, 40, 72)), g.choice((1, 3, 9))
    value = projected(g, rows, depth)
    zero, one = g.constant(np.int64(0)), g.constant(np.int64(1))
    length = g.node("Gather", [g.node("Shape", [rows]), zero], axis=0)
    ids = g.node("Mod", [g.node("Range", [zero, length, one]), g.constant(np.int64(count))])
    if g.chance(0.3):
        ids = g.node("Sub", [ids, g.constant(np.int64(count))])
    if g.chance(0.2):
        ids = g.node("Cast", [ids], to=et.I32.onnx)
    by_tuples, is_left, is_turned = g.chance(0.3), g.chance(0.5), g.chance(0.3)
    is_wide = is_left == is_turned  # (depth, outputs) in memory
    stack = g.weights(et.F32, count, *((depth, outputs) if is_wide else (outputs, depth)), low=-0.2, high=0.2)
    if by_tuples and ids.dtype is et.I64:
        last = g.constant(fixed([-1]))
        chosen = g.node("GatherND", [stack, g.node("Unsqueeze", [ids, last])])
    else:
        chosen = g.node("Gather", [stack, ids], axis=0)
    if is_turned:
        chosen = g.node("Transpose", [chosen], perm=[0, 2, 1])
    axis = g.constant(fixed([2 if is_left else 1]))
    vectors = g.node("Unsqueeze", [value, axis])
    summed = g.node("MatMul", [chosen, vectors] if is_left else [vectors, chosen])
    return g.node("Squeeze", [summed, axis])


@family(3, in_bodies=False)
def trees(g: GraphWriter) -> Value:
    """TreeEnsemble: one operator for regressors and classifiers, of version 5."""
    if g.ml_version < 5 or g.half is not None:
        raise Refused("a newer operator, whose splits are float32 here")
    value, targets = rows(g, et.F32), g.choice((1, 2, 3))
    inner: dict[str, list[int]] = {
        f"nodes_{name}": [] for name in ("featureids", "truenodeids", "trueleafs", "falsenodeids", "falseleafs")
    }
    roots, leaves = [], 0
    for _ in range(g.choice((1, 3, 9))):
        depth, first = g.choice((1, 1, 2, 3)), len(inner["nodes_featureids"])
        roots.append(first)
        count = 2**depth - 1
        for node in range(count):
            inner["nodes_featureids"].append(g.random.randrange(value.size(1)))
            for side, child in (("true", 2 * node + 1), ("false", 2 * node + 2)):
                is_leaf = child >= count
                inner[f"nodes_{side}leafs"].append(int(is_leaf))
                inner[f"nodes_{side}nodeids"].append(leaves + child - count if is_leaf else first + child)
        leaves += count + 1
    number = len(inner["nodes_featureids"])
    tensors = {
        "nodes_splits": g.numbers.uniform(-1, 1, number).astype(np.float32),
        "nodes_modes": np.full(number, g.choice((0, 0, 1, 2, 3)), np.uint8),
        "leaf_weights": g.numbers.uniform(-1, 1, leaves).astype(np.float32),
    }
    return g.node(
        "TreeEnsemble", [value], domain="ai.onnx.ml", **inner, tree_roots=roots, n_targets=targets,
        leaf_targetids=[g.random.randrange(targets) for _ in range(leaves)], aggregate_function=g.choice((0, 1, 2, 3)),
        post_transform=g.choice((0, 0, 1)), **{name: numpy_helper.from_array(x, name) for name, x in tensors.items()},
    )  # fmt: skip


@family(in_bodies=False)
def by_name(g: GraphWriter) -> Value:
    """ZipMap, whose result is an output of the graph: nothing else reads it."""
    value = rows(g)
    count = value.size(1)
    labels = [f"label{i}" for i in range(count)] if g.chance(0.5) else list(range(3, 3 + count))
    name = "classlabels_strings" if isinstance(labels[0], str) else "classlabels_int64s"
    made = g.node("ZipMap", [value], domain="ai.onnx.ml", **{name: labels})
    key = helper.TensorProto.STRING if isinstance(labels[0], str) else helper.TensorProto.INT64
    element = helper.make_map_type_proto(key, helper.make_tensor_type_proto(helper.TensorProto.FLOAT, []))
    g.declared[made.name] = helper.make_value_info(made.name, helper.make_sequence_type_proto(element))
    g.only_outputs.append(made)
    return value
