"""The native side of rounds: write the addresses of a round into the argument table, run the steps, go on.

What it replaces, and what tests compare it with, is a run of the body's program from Python for each round
(``kernels.reference.control_flow``), at about 15 us a round. ``benchmarks/control_flow.py`` measures both.

A round reads and writes memory at addresses that follow from its number: what a round leaves for the next one lies in
one of two places in turn, slices and stacked results lie one behind the other. So an address is three words: the
place in even rounds, the place in odd ones, and how far both move on with each round.

``ort_rounds_call`` runs a whole node so: it stands where a direct call (``direct.call_code``) runs a program, and the
words that the direct call writes are those of its own rows.
"""

from __future__ import annotations

import enum


class RoundsHead(enum.IntEnum):
    """Words of the head."""

    POOL_RUN = 0
    POOL = 1
    STEPS = 2
    STEP_COUNT = 3
    WANTED = 4
    ERROR = 5  # the address of the word that says that data was out of bounds
    NUMBER = 6  # the address of the int64 that bodies read as the number of their round
    GOES_ON = 7  # the address of the bool that a round leaves; 0: every round is followed by another
    PATCHES = 8  # the address of rows of ``Patch``
    PATCH_COUNT = 9
    COPIES = 10  # the address of rows of ``Copy``
    COPY_COUNT = 11
    COUNT = 12


class RoundsCall(enum.IntEnum):
    """Words of the record of a whole Loop or Scan."""

    HEAD = 0  # the address of the ``RoundsHead``
    TRIPS = 1  # the address of the int64 that limits the rounds; 0: ``LIMIT`` does
    START = 2  # the address of the bool that says whether any round runs; 0: they do
    LIMIT = 3
    CAPACITY = 4  # rounds for which there is room; where more are wanted the call is refused
    HAS_STACKS = 5  # whether results pile up: of no rounds only the kernels know their shapes
    DONE = 6  # the address of an int64 that is to hold how many rounds ran; 0: nobody asks
    FIRST_COPIES = 7  # the address of rows of ``Copy`` that are made before the first round
    FIRST_COUNT = 8
    LAST_COPIES = 9  # the address of rows that are made behind the last one, as if they were of the round behind it
    LAST_COUNT = 10
    HEADS = 11  # the address of a head for each of ``CAPACITY`` rounds; 0: all of them have one
    TAG = 12  # what is added to the number of rounds that ``DONE`` is to hold
    COUNT = 13


class Patch(enum.IntEnum):
    """Words of a patch: a word of the argument table, and the address that it is to hold."""

    TARGET = 0
    EVEN = 1
    ODD = 2
    STRIDE = 3
    COUNT = 4


class Copy(enum.IntEnum):
    """Words of a copy, which is made behind the steps of a round."""

    FROM_EVEN = 0
    FROM_ODD = 1
    FROM_STRIDE = 2
    TO_EVEN = 3
    TO_ODD = 4
    TO_STRIDE = 5
    NBYTES = 6
    COUNT = 7


def rounds_text() -> str:
    """Return the module of ``ort_rounds(head, first, limit)`` and ``ort_rounds_call(pool, record, count, wanted)``.

    The former runs rounds from ``first`` on and returns the number of the round that it did not run: ``limit``, or the
    first behind one that said that none follows or that found data out of bounds. The latter runs a whole node, and
    sets the word for data out of bounds where it must be run otherwise; what it returns has no meaning.
    """
    text = _TEXT + _CALL
    for name, words in (("H", RoundsHead), ("P", Patch), ("C", Copy), ("R", RoundsCall)):
        for word in words:
            text = text.replace(f"@@{name}.{word.name}@", str(int(word)))
    return text


# "no-builtins": a loop that copies bytes must not become a call of the C library, which generated code does not link.
_TEXT = """
define internal i64 @word(ptr %row, i64 %index) alwaysinline {
  %place = getelementptr i64, ptr %row, i64 %index
  %value = load i64, ptr %place
  ret i64 %value
}

define internal ptr @pointer(ptr %row, i64 %index) alwaysinline {
  %value = call i64 @word(ptr %row, i64 %index)
  %address = inttoptr i64 %value to ptr
  ret ptr %address
}

; The address that three words from %at on give to a round.
define internal i64 @address(ptr %row, i64 %at, i64 %round) alwaysinline {
  %bit = and i64 %round, 1
  %which = add i64 %at, %bit
  %start = call i64 @word(ptr %row, i64 %which)
  %stride.at = add i64 %at, 2
  %stride = call i64 @word(ptr %row, i64 %stride.at)
  %moved = mul i64 %stride, %round
  %address = add i64 %start, %moved
  ret i64 %address
}

define internal void @patch(ptr %head, i64 %round) {
entry:
  %rows = call ptr @pointer(ptr %head, i64 @@H.PATCHES@)
  %count = call i64 @word(ptr %head, i64 @@H.PATCH_COUNT@)
  br label %next
next:
  %i = phi i64 [0, %entry], [%i1, %one]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %one, label %out
one:
  %at = mul i64 %i, @@P.COUNT@
  %row = getelementptr i64, ptr %rows, i64 %at
  %target = call ptr @pointer(ptr %row, i64 @@P.TARGET@)
  %address = call i64 @address(ptr %row, i64 @@P.EVEN@, i64 %round)
  store i64 %address, ptr %target
  %i1 = add i64 %i, 1
  br label %next
out:
  ret void
}

define internal void @copy(ptr %rows, i64 %count, i64 %round) "no-builtins" {
entry:
  br label %next
next:
  %i = phi i64 [0, %entry], [%i1, %done]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %one, label %out
one:
  %at = mul i64 %i, @@C.COUNT@
  %row = getelementptr i64, ptr %rows, i64 %at
  %from.word = call i64 @address(ptr %row, i64 @@C.FROM_EVEN@, i64 %round)
  %to.word = call i64 @address(ptr %row, i64 @@C.TO_EVEN@, i64 %round)
  %from = inttoptr i64 %from.word to ptr
  %to = inttoptr i64 %to.word to ptr
  %nbytes = call i64 @word(ptr %row, i64 @@C.NBYTES@)
  br label %bytes
bytes:
  %b = phi i64 [0, %one], [%b1, %byte]
  %left = icmp slt i64 %b, %nbytes
  br i1 %left, label %byte, label %done
byte:
  %source = getelementptr i8, ptr %from, i64 %b
  %target = getelementptr i8, ptr %to, i64 %b
  %value = load i8, ptr %source
  store i8 %value, ptr %target
  %b1 = add i64 %b, 1
  br label %bytes
done:
  %i1 = add i64 %i, 1
  br label %next
out:
  ret void
}

define i64 @ort_rounds(ptr %head, i64 %first, i64 %limit) "no-builtins" {
entry:
  %pool.run = call ptr @pointer(ptr %head, i64 @@H.POOL_RUN@)
  %pool = call ptr @pointer(ptr %head, i64 @@H.POOL@)
  %steps = call ptr @pointer(ptr %head, i64 @@H.STEPS@)
  %count = call i64 @word(ptr %head, i64 @@H.STEP_COUNT@)
  %wanted = call i64 @word(ptr %head, i64 @@H.WANTED@)
  %error.p = call ptr @pointer(ptr %head, i64 @@H.ERROR@)
  %number.p = call ptr @pointer(ptr %head, i64 @@H.NUMBER@)
  %goes.on.p = call ptr @pointer(ptr %head, i64 @@H.GOES_ON@)
  %is.open = icmp eq ptr %goes.on.p, null
  %copies = call ptr @pointer(ptr %head, i64 @@H.COPIES@)
  %copy.count = call i64 @word(ptr %head, i64 @@H.COPY_COUNT@)
  br label %next
next:
  %round = phi i64 [%first, %entry], [%round1, %again]
  %more = icmp slt i64 %round, %limit
  br i1 %more, label %run, label %end
run:
  store i64 %round, ptr %number.p
  call void @patch(ptr %head, i64 %round)
  %threads = call i64 %pool.run(ptr %pool, ptr %steps, i64 %count, i64 %wanted)
  call void @copy(ptr %copies, i64 %copy.count, i64 %round)
  %round1 = add i64 %round, 1
  %error = load i64, ptr %error.p
  %bad = icmp ne i64 %error, 0
  br i1 %bad, label %stop, label %ask
ask:
  br i1 %is.open, label %again, label %look
look:
  %answer = load i8, ptr %goes.on.p
  %goes.on = icmp ne i8 %answer, 0
  br i1 %goes.on, label %again, label %stop
again:
  br label %next
stop:
  ret i64 %round1
end:
  ret i64 %round
}
"""

_CALL = """
define i64 @ort_rounds_call(ptr %pool, ptr %record, i64 %count, i64 %wanted) "no-builtins" {
entry:
  %head = call ptr @pointer(ptr %record, i64 @@R.HEAD@)
  %capacity = call i64 @word(ptr %record, i64 @@R.CAPACITY@)
  %default = call i64 @word(ptr %record, i64 @@R.LIMIT@)
  %trips.p = call ptr @pointer(ptr %record, i64 @@R.TRIPS@)
  %start.p = call ptr @pointer(ptr %record, i64 @@R.START@)
  %first = call ptr @pointer(ptr %record, i64 @@R.FIRST_COPIES@)
  %first.count = call i64 @word(ptr %record, i64 @@R.FIRST_COUNT@)
  %last = call ptr @pointer(ptr %record, i64 @@R.LAST_COPIES@)
  %last.count = call i64 @word(ptr %record, i64 @@R.LAST_COUNT@)
  %unlimited = icmp eq ptr %trips.p, null
  br i1 %unlimited, label %limited, label %read
read:
  %trips = load i64, ptr %trips.p
  br label %limited
limited:
  %asked = phi i64 [%default, %entry], [%trips, %read]
  %starts.always = icmp eq ptr %start.p, null
  br i1 %starts.always, label %ready, label %ask
ask:
  %answer = load i8, ptr %start.p
  %starts = icmp ne i8 %answer, 0
  %any = select i1 %starts, i64 %asked, i64 0
  br label %ready
ready:
  %limit = phi i64 [%asked, %limited], [%any, %ask]
  %too.many = icmp sgt i64 %limit, %capacity
  %end = select i1 %too.many, i64 %capacity, i64 %limit
  call void @copy(ptr %first, i64 %first.count, i64 0)
  %is.empty = icmp slt i64 %limit, 1
  br i1 %is.empty, label %empty, label %run
empty:
  %stacks = call i64 @word(ptr %record, i64 @@R.HAS_STACKS@)
  %has.stacks = icmp ne i64 %stacks, 0
  br i1 %has.stacks, label %refuse, label %finish
run:
  %heads = call ptr @pointer(ptr %record, i64 @@R.HEADS@)
  %one.head = icmp eq ptr %heads, null
  br i1 %one.head, label %alike, label %growing
growing:
  br label %next
next:
  %round = phi i64 [0, %growing], [%round1, %follow], [%round1, %ask.next]
  %more = icmp slt i64 %round, %end
  br i1 %more, label %own, label %ended
ended:
  br i1 %too.many, label %refuse, label %finish
own:
  %own.head = call ptr @pointer(ptr %heads, i64 %round)
  %round1 = add i64 %round, 1
  %own.ran = call i64 @ort_rounds(ptr %own.head, i64 %round, i64 %round1)
  %own.error.p = call ptr @pointer(ptr %own.head, i64 @@H.ERROR@)
  %own.error = load i64, ptr %own.error.p
  %bad = icmp ne i64 %own.error, 0
  store i64 0, ptr %own.error.p
  br i1 %bad, label %refuse, label %follow
follow:
  %own.goes.on.p = call ptr @pointer(ptr %own.head, i64 @@H.GOES_ON@)
  %follows.always = icmp eq ptr %own.goes.on.p, null
  br i1 %follows.always, label %next, label %ask.next
ask.next:
  %own.answer = load i8, ptr %own.goes.on.p
  %follows = icmp ne i8 %own.answer, 0
  br i1 %follows, label %next, label %finish
alike:
  %ran = call i64 @ort_rounds(ptr %head, i64 0, i64 %end)
  %is.full = icmp eq i64 %ran, %capacity
  %may.be.cut = and i1 %is.full, %too.many
  br i1 %may.be.cut, label %look, label %finish
look:
  %goes.on.p = call ptr @pointer(ptr %head, i64 @@H.GOES_ON@)
  %is.open = icmp eq ptr %goes.on.p, null
  br i1 %is.open, label %refuse, label %ask.again
ask.again:
  %another = load i8, ptr %goes.on.p
  %goes.on = icmp ne i8 %another, 0
  br i1 %goes.on, label %refuse, label %finish
finish:
  %done = phi i64 [0, %empty], [%ran, %alike], [%ran, %ask.again], [%end, %ended], [%round1, %ask.next]
  call void @copy(ptr %last, i64 %last.count, i64 %done)
  %done.p = call ptr @pointer(ptr %record, i64 @@R.DONE@)
  %unasked = icmp eq ptr %done.p, null
  br i1 %unasked, label %out, label %tell
tell:
  %tag = call i64 @word(ptr %record, i64 @@R.TAG@)
  %told = add i64 %done, %tag
  store i64 %told, ptr %done.p
  br label %out
refuse:
  %error.p = call ptr @pointer(ptr %head, i64 @@H.ERROR@)
  store i64 1, ptr %error.p
  br label %out
out:
  ret i64 1
}
"""
