"""Threads on macOS: POSIX threads, one mutex and one condition for all sleepers.

macOS has no public futex, so sleepers share a condition variable and look at their word again when they wake.
"""

from __future__ import annotations


def primitives(triple: str) -> str:
    """Return the IR of ``ort_start``, ``ort_wait``, ``ort_wake`` and ``ort_pin``."""
    return """
; sizes of pthread_mutex_t (64) and pthread_cond_t (48) of the 64-bit systems, with their static signatures
@ort_mutex = internal global { i64, [7 x i64] } { i64 850045863, [7 x i64] zeroinitializer }
@ort_condition = internal global { i64, [5 x i64] } { i64 1018212795, [5 x i64] zeroinitializer }

declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_broadcast(ptr)

define i32 @ort_start(ptr %entry, ptr %argument, ptr %id) {
  %failed = call i32 @pthread_create(ptr %id, ptr null, ptr %entry, ptr %argument)
  %bad = icmp ne i32 %failed, 0
  br i1 %bad, label %done, label %detach
detach:
  %thread = load ptr, ptr %id
  %ignored = call i32 @pthread_detach(ptr %thread)
  br label %done
done:
  ret i32 %failed
}

define void @ort_wait(ptr %word, i32 %seen) {
  %a = call i32 @pthread_mutex_lock(ptr @ort_mutex)
  %now = load atomic i32, ptr %word seq_cst, align 4
  %same = icmp eq i32 %now, %seen
  br i1 %same, label %sleep, label %out
sleep:
  %b = call i32 @pthread_cond_wait(ptr @ort_condition, ptr @ort_mutex)
  br label %out
out:
  %c = call i32 @pthread_mutex_unlock(ptr @ort_mutex)
  ret void
}

define void @ort_wake(ptr %word) {
  %a = call i32 @pthread_mutex_lock(ptr @ort_mutex)
  %b = call i32 @pthread_cond_broadcast(ptr @ort_condition)
  %c = call i32 @pthread_mutex_unlock(ptr @ort_mutex)
  ret void
}

; macOS lets nobody choose a processor; the pool says so when it is asked to
define void @ort_pin(ptr %mask, i64 %nbytes) {
  ret void
}
"""
