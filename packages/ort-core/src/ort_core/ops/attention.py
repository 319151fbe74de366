"""Attention: one record for all of its operators of where its parts lie and what they mean.

Every form computes ``softmax(cap(factor * Q K') + masks) V`` over heads. What differs is where queries, keys and values
come from, what lies before them in a cache, and what changes the scores. Inference, kernels, compiled code and
providers read the record and not the attributes. Sizes may be numbers, symbolic, or not known; parts are named by the
number of the input that holds them, ``None`` where there is none. ``attention_forms`` makes records of nodes.
"""

from __future__ import annotations

import math
from enum import Enum

from ort_core.frozen import frozen
from ort_core.ir.dims import Dim
from ort_core.ops.shape_arithmetic import add_dims

DEFAULT_FILTER = -10000.0  # onnxruntime's; finite, so that a row that is masked as a whole stays defined


class Layout(Enum):
    """How heads lie in a tensor. An operator over packed tokens has one axis in place of batch and length."""

    HEADS = "[batch, heads, length, size]"
    ROWS = "[batch, length, columns], of which ``heads * size`` columns are meant"
    PARTS = "[batch, length, heads, parts, size], of which one part is meant"


class Growth(Enum):
    """What becomes of a cache."""

    APPENDED = "new rows follow those that are there"
    BUFFER = "new rows are written at the start that an input says, the same for the whole batch"
    FILLED = "new rows are written behind the length of each entry of the batch; it grows where it is too short"
    PAGED = "new rows are written into blocks of rows that a table names for each sequence"


class ScoreStage(Enum):
    """What is given as scores; the number is ``qk_matmul_output_mode``."""

    RAW = 0
    CAPPED = 1
    MASKED = 2
    WEIGHTS = 3


class AttentionFeature(Enum):
    """What not everyone who attends can do, in words that follow "attention with"."""

    PACKED = "packed queries, keys and values"
    BIAS = "a bias of its projections"
    MASK = "a mask"
    PADDING = "a padding mask"
    PAST = "a past"
    BUFFER = "a buffer that past and present share"
    TOKENS = "sequences packed one behind the other"
    PAGES = "caches of blocks"
    PRESENT = "keys and values as outputs"
    LENGTHS = "lengths of sequences"
    CAUSAL = "a causal mask"
    WINDOW = "a window"
    SOFTCAP = "a bound of the scores"
    ROTARY = "a rotary embedding"
    POSITIONS = "positions for its rotary embedding"
    SINK = "sinks"
    SMOOTH = "a smooth softmax"
    NORMALIZED = "normalized heads"
    QUANTIZED = "quantized caches"
    SLIDING = "a cache that slides"
    BEAMS = "beams"
    SCORES = "its scores as output"
    DOUBLE = "a softmax in float64"


@frozen
class HeadSource:
    """Where queries, keys or values come from.

    Attributes:
        input: the number of the input; ``None``: the product of the projection.
        layout: ``None`` where the input is absent, or its rank is not known or impossible.
        batch: entries of the batch.
        heads: of this operand.
        length: rows that are new, of each entry of the batch.
        size: of a head.
        first: the first column of ``ROWS``, the part of ``PARTS``.
        is_part: whether rows have columns of others, too.
    """

    input: int | None
    layout: Layout | None
    batch: Dim
    heads: Dim
    length: Dim
    size: Dim
    first: Dim = 0
    is_part: bool = False


@frozen
class Projection:
    """The product that makes queries, keys and values of one input.

    ``widths`` are their columns, one behind the other. Of bytes, ``scales`` and ``zero_points`` name those of the input
    and of the weights; the latter may be absent.
    """

    input: int
    weights: int
    bias: int | None
    widths: tuple[Dim, Dim, Dim]
    scales: tuple[int, int] | None = None
    zero_points: tuple[int, int] | None = None


@frozen
class Cache:
    """Keys and values of before.

    Attributes:
        key: the input.
        value: the input.
        is_one_tensor: whether keys and values lie in one tensor [2, batch, heads, length, size], as output, too.
        rows: of the cache.
        growth: where new rows go.
        start: the input that says how many rows of a buffer are before the new ones.
    """

    key: int | None
    value: int | None
    is_one_tensor: bool
    rows: Dim
    growth: Growth = Growth.APPENDED
    start: int | None = None


@frozen
class Lengths:
    """The input that says how many keys count for each entry of the batch: its elements and ``rest``."""

    input: int
    rest: int = 0
    total: int | None = None


@frozen
class PackedTokens:
    """Sequences without padding, one behind the other: where each token lies, and where the sequences end."""

    offsets: int
    ends: int


@frozen
class Pages:
    """Inputs that say where sequences of packed tokens end, and where their keys and values lie in caches of blocks.

    Attributes:
        ends: where each sequence begins among the tokens, and where the last one ends.
        past: how many keys each sequence has before its new tokens.
        table: the blocks of each sequence, in order.
        slots: the row of the caches that each token is written to; -1: none. ``None``: as the table has it.
    """

    ends: int
    past: int
    table: int
    slots: int | None = None


@frozen
class Rotary:
    """How queries and keys are turned by their positions.

    ``cos`` and ``sin`` are inputs (``None``: the usual frequencies), ``positions`` is one (``None``: behind the past),
    ``size`` is how many elements of a head turn (0: as many as there are angles for).
    """

    cos: int | None = None
    sin: int | None = None
    positions: int | None = None
    is_interleaved: bool = False
    size: int = 0


@frozen
class HeadNorms:
    """Weights by which heads of queries and of keys are normalized, and the epsilons of both."""

    query: int
    key: int
    epsilons: tuple[float, float]


@frozen
class QuantizedCache:
    """Inputs with the scales of keys and values in the cache, how they are grouped, and the bits of an element."""

    scales: tuple[int | None, int | None]
    kinds: tuple[str, str]
    bits: int


@frozen
class AttentionRecord:
    """What a node attends with.

    Attributes:
        query: where queries come from.
        key: where new keys come from.
        value: where new values come from.
        width: of the result, all heads together.
        scale: the factor of the scores as it is stated; ``None``: one by the root of the size of a head.
        projection: what makes queries, keys and values; ``None`` where they are given.
        bias: added to queries, keys and values; see ``biased``.
        mask: an addend for the scores, or booleans that say which count.
        is_mask_padded: whether a mask of fewer keys forbids the rest.
        padding: positive where a key counts, in any of com.microsoft's forms.
        filtered: what is added where the padding forbids.
        is_causal: whether queries do not see keys behind their own place.
        last_sees_all: whether the last query sees all keys, although it is causal.
        left: how many keys before its own place a query sees; ``None``: all.
        right: how many keys behind its own place a query that is not causal sees; ``None``: all.
        cache: keys and values of before; ``None``: they are never given.
        lengths: how many keys count.
        tokens: says where sequences lie that are packed one behind the other; lengths are then of all, batches unknown.
        pages: says the same of sequences whose caches are blocks.
        softcap: the bound of the scores; 0: none.
        is_double: whether the softmax is computed in float64.
        is_hidden_nan: whether a query whose scores are all minus infinity has no number as result; else zeros.
        scores: what the output of scores shows; ``None`` where it is not asked for.
        rotary: turns queries and keys.
        norms: of heads.
        sink: one more score for each head.
        has_zero_sink: whether there is a score of 0 in place of a sink.
        slides: whether the cache keeps the last keys only.
        quantized: how the cache is quantized.
        beams: the input with the beam of each row of the cache.
        beam_width: the input that says how many beams there are.
    """

    query: HeadSource
    key: HeadSource
    value: HeadSource
    width: Dim
    scale: float | None
    projection: Projection | None = None
    bias: int | None = None
    mask: int | None = None
    is_mask_padded: bool = False
    padding: int | None = None
    filtered: float = DEFAULT_FILTER
    is_causal: bool = False
    last_sees_all: bool = False
    left: int | None = None
    right: int | None = None
    cache: Cache | None = None
    lengths: Lengths | None = None
    tokens: PackedTokens | None = None
    pages: Pages | None = None
    softcap: float = 0.0
    is_double: bool = False
    is_hidden_nan: bool = False
    scores: ScoreStage | None = None
    rotary: Rotary | None = None
    norms: HeadNorms | None = None
    sink: int | None = None
    has_zero_sink: bool = False
    slides: bool = False
    quantized: QuantizedCache | None = None
    beams: int | None = None
    beam_width: int | None = None
    presents: tuple[bool, bool] = (False, False)

    def factor(self, size: int) -> float:
        """Return the factor of the scores of heads of a size."""
        return 1 / math.sqrt(max(size, 1)) if self.scale is None else self.scale

    @property
    def is_merged(self) -> bool:
        """Whether the result lies as [batch, length, heads * size]; else as [batch, heads, length, size]."""
        return self.query.layout is not Layout.HEADS

    @property
    def ahead(self) -> int | None:
        """How many keys behind its own place a query sees; ``None``: all."""
        return 0 if self.is_causal else self.right

    @property
    def biased(self) -> int:
        """How many of queries, keys and values the bias is for: those of four axes are past theirs."""
        return 1 if self.key.layout is Layout.HEADS else 3

    @property
    def has_past(self) -> bool:
        """Whether keys and values of before are given."""
        return self.cache is not None and self.cache.key is not None

    @property
    def total(self) -> Dim:
        """How many rows of keys there are: the new ones, behind those of the past if there is one.

        Not known of a cache that is no past with new rows behind it.
        """
        if self.cache is None or self.cache.key is None:
            return self.key.length
        return add_dims(self.cache.rows, self.key.length) if self.cache.growth is Growth.APPENDED else None

    @property
    def features(self) -> frozenset[AttentionFeature]:
        """What this node asks of whoever attends."""
        cache = self.cache
        asked = {
            AttentionFeature.PACKED: self.projection is None and (self.key.is_part or self.key.layout is Layout.PARTS),
            AttentionFeature.BIAS: self.bias is not None,
            AttentionFeature.MASK: self.mask is not None,
            AttentionFeature.PADDING: self.padding is not None,
            AttentionFeature.PAST: self.has_past,
            AttentionFeature.BUFFER: cache is not None and (cache.growth is Growth.BUFFER or cache.start is not None),
            AttentionFeature.TOKENS: self.tokens is not None or self.pages is not None,
            AttentionFeature.PAGES: self.pages is not None,
            AttentionFeature.PRESENT: any(self.presents),
            AttentionFeature.LENGTHS: self.lengths is not None,
            AttentionFeature.CAUSAL: self.is_causal,
            AttentionFeature.WINDOW: self.left is not None or self.right is not None,
            AttentionFeature.SOFTCAP: self.softcap > 0,
            AttentionFeature.ROTARY: self.rotary is not None,
            AttentionFeature.POSITIONS: self.rotary is not None and self.rotary.positions is not None,
            AttentionFeature.SINK: self.sink is not None,
            AttentionFeature.SMOOTH: self.has_zero_sink,
            AttentionFeature.NORMALIZED: self.norms is not None,
            AttentionFeature.QUANTIZED: self.quantized is not None,
            AttentionFeature.SLIDING: self.slides,
            AttentionFeature.BEAMS: self.beams is not None,
            AttentionFeature.SCORES: self.scores is not None,
            AttentionFeature.DOUBLE: self.is_double,
        }
        return frozenset(feature for feature, is_asked in asked.items() if is_asked)

    def beyond(self, *features: AttentionFeature) -> str | None:
        """Return in words what this node asks beyond some features, the first in their order; ``None``: nothing."""
        missing = self.features.difference(features)
        return next((feature.value for feature in AttentionFeature if feature in missing), None)
