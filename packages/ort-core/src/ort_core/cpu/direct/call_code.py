"""The native side of a direct call: from feeds, or from arrays, to a list of outputs without running Python code.

This file and the six that it joins trade clarity for speed. What they replace, and what tests compare them with, is
the ordinary run: checked feeds (``runtime.feeds``), a plan by signature, ``ProgramPlan.run``.
``benchmarks/run_calls.py`` measures both.

``ort_direct_call`` (a session's run) and ``ort_direct_step`` (one program of a partition) have CPython's METH_FASTCALL
signature. They answer None to everything that they do not know: then the ordinary run goes on and gives the result, or
the precise error. They raise only what Python raised while memory was taken for an output: an interrupt. They read
objects by the layout of CPython's headers and numpy's arrays, which ``python_layout`` checks before any call is made,
and call functions by addresses that lie in the records: the code depends on no version.

Rules that keep it sound:

* Objects from the caller are borrowed only as long as no Python code can run; every array is held (Py_IncRef) before
  the next lookup, which may run a key's ``__eq__``, and until the end, as other threads may drop it meanwhile.
* An array is read only when its type is exactly numpy's own, and its element type the expected one by number and byte
  order: so subclasses, swapped bytes, objects and scalars never get further.
* The stack takes at most 24 bytes for each of ``MAX_ARRAYS``, less than a page: Windows needs no probes of it, which
  would be calls into a library that generated code does not link.
* A state belongs to the thread that has taken it, from one atomic word to the next. Nothing else in a record changes.
  A table for any signature is looked at, and planned anew (``open_code``), only by the thread that has taken it.
  So there is no need of an interpreter lock, which free-threaded builds do not have: what differs there is how an item
  of a dict is held.
"""

from __future__ import annotations

from ort_core.cpu.direct.call_layout import OUTPUT_WORDS, ArrayLayout, Entry, Head, Open
from ort_core.cpu.direct.object_code import OBJECT_CODE
from ort_core.cpu.direct.open_code import OPEN_CODE
from ort_core.cpu.direct.output_code import OUTPUT_CODE
from ort_core.cpu.direct.signature_code import LOCKED_ITEM_CODE, SIGNATURE_CODE, UNLOCKED_ITEM_CODE
from ort_core.cpu.direct.single_code import SINGLE_CODE
from ort_core.cpu.direct.size_code import SIZE_CODE
from ort_core.cpu.program.output_memory import LEAST
from ort_core.cpu.program.program import KEPT_NBYTES, PARALLEL_WORK, WAKING_WORK
from ort_core.cpu.program.size_words import Operation
from ort_core.cpu.program.sizes import ALIGNMENT
from ort_core.cpu.threads.pool_code import ALL, ALONE, AWAKE, STEP_WORDS

_RECORDS = {"H": Head, "E": Entry, "O": Open, "S": Operation}
_NUMBERS = {
    "OUTPUT_WORDS": OUTPUT_WORDS, "STEP_WORDS": STEP_WORDS, "ALIGNMENT": ALIGNMENT, "ALIGNMENT_LESS_ONE": ALIGNMENT - 1,
    "LEAST": LEAST, "KEPT_NBYTES": KEPT_NBYTES, "PARALLEL_WORK": PARALLEL_WORK, "WAKING_WORK": WAKING_WORK,
    "ALL": ALL, "ALONE": ALONE, "AWAKE": AWAKE,
}  # fmt: skip


def call_text(layout: ArrayLayout, *, is_locked: bool) -> str:
    """Return the module of all three functions, for builds of Python with an interpreter lock or without one."""
    words = {f"@@{name}.{word.name}@": str(int(word)) for name, words in _RECORDS.items() for word in words}
    words |= {f"@@A.{field}@": str(getattr(layout, field)) for field in layout.__match_args__}
    words |= {f"@@{name}@": str(number) for name, number in _NUMBERS.items()}
    item_code = LOCKED_ITEM_CODE if is_locked else UNLOCKED_ITEM_CODE
    parts = (OBJECT_CODE, item_code, SIGNATURE_CODE, OUTPUT_CODE, SIZE_CODE, OPEN_CODE, _CALLS, SINGLE_CODE)
    text = "\n".join(parts)
    for name, value in words.items():
        text = text.replace(name, value)
    return text


_CALLS = """
; Write the addresses of inputs and outputs into the argument table.
define internal void @patch(ptr %record, ptr %starts) {
entry:
  %patches = call ptr @pointer(ptr %record, i64 @@E.PATCHES@)
  %count = call i64 @word(ptr %record, i64 @@E.PATCH_COUNT@)
  br label %next
next:
  %i = phi i64 [0, %entry], [%i1, %look]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %look, label %out
look:
  %at = mul i64 %i, 3
  %patch = getelementptr i64, ptr %patches, i64 %at
  %target = call ptr @pointer(ptr %patch, i64 0)
  %offset = call i64 @word(ptr %patch, i64 1)
  %index = call i64 @word(ptr %patch, i64 2)
  %start = call i64 @word(ptr %starts, i64 %index)
  %address = add i64 %start, %offset
  store i64 %address, ptr %target
  %i1 = add i64 %i, 1
  br label %next
out:
  ret void
}

; Run the steps; without the interpreter lock, unless they are over sooner than it changes hands. A build that has no
; lock is told in the same way that the thread touches no objects meanwhile.
define internal void @run(ptr %head, ptr %record) {
entry:
  %pool.run = call ptr @pointer(ptr %head, i64 @@H.POOL_RUN@)
  %pool = call ptr @pointer(ptr %head, i64 @@H.POOL@)
  %steps = call ptr @pointer(ptr %record, i64 @@E.STEPS@)
  %count = call i64 @word(ptr %record, i64 @@E.STEP_COUNT@)
  %wanted = call i64 @word(ptr %record, i64 @@E.WANTED@)
  %holds = call i64 @word(ptr %record, i64 @@E.HOLDS_LOCK@)
  %held = icmp ne i64 %holds, 0
  br i1 %held, label %locked, label %free
locked:
  %threads = call i64 %pool.run(ptr %pool, ptr %steps, i64 %count, i64 %wanted)
  ret void
free:
  %release = call ptr @pointer(ptr %head, i64 @@H.RELEASE_LOCK@)
  %state = call ptr %release()
  %others = call i64 %pool.run(ptr %pool, ptr %steps, i64 %count, i64 %wanted)
  %take = call ptr @pointer(ptr %head, i64 @@H.TAKE_LOCK@)
  call void %take(ptr %state)
  ret void
}

; Run an entry that nobody else has on what lies at these addresses; returns whether data was out of bounds.
define internal i1 @compute(ptr %head, ptr %record, ptr %starts) {
entry:
  call void @patch(ptr %record, ptr %starts)
  call void @run(ptr %head, ptr %record)
  %error.p = call ptr @pointer(ptr %record, i64 @@E.ERROR@)
  %error = load i64, ptr %error.p
  store i64 0, ptr %error.p
  %bad = icmp ne i64 %error, 0
  ret i1 %bad
}

; Run an entry that is not busy on held inputs; returns the list of outputs, or null.
define internal ptr @run_entry(ptr %head, ptr %record, ptr %given, ptr %arrays, ptr %starts, ptr %lengths) {
entry:
  %busy = getelementptr i64, ptr %record, i64 @@E.BUSY@
  call void @note_inputs(ptr %head, ptr %record, ptr %arrays, ptr %starts, ptr %lengths)
  %list = call ptr @outputs(ptr %head, ptr %record, ptr %given, ptr %starts, ptr %lengths)
  %failed = icmp eq ptr %list, null
  br i1 %failed, label %none, label %go
go:
  ; Another thread may have taken the state: then it has it until its run is over.
  %taking = cmpxchg ptr %busy, i64 0, i64 1 acquire monotonic, align 8
  %is.taken = extractvalue {i64, i1} %taking, 1
  br i1 %is.taken, label %own, label %undo
own:
  %bad = call i1 @compute(ptr %head, ptr %record, ptr %starts)
  store atomic i64 0, ptr %busy release, align 8
  br i1 %bad, label %undo, label %good
undo:
  call void @drop(ptr %head, ptr %list)
  br label %none
good:
  ret ptr %list
none:
  ret ptr null
}

; Run the entry that the inputs fit, or what takes any, where that is free; returns a list, or None; null with an error
; set.
define internal ptr @answer(ptr %head, ptr %given, ptr %arrays, ptr %starts, ptr %lengths) {
entry:
  %found = call ptr @find_entry(ptr %head, ptr %arrays)
  %unknown = icmp eq ptr %found, null
  br i1 %unknown, label %any, label %one
any:
  %planned = call ptr @run_open(ptr %head, ptr %given, ptr %arrays, ptr %starts, ptr %lengths)
  br label %run
one:
  %known = call ptr @run_entry(ptr %head, ptr %found, ptr %given, ptr %arrays, ptr %starts, ptr %lengths)
  br label %run
run:
  %list = phi ptr [%planned, %any], [%known, %one]
  %failed = icmp eq ptr %list, null
  br i1 %failed, label %look, label %give
look:
  %error.set = call ptr @pointer(ptr %head, i64 @@H.ERROR_SET@)
  %error = call ptr %error.set()
  %silent = icmp eq ptr %error, null
  br i1 %silent, label %refuse, label %give
give:
  ret ptr %list
refuse:
  %none = call ptr @none(ptr %head)
  ret ptr %none
}

; call(feeds, outputs): a list, or None when this is not a known signature. The head is the array that is ``self``.
define ptr @ort_direct_call(ptr %self, ptr %arguments, i64 %nargs) "no-stack-arg-probe" {
entry:
  %head = call ptr @field(ptr %self, i64 @@A.data@)
  %two = icmp eq i64 %nargs, 2
  br i1 %two, label %first, label %refuse
first:
  %feeds = call ptr @pointer(ptr %arguments, i64 0)
  %given = call ptr @pointer(ptr %arguments, i64 1)
  %feeds.fit = call i1 @feeds_fit(ptr %head, ptr %feeds)
  br i1 %feeds.fit, label %second, label %refuse
second:
  %given.fit = call i1 @outputs_fit(ptr %head, ptr %given)
  br i1 %given.fit, label %begin, label %refuse
begin:
  %inputs = call i64 @word(ptr %head, i64 @@H.INPUTS@)
  %outs = call i64 @word(ptr %head, i64 @@H.OUTPUTS@)
  %all = add i64 %inputs, %outs
  %arrays = alloca ptr, i64 %inputs
  %starts = alloca i64, i64 %all
  %lengths = alloca i64, i64 %all
  %held = call i64 @take(ptr %head, ptr %feeds, ptr %arrays)
  %complete = icmp eq i64 %held, %inputs
  br i1 %complete, label %run, label %refused
run:
  %answer = call ptr @answer(ptr %head, ptr %given, ptr %arrays, ptr %starts, ptr %lengths)
  br label %dropping
refused:
  %no.answer = call ptr @none(ptr %head)
  br label %dropping
dropping:
  %result = phi ptr [%answer, %run], [%no.answer, %refused], [%result, %one]
  %i = phi i64 [0, %run], [0, %refused], [%i1, %one]
  %more = icmp slt i64 %i, %held
  br i1 %more, label %one, label %give
one:
  %array = call ptr @pointer(ptr %arrays, i64 %i)
  call void @drop(ptr %head, ptr %array)
  %i1 = add i64 %i, 1
  br label %dropping
give:
  ret ptr %result
refuse:
  %none = call ptr @none(ptr %head)
  ret ptr %none
}

; call(*inputs): a list, or None when this is not a known signature. The caller holds the arguments until it returns.
define ptr @ort_direct_step(ptr %self, ptr %arguments, i64 %nargs) "no-stack-arg-probe" {
entry:
  %head = call ptr @field(ptr %self, i64 @@A.data@)
  %none = call ptr @pointer(ptr %head, i64 @@H.NONE@)
  %fit = call i1 @arguments_fit(ptr %head, ptr %arguments, i64 %nargs)
  br i1 %fit, label %begin, label %refuse
begin:
  %inputs = call i64 @word(ptr %head, i64 @@H.INPUTS@)
  %outs = call i64 @word(ptr %head, i64 @@H.OUTPUTS@)
  %all = add i64 %inputs, %outs
  %starts = alloca i64, i64 %all
  %lengths = alloca i64, i64 %all
  %answer = call ptr @answer(ptr %head, ptr %none, ptr %arguments, ptr %starts, ptr %lengths)
  ret ptr %answer
refuse:
  %nothing = call ptr @none(ptr %head)
  ret ptr %nothing
}
"""
