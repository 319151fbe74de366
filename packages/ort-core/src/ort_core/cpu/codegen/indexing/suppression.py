"""Non-maximum suppression: candidates leave a heap best first; each is kept if it overlaps no kept box too much.

The heap orders by score, then by index, so that the order is that of a stable sort. Arithmetic is rounded as the
reference's: no fused operations.
"""

from __future__ import annotations

from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, float32, integer
from ort_core.cpu.codegen.nests.elementwise_nests import KERNEL_PARAMETERS, share

COORDINATES = 5  # of a kept box: lower and upper y, lower and upper x, area


def suppression_kernels(*, center_point_box: bool) -> tuple[str, list[Emitter]]:
    """Return the name of the kernel and the functions of its module.

    The argument table: boxes [N, B, 4], scores [N, C, B] (float32), N, C, B, the most boxes to keep of a class (at
    most B), whether there is a score limit, address of the overlap limit and, behind it, the score limit (float32),
    kept indices [N * C, limit] (int64), their counts [N * C] (int64), and for each thread B int64 and ``COORDINATES *
    limit`` float32 of scratch (two addresses).
    """
    name = f"suppression_{int(center_point_box)}"
    sift = _sift(f"{name}_sift")
    emitter = Emitter(name, KERNEL_PARAMETERS)
    args = emitter.parameter("args")
    boxes, scores = emitter.argument(args, 0, "ptr"), emitter.argument(args, 1, "ptr")
    batches, classes, count, limit = (emitter.argument(args, i) for i in range(2, 6))
    has_threshold = emitter.compare("ne", emitter.argument(args, 6), 0)
    limits = emitter.argument(args, 7, "ptr")
    overlap, threshold = (emitter.load("float", emitter.element(limits, i)) for i in range(2))
    out, counts = emitter.argument(args, 8, "ptr"), emitter.argument(args, 9, "ptr")
    thread = emitter.parameter("thread")
    heap = emitter.element(emitter.argument(args, 10, "ptr"), emitter.mul(thread, count), "i64")
    kept_start = emitter.mul(thread, emitter.mul(limit, COORDINATES))
    kept = emitter.element(emitter.argument(args, 11, "ptr"), kept_start)
    first, last = share(emitter, emitter.mul(batches, classes))
    with emitter.loop(first, last, unroll=False, hint="class") as task:
        own_scores = emitter.element(scores, emitter.mul(task, count))
        own_boxes = emitter.element(boxes, emitter.mul(emitter.udiv(task, classes), emitter.mul(count, 4)))
        own_out = emitter.element(out, emitter.mul(task, limit), "i64")
        size = _candidates(emitter, own_scores, count, heap, threshold, has_threshold)
        _heapify(emitter, sift.name, heap, own_scores, size)
        number = _select(
            emitter, sift.name, heap, own_scores, size, own_boxes, kept, own_out, limit, overlap, center_point_box
        )
        emitter.store(emitter.load("i64", number), emitter.element(counts, task, "i64"))
    return name, [sift, emitter]


def _candidates(
    emitter: Emitter, scores: IRValue, count: IRValue, heap: IRValue, threshold: IRValue, has_threshold: IRValue
) -> IRValue:
    size = emitter.variable("i64", integer(0), "size")
    with emitter.loop(0, count, unroll=False, hint="box") as i:
        score = emitter.load("float", emitter.element(scores, i))
        above = emitter.assign("i1", f"fcmp ogt float {score.text}, {threshold.text}")
        is_in = emitter.select(has_threshold, above, IRValue("i1", "true"))
        with emitter.when(is_in):
            at = emitter.load("i64", size)
            emitter.store(i, emitter.element(heap, at, "i64"))
            emitter.store(emitter.add(at, 1), size)
    return size


def _heapify(emitter: Emitter, sift: str, heap: IRValue, scores: IRValue, size: IRValue) -> None:
    total = emitter.load("i64", size)
    half = emitter.udiv(total, 2)
    with emitter.loop(0, half, unroll=False, hint="node") as i:
        emitter.call_void(sift, heap, scores, emitter.sub(emitter.sub(half, 1), i), total)


def _select(
    emitter: Emitter, sift: str, heap: IRValue, scores: IRValue, size: IRValue, boxes: IRValue, kept: IRValue,
    out: IRValue, limit: IRValue, overlap: IRValue, center_point_box: bool,
) -> IRValue:  # fmt: skip
    """Take candidates off the heap until it is empty or enough are kept; returns the variable that counts those."""
    number = emitter.variable("i64", integer(0), "kept")
    going = emitter.variable("i1", emitter.compare("sgt", emitter.load("i64", size), 0), "going")
    rows = [emitter.element(kept, emitter.mul(limit, row)) for row in range(COORDINATES)]
    with emitter.repeat(going):
        best = emitter.load("i64", heap)
        rest = emitter.sub(emitter.load("i64", size), 1)
        emitter.store(emitter.load("i64", emitter.element(heap, rest, "i64")), heap)
        emitter.store(rest, size)
        emitter.call_void(sift, heap, scores, integer(0), rest)
        box = _corners(emitter, emitter.element(boxes, emitter.mul(best, 4)), center_point_box)
        count = emitter.load("i64", number)
        with emitter.when(_is_free(emitter, box, rows, count, overlap)):
            for row, value in zip(rows, box):
                emitter.store(value, emitter.element(row, count))
            emitter.store(best, emitter.element(out, count, "i64"))
            emitter.store(emitter.add(count, 1), number)
        is_open = emitter.compare("slt", emitter.load("i64", number), limit)
        has_more = emitter.compare("sgt", rest, 0)
        emitter.store(emitter.assign("i1", f"and i1 {is_open.text}, {has_more.text}"), going)
    return number


def _corners(emitter: Emitter, box: IRValue, center_point_box: bool) -> list[IRValue]:
    """Return lower and upper y, lower and upper x, and the area, whichever corners the box names."""
    a, b, c, d = (emitter.load("float", emitter.element(box, i)) for i in range(4))
    if center_point_box:
        half_width, half_height = (_float(emitter, "fdiv", side, float32(2.0)) for side in (c, d))
        corners = [_float(emitter, "fsub", b, half_height), _float(emitter, "fadd", b, half_height),
                   _float(emitter, "fsub", a, half_width), _float(emitter, "fadd", a, half_width)]  # fmt: skip
    else:
        corners = [_least(emitter, a, c), _most(emitter, a, c), _least(emitter, b, d), _most(emitter, b, d)]
    return [*corners, _area(emitter, corners)]


def _area(emitter: Emitter, corners: list[IRValue]) -> IRValue:
    height = _float(emitter, "fsub", corners[1], corners[0])
    return _float(emitter, "fmul", height, _float(emitter, "fsub", corners[3], corners[2]))


def _is_free(emitter: Emitter, box: list[IRValue], rows: list[IRValue], count: IRValue, overlap: IRValue) -> IRValue:
    """Return whether a box overlaps none of the kept ones by more than the limit.

    Counts without leaving early, which is what makes the loop one for vectors.
    """
    hits = emitter.variable("i32", integer(0, "i32"), "hits")
    with emitter.loop(0, count, hint="other") as i:
        other = [emitter.load("float", emitter.element(row, i)) for row in rows]
        height = _float(emitter, "fsub", _least(emitter, other[1], box[1]), _most(emitter, other[0], box[0]))
        width = _float(emitter, "fsub", _least(emitter, other[3], box[3]), _most(emitter, other[2], box[2]))
        common = _float(emitter, "fmul", _most(emitter, height, float32(0)), _most(emitter, width, float32(0)))
        whole = _float(emitter, "fsub", _float(emitter, "fadd", other[4], box[4]), common)
        valid = IRValue("i1", "true")
        for value in (common, other[4], box[4], whole):
            positive = emitter.assign("i1", f"fcmp ogt float {value.text}, 0.0")
            valid = emitter.assign("i1", f"and i1 {valid.text}, {positive.text}")
        ratio = _float(emitter, "fdiv", common, whole)
        above = emitter.assign("i1", f"fcmp ogt float {ratio.text}, {overlap.text}")
        hit = emitter.assign("i1", f"and i1 {valid.text}, {above.text}")
        step = emitter.assign("i32", f"zext i1 {hit.text} to i32")
        emitter.store(emitter.add(emitter.load("i32", hits), step), hits)
    return emitter.compare("eq", emitter.load("i32", hits), 0)


def _sift(name: str) -> Emitter:
    """Return the function that lets one entry of the heap sink to its place."""
    emitter = Emitter(
        name, [("ptr", "heap"), ("ptr", "scores"), ("i64", "start"), ("i64", "count")], linkage="internal"
    )
    heap, scores, count = (emitter.parameter(each) for each in ("heap", "scores", "count"))
    slot = emitter.variable("i64", emitter.parameter("start"), "at")
    going = emitter.variable("i1", IRValue("i1", "true"), "going")
    with emitter.repeat(going):
        at = emitter.load("i64", slot)
        emitter.store(IRValue("i1", "false"), going)
        left = emitter.add(emitter.mul(at, 2), 1)
        with emitter.when(emitter.compare("slt", left, count)):
            right = emitter.minimum(emitter.add(left, 1), emitter.sub(count, 1))
            a, b = (emitter.load("i64", emitter.element(heap, child, "i64")) for child in (left, right))
            takes_right = _precedes(emitter, scores, b, a)
            child = emitter.select(takes_right, right, left)
            winner = emitter.select(takes_right, b, a)
            own = emitter.load("i64", emitter.element(heap, at, "i64"))
            with emitter.when(_precedes(emitter, scores, winner, own)):
                emitter.store(winner, emitter.element(heap, at, "i64"))
                emitter.store(own, emitter.element(heap, child, "i64"))
                emitter.store(child, slot)
                emitter.store(IRValue("i1", "true"), going)
    return emitter


def _precedes(emitter: Emitter, scores: IRValue, a: IRValue, b: IRValue) -> IRValue:
    """Return whether box ``a`` comes before ``b``: by score, NaN last, then by index."""
    x, y = (emitter.load("float", emitter.element(scores, each)) for each in (a, b))
    above = emitter.assign("i1", f"fcmp ogt float {x.text}, {y.text}")
    first = emitter.compare("slt", a, b)
    equal = emitter.assign("i1", f"fcmp oeq float {x.text}, {y.text}")
    x_nan, y_nan = (emitter.assign("i1", f"fcmp uno float {each.text}, {each.text}") for each in (x, y))
    same = emitter.select(y_nan, x_nan, equal)
    only_y = emitter.assign("i1", f"and i1 {y_nan.text}, {_not(emitter, x_nan).text}")
    tie = emitter.assign("i1", f"and i1 {same.text}, {first.text}")
    before = emitter.assign("i1", f"or i1 {above.text}, {only_y.text}")
    return emitter.assign("i1", f"or i1 {before.text}, {tie.text}")


def _not(emitter: Emitter, flag: IRValue) -> IRValue:
    return emitter.assign("i1", f"xor i1 {flag.text}, true")


def _float(emitter: Emitter, opcode: str, left: IRValue, right: IRValue) -> IRValue:
    return emitter.assign("float", f"{opcode} float {left.text}, {right.text}")


def _least(emitter: Emitter, left: IRValue, right: IRValue) -> IRValue:
    return emitter.select(emitter.assign("i1", f"fcmp ult float {left.text}, {right.text}"), left, right)


def _most(emitter: Emitter, left: IRValue, right: IRValue) -> IRValue:
    return emitter.select(emitter.assign("i1", f"fcmp ugt float {left.text}, {right.text}"), left, right)
