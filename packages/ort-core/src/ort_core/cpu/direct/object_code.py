"""Native code that reads records and numpy's arrays by their layout: element type, flags, rank, sizes."""

from __future__ import annotations

OBJECT_CODE = """
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

define internal ptr @none(ptr %head) {
  %none = call ptr @pointer(ptr %head, i64 @@H.NONE@)
  %incref = call ptr @pointer(ptr %head, i64 @@H.INCREF@)
  call void %incref(ptr %none)
  ret ptr %none
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
"""
