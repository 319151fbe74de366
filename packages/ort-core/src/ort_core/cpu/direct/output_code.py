"""Native code that makes the list of outputs: new arrays, or the caller's own where they fit and overlap nothing.

Small arrays are made by numpy, large ones by a function of Python that gives dropped outputs' memory out again.
"""

from __future__ import annotations

OUTPUT_CODE = """
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

; Return a new list of the outputs, the caller's own arrays or new ones; null when one does not fit or has no room, and
; with an error set when the function that makes one raised it.
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
  %maker = call ptr @pointer(ptr %output, i64 6)
  %is.small = icmp eq ptr %maker, null
  br i1 %is.small, label %small, label %large
small:
  %made = call ptr @fresh_output(ptr %head, ptr %output)
  %no.array = icmp eq ptr %made, null
  br i1 %no.array, label %undo, label %place
large:
  %call = call ptr @pointer(ptr %head, i64 @@H.CALL@)
  %leased = call ptr %call(ptr %maker)
  %raised = icmp eq ptr %leased, null
  br i1 %raised, label %raise, label %leasing
leasing:
  %none = call ptr @pointer(ptr %head, i64 @@H.NONE@)
  %no.room = icmp eq ptr %leased, %none
  br i1 %no.room, label %crowded, label %place
crowded:
  call void @drop(ptr %head, ptr %leased)
  br label %undo
place:
  %array = phi ptr [%own, %share], [%made, %small], [%leased, %leasing]
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
raise:
  call void @drop(ptr %head, ptr %list)
  ret ptr null
undo:
  call void @drop(ptr %head, ptr %list)
  br label %clear
clear:
  %clear.error = call ptr @pointer(ptr %head, i64 @@H.CLEAR_ERROR@)
  call void %clear.error()
  ret ptr null
}
"""
