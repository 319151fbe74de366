"""The native side of a direct call: from feeds, or from arrays, to a list of outputs without running Python code.

This file trades clarity for speed. What it replaces, and what tests compare it with, is the ordinary run: checked feeds
(``runtime.feeds``), a plan by signature, ``ProgramPlan.run``. ``benchmarks/run_calls.py`` measures both.

``ort_direct_call`` (a session's run) and ``ort_direct_step`` (one program of a partition) have CPython's METH_FASTCALL
signature. They answer None to everything that they do not know: then the ordinary run goes on and gives the result, or
the precise error. They read objects by the layout of CPython's headers and numpy's arrays, which ``python_layout``
checks before any call is made, and call functions by addresses that lie in the records: the code depends on no version.

Rules that keep it sound:

* Objects from the caller are borrowed only as long as no Python code can run; every array is held (Py_IncRef) before
  the next lookup, which may run a key's ``__eq__``, and until the end, as other threads may drop it meanwhile.
* An array is read only when its type is exactly numpy's own, and its element type the very object that is expected: so
  subclasses, swapped bytes, objects and scalars never get further.
* The stack takes at most 24 bytes for each of ``MAX_ARRAYS``, less than a page: Windows needs no probes of it, which
  would be calls into a library that generated code does not link.
* The interpreter lock guards the records: a state is taken and given back while it is held.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Head(enum.IntEnum):
    """Words of the head: fixed ones, then the names and the element types of the inputs, then the entries."""

    INPUTS = 0
    OUTPUTS = 1
    ENTRIES = 2
    NONE = 3
    DICT_TYPE = 4
    TUPLE_TYPE = 5
    ARRAY_TYPE = 6
    DICT_SIZE = 7
    DICT_GET = 8
    INCREF = 9
    DECREF = 10
    CLEAR_ERROR = 11
    NEW_LIST = 12
    SET_ITEM = 13
    TUPLE_SIZE = 14
    TUPLE_ITEM = 15
    RELEASE_LOCK = 16
    TAKE_LOCK = 17
    NEW_ARRAY = 18
    POOL_RUN = 19
    POOL = 20
    NAMES = 21  # addresses of the three lists below
    TYPES = 22
    LIST = 23
    COUNT = 24


class Entry(enum.IntEnum):
    """Words of an entry: one signature, with the one run state that it owns."""

    BUSY = 0
    STEPS = 1
    STEP_COUNT = 2
    WANTED = 3
    ERROR = 4  # address of the word that kernels set when data is out of bounds
    PATCHES = 5  # address of three words each: a word of the argument table, what to add to an address, which array's
    PATCH_COUNT = 6
    SIGNATURE = 7  # address of: for each input, its rank, its sizes and its bytes
    OUTPUTS = 8  # address of OUTPUT_WORDS words for each output
    HOLDS_LOCK = 9
    COUNT = 10


OUTPUT_WORDS = 6  # numpy's type number, its dtype, rank, address of sizes, bytes, which input may lie there (or -1)
MAX_ARRAYS = 160  # inputs and outputs of one call


@dataclass(frozen=True, slots=True)
class ArrayLayout:
    """Offsets in bytes into objects: the type in every object, fields of numpy's arrays, the last two of its dtypes."""

    type: int
    data: int
    rank: int
    sizes: int
    dtype: int
    flags: int
    byte_order: int
    type_number: int


def call_text(layout: ArrayLayout) -> str:
    """Return the module of both functions."""
    words = {f"@@{name}.{word.name}@": str(int(word)) for name, words in (("H", Head), ("E", Entry)) for word in words}
    words |= {f"@@A.{field}@": str(getattr(layout, field)) for field in layout.__slots__}
    words["@@OUTPUT_WORDS@"] = str(OUTPUT_WORDS)
    text = _TEXT
    for name, value in words.items():
        text = text.replace(name, value)
    return text


_TEXT = """
define internal i64 @word(ptr %record, i64 %index) alwaysinline {
  %p = getelementptr i64, ptr %record, i64 %index
  %value = load i64, ptr %p
  ret i64 %value
}

define internal ptr @pointer(ptr %record, i64 %index) alwaysinline {
  %p = getelementptr ptr, ptr %record, i64 %index
  %value = load ptr, ptr %p
  ret ptr %value
}

define internal ptr @field(ptr %object, i64 %offset) alwaysinline {
  %p = getelementptr i8, ptr %object, i64 %offset
  %value = load ptr, ptr %p
  ret ptr %value
}

define internal void @drop(ptr %head, ptr %object) {
  %decref = call ptr @pointer(ptr %head, i64 @@H.DECREF@)
  call void %decref(ptr %object)
  ret void
}

; Whether two element types are one: an array that was pickled, as between processes, has a dtype object of its own.
define internal i1 @same_element_type(ptr %found, ptr %dtype) {
entry:
  %is = icmp eq ptr %found, %dtype
  br i1 %is, label %yes, label %look
look:
  %number.a = getelementptr i8, ptr %found, i64 @@A.type_number@
  %number.b = getelementptr i8, ptr %dtype, i64 @@A.type_number@
  %a = load i32, ptr %number.a
  %b = load i32, ptr %number.b
  %same.number = icmp eq i32 %a, %b
  %order.a = getelementptr i8, ptr %found, i64 @@A.byte_order@
  %order.b = getelementptr i8, ptr %dtype, i64 @@A.byte_order@
  %c = load i8, ptr %order.a
  %d = load i8, ptr %order.b
  %same.order = icmp eq i8 %c, %d
  %same = and i1 %same.number, %same.order
  ret i1 %same
yes:
  ret i1 true
}

; Whether an object is one of numpy's own arrays of the given element type with all the wanted flags.
define internal i1 @is_array(ptr %head, ptr %object, ptr %dtype, i32 %wanted) {
entry:
  %type = call ptr @field(ptr %object, i64 @@A.type@)
  %array.type = call ptr @pointer(ptr %head, i64 @@H.ARRAY_TYPE@)
  %typed = icmp eq ptr %type, %array.type
  br i1 %typed, label %look, label %no
look:
  %found = call ptr @field(ptr %object, i64 @@A.dtype@)
  %same = call i1 @same_element_type(ptr %found, ptr %dtype)
  %flags.p = getelementptr i8, ptr %object, i64 @@A.flags@
  %flags = load i32, ptr %flags.p
  %have = and i32 %flags, %wanted
  %all = icmp eq i32 %have, %wanted
  %good = and i1 %same, %all
  ret i1 %good
no:
  ret i1 false
}

; Whether an array has the rank and the sizes that are listed.
define internal i1 @has_shape(ptr %array, i64 %rank, ptr %sizes) {
entry:
  %rank.p = getelementptr i8, ptr %array, i64 @@A.rank@
  %rank32 = load i32, ptr %rank.p
  %found = sext i32 %rank32 to i64
  %same = icmp eq i64 %found, %rank
  br i1 %same, label %start, label %no
start:
  %own = call ptr @field(ptr %array, i64 @@A.sizes@)
  br label %look
look:
  %i = phi i64 [0, %start], [%i1, %next]
  %more = icmp slt i64 %i, %rank
  br i1 %more, label %compare, label %yes
compare:
  %a = call i64 @word(ptr %own, i64 %i)
  %b = call i64 @word(ptr %sizes, i64 %i)
  %equal = icmp eq i64 %a, %b
  br i1 %equal, label %next, label %no
next:
  %i1 = add i64 %i, 1
  br label %look
yes:
  ret i1 true
no:
  ret i1 false
}

; Hold the feeds' arrays in the order of the inputs; returns how many are held: all, or fewer when one does not fit.
define internal i64 @take(ptr %head, ptr %feeds, ptr %arrays) {
entry:
  %count = call i64 @word(ptr %head, i64 @@H.INPUTS@)
  %names = call ptr @pointer(ptr %head, i64 @@H.NAMES@)
  %types = call ptr @pointer(ptr %head, i64 @@H.TYPES@)
  %get = call ptr @pointer(ptr %head, i64 @@H.DICT_GET@)
  %incref = call ptr @pointer(ptr %head, i64 @@H.INCREF@)
  br label %next
next:
  %i = phi i64 [0, %entry], [%i1, %hold]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %look, label %out
look:
  %name = call ptr @pointer(ptr %names, i64 %i)
  %array = call ptr %get(ptr %feeds, ptr %name)
  %missing = icmp eq ptr %array, null
  br i1 %missing, label %absent, label %check
absent:
  %clear = call ptr @pointer(ptr %head, i64 @@H.CLEAR_ERROR@)
  call void %clear()
  br label %out
check:
  %dtype = call ptr @pointer(ptr %types, i64 %i)
  %fits = call i1 @is_array(ptr %head, ptr %array, ptr %dtype, i32 257)
  br i1 %fits, label %hold, label %out
hold:
  call void %incref(ptr %array)
  %p = getelementptr ptr, ptr %arrays, i64 %i
  store ptr %array, ptr %p
  %i1 = add i64 %i, 1
  br label %next
out:
  ret i64 %i
}

; Whether the held inputs have an entry's shapes.
define internal i1 @matches(ptr %head, ptr %record, ptr %arrays) {
entry:
  %count = call i64 @word(ptr %head, i64 @@H.INPUTS@)
  %signature = call ptr @pointer(ptr %record, i64 @@E.SIGNATURE@)
  br label %next
next:
  %i = phi i64 [0, %entry], [%i1, %good]
  %at = phi i64 [0, %entry], [%behind, %good]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %look, label %yes
look:
  %array = call ptr @pointer(ptr %arrays, i64 %i)
  %rank = call i64 @word(ptr %signature, i64 %at)
  %first = add i64 %at, 1
  %sizes = getelementptr i64, ptr %signature, i64 %first
  %fits = call i1 @has_shape(ptr %array, i64 %rank, ptr %sizes)
  br i1 %fits, label %good, label %no
good:
  %i1 = add i64 %i, 1
  %sized = add i64 %rank, 2
  %behind = add i64 %at, %sized
  br label %next
yes:
  ret i1 true
no:
  ret i1 false
}

define internal ptr @find_entry(ptr %head, ptr %arrays) {
entry:
  %count = call i64 @word(ptr %head, i64 @@H.ENTRIES@)
  %list = call ptr @pointer(ptr %head, i64 @@H.LIST@)
  br label %next
next:
  %i = phi i64 [0, %entry], [%i1, %other]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %look, label %none
look:
  %found = call ptr @pointer(ptr %list, i64 %i)
  %fits = call i1 @matches(ptr %head, ptr %found, ptr %arrays)
  br i1 %fits, label %out, label %other
other:
  %i1 = add i64 %i, 1
  br label %next
out:
  ret ptr %found
none:
  ret ptr null
}

; Whether the first %count spans of memory are apart from [%start, %start + %nbytes), or, for number %same, just that.
define internal i1 @apart(ptr %starts, ptr %lengths, i64 %count, i64 %start, i64 %nbytes, i64 %same) {
entry:
  %stop = add i64 %start, %nbytes
  br label %next
next:
  %i = phi i64 [0, %entry], [%i1, %good]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %look, label %yes
look:
  %low = call i64 @word(ptr %starts, i64 %i)
  %length = call i64 @word(ptr %lengths, i64 %i)
  %high = add i64 %low, %length
  %before = icmp ule i64 %high, %start
  %behind = icmp ule i64 %stop, %low
  %free = or i1 %before, %behind
  br i1 %free, label %good, label %touching
touching:
  %is.same = icmp eq i64 %i, %same
  %is.there = icmp eq i64 %low, %start
  %is.long = icmp eq i64 %length, %nbytes
  %is.span = and i1 %is.there, %is.long
  %is.good = and i1 %is.same, %is.span
  br i1 %is.good, label %good, label %no
good:
  %i1 = add i64 %i, 1
  br label %next
yes:
  ret i1 true
no:
  ret i1 false
}

; Note where the inputs' data lies, and how long it is.
define internal void @note_inputs(ptr %head, ptr %record, ptr %arrays, ptr %starts, ptr %lengths) {
entry:
  %count = call i64 @word(ptr %head, i64 @@H.INPUTS@)
  %signature = call ptr @pointer(ptr %record, i64 @@E.SIGNATURE@)
  br label %next
next:
  %i = phi i64 [0, %entry], [%i1, %look]
  %at = phi i64 [0, %entry], [%behind, %look]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %look, label %out
look:
  %array = call ptr @pointer(ptr %arrays, i64 %i)
  %data = call ptr @field(ptr %array, i64 @@A.data@)
  %rank = call i64 @word(ptr %signature, i64 %at)
  %sized = add i64 %rank, 1
  %last = add i64 %at, %sized
  %nbytes = call i64 @word(ptr %signature, i64 %last)
  %start.p = getelementptr ptr, ptr %starts, i64 %i
  store ptr %data, ptr %start.p
  %length.p = getelementptr i64, ptr %lengths, i64 %i
  store i64 %nbytes, ptr %length.p
  %i1 = add i64 %i, 1
  %behind = add i64 %last, 1
  br label %next
out:
  ret void
}

; The caller's own array for an output: null when none is given, 1 when it does not fit.
define internal ptr @given_output(ptr %head, ptr %output, ptr %given, i64 %index) {
entry:
  %none = call ptr @pointer(ptr %head, i64 @@H.NONE@)
  %absent = icmp eq ptr %given, %none
  br i1 %absent, label %fresh, label %look
look:
  %item = call ptr @pointer(ptr %head, i64 @@H.TUPLE_ITEM@)
  %array = call ptr %item(ptr %given, i64 %index)
  %unset = icmp eq ptr %array, %none
  br i1 %unset, label %fresh, label %check
check:
  %dtype = call ptr @pointer(ptr %output, i64 1)
  %fits = call i1 @is_array(ptr %head, ptr %array, ptr %dtype, i32 1281)
  br i1 %fits, label %shape, label %bad
shape:
  %rank = call i64 @word(ptr %output, i64 2)
  %sizes = call ptr @pointer(ptr %output, i64 3)
  %shaped = call i1 @has_shape(ptr %array, i64 %rank, ptr %sizes)
  br i1 %shaped, label %good, label %bad
good:
  ret ptr %array
bad:
  ret ptr inttoptr (i64 1 to ptr)
fresh:
  ret ptr null
}

define internal ptr @fresh_output(ptr %head, ptr %output) {
entry:
  %new = call ptr @pointer(ptr %head, i64 @@H.NEW_ARRAY@)
  %type = call ptr @pointer(ptr %head, i64 @@H.ARRAY_TYPE@)
  %number = call i64 @word(ptr %output, i64 0)
  %number32 = trunc i64 %number to i32
  %rank = call i64 @word(ptr %output, i64 2)
  %rank32 = trunc i64 %rank to i32
  %sizes = call ptr @pointer(ptr %output, i64 3)
  %array = call ptr %new(ptr %type, i32 %rank32, ptr %sizes, i32 %number32, ptr null, ptr null, i32 0, i32 0, ptr null)
  ret ptr %array
}

; Return a new list of the outputs, the caller's own arrays or new ones; null (no error set) when one does not fit.
define internal ptr @outputs(ptr %head, ptr %record, ptr %given, ptr %starts, ptr %lengths) {
entry:
  %inputs = call i64 @word(ptr %head, i64 @@H.INPUTS@)
  %count = call i64 @word(ptr %head, i64 @@H.OUTPUTS@)
  %table = call ptr @pointer(ptr %record, i64 @@E.OUTPUTS@)
  %new.list = call ptr @pointer(ptr %head, i64 @@H.NEW_LIST@)
  %set = call ptr @pointer(ptr %head, i64 @@H.SET_ITEM@)
  %list = call ptr %new.list(i64 %count)
  %no.list = icmp eq ptr %list, null
  br i1 %no.list, label %clear, label %next
next:
  %i = phi i64 [0, %entry], [%i1, %placed]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %look, label %out
look:
  %at = mul i64 %i, @@OUTPUT_WORDS@
  %output = getelementptr i64, ptr %table, i64 %at
  %nbytes = call i64 @word(ptr %output, i64 4)
  %position = add i64 %inputs, %i
  %own = call ptr @given_output(ptr %head, ptr %output, ptr %given, i64 %i)
  %fresh = icmp eq ptr %own, null
  br i1 %fresh, label %allocate, label %check
check:
  %bad = icmp eq ptr %own, inttoptr (i64 1 to ptr)
  br i1 %bad, label %undo, label %overlap
overlap:
  %own.data = call ptr @field(ptr %own, i64 @@A.data@)
  %own.start = ptrtoint ptr %own.data to i64
  %same = call i64 @word(ptr %output, i64 5)
  %free = call i1 @apart(ptr %starts, ptr %lengths, i64 %position, i64 %own.start, i64 %nbytes, i64 %same)
  br i1 %free, label %share, label %undo
share:
  %incref = call ptr @pointer(ptr %head, i64 @@H.INCREF@)
  call void %incref(ptr %own)
  br label %place
allocate:
  %made = call ptr @fresh_output(ptr %head, ptr %output)
  %no.array = icmp eq ptr %made, null
  br i1 %no.array, label %undo, label %place
place:
  %array = phi ptr [%own, %share], [%made, %allocate]
  %data = call ptr @field(ptr %array, i64 @@A.data@)
  %start.p = getelementptr ptr, ptr %starts, i64 %position
  store ptr %data, ptr %start.p
  %length.p = getelementptr i64, ptr %lengths, i64 %position
  store i64 %nbytes, ptr %length.p
  %failed = call i32 %set(ptr %list, i64 %i, ptr %array)
  %not.set = icmp ne i32 %failed, 0
  br i1 %not.set, label %undo, label %placed
placed:
  %i1 = add i64 %i, 1
  br label %next
out:
  ret ptr %list
undo:
  call void @drop(ptr %head, ptr %list)
  br label %clear
clear:
  %clear.error = call ptr @pointer(ptr %head, i64 @@H.CLEAR_ERROR@)
  call void %clear.error()
  ret ptr null
}

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

; Run the steps; without the interpreter lock, unless they are over sooner than it changes hands.
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

; Run an entry that is not busy on held inputs; returns the list of outputs, or null.
define internal ptr @run_entry(ptr %head, ptr %record, ptr %given, ptr %arrays, ptr %starts, ptr %lengths) {
entry:
  %busy = getelementptr i64, ptr %record, i64 @@E.BUSY@
  call void @note_inputs(ptr %head, ptr %record, ptr %arrays, ptr %starts, ptr %lengths)
  %list = call ptr @outputs(ptr %head, ptr %record, ptr %given, ptr %starts, ptr %lengths)
  %failed = icmp eq ptr %list, null
  br i1 %failed, label %none, label %go
go:
  ; Making arrays may run other threads' code: whoever took the state meanwhile has it.
  %taken = load i64, ptr %busy
  %is.busy = icmp ne i64 %taken, 0
  br i1 %is.busy, label %undo, label %own
own:
  store i64 1, ptr %busy
  call void @patch(ptr %record, ptr %starts)
  call void @run(ptr %head, ptr %record)
  store i64 0, ptr %busy
  %error.p = call ptr @pointer(ptr %record, i64 @@E.ERROR@)
  %error = load i64, ptr %error.p
  %bad = icmp ne i64 %error, 0
  br i1 %bad, label %reset, label %good
reset:
  store i64 0, ptr %error.p
  br label %undo
undo:
  call void @drop(ptr %head, ptr %list)
  br label %none
good:
  ret ptr %list
none:
  ret ptr null
}

; Whether the second argument is None or a tuple of one item for each output.
define internal i1 @outputs_fit(ptr %head, ptr %given) {
entry:
  %none = call ptr @pointer(ptr %head, i64 @@H.NONE@)
  %absent = icmp eq ptr %given, %none
  br i1 %absent, label %yes, label %look
look:
  %type = call ptr @field(ptr %given, i64 @@A.type@)
  %tuple = call ptr @pointer(ptr %head, i64 @@H.TUPLE_TYPE@)
  %typed = icmp eq ptr %type, %tuple
  br i1 %typed, label %sized, label %no
sized:
  %size.of = call ptr @pointer(ptr %head, i64 @@H.TUPLE_SIZE@)
  %size = call i64 %size.of(ptr %given)
  %count = call i64 @word(ptr %head, i64 @@H.OUTPUTS@)
  %fits = icmp eq i64 %size, %count
  ret i1 %fits
yes:
  ret i1 true
no:
  ret i1 false
}

; Whether the first argument is a dict (no subclass) with one item for each input.
define internal i1 @feeds_fit(ptr %head, ptr %feeds) {
entry:
  %type = call ptr @field(ptr %feeds, i64 @@A.type@)
  %dict = call ptr @pointer(ptr %head, i64 @@H.DICT_TYPE@)
  %typed = icmp eq ptr %type, %dict
  br i1 %typed, label %sized, label %no
sized:
  %size.of = call ptr @pointer(ptr %head, i64 @@H.DICT_SIZE@)
  %size = call i64 %size.of(ptr %feeds)
  %count = call i64 @word(ptr %head, i64 @@H.INPUTS@)
  %fits = icmp eq i64 %size, %count
  ret i1 %fits
no:
  ret i1 false
}

; Run the entry that the inputs fit, if there is one and it is free; returns a list, or None.
define internal ptr @answer(ptr %head, ptr %given, ptr %arrays, ptr %starts, ptr %lengths) {
entry:
  %found = call ptr @find_entry(ptr %head, ptr %arrays)
  %unknown = icmp eq ptr %found, null
  br i1 %unknown, label %refuse, label %run
run:
  %list = call ptr @run_entry(ptr %head, ptr %found, ptr %given, ptr %arrays, ptr %starts, ptr %lengths)
  %failed = icmp eq ptr %list, null
  br i1 %failed, label %refuse, label %give
give:
  ret ptr %list
refuse:
  %none = call ptr @none(ptr %head)
  ret ptr %none
}

define internal ptr @none(ptr %head) {
  %none = call ptr @pointer(ptr %head, i64 @@H.NONE@)
  %incref = call ptr @pointer(ptr %head, i64 @@H.INCREF@)
  call void %incref(ptr %none)
  ret ptr %none
}

; Whether the arguments are arrays of the inputs' element types.
define internal i1 @arguments_fit(ptr %head, ptr %arguments, i64 %nargs) {
entry:
  %count = call i64 @word(ptr %head, i64 @@H.INPUTS@)
  %types = call ptr @pointer(ptr %head, i64 @@H.TYPES@)
  %as.many = icmp eq i64 %nargs, %count
  br i1 %as.many, label %next, label %no
next:
  %i = phi i64 [0, %entry], [%i1, %good]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %look, label %yes
look:
  %array = call ptr @pointer(ptr %arguments, i64 %i)
  %dtype = call ptr @pointer(ptr %types, i64 %i)
  %fits = call i1 @is_array(ptr %head, ptr %array, ptr %dtype, i32 257)
  br i1 %fits, label %good, label %no
good:
  %i1 = add i64 %i, 1
  br label %next
yes:
  ret i1 true
no:
  ret i1 false
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
