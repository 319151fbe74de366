"""Scores of a few queries: keys are read where they are, as many at once as a vector has lanes.

To pack keys into panels costs as much as some ten queries' products with them. While decoding, a key head has the
queries of its group alone, each key is read once, and what counts is how early memory is asked: caches of many texts
are many short pieces, and the processor's own prefetching does not foresee where the next one begins.
"""

from __future__ import annotations

from collections.abc import Sequence

from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, vector_type
from ort_core.cpu.codegen.llvm_ir.vectors import each_vector, lane_sums, load_vector, prefetch, store_vector, zero

FEW_QUERIES = 8  # of all query heads of a key head; from some ten on, packing is as fast
KEY_SCORES = "attention_key_scores"
_NEAR = 3  # rows that x86 reaches from one address: 0, 1 and 2 strides on
_LINE = 64  # bytes of a cache line
_PARAMETERS = [
    ("i64", "queries"),
    ("ptr noalias readonly", "query"),
    ("i64", "query_row"),
    ("ptr noalias readonly", "key"),
    ("i64", "key_row"),
    ("i64", "keys"),
    ("i64", "depth"),
    ("ptr noalias", "scores"),
    ("i64", "scores_row"),
    ("ptr readonly", "ahead"),
    ("i64", "ahead_row"),
    ("i64", "ahead_size"),
]


def key_scores(lanes: int) -> Emitter:
    """Return the function that stores the products of queries (rows) with keys (rows), a row of scores a query.

    Whole vectors of scores are written; what stands behind the last key in them means nothing. For each key, the row of
    its number at ``ahead`` is asked for: ``ahead_size`` bytes, rows ``ahead_row`` bytes apart.
    """
    e = Emitter(KEY_SCORES, _PARAMETERS, linkage="internal")
    keys, row = e.parameter("keys"), e.parameter("key_row")
    with e.either(e.compare("sge", keys, lanes)) as branch:
        final = e.sub(keys, lanes)
        with e.loop(0, keys, lanes, unroll=False, hint="first") as place:
            first = e.minimum(place, final)  # the last ones begin among those before
            start = e.element(e.parameter("key"), e.mul(first, row))
            nears = [e.element(start, e.mul(row, near)) for near in range(0, lanes, _NEAR)]
            _scores(e, lanes, nears, [(key // _NEAR, e.mul(row, key % _NEAR)) for key in range(lanes)], first)
        with branch.otherwise(), e.when(e.compare("sgt", keys, 0)):
            offsets = [e.mul(e.minimum(e.sub(keys, 1), key), row) for key in range(lanes)]
            _scores(e, lanes, [e.parameter("key")], [(0, offset) for offset in offsets], IRValue("i64", "0"))
    return e


def _scores(
    e: Emitter, lanes: int, nears: Sequence[IRValue], rows: Sequence[tuple[int, IRValue]], first: IRValue
) -> None:
    """Emit the scores of as many keys as there are lanes, which stand at offsets from addresses near them."""
    type_ = vector_type(lanes, "float")
    _ask_ahead(e, lanes, first)
    with e.loop(0, e.parameter("queries"), unroll=False, hint="query") as number:
        query = e.element(e.parameter("query"), e.mul(number, e.parameter("query_row")))
        sums = [e.variable(type_, zero(type_), "sum") for _ in range(lanes)]

        def add(d: IRValue, mask: IRValue | None, query: IRValue = query, sums: Sequence[IRValue] = sums) -> None:
            part = load_vector(e, e.element(query, d), lanes, mask)
            places = [e.element(near, d) for near in nears]
            for slot, (near, offset) in zip(sums, rows, strict=True):
                key = load_vector(e, e.element(places[near], offset), lanes, mask)
                e.store(e.fma(part, key, e.load(type_, slot)), slot)

        each_vector(e, e.parameter("depth"), lanes, add)
        to = e.element(e.parameter("scores"), e.add(e.mul(number, e.parameter("scores_row")), first))
        store_vector(e, lane_sums(e, [e.load(type_, slot) for slot in sums]), to)


def _ask_ahead(e: Emitter, lanes: int, first: IRValue) -> None:
    row = e.parameter("ahead_row")
    start = e.element(e.parameter("ahead"), e.mul(first, row), "i8")
    with e.loop(0, e.parameter("ahead_size"), _LINE, unroll=False, hint="line") as line:
        here = e.element(start, line, "i8")
        for number in range(lanes):
            prefetch(e, e.element(here, e.mul(row, number), "i8"), write=False, level=2)
