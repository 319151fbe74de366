"""Text to n-gram counts: each row's characters are folded, cut into tokens, numbered and counted, in one pass.

A token is a run of characters that the fold table keeps. Its hash finds its number in an open table, its characters
confirm it. N-grams walk a trie: (node, token) finds the next node in a second open table, which holds the whole key.
Both tables have an empty slot, so that a search ends. Every index that comes from the text is checked.
"""

from __future__ import annotations

from collections.abc import Callable

from ort_core.cpu.codegen.llvm_ir.emitter import Emitter, IRValue, float32, integer
from ort_core.cpu.codegen.nests.elementwise_nests import KERNEL_PARAMETERS, share
from ort_core.plugin import frozen

HASH_FACTOR = 0x9E3779B97F4A7C15  # 2**64 divided by the golden ratio, odd
SIGNED_FACTOR = HASH_FACTOR - 2**64  # as LLVM writes it
HASH_SHIFT = 29  # the upper half of a product depends on all of the factor's bits; it is mixed into the lower


@frozen
class TokenArguments:
    """Positions in the argument table.

    The first five change with each run: characters (of ``nbytes`` each), where rows start (int64, one more than rows),
    how many rows, token numbers (int32, one for each character: scratch) and counts (float32 [rows, width]).

    ``fold`` (uint32): 0 for a character between tokens, else the folded character plus 1. ``hashes`` (uint64) and
    ``numbers`` (int64, -1: empty) are the slots of tokens, ``starts`` (int64) and ``spelling`` (uint32, as folded) what
    they consist of. ``firsts`` (int64): the trie's node of each token alone, or -1. ``keys`` (int64) and ``nodes``
    (int64, -1: empty) are the slots of longer n-grams by ``node * tokens + token``. ``columns`` (int64): of each node,
    -1 where no n-gram ends. A mask is the number of slots, a power of 2, less 1. ``flag`` (int64) is set where a
    character is beyond the fold table.
    """

    text: int = 0
    rows_at: int = 1
    rows: int = 2
    scratch: int = 3
    counts: int = 4
    fold: int = 5
    fold_size: int = 6
    hashes: int = 7
    numbers: int = 8
    token_mask: int = 9
    starts: int = 10
    spelling: int = 11
    least: int = 12
    firsts: int = 13
    keys: int = 14
    nodes: int = 15
    node_mask: int = 16
    tokens: int = 17
    columns: int = 18
    width: int = 19
    shortest: int = 20
    longest: int = 21
    distances: int = 22
    weights: int = 23
    flag: int = 24


ARGUMENTS = TokenArguments()
ARGUMENT_COUNT = 25


def token_counts_kernel(nbytes: int, mode: str) -> tuple[str, list[Emitter]]:
    """Return the kernel's name and the functions of its module.

    Args:
        nbytes: of a character, 1 or 4.
        mode: what a count becomes: ``TF`` itself, ``IDF`` its weight, ``TFIDF`` itself times its weight.
    """
    return _Printer(f"token_counts_{nbytes}_{mode.lower()}", nbytes, mode).functions()


class _Printer:
    def __init__(self, name: str, nbytes: int, mode: str) -> None:
        self._name, self._mode = name, mode
        self._character = f"i{8 * nbytes}"

    def functions(self) -> tuple[str, list[Emitter]]:
        """Return the kernel's name, and its functions in an order in which they may be defined."""
        self._lookup = self._lookup_function()
        self._step = self._step_function()
        e = Emitter(self._name, KERNEL_PARAMETERS)
        args = e.parameter("args")
        rows_at, counts, scratch = (
            e.argument(args, i, "ptr") for i in (ARGUMENTS.rows_at, ARGUMENTS.counts, ARGUMENTS.scratch)
        )
        width = e.argument(args, ARGUMENTS.width)
        first, last = share(e, e.argument(args, ARGUMENTS.rows))
        with e.loop(first, last, unroll=False, hint="row") as row:
            begin = e.load("i64", e.element(rows_at, row, "i64"))
            end = e.load("i64", e.element(rows_at, e.add(row, 1), "i64"))
            out = e.element(counts, e.mul(row, width))
            with e.loop(0, width, unroll=False, hint="column") as column:
                e.store(float32(0.0), e.element(out, column))
            numbers = e.element(scratch, begin, "i32")
            found = self._tokens(e, args, begin, end, numbers)
            self._count(e, args, numbers, found, out)
            if self._mode != "TF":
                self._weigh(e, args, out, width)
        return self._name, [self._lookup, self._step, e]

    # tokens -----------------------------------------------------------------------------------------------------------

    def _tokens(self, e: Emitter, args: IRValue, begin: IRValue, end: IRValue, numbers: IRValue) -> IRValue:
        """Store the number of each token of a row, -1 for an unknown one, and return how many there are."""
        count, length = e.variable("i64", integer(0), "count"), e.variable("i64", integer(0), "length")
        mixed = e.variable("i64", integer(0), "hash")
        least = e.argument(args, ARGUMENTS.least)

        def close(stop: IRValue) -> None:
            size = e.load("i64", length)
            with e.when(e.compare("sge", size, least)):
                at = e.load("i64", count)
                slot = e.element(numbers, at, "i32")
                e.call_void(self._lookup.name, args, e.load("i64", mixed), e.sub(stop, size), size, slot)
                e.store(e.add(at, 1), count)
            e.store(integer(0), length)
            e.store(integer(0), mixed)

        with e.loop(begin, end, unroll=False, hint="at") as at:
            folded = self._folded(e, args, at)
            with e.either(e.compare("ne", folded, 0)) as branch:
                e.store(_mixed(e, e.load("i64", mixed), folded), mixed)
                e.store(e.add(e.load("i64", length), 1), length)
                with branch.otherwise():
                    close(at)
        close(end)
        return e.load("i64", count)

    def _folded(self, e: Emitter, args: IRValue, at: IRValue) -> IRValue:
        """Return an entry of the fold table; beyond it the flag is set, and the character is between tokens."""
        text = e.argument(args, ARGUMENTS.text, "ptr")
        code = e.load(self._character, e.element(text, at, self._character), 1)
        code = e.assign("i64", f"zext {code.typed} to i64")
        is_known = e.compare("ult", code, e.argument(args, ARGUMENTS.fold_size))
        with e.either(is_known) as branch, branch.otherwise():
            e.store(integer(1), e.argument(args, ARGUMENTS.flag, "ptr"))
        place = e.select(is_known, code, integer(0))
        entry = e.load("i32", e.element(e.argument(args, ARGUMENTS.fold, "ptr"), place, "i32"))
        wide = e.assign("i64", f"zext {entry.typed} to i64")
        return e.select(is_known, wide, integer(0))

    def _lookup_function(self) -> Emitter:
        """Return the function that finds the number of the token at ``start`` and stores it, or -1, as int32."""
        names = [("ptr", "args"), ("i64", "hash"), ("i64", "start"), ("i64", "length"), ("ptr", "result")]
        e = Emitter(f"{self._name}_lookup", names, linkage="internal")
        args, mixed, start, length, result = (e.parameter(n) for _, n in names)
        hashes, slots = e.argument(args, ARGUMENTS.hashes, "ptr"), e.argument(args, ARGUMENTS.numbers, "ptr")
        starts = e.argument(args, ARGUMENTS.starts, "ptr")

        def visit(slot: IRValue, number: IRValue, going: IRValue) -> None:
            known = e.load("i64", e.element(starts, number, "i64"))
            size = e.sub(e.load("i64", e.element(starts, e.add(number, 1), "i64")), known)
            same_hash = e.compare("eq", e.load("i64", e.element(hashes, slot, "i64")), mixed)
            both = e.binary("and", same_hash, e.compare("eq", size, length))
            with e.when(both):
                equal = e.variable("i1", IRValue("i1", "true"), "equal")
                spelling = e.element(e.argument(args, ARGUMENTS.spelling, "ptr"), known, "i32")
                with e.loop(0, length, unroll=False, hint="i") as i:
                    here = self._folded(e, args, e.add(start, i))
                    there = e.load("i32", e.element(spelling, i, "i32"))
                    there = e.assign("i64", f"zext {there.typed} to i64")
                    agrees = e.compare("eq", here, there)
                    e.store(e.binary("and", e.load("i1", equal), agrees), equal)
                with e.when(e.load("i1", equal)):
                    e.store(e.assign("i32", f"trunc {number.typed} to i32"), result)
                    e.store(IRValue("i1", "false"), going)

        e.store(integer(-1, "i32"), result)
        _probe(e, _scattered(e, mixed), e.argument(args, ARGUMENTS.token_mask), slots, visit)
        return e

    # n-grams ----------------------------------------------------------------------------------------------------------

    def _step_function(self) -> Emitter:
        """Return the function that finds the trie's node behind ``node`` and ``token`` and stores it, or -1."""
        names = [("ptr", "args"), ("i64", "node"), ("i64", "token"), ("ptr", "result")]
        e = Emitter(f"{self._name}_step", names, linkage="internal")
        args, node, token, result = (e.parameter(n) for _, n in names)
        key = e.add(e.mul(node, e.argument(args, ARGUMENTS.tokens)), token)
        keys = e.argument(args, ARGUMENTS.keys, "ptr")

        def visit(slot: IRValue, found: IRValue, going: IRValue) -> None:
            with e.when(e.compare("eq", e.load("i64", e.element(keys, slot, "i64")), key)):
                e.store(found, result)
                e.store(IRValue("i1", "false"), going)

        e.store(integer(-1), result)
        place = _scattered(e, e.binary("mul", key, integer(SIGNED_FACTOR)))
        _probe(e, place, e.argument(args, ARGUMENTS.node_mask), e.argument(args, ARGUMENTS.nodes, "ptr"), visit)
        return e

    def _count(self, e: Emitter, args: IRValue, numbers: IRValue, found: IRValue, out: IRValue) -> None:
        stop = e.add(e.argument(args, ARGUMENTS.distances), 1)
        with (
            e.loop(0, found, unroll=False, hint="start") as start,
            e.loop(1, stop, unroll=False, hint="distance") as distance,
        ):
            self._walk(e, args, numbers, found, out, start, distance)

    def _walk(
        self, e: Emitter, args: IRValue, numbers: IRValue, found: IRValue, out: IRValue, start: IRValue,
        distance: IRValue,
    ) -> None:  # fmt: skip
        """Count every n-gram that begins with one token and takes each ``distance``-th from there."""
        node, level = e.variable("i64", integer(0), "node"), e.variable("i64", integer(0), "level")
        place, going = e.variable("i64", start, "place"), e.variable("i1", IRValue("i1", "true"), "going")
        shortest, longest = e.argument(args, ARGUMENTS.shortest), e.argument(args, ARGUMENTS.longest)
        with e.repeat(going):
            at = e.load("i64", place)
            is_inside = e.compare("slt", at, found)
            token = e.load("i32", e.element(numbers, e.select(is_inside, at, integer(0)), "i32"))
            token = e.assign("i64", f"sext {token.typed} to i64")
            is_known = e.binary("and", is_inside, e.compare("sge", token, 0))
            e.store(IRValue("i1", "false"), going)
            with e.when(is_known):
                depth = e.load("i64", level)
                with e.either(e.compare("eq", depth, 0)) as branch:
                    first = e.element(e.argument(args, ARGUMENTS.firsts, "ptr"), token, "i64")
                    e.store(e.load("i64", first), node)
                    with branch.otherwise():
                        e.call_void(self._step.name, args, e.load("i64", node), token, node)
                present = e.load("i64", node)
                with e.when(e.compare("sge", present, 0)):
                    deeper = e.add(depth, 1)
                    is_long = e.compare("sge", deeper, shortest)
                    is_first = e.binary("or", e.compare("sgt", depth, 0), e.compare("eq", distance, 1))
                    self._add_one(e, args, present, out, e.binary("and", is_long, is_first))
                    e.store(deeper, level)
                    e.store(e.add(at, distance), place)
                    e.store(e.compare("slt", deeper, longest), going)

    def _add_one(self, e: Emitter, args: IRValue, node: IRValue, out: IRValue, is_counted: IRValue) -> None:
        column = e.load("i64", e.element(e.argument(args, ARGUMENTS.columns, "ptr"), node, "i64"))
        with e.when(e.binary("and", is_counted, e.compare("sge", column, 0))):
            cell = e.element(out, column)
            e.store(e.binary("fadd", e.load("float", cell), float32(1.0)), cell)

    def _weigh(self, e: Emitter, args: IRValue, out: IRValue, width: IRValue) -> None:
        weights = e.argument(args, ARGUMENTS.weights, "ptr")
        with e.loop(0, width, unroll=False, hint="column") as column:
            cell = e.element(out, column)
            count = e.load("float", cell)
            if self._mode == "IDF":
                is_present = e.assign("i1", f"fcmp ogt float {count.text}, {float32(0.0).text}")
                count = e.assign("float", f"uitofp {is_present.typed} to float")
            e.store(e.binary("fmul", count, e.load("float", e.element(weights, column))), cell)


def _mixed(e: Emitter, known: IRValue, code: IRValue) -> IRValue:
    return e.binary("mul", e.binary("xor", known, code), integer(SIGNED_FACTOR))


def _scattered(e: Emitter, mixed: IRValue) -> IRValue:
    return e.binary("xor", mixed, e.binary("lshr", mixed, integer(HASH_SHIFT)))


def _probe(
    e: Emitter, start: IRValue, mask: IRValue, slots: IRValue, visit: Callable[[IRValue, IRValue, IRValue], None]
) -> None:
    """Visit slots from ``start`` on until one is empty or ``visit(slot, entry, going)`` ends the search."""
    place = e.variable("i64", e.binary("and", start, mask), "slot")
    going = e.variable("i1", IRValue("i1", "true"), "going")
    with e.repeat(going):
        slot = e.load("i64", place)
        entry = e.load("i64", e.element(slots, slot, "i64"))
        with e.either(e.compare("slt", entry, 0)) as branch:
            e.store(IRValue("i1", "false"), going)
            with branch.otherwise():
                e.store(e.binary("and", e.add(slot, 1), mask), place)
                visit(slot, entry, going)
