"""Native code that holds what the caller gave, checks it, and finds the entry whose shapes it has."""

from __future__ import annotations

LOCKED_ITEM_CODE = """
; Return a dict's item, which the caller must drop; null when there is none, or with an error set.
define internal ptr @held_item(ptr %head, ptr %dict, ptr %key) {
entry:
  %get = call ptr @pointer(ptr %head, i64 @@H.DICT_GET@)
  %item = call ptr %get(ptr %dict, ptr %key)
  %missing = icmp eq ptr %item, null
  br i1 %missing, label %out, label %hold
hold:
  %incref = call ptr @pointer(ptr %head, i64 @@H.INCREF@)
  call void %incref(ptr %item)
  br label %out
out:
  ret ptr %item
}
"""
# without an interpreter lock another thread may drop an item before it is held: the dict has to give a reference away
UNLOCKED_ITEM_CODE = """
; Return a dict's item, which the caller must drop; null when there is none, or with an error set.
define internal ptr @held_item(ptr %head, ptr %dict, ptr %key) {
entry:
  %place = alloca ptr
  store ptr null, ptr %place
  %get = call ptr @pointer(ptr %head, i64 @@H.DICT_GET@)
  %found = call i32 %get(ptr %dict, ptr %key, ptr %place)
  %item = load ptr, ptr %place
  ret ptr %item
}
"""

SIGNATURE_CODE = """
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

; Hold the feeds' arrays in the order of the inputs; returns how many are held: all, or fewer when one does not fit.
define internal i64 @take(ptr %head, ptr %feeds, ptr %arrays) {
entry:
  %count = call i64 @word(ptr %head, i64 @@H.INPUTS@)
  %names = call ptr @pointer(ptr %head, i64 @@H.NAMES@)
  %types = call ptr @pointer(ptr %head, i64 @@H.TYPES@)
  br label %next
next:
  %i = phi i64 [0, %entry], [%i1, %hold]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %look, label %out
look:
  %name = call ptr @pointer(ptr %names, i64 %i)
  %array = call ptr @held_item(ptr %head, ptr %feeds, ptr %name)
  %missing = icmp eq ptr %array, null
  br i1 %missing, label %absent, label %check
absent:
  %clear = call ptr @pointer(ptr %head, i64 @@H.CLEAR_ERROR@)
  call void %clear()
  br label %out
check:
  %dtype = call ptr @pointer(ptr %types, i64 %i)
  %fits = call i1 @is_array(ptr %head, ptr %array, ptr %dtype, i32 257)
  br i1 %fits, label %hold, label %unfit
unfit:
  call void @drop(ptr %head, ptr %array)
  br label %out
hold:
  %p = getelementptr ptr, ptr %arrays, i64 %i
  store ptr %array, ptr %p
  %i1 = add i64 %i, 1
  br label %next
out:
  ret i64 %i
}

; The number that an input is whose shape is known.
define internal i64 @number(ptr %arrays, i64 %index) {
  %array = call ptr @pointer(ptr %arrays, i64 %index)
  %data = call ptr @field(ptr %array, i64 @@A.data@)
  %value = load i32, ptr %data
  %number = sext i32 %value to i64
  ret i64 %number
}

; Whether the held inputs have an entry's shapes and numbers.
define internal i1 @matches(ptr %head, ptr %record, ptr %arrays) {
entry:
  %count = call i64 @word(ptr %head, i64 @@H.INPUTS@)
  %signature = call ptr @pointer(ptr %record, i64 @@E.SIGNATURE@)
  br label %next
next:
  %i = phi i64 [0, %entry], [%i1, %good]
  %at = phi i64 [0, %entry], [%behind, %good]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %look, label %numbers
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
numbers:
  %number.count = call i64 @word(ptr %head, i64 @@H.NUMBER_COUNT@)
  %indices = call ptr @pointer(ptr %head, i64 @@H.NUMBERS@)
  br label %number.next
number.next:
  %k = phi i64 [0, %numbers], [%k1, %equal]
  %more.numbers = icmp slt i64 %k, %number.count
  br i1 %more.numbers, label %compare, label %yes
compare:
  %index = call i64 @word(ptr %indices, i64 %k)
  %value = call i64 @number(ptr %arrays, i64 %index)
  %value.at = add i64 %at, %k
  %expected = call i64 @word(ptr %signature, i64 %value.at)
  %is.equal = icmp eq i64 %value, %expected
  br i1 %is.equal, label %equal, label %no
equal:
  %k1 = add i64 %k, 1
  br label %number.next
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
"""
