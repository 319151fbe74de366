"""Threads on Linux: POSIX threads, and the futex system call to sleep and wake."""

from __future__ import annotations

_FUTEX_NUMBER = {"x86_64": 202, "aarch64": 98}  # of the system call, by architecture
_SET_AFFINITY_NUMBER = {"x86_64": 203, "aarch64": 122}
_WAIT_PRIVATE, _WAKE_PRIVATE = 128, 129


def primitives(triple: str) -> str:
    """Return the IR of ``ort_start``, ``ort_wait``, ``ort_wake`` and ``ort_pin``."""
    number = _FUTEX_NUMBER[triple.split("-")[0]]
    set_affinity = _SET_AFFINITY_NUMBER[triple.split("-")[0]]
    return f"""
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(i64)
declare i64 @syscall(i64, ...)

define i32 @ort_start(ptr %entry, ptr %argument, ptr %id) {{
  %failed = call i32 @pthread_create(ptr %id, ptr null, ptr %entry, ptr %argument)
  %bad = icmp ne i32 %failed, 0
  br i1 %bad, label %done, label %detach
detach:
  %thread = load i64, ptr %id
  %ignored = call i32 @pthread_detach(i64 %thread)
  br label %done
done:
  ret i32 %failed
}}

define void @ort_wait(ptr %word, i32 %seen) {{
  %r = call i64 (i64, ...) @syscall(i64 {number}, ptr %word, i32 {_WAIT_PRIVATE}, i32 %seen, ptr null)
  ret void
}}

define void @ort_wake(ptr %word) {{
  %r = call i64 (i64, ...) @syscall(i64 {number}, ptr %word, i32 {_WAKE_PRIVATE}, i32 2147483647)
  ret void
}}

define void @ort_pin(ptr %mask, i64 %nbytes) {{
  %r = call i64 (i64, ...) @syscall(i64 {set_affinity}, i64 0, i64 %nbytes, ptr %mask)
  ret void
}}
"""
