"""Threads on Windows: CreateThread, WaitOnAddress and WakeByAddressAll."""

from __future__ import annotations


def primitives(triple: str) -> str:
    """Return the IR of ``ort_start``, ``ort_wait``, ``ort_wake`` and ``ort_pin``."""
    return """
declare ptr @CreateThread(ptr, i64, ptr, ptr, i32, ptr)
declare i32 @CloseHandle(ptr)
declare i32 @WaitOnAddress(ptr, ptr, i64, i32)
declare void @WakeByAddressAll(ptr)
declare ptr @GetCurrentThread()
declare i64 @SetThreadAffinityMask(ptr, i64)

define i32 @ort_start(ptr %entry, ptr %argument, ptr %id) {
  %handle = call ptr @CreateThread(ptr null, i64 0, ptr %entry, ptr %argument, i32 0, ptr null)
  %bad = icmp eq ptr %handle, null
  br i1 %bad, label %failed, label %started
started:
  %ignored = call i32 @CloseHandle(ptr %handle)
  ret i32 0
failed:
  ret i32 1
}

define void @ort_wait(ptr %word, i32 %seen) {
  %expected = alloca i32
  store i32 %seen, ptr %expected
  %r = call i32 @WaitOnAddress(ptr %word, ptr %expected, i64 4, i32 -1)
  ret void
}

define void @ort_wake(ptr %word) {
  call void @WakeByAddressAll(ptr %word)
  ret void
}

; the first 64 processors, the thread's own group
define void @ort_pin(ptr %mask, i64 %nbytes) {
  %first = load i64, ptr %mask
  %thread = call ptr @GetCurrentThread()
  %r = call i64 @SetThreadAffinityMask(ptr %thread, i64 %first)
  ret void
}
"""
