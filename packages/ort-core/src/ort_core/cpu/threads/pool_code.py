"""The thread pool's own code: workers that wait, a program that all threads run, and a barrier between its steps.

A program is an array of steps, four words each: the address of a kernel
``void (ptr args, i64 piece, i64 pieces, i64 thread)``, the address of its argument table, flags, and the pieces that
were claimed. A kernel does one of several pieces of its work; ``thread`` tells whose memory of its own it may use. All
threads run the same steps (SPMD): each does the piece of its own number, or, in a step of many pieces, claims one after
the other, so that a thread that is slowed down leaves more of them to the others. A step with ``SERIAL`` is left to one
thread; the others go on to what does not need it. Behind a step with ``BARRIER`` every thread waits for all others. A
caller who finds the pool busy with another caller's program runs alone (one piece), so that callers never wait for one
another.

To wake a thread takes 30 to 250 us, as long as many a program. A caller may ask for ``AWAKE`` threads only: if some
sleep it runs alone, but wakes them to spin for a while, so that the next of several calls finds them.
"""

from __future__ import annotations

BARRIER, SERIAL = 1, 2  # flags of a step; a SERIAL one is run by one thread, its owner
PIECES_AT = 8  # the bit of the flags from which on they hold how many pieces there are for each thread; 0: its share
OWNER_AT = 32  # the bit of the flags from which on they hold the owner's number
STEP_WORDS = 4
ALONE, AWAKE, ALL = 1, 2, 1 << 30  # threads that a run wants: the caller, all if none of them sleeps, all

# Offsets in bytes into the pool's memory. Words that different threads write lie on cache lines of their own.
GENERATION, ARRIVED, PHASE, DONE, JOB, BUSY, STARTED, SLEEPERS, SPINS, STOP, ALIVE, SIZE, IDLE_SPINS, MASKS = (
    i * 128 for i in range(14)
)
POOL_NBYTES = 14 * 128
MASK_NBYTES = 128  # of one worker's affinity mask: a bit for each of 1,024 processors

_PAUSE = {"x86_64": "call void @llvm.x86.sse2.pause()", "aarch64": "call void @llvm.aarch64.hint(i32 1)"}
_DECLARE = {"x86_64": "declare void @llvm.x86.sse2.pause()", "aarch64": "declare void @llvm.aarch64.hint(i32)"}


def pool_text(triple: str, primitives: str) -> str:
    """Return the pool's module.

    ``ort_pool_start(pool)`` starts one worker, ``ort_pool_run(pool, steps, count, wanted)`` runs a program on
    ``wanted`` threads (``ALONE``, ``AWAKE``, ``ALL``) and returns how many ran it, ``ort_pool_stop(pool)`` lets the
    workers go, ``ort_pause(count)`` makes pauses as a waiting worker does, to be timed.
    """
    arch = {"arm64": "aarch64"}.get(triple.split("-")[0], triple.split("-")[0])
    text = primitives + _DECLARE[arch] + _TEXT
    names = {
        "GENERATION": GENERATION, "ARRIVED": ARRIVED, "PHASE": PHASE, "DONE": DONE, "JOB": JOB, "BUSY": BUSY,
        "STARTED": STARTED, "SLEEPERS": SLEEPERS, "SPINS": SPINS, "STOP": STOP, "ALIVE": ALIVE, "SIZE": SIZE,
        "IDLE_SPINS": IDLE_SPINS, "MASKS": MASKS,
    }  # fmt: skip
    for name, offset in sorted(names.items(), key=lambda item: -len(item[0])):  # no name is the start of a later one
        text = text.replace(f"@@{name}", f"getelementptr i8, ptr %pool, i64 {offset}")
    return (
        text.replace("$PAUSE", _PAUSE[arch])
        .replace("$MASK_NBYTES", str(MASK_NBYTES))
        .replace("$PIECES_AT", str(PIECES_AT))
        .replace("$MOST_PIECES", str((1 << OWNER_AT - PIECES_AT) - 1))
        .replace("$OWNER_AT", str(OWNER_AT))
        .replace("$STEP_WORDS", str(STEP_WORDS))
    )


_TEXT = """
; Wait until the word is no longer %seen: spin a while, then sleep. Who is woken while it still is %seen spins again.
define internal void @await(ptr %pool, ptr %word, i32 %seen, ptr %spins.p) {
entry:
  %sleepers = @@SLEEPERS
  %limit = load i32, ptr %spins.p
  br label %look
look:
  %n = phi i32 [0, %entry], [%n1, %spin], [0, %awake]
  %now = load atomic i32, ptr %word acquire, align 4
  %changed = icmp ne i32 %now, %seen
  br i1 %changed, label %out, label %next
next:
  %n1 = add i32 %n, 1
  %more = icmp ult i32 %n1, %limit
  br i1 %more, label %spin, label %sleep
spin:
  $PAUSE
  br label %look
sleep:
  %s = atomicrmw add ptr %sleepers, i32 1 seq_cst
  %again = load atomic i32, ptr %word seq_cst, align 4
  %still = icmp eq i32 %again, %seen
  br i1 %still, label %deep, label %awake
deep:
  call void @ort_wait(ptr %word, i32 %seen)
  br label %awake
awake:
  %t = atomicrmw sub ptr %sleepers, i32 1 seq_cst
  br label %look
out:
  ret void
}

; Change a word that others may wait for.
define internal void @announce(ptr %pool, ptr %word) {
entry:
  %sleepers = @@SLEEPERS
  %old = atomicrmw add ptr %word, i32 1 seq_cst
  %count = load atomic i32, ptr %sleepers seq_cst, align 4
  %any = icmp ne i32 %count, 0
  br i1 %any, label %wake, label %out
wake:
  call void @ort_wake(ptr %word)
  br label %out
out:
  ret void
}

define internal void @barrier(ptr %pool, i32 %threads) {
entry:
  %arrived = @@ARRIVED
  %phase = @@PHASE
  %spins = @@SPINS
  %mine = load atomic i32, ptr %phase acquire, align 4
  %before = atomicrmw add ptr %arrived, i32 1 acq_rel
  %count = add i32 %before, 1
  %last = icmp eq i32 %count, %threads
  br i1 %last, label %open, label %wait
open:
  store atomic i32 0, ptr %arrived release, align 4
  call void @announce(ptr %pool, ptr %phase)
  ret void
wait:
  call void @await(ptr %pool, ptr %phase, i32 %mine, ptr %spins)
  ret void
}

define internal void @steps(ptr %pool, ptr %steps, i64 %count, i64 %tid, i64 %threads) {
entry:
  %n32 = trunc i64 %threads to i32
  %parallel = icmp ugt i64 %threads, 1
  %none = icmp eq i64 %count, 0
  br i1 %none, label %out, label %step
step:
  %i = phi i64 [0, %entry], [%i1, %next]
  %at = mul i64 %i, $STEP_WORDS
  %p0 = getelementptr i64, ptr %steps, i64 %at
  %p1 = getelementptr i64, ptr %p0, i64 1
  %p2 = getelementptr i64, ptr %p0, i64 2
  %claimed = getelementptr i64, ptr %p0, i64 3
  %kernel = load ptr, ptr %p0
  %arguments = load ptr, ptr %p1
  %flags = load i64, ptr %p2
  %serial.bit = and i64 %flags, 2
  %serial = icmp ne i64 %serial.bit, 0
  %owner = lshr i64 %flags, $OWNER_AT
  %other = icmp ne i64 %tid, %owner
  %others = and i1 %other, %parallel
  %skip = and i1 %serial, %others
  br i1 %skip, label %behind, label %do
do:
  %cut = lshr i64 %flags, $PIECES_AT
  %each = and i64 %cut, $MOST_PIECES
  %many = icmp ne i64 %each, 0
  %claims = and i1 %many, %parallel
  %all = mul i64 %each, %threads
  br i1 %claims, label %claim, label %own
own:
  %shares = select i1 %serial, i64 1, i64 %threads
  %share = select i1 %serial, i64 0, i64 %tid
  call void %kernel(ptr %arguments, i64 %share, i64 %shares, i64 %tid)
  br label %behind
claim:
  %piece = atomicrmw add ptr %claimed, i64 1 monotonic
  %left = icmp ult i64 %piece, %all
  br i1 %left, label %do.piece, label %behind
do.piece:
  call void %kernel(ptr %arguments, i64 %piece, i64 %all, i64 %tid)
  br label %claim
behind:
  %barrier.bit = and i64 %flags, 1
  %wanted = icmp ne i64 %barrier.bit, 0
  %meet = and i1 %wanted, %parallel
  br i1 %meet, label %sync, label %next
sync:
  call void @barrier(ptr %pool, i32 %n32)
  br label %next
next:
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, %count
  br i1 %more, label %step, label %out
out:
  ret void
}

; Forget which pieces were claimed in an earlier run.
define internal void @unclaim(ptr %steps, i64 %count) {
entry:
  br label %next
next:
  %i = phi i64 [0, %entry], [%i1, %clear]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %clear, label %out
clear:
  %at = mul i64 %i, $STEP_WORDS
  %step = getelementptr i64, ptr %steps, i64 %at
  %claimed = getelementptr i64, ptr %step, i64 3
  store i64 0, ptr %claimed
  %i1 = add i64 %i, 1
  br label %next
out:
  ret void
}

define internal ptr @worker(ptr %pool) {
entry:
  %generation = @@GENERATION
  %started = @@STARTED
  %job = @@JOB
  %done = @@DONE
  %stop = @@STOP
  %alive = @@ALIVE
  %spins = @@IDLE_SPINS
  %masks.p = @@MASKS
  %job1 = getelementptr i64, ptr %job, i64 1
  %job2 = getelementptr i64, ptr %job, i64 2
  %before = atomicrmw add ptr %started, i32 1 seq_cst
  %tid32 = add i32 %before, 1
  %tid = zext i32 %tid32 to i64
  %masks = load ptr, ptr %masks.p
  %anywhere = icmp eq ptr %masks, null
  br i1 %anywhere, label %ready, label %pin
pin:
  %before64 = zext i32 %before to i64
  %mask.at = mul i64 %before64, $MASK_NBYTES
  %mask = getelementptr i8, ptr %masks, i64 %mask.at
  call void @ort_pin(ptr %mask, i64 $MASK_NBYTES)
  br label %ready
ready:
  br label %idle
idle:
  %seen = phi i32 [0, %ready], [%now, %work]
  call void @await(ptr %pool, ptr %generation, i32 %seen, ptr %spins)
  %now = load atomic i32, ptr %generation acquire, align 4
  %ending = load atomic i32, ptr %stop acquire, align 4
  %over = icmp ne i32 %ending, 0
  br i1 %over, label %leave, label %work
work:
  %steps = load ptr, ptr %job
  %count = load i64, ptr %job1
  %threads = load i64, ptr %job2
  call void @steps(ptr %pool, ptr %steps, i64 %count, i64 %tid, i64 %threads)
  call void @announce(ptr %pool, ptr %done)
  br label %idle
leave:
  %gone = atomicrmw sub ptr %alive, i32 1 seq_cst
  ret ptr null
}

define i32 @ort_pool_start(ptr %pool) {
entry:
  %id = alloca i64
  %alive = @@ALIVE
  %failed = call i32 @ort_start(ptr @worker, ptr %pool, ptr %id)
  %bad = icmp ne i32 %failed, 0
  br i1 %bad, label %out, label %counted
counted:
  %one = atomicrmw add ptr %alive, i32 1 seq_cst
  br label %out
out:
  ret i32 %failed
}

define i64 @ort_pool_run(ptr %pool, ptr %steps, i64 %count, i64 %wanted) {
entry:
  %generation = @@GENERATION
  %job = @@JOB
  %busy = @@BUSY
  %done = @@DONE
  %size.p = @@SIZE
  %spins = @@SPINS
  %job1 = getelementptr i64, ptr %job, i64 1
  %job2 = getelementptr i64, ptr %job, i64 2
  %size = load i64, ptr %size.p
  %one = icmp ult i64 %size, 2
  %asked = icmp ult i64 %wanted, 2
  %single = or i1 %one, %asked
  br i1 %single, label %alone, label %several
several:
  %whoever = icmp ugt i64 %wanted, 2
  %sleepers.p = @@SLEEPERS
  %sleepers = load atomic i32, ptr %sleepers.p acquire, align 4
  %warm = icmp eq i32 %sleepers, 0
  %together.now = or i1 %whoever, %warm
  br i1 %together.now, label %try, label %cold
cold:
  %idle.p = @@IDLE_SPINS
  %idle = load i32, ptr %idle.p
  %stays.awake = icmp ne i32 %idle, 0
  br i1 %stays.awake, label %nudge, label %alone
nudge:
  call void @ort_wake(ptr %generation)
  br label %alone
try:
  %pair = cmpxchg ptr %busy, i32 0, i32 1 seq_cst seq_cst
  %free = extractvalue {i32, i1} %pair, 1
  br i1 %free, label %together, label %alone
alone:
  call void @steps(ptr %pool, ptr %steps, i64 %count, i64 0, i64 1)
  ret i64 1
together:
  call void @unclaim(ptr %steps, i64 %count)
  store ptr %steps, ptr %job
  store i64 %count, ptr %job1
  store i64 %size, ptr %job2
  store atomic i32 0, ptr %done release, align 4
  call void @announce(ptr %pool, ptr %generation)
  call void @steps(ptr %pool, ptr %steps, i64 %count, i64 0, i64 %size)
  %size32 = trunc i64 %size to i32
  %others = sub i32 %size32, 1
  br label %wait
wait:
  %count.done = load atomic i32, ptr %done acquire, align 4
  %all = icmp eq i32 %count.done, %others
  br i1 %all, label %finish, label %rest
rest:
  call void @await(ptr %pool, ptr %done, i32 %count.done, ptr %spins)
  br label %wait
finish:
  store atomic i32 0, ptr %busy release, align 4
  ret i64 %size
}

define void @ort_pool_stop(ptr %pool) {
entry:
  %generation = @@GENERATION
  %stop = @@STOP
  store atomic i32 1, ptr %stop seq_cst, align 4
  call void @announce(ptr %pool, ptr %generation)
  ret void
}

define void @ort_pause(i64 %count) {
entry:
  br label %again
again:
  %n = phi i64 [0, %entry], [%n1, %again]
  $PAUSE
  %n1 = add i64 %n, 1
  %more = icmp ult i64 %n1, %count
  br i1 %more, label %again, label %out
out:
  ret void
}
"""
