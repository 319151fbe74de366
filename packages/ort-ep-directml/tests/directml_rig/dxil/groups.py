"""Thread groups: the loops over groups and threads, and threads that wait for each other at barriers.

A shader without a barrier is a function that the loops call for each thread. One with barriers is a coroutine of LLVM
that suspends itself at each: all threads of a group are resumed in turn until all are done.
"""

from __future__ import annotations

PARAMETERS = ", ".join(["ptr %rig.views", *(f"i32 %rig.{name}{axis}" for name in "gt" for axis in range(3))])
"""A thread's: the views, the number of its group, and its own within the group."""
BEGIN_WAITING = """  %rig.id = call token @llvm.coro.id(i32 0, ptr null, ptr null, ptr null)
  %rig.frame.nbytes = call i64 @llvm.coro.size.i64()
  %rig.frame = call ptr @malloc(i64 %rig.frame.nbytes)
  %rig.handle = call noalias ptr @llvm.coro.begin(token %rig.id, ptr %rig.frame)"""
"""First lines of a thread that waits at barriers."""
END_WAITING = """rig.last:
  %rig.last.wait = call i8 @llvm.coro.suspend(token none, i1 true)
  switch i8 %rig.last.wait, label %rig.leave [i8 0, label %rig.never
                                              i8 1, label %rig.free]
rig.never:
  unreachable
rig.free:
  %rig.memory = call ptr @llvm.coro.free(token %rig.id, ptr %rig.handle)
  call void @free(ptr %rig.memory)
  br label %rig.leave
rig.leave:
  call void @llvm.coro.end(ptr %rig.handle, i1 false, token none)
  ret ptr %rig.handle"""
"""Last lines of a thread that waits at barriers; to be branched to as ``rig.last``."""
DECLARATIONS = """
declare token @llvm.coro.id(i32, ptr, ptr, ptr)
declare i64 @llvm.coro.size.i64()
declare ptr @llvm.coro.begin(token, ptr)
declare i8 @llvm.coro.suspend(token, i1)
declare ptr @llvm.coro.free(token, ptr)
declare void @llvm.coro.end(ptr, i1, token)
declare void @llvm.coro.resume(ptr)
declare void @llvm.coro.destroy(ptr)
declare i1 @llvm.coro.done(ptr)
declare ptr @malloc(i64)
declare void @free(ptr)
"""


def wait(number: int) -> list[str]:
    """Return the lines of a thread at a barrier; it goes on in the block ``rig.after.number``."""
    return [
        f"  %rig.wait.{number} = call i8 @llvm.coro.suspend(token none, i1 false)",
        f"  switch i8 %rig.wait.{number}, label %rig.leave [i8 0, label %rig.after.{number}",
        "    i8 1, label %rig.free]",
        f"rig.after.{number}:",
    ]


def thread_header(*, waits: bool) -> str:
    """Return the first line of a thread's function."""
    if waits:
        return f"define internal ptr @rig.thread({PARAMETERS}) presplitcoroutine {{"
    return f"define internal void @rig.thread({PARAMETERS}) alwaysinline {{"


def dispatch(group: tuple[int, int, int], *, waits: bool) -> str:
    """Return ``rig.dispatch(views, groups along x, y, z)``, which runs every thread of every group."""
    size = group[0] * group[1] * group[2]
    run = _WAITING_GROUP if waits else _FREE_GROUP
    return run.format(size=size, **_thread(group)) + _GROUPS


def _thread(group: tuple[int, int, int]) -> dict[str, str]:
    x, y, _ = group
    return {
        "indices": f"""%tx = urem i32 %n, {x}
  %rest = udiv i32 %n, {x}
  %ty = urem i32 %rest, {y}
  %tz = udiv i32 %rest, {y}""",
        "arguments": "ptr %views, i32 %gx, i32 %gy, i32 %gz, i32 %tx, i32 %ty, i32 %tz",
    }


_FREE_GROUP = """
define internal void @rig.group(ptr %views, i32 %gx, i32 %gy, i32 %gz) {{
entry:
  br label %thread
thread:
  %n = phi i32 [0, %entry], [%next, %thread]
  {indices}
  call void @rig.thread({arguments})
  %next = add i32 %n, 1
  %more = icmp ult i32 %next, {size}
  br i1 %more, label %thread, label %done
done:
  ret void
}}
"""
_WAITING_GROUP = """
define internal void @rig.group(ptr %views, i32 %gx, i32 %gy, i32 %gz) {{
entry:
  %handles = alloca [{size} x ptr]
  br label %begin
begin:
  %n = phi i32 [0, %entry], [%next, %begin]
  {indices}
  %handle = call ptr @rig.thread({arguments})
  %kept = getelementptr ptr, ptr %handles, i32 %n
  store ptr %handle, ptr %kept
  %next = add i32 %n, 1
  %more = icmp ult i32 %next, {size}
  br i1 %more, label %begin, label %round
round:
  br label %look
look:
  %k = phi i32 [0, %round], [%k.next, %looked]
  %alive = phi i1 [false, %round], [%alive.next, %looked]
  %slot = getelementptr ptr, ptr %handles, i32 %k
  %thread = load ptr, ptr %slot
  %over = call i1 @llvm.coro.done(ptr %thread)
  br i1 %over, label %looked, label %resume
resume:
  call void @llvm.coro.resume(ptr %thread)
  br label %looked
looked:
  %alive.next = phi i1 [%alive, %look], [true, %resume]
  %k.next = add i32 %k, 1
  %k.more = icmp ult i32 %k.next, {size}
  br i1 %k.more, label %look, label %judge
judge:
  br i1 %alive.next, label %round, label %end
end:
  %e = phi i32 [0, %judge], [%e.next, %end]
  %e.slot = getelementptr ptr, ptr %handles, i32 %e
  %e.thread = load ptr, ptr %e.slot
  call void @llvm.coro.destroy(ptr %e.thread)
  %e.next = add i32 %e, 1
  %e.more = icmp ult i32 %e.next, {size}
  br i1 %e.more, label %end, label %done
done:
  ret void
}}
"""
_GROUPS = """
define void @rig.dispatch(ptr %views, i32 %nx, i32 %ny, i32 %nz) {
entry:
  br label %z
z:
  %gz = phi i32 [0, %entry], [%gz.next, %z.end]
  br label %y
y:
  %gy = phi i32 [0, %z], [%gy.next, %y.end]
  br label %x
x:
  %gx = phi i32 [0, %y], [%gx.next, %x]
  call void @rig.group(ptr %views, i32 %gx, i32 %gy, i32 %gz)
  %gx.next = add i32 %gx, 1
  %gx.more = icmp ult i32 %gx.next, %nx
  br i1 %gx.more, label %x, label %y.end
y.end:
  %gy.next = add i32 %gy, 1
  %gy.more = icmp ult i32 %gy.next, %ny
  br i1 %gy.more, label %y, label %z.end
z.end:
  %gz.next = add i32 %gz, 1
  %gz.more = icmp ult i32 %gz.next, %nz
  br i1 %gz.more, label %z, label %done
done:
  ret void
}
"""
