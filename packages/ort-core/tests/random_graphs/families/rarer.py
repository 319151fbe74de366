"""Operators that no other family draws: of images, signals, texts and maps, and com.microsoft's smaller ones."""

from __future__ import annotations

import numpy as np
from onnx import helper

from random_graphs import element_types as et
from random_graphs.families.images import image, window
from random_graphs.families.operands import fixed
from random_graphs.family import family
from random_graphs.writer import GraphWriter, Refused, Value

MICROSOFT = "com.microsoft"


@family()
def deformed_convolution(g: GraphWriter) -> Value:
    if g.opset < 19:
        raise Refused("a newer operator")
    value = g.pick(et.F32, rank=4, filled=True)
    batch, channels, height, width = value.sizes(0, 1, 2, 3)
    kernel, count = g.choice(((1, 1), (2, 2), (3, 2))), g.choice((1, 3))
    pads = [g.choice((0, 1)) for _ in range(2)] * 2
    place = (height + 2 * pads[0] - kernel[0] + 1, width + 2 * pads[1] - kernel[1] + 1)
    if min(place) < 1 or batch * place[0] * place[1] > 4000:
        raise Refused("windows find no place, or too many")
    taps = kernel[0] * kernel[1]
    weights = g.weights(et.F32, count, channels, *kernel, low=-0.3, high=0.3)
    offset_group = 2 if channels % 2 == 0 and g.chance(0.3) else 1
    offsets = g.constant(g.numbers_of(et.F32, (batch, offset_group * 2 * taps, *place)))
    bias = g.weights(et.F32, count) if g.chance(0.5) else None
    mask = g.constant(g.numbers_of(et.F32, (batch, offset_group * taps, *place))) if g.chance(0.5) else None
    inputs = [value, weights, offsets, bias, mask]
    return g.node("DeformConv", inputs, kernel_shape=kernel, pads=pads, offset_group=offset_group)


@family()
def unpooled(g: GraphWriter) -> Value:
    if g.opset < 8:
        raise Refused("MaxPool gives no places yet")
    value = g.pick(et.F32, rank=4, filled=True)
    step = g.choice((1, 2))
    pooled, places = g.node("MaxPool", [value], 2, kernel_shape=[step, step], strides=[step, step])
    return g.node("MaxUnpool", [pooled, places], kernel_shape=[step, step], strides=[step, step])


@family()
def largest_of_regions(g: GraphWriter) -> Value:
    value = g.pick(et.F32, rank=4, filled=True)
    count, batch = g.choice((1, 3)), value.size(0)
    corners = g.numbers.integers(0, 3, (count, 2))
    owners = g.numbers.integers(0, batch, (count, 1))
    boxes = np.concatenate([owners, corners, corners + g.numbers.integers(0, 4, (count, 2))], 1)
    return g.node("MaxRoiPool", [value, g.constant(boxes, et.F32)], pooled_shape=[g.choice((1, 2)), 2])


@family()
def short_time_transform(g: GraphWriter) -> Value:
    if g.opset < 17:
        raise Refused("a newer operator")
    value = g.pick(et.F32, rank=2, filled=True)
    length = value.size(1)
    size = g.choice([n for n in (2, 3, 4, 8) if n <= length])
    signal = g.node("Unsqueeze", [value, g.constant(fixed([-1]))])
    step = g.constant(np.asarray(g.choice((1, 2, 3)), np.int64))
    framed = g.constant(g.numbers.uniform(0.1, 1, size), et.F32)
    given = {"onesided": g.choice((0, 1))}
    if g.chance(0.5):
        return g.node("STFT", [signal, step, framed], **given)
    return g.node("STFT", [signal, step, None, g.constant(np.asarray(size, np.int64))], **given)


@family()
def bands(g: GraphWriter) -> Value:
    if g.opset < 17:
        raise Refused("a newer operator")
    numbers = [g.constant(np.asarray(n, np.int64)) for n in (g.choice((2, 5, 8)), g.choice((16, 64)), 8000)]
    limits = [g.constant(x, et.F32) for x in (0.0, g.choice((2000.0, 4000.0)))]
    return g.node("MelWeightMatrix", [*numbers, *limits])


@family(2)
def scattered(g: GraphWriter) -> Value:
    """Scatter of opsets 9 and 10."""
    if not 9 <= g.opset <= 10:
        raise Refused("another name")
    value = g.pick(et.F32, et.I64, least=1, filled=True)
    axis = g.random.randrange(value.rank)
    size = value.size(axis)
    shape = [1 if i != axis else g.random.randint(1, size) for i in range(value.rank)]
    places = g.numbers.permutation(size)[: shape[axis]].reshape(shape)
    updates = g.constant(g.numbers_of(value.dtype, shape))
    return g.node("Scatter", [value, g.constant(places.astype(np.int64)), updates], axis=axis)


@family(2)
def upsampled(g: GraphWriter) -> Value:
    """Upsample of opsets 7 to 9."""
    if not 7 <= g.opset <= 9:
        raise Refused("another name")
    value = g.pick(et.F32, rank=4, filled=True)
    scales = [1.0, 1.0, g.choice((1.0, 2.0, 3.0)), g.choice((1.0, 2.0, 1.5))]
    mode = g.choice(("nearest", "linear"))
    if g.opset < 9:
        return g.node("Upsample", [value], scales=scales, mode=mode)
    return g.node("Upsample", [value, g.constant(scales, et.F32)], mode=mode)


@family()
def split_texts(g: GraphWriter) -> list[Value]:
    if g.opset < 20:
        raise Refused("a newer operator")
    value = g.pick(et.TEXT)
    return g.node("StringSplit", [value], 2, delimiter=g.choice((" ", "b", None)), maxsplit=g.choice((None, 1, 2)))


@family()
def counted_grams(g: GraphWriter) -> Value:
    value = g.pick(et.I64, et.I32, least=1, most=2, filled=True)
    return g.node(
        "TfIdfVectorizer", [value], mode=g.choice(("TF", "IDF", "TFIDF")), min_gram_length=g.choice((1, 2)),
        max_gram_length=2, max_skip_count=g.choice((0, 1, 5)), ngram_counts=[0, 4], ngram_indexes=[0, 1, 2, 3, 4, 5],
        pool_int64s=[0, 1, -2, 5, 1, 1, 2, -3], weights=g.choice((None, [1.0, 2.0, 0.5, 1.0, 3.0, 0.25])),
    )  # fmt: skip


@family()
def mapped_sequence(g: GraphWriter) -> Value:
    """SequenceMap: a body over the items of a sequence."""
    if g.opset < 17 or g.outer is not None:
        raise Refused("a newer operator, of graphs only")
    value = g.pick(et.F32, least=1, filled=True)
    made = g.node("SequenceConstruct", [value] * g.choice((1, 2, 3)))
    body = g.body()
    item = body.formal(value.samples)
    changed = body.node(g.choice(("Tanh", "Neg", "Abs", "Relu")), [item])
    mapped = g.node("SequenceMap", [made], body=body.as_body("item", [changed]))
    return g.node("ConcatFromSequence", [mapped], axis=0)


@family()
def masked_step(g: GraphWriter) -> list[Value]:
    """DecoderMaskedMultiHeadAttention and MultiHeadAttention: one position behind a cache that has room for more."""
    batch, heads, size = g.choice((1, 2, 3)), g.choice((1, 2)), g.choice((4, 8))
    room, past = g.choice((4, 9)), g.choice((0, 1, 3))
    parts = [g.weights(et.F32, batch, 1, heads * size) for _ in range(3)]
    parts[0] = g.node("Add", [parts[0], parts[1]])
    give = g.given if g.outer is None and g.chance(0.7) else g.constant
    caches = [give(g.numbers_of(et.F32, (batch, heads, room, size))) for _ in range(2)]
    length = give(np.asarray([past], np.int32))
    bias = g.weights(et.F32, 3 * heads * size) if g.chance(0.3) else None
    if g.chance(0.3):
        operands = [*parts, bias, None, None, *caches, length]
        return g.node("MultiHeadAttention", operands, 3, domain=MICROSOFT, num_heads=heads)
    more = [] if bias is None else [None, None, bias]
    return g.node(
        "DecoderMaskedMultiHeadAttention", [*parts, None, None, *caches, length, *more], 3, domain=MICROSOFT,
        num_heads=heads, scale=g.choice((None, 0.3)), past_present_share_buffer=1,
    )  # fmt: skip


@family()
def transposed_with_pads(g: GraphWriter) -> Value:
    value = image(g, et.F32, least=4, most=4)
    kernel, given = window(g, value, pool=True)
    for name in ("pads", "auto_pad", "dilations"):
        given.pop(name, None)
    weights = g.weights(et.F32, value.size(1), g.choice((1, 3, 8)), *kernel, low=-0.3, high=0.3)
    pads = g.constant(fixed([g.random.randrange(k) for k in kernel] * 2))
    return g.node("ConvTransposeWithDynamicPads", [value, weights, pads], domain=MICROSOFT, **given)


@family()
def cropped(g: GraphWriter) -> Value:
    value = g.pick(et.F32, rank=4, filled=True)
    count, batch = g.choice((1, 3)), value.size(0)
    corners = g.numbers.uniform(0.02, 0.6, (count, 2))
    boxes = g.constant(np.concatenate([corners, corners + g.numbers.uniform(0.05, 0.3, (count, 2))], 1), et.F32)
    owners = g.constant(g.numbers.integers(0, batch, count).astype(np.int32))
    size = g.constant(np.asarray([g.choice((2, 3)), g.choice((2, 5))], np.int32))
    return g.node("CropAndResize", [value, boxes, owners, size], domain=MICROSOFT, mode="bilinear")


@family()
def repeats_forbidden(g: GraphWriter) -> Value:
    rows, length, words = g.choice((1, 3)), g.choice((2, 4, 9)), g.choice((4, 9))
    ids = g.constant(g.numbers.integers(0, words, (rows, length)).astype(np.int64))
    return g.node(
        "NGramRepeatBlock", [ids, g.weights(et.F32, rows, words)], domain=MICROSOFT, ngram_size=g.choice((1, 2, 3))
    )


@family()
def words_of_characters(g: GraphWriter) -> Value:
    characters, depth, wide, words = g.choice((9, 12)), g.choice((2, 3)), g.choice((1, 2, 3)), g.choice((1, 4))
    ids = g.constant(g.numbers.integers(1, characters, (words, g.choice((4, 6)))).astype(np.int32))
    filters = g.choice((1, 5))
    weights = g.weights(et.F32, filters, 1, wide, depth)
    table = g.weights(et.F32, characters, depth)
    return g.node(
        "WordConvEmbedding", [ids, weights, g.weights(et.F32, filters), table], domain=MICROSOFT,
        embedding_size=filters, conv_window_size=wide, char_embedding_size=depth,
    )  # fmt: skip


@family()
def quantized_embeddings(g: GraphWriter) -> Value:
    batch, length, words, depth = g.choice((1, 2)), g.choice((1, 4)), 9, g.choice((4, 16, 17))
    ids = g.constant(g.numbers.integers(0, words, (batch, length)).astype(np.int32))
    kind = g.choice((et.U8, et.I8))

    def table(*shape: int) -> Value:
        low = 0 if kind is et.U8 else -128
        return g.constant(g.numbers.integers(low, low + 256, shape), kind)

    tables = [table(words, depth), table(8, depth), None, table(depth), table(depth)]
    scales = [g.constant(g.numbers.uniform(0.01, 0.05), et.F32) if t is not None else None for t in tables]
    zeros = [g.constant(np.asarray(g.choice((0, 3, 100))), kind) if t is not None else None for t in tables]
    return g.node(
        "QEmbedLayerNormalization", [ids, None, *tables, None, *scales, *zeros], 2, domain=MICROSOFT, epsilon=1e-5
    )[0]


@family()
def tokens(g: GraphWriter) -> Value:
    value = g.pick(et.TEXT, least=1, most=2, filled=True)
    return g.node(
        "Tokenizer", [value], domain=MICROSOFT, mark=g.choice((0, 1)), mincharnum=1, pad_value="#",
        **g.choice(({"separators": [" "]}, {"separators": [""]}, {"tokenexp": "[a-z]+"})),
    )  # fmt: skip


@family()
def numbers_by_name(g: GraphWriter) -> Value:
    """What is a map only within: names of labels, looked up."""
    if g.half is not None:
        raise Refused("it makes float32")
    value = g.pick(et.TEXT)
    return g.node(
        "LabelEncoder", [value], domain="ai.onnx.ml", keys_strings=["a", "", "B"], values_floats=[0.5, 2.0, -1.0],
        default_float=g.choice((-7.0, 0.0)),
    )  # fmt: skip


@family()
def of_channels_last(g: GraphWriter) -> Value:
    value = g.node("Cast", [g.pick(et.F32, rank=4, filled=True)], to=et.F16.onnx)
    kernel, channels = g.choice(((1, 1), (2, 3), (3, 3))), value.size(3)
    weights = g.weights(et.F16, g.choice((1, 4, 17)), channels, *kernel, low=-0.3, high=0.3)
    return g.node(
        "NhwcFusedConv", [value, weights], domain=MICROSOFT, activation=g.choice(("Relu", "Tanh")), pads=[1, 1, 1, 1],
        kernel_shape=kernel,
    )  # fmt: skip


@family()
def told_apart(g: GraphWriter) -> Value:
    """An optional of a sequence, and what it holds."""
    if g.opset < 18:
        raise Refused("optionals are read later")
    value = g.pick(et.F32, et.I64, least=1)
    made = g.node("SequenceConstruct", [value, value])
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(value.dtype.onnx, None))
    held = g.node("Optional", [made], type=None if g.chance(0.7) else kind)
    return g.node("SequenceAt", [g.node("OptionalGetElement", [held]), g.constant(np.asarray(1, np.int64))])
