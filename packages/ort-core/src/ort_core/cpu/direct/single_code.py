"""The native side of a single step: the addresses of arrays become the first words of its table, and it is run.

``ort_single_step`` takes only arrays of numpy's own type, which its caller holds until it returns. It returns None, or
its owner where anything else was given, and nothing was run.
"""

from __future__ import annotations

SINGLE_CODE = """
define ptr @ort_single_step(ptr %self, ptr %arguments, i64 %nargs) "no-stack-arg-probe" {
entry:
  %head = call ptr @field(ptr %self, i64 @@A.data@)
  %entries = call ptr @pointer(ptr %head, i64 @@H.LIST@)
  %record = call ptr @pointer(ptr %entries, i64 0)
  %steps = call ptr @pointer(ptr %record, i64 @@E.STEPS@)
  %table = call ptr @pointer(ptr %steps, i64 1)
  %array.type = call ptr @pointer(ptr %head, i64 @@H.ARRAY_TYPE@)
  br label %next
next:
  %i = phi i64 [0, %entry], [%i1, %write]
  %more = icmp slt i64 %i, %nargs
  br i1 %more, label %look, label %run
look:
  %array = call ptr @pointer(ptr %arguments, i64 %i)
  %type = call ptr @field(ptr %array, i64 @@A.type@)
  %is.array = icmp eq ptr %type, %array.type
  br i1 %is.array, label %write, label %refuse
write:
  %data = call ptr @field(ptr %array, i64 @@A.data@)
  %place = getelementptr ptr, ptr %table, i64 %i
  store ptr %data, ptr %place
  %i1 = add i64 %i, 1
  br label %next
run:
  %claimed = getelementptr i64, ptr %steps, i64 3
  store i64 0, ptr %claimed
  call void @run(ptr %head, ptr %record)
  %none = call ptr @none(ptr %head)
  ret ptr %none
refuse:
  %incref = call ptr @pointer(ptr %head, i64 @@H.INCREF@)
  call void %incref(ptr %self)
  ret ptr %self
}
"""
