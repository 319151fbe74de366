"""Whole transformers of one tiny layer, as exporters write them: what mutants of whole models begin from.

Each has the parts that its model is known for: BERT's mask of keys, GPT-2's past and tied weights, rotary positions and
repeated keys of LLaMA, T5's buckets of distances, ViT's patches, the two attentions of Whisper's decoder, and language
models whose weights are blocks of few bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

Feeds = Mapping[str, np.ndarray]
HIDDEN, HEADS, WORDS, POSITIONS, LAST = 8, 2, 11, 12, 2**31 - 1
SIZE = HIDDEN // HEADS
MASKED = -100.0  # no weight is left, and roundings of larger numbers would leave no truth
MICROSOFT = "com.microsoft"
BATCH, LENGTH, PAST = 2, 3, 2


class Builder:
    """Adds nodes one behind the other; names are those of the operators, counted."""

    def __init__(self, seed: int) -> None:
        self.numbers = np.random.default_rng(seed)
        self.nodes: list[NodeProto] = []
        self.tensors: list[TensorProto] = []
        self.inputs: list[ValueInfoProto] = []
        self.feeds: dict[str, np.ndarray] = {}
        self.outputs: dict[str, int] = {}

    def op(self, op_type: str, *inputs: str, outputs: int = 1, domain: str = "", **attributes: Any) -> Any:
        """Add a node and return the name of its output, or a list of them."""
        names = [f"{op_type.lower()}{len(self.nodes)}_{place}" for place in range(outputs)]
        self.nodes.append(helper.make_node(op_type, inputs, names, domain=domain, **attributes))
        return names[0] if outputs == 1 else names

    def constant(self, array: Any, dtype: type = np.float32) -> str:
        """Add an initializer."""
        name = f"w{len(self.tensors)}"
        self.tensors.append(numpy_helper.from_array(np.asarray(array, dtype), name))
        return name

    def integers(self, *numbers: int) -> str:
        """Add a row of int64."""
        return self.constant(numbers, np.int64)

    def weights(self, *shape: int) -> str:
        """Add an initializer of small numbers."""
        return self.constant(self.numbers.normal(0, 0.5, shape))

    def feed(self, name: str, array: Any, dims: Sequence[int | str]) -> str:
        """Add an input with what it is fed."""
        array = np.asarray(array)
        self.inputs.append(
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), list(dims))
        )
        self.feeds[name] = array
        return name

    def model(self, name: str, opset: int) -> tuple[ModelProto, Feeds]:
        """Return the model, whose outputs have open sizes of the ranks given, and its feeds."""
        info = helper.make_tensor_value_info
        outputs = [info(each, TensorProto.FLOAT, [None] * rank) for each, rank in self.outputs.items()]
        graph = helper.make_graph(self.nodes, name, self.inputs, outputs, self.tensors)
        opsets = [helper.make_opsetid("", opset)]
        if any(node.domain for node in self.nodes):
            opsets.append(helper.make_opsetid(MICROSOFT, 1))
        return helper.make_model(graph, opset_imports=opsets, ir_version=8), self.feeds

    # parts of layers --------------------------------------------------------------------------------------------------

    def ids(self, length: int = LENGTH) -> str:
        """Add the input of tokens."""
        return self.feed("ids", self.numbers.integers(0, WORDS, (BATCH, length)), ("batch", "length"))

    def linear(self, x: str, depth: int, columns: int, *, bias: bool = True) -> str:
        """Add a product with weights, and its bias."""
        made = self.op("MatMul", x, self.weights(depth, columns))
        return self.op("Add", self.weights(columns), made) if bias else made

    def layer_norm(self, x: str) -> str:
        """Add a layer norm of single nodes."""
        mean = self.op("ReduceMean", x, axes=[-1])
        centered = self.op("Sub", x, mean)
        square = self.op("Pow", centered, self.constant(2.0))
        variance = self.op("ReduceMean", square, axes=[-1])
        root = self.op("Sqrt", self.op("Add", variance, self.constant(1e-5)))
        scaled = self.op("Mul", self.op("Div", centered, root), self.weights(HIDDEN))
        return self.op("Add", scaled, self.weights(HIDDEN))

    def root_mean_square(self, x: str) -> str:
        """Add an RMS norm of single nodes."""
        square = self.op("Pow", x, self.constant(2.0))
        mean = self.op("ReduceMean", square, axes=[-1])
        root = self.op("Sqrt", self.op("Add", mean, self.constant(1e-6)))
        normal = self.op("Mul", x, self.op("Div", self.constant(1.0), root))
        return self.op("Mul", self.weights(HIDDEN), normal)

    def heads(self, x: str, count: int = HEADS, *, is_key: bool = False) -> str:
        """Add the split of rows into heads."""
        split = self.op("Reshape", x, self.integers(0, 0, count, SIZE))
        return self.op("Transpose", split, perm=[0, 2, 3, 1] if is_key else [0, 2, 1, 3])

    def joined(self, heads: str) -> str:
        """Add what puts heads side by side again."""
        return self.op("Reshape", self.op("Transpose", heads, perm=[0, 2, 1, 3]), self.integers(0, 0, HIDDEN))

    def attended(self, query: str, key: str, value: str, added: str | None = None, *, scale: bool = True) -> str:
        """Add a softmax of scores, with what is added to them, and the sum of values that it weights."""
        scores = self.op("MatMul", query, key)
        scores = self.op("Div", scores, self.constant(SIZE**0.5)) if scale else scores
        scores = scores if added is None else self.op("Add", scores, added)
        return self.joined(self.op("MatMul", self.op("Softmax", scores, axis=-1), value))

    def gelu(self, x: str) -> str:
        """Add the error function's Gelu."""
        erf = self.op("Erf", self.op("Div", x, self.constant(2**0.5)))
        product = self.op("Mul", x, self.op("Add", erf, self.constant(1.0)))
        return self.op("Mul", product, self.constant(0.5))

    def size_of(self, x: str, axis: int) -> str:
        """Add a size as a row of one number."""
        one = self.op("Gather", self.op("Shape", x), self.constant(axis, np.int64), axis=0)
        return self.op("Unsqueeze", one, self.integers(0))

    def past(self, name: str, count: int = HEADS) -> str:
        """Add the input of what earlier runs have made."""
        array = self.numbers.normal(0, 1, (BATCH, count, PAST, SIZE)).astype(np.float32)
        return self.feed(name, array, ("batch", count, "past", SIZE))


def bert() -> tuple[ModelProto, Feeds]:
    """Words, positions and segments; attention with a mask of keys; Gelu."""
    b = Builder(1)
    ids, mask = b.ids(), b.feed("mask", np.array([[1, 1, 1], [1, 1, 0]]), ("batch", "length"))
    segments = b.feed("segments", np.array([[0, 0, 1], [0, 1, 1]]), ("batch", "length"))
    positions = b.op("Slice", b.constant([range(POSITIONS)], np.int64), b.integers(0), b.size_of(ids, 1), b.integers(1))
    looked_up = [b.op("Gather", b.weights(count, HIDDEN), each) for count, each in ((WORDS, ids), (2, segments))]
    x = b.op("Add", b.op("Add", *looked_up), b.op("Gather", b.weights(POSITIONS, HIDDEN), positions))
    x = b.layer_norm(x)
    floats = b.op("Cast", b.op("Unsqueeze", mask, b.integers(1, 2)), to=TensorProto.FLOAT)
    added = b.op("Mul", b.op("Sub", b.constant(1.0), floats), b.constant(MASKED))
    query, key, value = (b.linear(x, HIDDEN, HIDDEN) for _ in range(3))
    mixed = b.attended(b.heads(query), b.heads(key, is_key=True), b.heads(value), added)
    x = b.layer_norm(b.op("Add", b.linear(mixed, HIDDEN, HIDDEN), x))
    more = b.linear(b.gelu(b.linear(x, HIDDEN, 2 * HIDDEN)), 2 * HIDDEN, HIDDEN)
    x = b.layer_norm(b.op("Add", more, x))
    first = b.op("Gather", x, b.constant(0, np.int64), axis=1)
    pooled = b.op("Tanh", b.op("Gemm", first, b.weights(HIDDEN, HIDDEN), b.weights(HIDDEN), transB=1))
    b.outputs = {x: 3, pooled: 2}
    return b.model("bert", 17)


def gpt2() -> tuple[ModelProto, Feeds]:
    """One product for query, key and value; a past; a triangle of flags; words that are the last product, too."""
    b = Builder(2)
    ids, past = b.ids(), [b.past("past_key"), b.past("past_value")]
    words = b.weights(WORDS, HIDDEN)
    before = b.size_of(past[0], 2)
    total = b.op("Add", before, b.size_of(ids, 1))
    counted = b.op("Slice", b.constant(range(POSITIONS), np.int64), before, total, b.integers(0))
    x = b.op("Add", b.op("Gather", words, ids), b.op("Gather", b.weights(POSITIONS, HIDDEN), counted))
    normal = b.layer_norm(x)
    rows = b.op("Gemm", b.op("Reshape", normal, b.integers(-1, HIDDEN)), b.weights(HIDDEN, 3 * HIDDEN), b.weights(24))
    shape = b.op("Concat", b.size_of(ids, 0), b.size_of(ids, 1), b.integers(3 * HIDDEN), axis=0)
    parts = b.op("Split", b.op("Reshape", rows, shape), outputs=3, axis=2)
    query, *new = (b.heads(each) for each in parts)
    key, value = (b.op("Concat", old, each, axis=2) for old, each in zip(past, new, strict=True))
    triangle = b.constant(np.tril(np.ones((1, 1, POSITIONS, POSITIONS))), np.bool_)
    lines = b.op("Slice", triangle, before, total, b.integers(2))
    seen = b.op("Slice", lines, b.integers(0), total, b.integers(3))
    scores = b.op("MatMul", query, b.op("Transpose", key, perm=[0, 1, 3, 2]))
    scores = b.op("Where", seen, b.op("Div", scores, b.constant(SIZE**0.5)), b.constant(-10000.0))
    mixed = b.joined(b.op("MatMul", b.op("Softmax", scores, axis=-1), value))
    x = b.op("Add", b.linear(mixed, HIDDEN, HIDDEN), x)
    inner = b.linear(b.layer_norm(x), HIDDEN, 2 * HIDDEN)
    cube = b.op("Mul", b.op("Pow", inner, b.constant(3.0)), b.constant(0.044715))
    bent = b.op("Tanh", b.op("Mul", b.op("Add", inner, cube), b.constant((2 / np.pi) ** 0.5)))
    gelu = b.op("Mul", b.op("Mul", inner, b.constant(0.5)), b.op("Add", bent, b.constant(1.0)))
    x = b.op("Add", x, b.linear(gelu, 2 * HIDDEN, HIDDEN))
    logits = b.op("MatMul", b.layer_norm(x), b.op("Transpose", words, perm=[1, 0]))
    b.outputs = {logits: 3, key: 4, value: 4}
    return b.model("gpt2", 17)


def _turned(b: Builder, x: str, cosines: str, sines: str) -> str:
    """Add rotary positions, as their halves change places."""
    half = SIZE // 2
    left = b.op("Slice", x, b.integers(0), b.integers(half), b.integers(3))
    right = b.op("Slice", x, b.integers(half), b.integers(LAST), b.integers(3))
    swapped = b.op("Concat", b.op("Neg", right), left, axis=-1)
    return b.op("Add", b.op("Mul", x, cosines), b.op("Mul", swapped, sines))


def llama() -> tuple[ModelProto, Feeds]:
    """RMS norms, rotary positions from tables, one head of keys for two of queries, a gated product."""
    b = Builder(3)
    ids, past = b.ids(), [b.past("past_key", 1), b.past("past_value", 1)]
    places = b.feed("places", np.arange(PAST, PAST + LENGTH)[None].repeat(BATCH, 0), ("batch", "length"))
    hidden = np.triu(np.full((LENGTH, PAST + LENGTH), MASKED, np.float32), PAST + 1)
    mask = b.feed("mask", hidden[None, None].repeat(BATCH, 0), ("batch", 1, "length", "total"))
    x = b.op("Gather", b.weights(WORDS, HIDDEN), ids)
    normal = b.root_mean_square(x)
    angles = np.outer(np.arange(POSITIONS), 10.0 ** -np.arange(SIZE // 2)).repeat(2, 0).reshape(POSITIONS, -1)
    turns = [
        b.op("Unsqueeze", b.op("Gather", b.constant(f(angles)), places), b.integers(1)) for f in (np.cos, np.sin)
    ]  # fmt: skip
    query = _turned(b, b.heads(b.linear(normal, HIDDEN, HIDDEN, bias=False)), *turns)
    new = [b.heads(b.linear(normal, HIDDEN, SIZE, bias=False), 1) for _ in range(2)]
    new[0] = _turned(b, new[0], *turns)
    key, value = (b.op("Concat", old, each, axis=2) for old, each in zip(past, new, strict=True))
    repeated = []
    for each in (key, value):
        wide = b.op("Unsqueeze", each, b.integers(2))
        sizes = [b.size_of(each, 0), b.integers(1, HEADS), b.size_of(each, 2), b.integers(SIZE)]
        wide = b.op("Expand", wide, b.op("Concat", *sizes, axis=0))
        repeated.append(b.op("Reshape", wide, b.integers(0, HEADS, -1, SIZE)))
    turned = b.op("Transpose", repeated[0], perm=[0, 1, 3, 2])
    x = b.op("Add", x, b.linear(b.attended(query, turned, repeated[1], mask), HIDDEN, HIDDEN, bias=False))
    normal = b.root_mean_square(x)
    gate = b.linear(normal, HIDDEN, 2 * HIDDEN, bias=False)
    gate = b.op("Mul", gate, b.op("Sigmoid", gate))
    gated = b.op("Mul", gate, b.linear(normal, HIDDEN, 2 * HIDDEN, bias=False))
    x = b.op("Add", x, b.linear(gated, 2 * HIDDEN, HIDDEN, bias=False))
    b.outputs = {b.linear(b.root_mean_square(x), HIDDEN, WORDS, bias=False): 3, key: 4, value: 4}
    return b.model("llama", 17)


def t5() -> tuple[ModelProto, Feeds]:
    """Buckets of distances choose what is added to scores that nothing scales."""
    b = Builder(4)
    x = b.op("Gather", b.weights(WORDS, HIDDEN), b.ids())
    length = b.op("Squeeze", b.size_of(x, 1), b.integers(0))
    places = b.op("Range", b.constant(0, np.int64), length, b.constant(1, np.int64))
    apart = b.op("Sub", b.op("Unsqueeze", places, b.integers(0)), b.op("Unsqueeze", places, b.integers(1)))
    behind = b.op("Cast", b.op("Greater", apart, b.constant(0, np.int64)), to=TensorProto.INT64)
    side = b.op("Mul", behind, b.constant(4, np.int64))
    far = b.op("Abs", apart)
    logarithm = b.op("Log", b.op("Div", b.op("Cast", far, to=TensorProto.FLOAT), b.constant(2.0)))
    steps = b.op("Mul", b.op("Div", logarithm, b.constant(1.3)), b.constant(2.0))
    steps = b.op("Add", b.op("Cast", steps, to=TensorProto.INT64), b.constant(2, np.int64))
    steps = b.op("Min", steps, b.op("Expand", b.constant(3, np.int64), b.op("Shape", steps)))
    bucket = b.op("Add", side, b.op("Where", b.op("Less", far, b.constant(2, np.int64)), far, steps))
    table = b.op("Transpose", b.op("Gather", b.weights(8, HEADS), bucket), perm=[2, 0, 1])
    bias = b.op("Unsqueeze", table, b.integers(0))
    normal = b.root_mean_square(x)
    query, key, value = (b.linear(normal, HIDDEN, HIDDEN, bias=False) for _ in range(3))
    mixed = b.attended(b.heads(query), b.heads(key, is_key=True), b.heads(value), bias, scale=False)
    x = b.op("Add", x, b.linear(mixed, HIDDEN, HIDDEN, bias=False))
    inner = b.op("Relu", b.linear(b.root_mean_square(x), HIDDEN, 2 * HIDDEN, bias=False))
    x = b.op("Add", x, b.linear(inner, 2 * HIDDEN, HIDDEN, bias=False))
    b.outputs = {b.op("Mul", b.root_mean_square(x), b.constant(HIDDEN**-0.5)): 3}
    return b.model("t5", 17)


def vit() -> tuple[ModelProto, Feeds]:
    """Patches by a convolution, a token in front, one packed product, whole operators for norm and Gelu."""
    b = Builder(5)
    image = b.numbers.normal(0, 1, (BATCH, 3, 4, 6)).astype(np.float32)
    pixels = b.feed("pixels", image, ("batch", 3, 4, 6))
    patches = b.op("Conv", pixels, b.weights(HIDDEN, 3, 2, 2), b.weights(HIDDEN), kernel_shape=[2, 2], strides=[2, 2])
    rows = b.op("Transpose", b.op("Reshape", patches, b.integers(0, HIDDEN, -1)), perm=[0, 2, 1])
    token = b.op("Expand", b.weights(1, 1, HIDDEN), b.op("Concat", b.size_of(pixels, 0), b.integers(1, 1), axis=0))
    x = b.op("Add", b.op("Concat", token, rows, axis=1), b.weights(1, 7, HIDDEN))
    normal = b.op("LayerNormalization", x, b.weights(HIDDEN), b.weights(HIDDEN), axis=-1, epsilon=1e-5)
    packed = b.op("Reshape", b.linear(normal, HIDDEN, 3 * HIDDEN), b.integers(0, 0, 3, HEADS, SIZE))
    packed = b.op("Transpose", packed, perm=[2, 0, 3, 1, 4])
    query, key, value = (b.op("Gather", packed, b.constant(place, np.int64), axis=0) for place in range(3))
    query = b.op("Mul", query, b.constant(SIZE**-0.5))
    mixed = b.attended(query, b.op("Transpose", key, perm=[0, 1, 3, 2]), value, scale=False)
    x = b.op("Add", x, b.linear(mixed, HIDDEN, HIDDEN))
    normal = b.op("LayerNormalization", x, b.weights(HIDDEN), b.weights(HIDDEN), axis=2)
    x = b.op("Add", x, b.linear(b.op("Gelu", b.linear(normal, HIDDEN, 2 * HIDDEN)), 2 * HIDDEN, HIDDEN))
    first = b.op("Gather", x, b.constant(0, np.int64), axis=1)
    b.outputs = {b.op("Gemm", first, b.weights(HIDDEN, 5), b.weights(5)): 2}
    return b.model("vit", 21)


def whisper() -> tuple[ModelProto, Feeds]:
    """A decoder: a past of its own, keys and values of what an encoder heard, positions behind the past."""
    b = Builder(6)
    ids, past = b.ids(), [b.past("past_key"), b.past("past_value")]
    heard = b.feed("heard", b.numbers.normal(0, 1, (BATCH, 5, HIDDEN)).astype(np.float32), ("batch", "frames", HIDDEN))
    before = b.size_of(past[0], 2)
    total = b.op("Add", before, b.size_of(ids, 1))
    places = b.op("Slice", b.weights(POSITIONS, HIDDEN), before, total, b.integers(0), b.integers(1))
    words = b.weights(WORDS, HIDDEN)
    x = b.op("Add", b.op("Gather", words, ids), places)
    normal = b.layer_norm(x)
    query = b.op("Mul", b.linear(normal, HIDDEN, HIDDEN), b.constant(SIZE**-0.5))
    new = [b.heads(b.linear(normal, HIDDEN, HIDDEN, bias=has_bias)) for has_bias in (False, True)]
    key, value = (b.op("Concat", old, each, axis=2) for old, each in zip(past, new, strict=True))
    lines = b.op("Slice", b.constant(np.triu(np.full((POSITIONS, POSITIONS), -1e4), 1)), before, total, b.integers(0))
    mask = b.op("Slice", lines, b.integers(0), total, b.integers(1))
    turned = b.op("Transpose", key, perm=[0, 1, 3, 2])
    x = b.op("Add", x, b.linear(b.attended(b.heads(query), turned, value, mask, scale=False), HIDDEN, HIDDEN))
    query = b.op("Mul", b.linear(b.layer_norm(x), HIDDEN, HIDDEN), b.constant(SIZE**-0.5))
    keys, values = b.linear(heard, HIDDEN, HIDDEN, bias=False), b.linear(heard, HIDDEN, HIDDEN)
    mixed = b.attended(b.heads(query), b.heads(keys, is_key=True), b.heads(values), scale=False)
    x = b.op("Add", x, b.linear(mixed, HIDDEN, HIDDEN))
    x = b.op("Add", x, b.linear(b.gelu(b.linear(b.layer_norm(x), HIDDEN, 2 * HIDDEN)), 2 * HIDDEN, HIDDEN))
    b.outputs = {b.op("MatMul", b.layer_norm(x), b.op("Transpose", words, perm=[1, 0])): 3, key: 4, value: 4}
    return b.model("whisper", 17)


def _blocks(b: Builder, x: str, depth: int, columns: int, bits: int = 4, *, points: bool = True) -> str:
    """Add a product with weights in blocks of 16."""
    blocks = depth // 16
    weights = b.constant(b.numbers.integers(0, 256, (columns, blocks, 2 * bits)), np.uint8)
    inputs = [x, weights, b.constant(b.numbers.uniform(0.01, 0.1, (columns, blocks)))]
    if points:
        packed = (blocks * bits + 7) // 8
        inputs.append(b.constant(b.numbers.integers(0, 256, (columns, packed)), np.uint8))
    given = {"K": depth, "N": columns, "bits": bits, "block_size": 16}
    return b.op("MatMulNBits", *inputs, domain=MICROSOFT, **given)


def _row_norm(b: Builder, x: str, width: int) -> str:
    return b.op("SimplifiedLayerNormalization", x, b.weights(width), axis=-1, epsilon=1e-5)


def generating() -> tuple[ModelProto, Feeds]:
    """As builders of language models write: looked-up blocks, one attention operator, products of blocks."""
    b, width, heads, size = Builder(7), 32, 2, 16
    ids = b.ids(1)
    table = b.constant(b.numbers.integers(0, 256, (WORDS, width // 2)), np.uint8)
    scales, points = (b.constant(b.numbers.uniform(0.05, 0.2, (WORDS, 2))), b.constant([[0x8C]] * WORDS, np.uint8))
    given = {"block_size": 16, "bits": 4, "quantize_axis": 1, "gather_axis": 0}
    x = b.op("GatherBlockQuantized", table, ids, scales, points, domain=MICROSOFT, **given)
    mask = b.feed("mask", np.ones((BATCH, PAST + 1), np.int64), ("batch", "total"))
    dims = ("batch", 1, "past", size)
    past = [
        b.feed(name, b.numbers.normal(0, 1, (BATCH, 1, PAST, size)).astype(np.float32), dims)
        for name in ("past_key", "past_value")
    ]
    ends = b.op("Cast", b.op("Sub", b.op("ReduceSum", mask, b.integers(1), keepdims=0), b.integers(1)), to=6)
    total = b.op("Cast", b.op("Gather", b.op("Shape", mask), b.constant(1, np.int64)), to=TensorProto.INT32)
    normal = _row_norm(b, x, width)
    query, key, value = (_blocks(b, normal, width, columns) for columns in (width, size, size))
    angles = np.outer(np.arange(POSITIONS), 10.0 ** -np.linspace(0, 2, size // 2))
    turns = [b.constant(f(angles)) for f in (np.cos, np.sin)]
    mixed, *present = b.op(
        "GroupQueryAttention", query, key, value, *past, ends, total, *turns, outputs=3, domain=MICROSOFT,
        num_heads=heads, kv_num_heads=1, do_rotary=1,
    )  # fmt: skip
    out = _blocks(b, mixed, width, width, points=False)
    normal, _, _, x = b.op(
        "SkipSimplifiedLayerNormalization", x, out, b.weights(width), outputs=4, domain=MICROSOFT, epsilon=1e-5
    )  # fmt: skip
    gate, up = _blocks(b, normal, width, 2 * width), _blocks(b, normal, width, 2 * width, 8)
    gated = b.op("Mul", b.op("Mul", gate, b.op("Sigmoid", gate)), up)
    x = b.op("Add", x, _blocks(b, gated, 2 * width, width))
    last = b.op("Gather", _row_norm(b, x, width), b.constant(-1, np.int64), axis=1)
    b.outputs = {_blocks(b, last, width, WORDS): 2, present[0]: 4, present[1]: 4}
    return b.model("generating", 21)


TRANSFORMERS: Mapping[str, Callable[[], tuple[ModelProto, Feeds]]] = {
    each.__name__: each for each in (bert, gpt2, llama, t5, vit, whisper, generating)
}
