"""Native code that plans a signature which no entry has: what ``ProgramPlan`` does in Python, into a table's words.

All of it is done by the thread that has set ``BUSY``. It gives up where the ordinary run must answer: sizes that are
not as declared, numbers beyond 64 bits, more memory than is allowed, work for which nobody has said how threads share
it.
"""

from __future__ import annotations

OPEN_CODE = """
; Let no signature fit a table until it is planned.
define internal void @close_table(ptr %record) {
  %signature = call ptr @pointer(ptr %record, i64 @@E.SIGNATURE@)
  store i64 -1, ptr %signature
  ret void
}

define internal i1 @ranks_fit(ptr %head, ptr %open, ptr %arrays) {
entry:
  %count = call i64 @word(ptr %head, i64 @@H.INPUTS@)
  %ranks = call ptr @pointer(ptr %open, i64 @@O.RANKS@)
  br label %next
next:
  %i = phi i64 [0, %entry], [%i1, %good]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %look, label %yes
look:
  %array = call ptr @pointer(ptr %arrays, i64 %i)
  %rank.p = getelementptr i8, ptr %array, i64 @@A.rank@
  %rank32 = load i32, ptr %rank.p
  %rank = sext i32 %rank32 to i64
  %expected = call i64 @word(ptr %ranks, i64 %i)
  %same = icmp eq i64 %rank, %expected
  br i1 %same, label %good, label %no
good:
  %i1 = add i64 %i, 1
  br label %next
yes:
  ret i1 true
no:
  ret i1 false
}

; Add a size times a number to a sum; the second is whether 64 bits are too few.
define internal {i64, i1} @added_product(i64 %sum, i64 %size, i64 %times) {
  %product.pair = call {i64, i1} @llvm.smul.with.overflow.i64(i64 %size, i64 %times)
  %product = extractvalue {i64, i1} %product.pair, 0
  %product.over = extractvalue {i64, i1} %product.pair, 1
  %padded.pair = call {i64, i1} @llvm.sadd.with.overflow.i64(i64 %product, i64 @@ALIGNMENT_LESS_ONE@)
  %padded = extractvalue {i64, i1} %padded.pair, 0
  %padded.over = extractvalue {i64, i1} %padded.pair, 1
  %aligned = and i64 %padded, -@@ALIGNMENT@
  %sum.pair = call {i64, i1} @llvm.sadd.with.overflow.i64(i64 %sum, i64 %aligned)
  %total = extractvalue {i64, i1} %sum.pair, 0
  %sum.over = extractvalue {i64, i1} %sum.pair, 1
  %over.1 = or i1 %product.over, %padded.over
  %over = or i1 %over.1, %sum.over
  %first = insertvalue {i64, i1} poison, i64 %total, 0
  %both = insertvalue {i64, i1} %first, i1 %over, 1
  ret {i64, i1} %both
}

; Say where each slot lies in the arena, how large that is, and how much of it limits count.
define internal i1 @place_slots(ptr %open) {
entry:
  %slots = call ptr @pointer(ptr %open, i64 @@O.SLOTS@)
  %count = call i64 @word(ptr %open, i64 @@O.SLOT_COUNT@)
  %offsets = call ptr @pointer(ptr %open, i64 @@O.OFFSETS@)
  %registers = call ptr @pointer(ptr %open, i64 @@O.REGISTERS@)
  br label %next
next:
  %i = phi i64 [0, %entry], [%i1, %good]
  %end = phi i64 [0, %entry], [%end1, %good]
  %counted = phi i64 [0, %entry], [%counted1, %good]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %look, label %out
look:
  %at = mul i64 %i, 3
  %row = getelementptr i64, ptr %slots, i64 %at
  %register = call i64 @word(ptr %row, i64 0)
  %times = call i64 @word(ptr %row, i64 1)
  %is.counted = call i64 @word(ptr %row, i64 2)
  %size = call i64 @word(ptr %registers, i64 %register)
  %offset.p = getelementptr i64, ptr %offsets, i64 %i
  store i64 %end, ptr %offset.p
  %end.pair = call {i64, i1} @added_product(i64 %end, i64 %size, i64 %times)
  %end1 = extractvalue {i64, i1} %end.pair, 0
  %over = extractvalue {i64, i1} %end.pair, 1
  br i1 %over, label %no, label %good
good:
  %taken = sub i64 %end1, %end
  %counts = mul i64 %taken, %is.counted
  %counted1 = add i64 %counted, %counts
  %i1 = add i64 %i, 1
  br label %next
out:
  %needed.p = getelementptr i64, ptr %open, i64 @@O.NEEDED@
  store i64 %end, ptr %needed.p
  %nbytes.p = getelementptr i64, ptr %open, i64 @@O.NBYTES@
  store i64 %counted, ptr %nbytes.p
  ret i1 true
no:
  ret i1 false
}

; Write the inputs' shapes, bytes and numbers into a table's signature, all but the first rank, which comes last of all.
define internal void @write_signature(ptr %head, ptr %open, ptr %record, ptr %arrays) {
entry:
  %count = call i64 @word(ptr %head, i64 @@H.INPUTS@)
  %signature = call ptr @pointer(ptr %record, i64 @@E.SIGNATURE@)
  %ranks = call ptr @pointer(ptr %open, i64 @@O.RANKS@)
  %items = call ptr @pointer(ptr %open, i64 @@O.ITEM_SIZES@)
  br label %next
next:
  %i = phi i64 [0, %entry], [%i1, %behind]
  %at = phi i64 [0, %entry], [%at1, %behind]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %look, label %out
look:
  %array = call ptr @pointer(ptr %arrays, i64 %i)
  %sizes = call ptr @field(ptr %array, i64 @@A.sizes@)
  %rank = call i64 @word(ptr %ranks, i64 %i)
  %item = call i64 @word(ptr %items, i64 %i)
  %first = add i64 %at, 1
  br label %axis
axis:
  %k = phi i64 [0, %look], [%k1, %copy]
  %nbytes = phi i64 [%item, %look], [%nbytes1, %copy]
  %target = add i64 %first, %k
  %target.p = getelementptr i64, ptr %signature, i64 %target
  %more.axes = icmp slt i64 %k, %rank
  br i1 %more.axes, label %copy, label %behind
copy:
  %size = call i64 @word(ptr %sizes, i64 %k)
  store i64 %size, ptr %target.p
  %nbytes1 = mul i64 %nbytes, %size
  %k1 = add i64 %k, 1
  br label %axis
behind:
  store i64 %nbytes, ptr %target.p
  %at1 = add i64 %target, 1
  %i1 = add i64 %i, 1
  br label %next
out:
  %number.count = call i64 @word(ptr %head, i64 @@H.NUMBER_COUNT@)
  %indices = call ptr @pointer(ptr %head, i64 @@H.NUMBERS@)
  br label %number.next
number.next:
  %l = phi i64 [0, %out], [%l1, %number.one]
  %more.numbers = icmp slt i64 %l, %number.count
  br i1 %more.numbers, label %number.one, label %end
number.one:
  %index = call i64 @word(ptr %indices, i64 %l)
  %value = call i64 @number(ptr %arrays, i64 %index)
  %number.at = add i64 %at, %l
  %number.p = getelementptr i64, ptr %signature, i64 %number.at
  store i64 %value, ptr %number.p
  %l1 = add i64 %l, 1
  br label %number.next
end:
  ret void
}

; Write the outputs' shapes, bytes and makers into a table; add their bytes to those that limits count.
define internal i1 @write_outputs(ptr %head, ptr %open, ptr %record) {
entry:
  %inputs = call i64 @word(ptr %head, i64 @@H.INPUTS@)
  %count = call i64 @word(ptr %head, i64 @@H.OUTPUTS@)
  %rows = call ptr @pointer(ptr %record, i64 @@E.OUTPUTS@)
  %makers = call ptr @pointer(ptr %record, i64 @@E.MAKERS@)
  %shapes = call ptr @pointer(ptr %open, i64 @@O.SHAPES@)
  %items = call ptr @pointer(ptr %open, i64 @@O.ITEM_SIZES@)
  %registers = call ptr @pointer(ptr %open, i64 @@O.REGISTERS@)
  %own = call i64 @word(ptr %open, i64 @@O.NBYTES@)
  br label %next
next:
  %i = phi i64 [0, %entry], [%i1, %add]
  %at = phi i64 [0, %entry], [%at1, %add]
  %total = phi i64 [%own, %entry], [%total1, %add]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %look, label %out
look:
  %row.at = mul i64 %i, @@OUTPUT_WORDS@
  %row = getelementptr i64, ptr %rows, i64 %row.at
  %rank = call i64 @word(ptr %row, i64 2)
  %sizes = call ptr @pointer(ptr %row, i64 3)
  %item.at = add i64 %inputs, %i
  %item = call i64 @word(ptr %items, i64 %item.at)
  br label %axis
axis:
  %k = phi i64 [0, %look], [%k1, %copied]
  %nbytes = phi i64 [%item, %look], [%nbytes1, %copied]
  %more.axes = icmp slt i64 %k, %rank
  br i1 %more.axes, label %copy, label %behind
copy:
  %source = add i64 %at, %k
  %register = call i64 @word(ptr %shapes, i64 %source)
  %size = call i64 @word(ptr %registers, i64 %register)
  %target = getelementptr i64, ptr %sizes, i64 %k
  store i64 %size, ptr %target
  %pair = call {i64, i1} @llvm.smul.with.overflow.i64(i64 %nbytes, i64 %size)
  %nbytes1 = extractvalue {i64, i1} %pair, 0
  %over = extractvalue {i64, i1} %pair, 1
  br i1 %over, label %no, label %copied
copied:
  %k1 = add i64 %k, 1
  br label %axis
behind:
  %nbytes.p = getelementptr i64, ptr %row, i64 4
  store i64 %nbytes, ptr %nbytes.p
  %maker = call i64 @word(ptr %makers, i64 %i)
  %is.large = icmp sge i64 %nbytes, @@LEAST@
  %its.maker = select i1 %is.large, i64 %maker, i64 0
  %maker.p = getelementptr i64, ptr %row, i64 6
  store i64 %its.maker, ptr %maker.p
  %sum = call {i64, i1} @llvm.sadd.with.overflow.i64(i64 %total, i64 %nbytes)
  %total1 = extractvalue {i64, i1} %sum, 0
  %sum.over = extractvalue {i64, i1} %sum, 1
  br i1 %sum.over, label %no, label %add
add:
  %at1 = add i64 %at, %rank
  %i1 = add i64 %i, 1
  br label %next
out:
  %nbytes.at = getelementptr i64, ptr %open, i64 @@O.NBYTES@
  store i64 %total, ptr %nbytes.at
  ret i1 true
no:
  ret i1 false
}

; Whether the arena has the size that is needed, or was given it; where not, an error may be set.
define internal i1 @size_arena(ptr %head, ptr %open) {
entry:
  %needed = call i64 @word(ptr %open, i64 @@O.NEEDED@)
  %capacity = call i64 @word(ptr %open, i64 @@O.CAPACITY@)
  %is.small = icmp sgt i64 %needed, %capacity
  %is.kept = icmp sle i64 %capacity, @@KEPT_NBYTES@
  %quarter = sdiv i64 %capacity, 4
  %is.used = icmp sge i64 %needed, %quarter
  %fits = or i1 %is.kept, %is.used
  %is.large = xor i1 %fits, true
  %resize = or i1 %is.small, %is.large
  br i1 %resize, label %ask, label %yes
ask:
  %call = call ptr @pointer(ptr %head, i64 @@H.CALL@)
  %function = call ptr @pointer(ptr %open, i64 @@O.RESIZE@)
  %answer = call ptr %call(ptr %function)
  %raised = icmp eq ptr %answer, null
  br i1 %raised, label %no, label %answered
answered:
  call void @drop(ptr %head, ptr %answer)
  %none = call ptr @pointer(ptr %head, i64 @@H.NONE@)
  %no.room = icmp eq ptr %answer, %none
  br i1 %no.room, label %no, label %yes
yes:
  ret i1 true
no:
  ret i1 false
}

; Write all words of a table that depend on sizes, or on where the arena lies.
define internal void @write_table(ptr %open, ptr %record) {
entry:
  %table = call ptr @pointer(ptr %record, i64 @@E.TABLE@)
  %registers = call ptr @pointer(ptr %open, i64 @@O.REGISTERS@)
  %based = call ptr @pointer(ptr %open, i64 @@O.BASED@)
  %based.count = call i64 @word(ptr %open, i64 @@O.BASED_COUNT@)
  %arena = call ptr @pointer(ptr %open, i64 @@O.ARENA@)
  %arena.count = call i64 @word(ptr %open, i64 @@O.ARENA_COUNT@)
  %offsets = call ptr @pointer(ptr %open, i64 @@O.OFFSETS@)
  %start = call i64 @word(ptr %open, i64 @@O.START@)
  %patches = call ptr @pointer(ptr %record, i64 @@E.PATCHES@)
  %patch.count = call i64 @word(ptr %record, i64 @@E.PATCH_COUNT@)
  %patched = call ptr @pointer(ptr %open, i64 @@O.PATCHED@)
  br label %based.next
based.next:
  %j = phi i64 [0, %entry], [%j1, %based.one]
  %more.based = icmp slt i64 %j, %based.count
  br i1 %more.based, label %based.one, label %arena.next
based.one:
  %based.at = mul i64 %j, 3
  %based.row = getelementptr i64, ptr %based, i64 %based.at
  %based.position = call i64 @word(ptr %based.row, i64 0)
  %based.register = call i64 @word(ptr %based.row, i64 1)
  %based.address = call i64 @word(ptr %based.row, i64 2)
  %based.size = call i64 @word(ptr %registers, i64 %based.register)
  %based.value = add i64 %based.address, %based.size
  %based.p = getelementptr i64, ptr %table, i64 %based.position
  store i64 %based.value, ptr %based.p
  %j1 = add i64 %j, 1
  br label %based.next
arena.next:
  %k = phi i64 [0, %based.next], [%k1, %arena.one]
  %more.arena = icmp slt i64 %k, %arena.count
  br i1 %more.arena, label %arena.one, label %patch.next
arena.one:
  %arena.at = mul i64 %k, 3
  %arena.row = getelementptr i64, ptr %arena, i64 %arena.at
  %arena.position = call i64 @word(ptr %arena.row, i64 0)
  %arena.register = call i64 @word(ptr %arena.row, i64 1)
  %arena.slot = call i64 @word(ptr %arena.row, i64 2)
  %arena.size = call i64 @word(ptr %registers, i64 %arena.register)
  %arena.offset = call i64 @word(ptr %offsets, i64 %arena.slot)
  %arena.place = add i64 %start, %arena.offset
  %arena.value = add i64 %arena.place, %arena.size
  %arena.p = getelementptr i64, ptr %table, i64 %arena.position
  store i64 %arena.value, ptr %arena.p
  %k1 = add i64 %k, 1
  br label %arena.next
patch.next:
  %l = phi i64 [0, %arena.next], [%l1, %patch.one]
  %more.patches = icmp slt i64 %l, %patch.count
  br i1 %more.patches, label %patch.one, label %out
patch.one:
  %patch.register = call i64 @word(ptr %patched, i64 %l)
  %patch.value = call i64 @word(ptr %registers, i64 %patch.register)
  %patch.at = mul i64 %l, 3
  %patch.added = add i64 %patch.at, 1
  %patch.p = getelementptr i64, ptr %patches, i64 %patch.added
  store i64 %patch.value, ptr %patch.p
  %l1 = add i64 %l, 1
  br label %patch.next
out:
  ret void
}

; Whether the work of each step is what an order was made for.
define internal i1 @order_fits(ptr %open, ptr %order) {
entry:
  %work = call ptr @pointer(ptr %open, i64 @@O.WORK@)
  %count = call i64 @word(ptr %open, i64 @@O.WORK_COUNT@)
  %registers = call ptr @pointer(ptr %open, i64 @@O.REGISTERS@)
  %least = call ptr @pointer(ptr %order, i64 0)
  %most = call ptr @pointer(ptr %order, i64 1)
  br label %next
next:
  %i = phi i64 [0, %entry], [%i1, %good]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %look, label %yes
look:
  %register = call i64 @word(ptr %work, i64 %i)
  %value = call i64 @word(ptr %registers, i64 %register)
  %low = call i64 @word(ptr %least, i64 %i)
  %high = call i64 @word(ptr %most, i64 %i)
  %not.below = icmp sge i64 %value, %low
  %not.above = icmp sle i64 %value, %high
  %fits = and i1 %not.below, %not.above
  br i1 %fits, label %good, label %no
good:
  %i1 = add i64 %i, 1
  br label %next
yes:
  ret i1 true
no:
  ret i1 false
}

; Say how many threads a run wants, and how they share the steps; false where nobody has said that for such work.
define internal i1 @order_steps(ptr %open, ptr %record) {
entry:
  %work = call ptr @pointer(ptr %open, i64 @@O.WORK@)
  %count = call i64 @word(ptr %open, i64 @@O.WORK_COUNT@)
  %registers = call ptr @pointer(ptr %open, i64 @@O.REGISTERS@)
  br label %sum.next
sum.next:
  %i = phi i64 [0, %entry], [%i1, %sum.good]
  %total = phi i64 [0, %entry], [%total1, %sum.good]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %sum.one, label %summed
sum.one:
  %register = call i64 @word(ptr %work, i64 %i)
  %value = call i64 @word(ptr %registers, i64 %register)
  %sum = call {i64, i1} @llvm.sadd.with.overflow.i64(i64 %total, i64 %value)
  %total1 = extractvalue {i64, i1} %sum, 0
  %over = extractvalue {i64, i1} %sum, 1
  br i1 %over, label %no, label %sum.good
sum.good:
  %i1 = add i64 %i, 1
  br label %sum.next
summed:
  %is.alone = icmp slt i64 %total, @@PARALLEL_WORK@
  %is.short = icmp slt i64 %total, @@WAKING_WORK@
  %several = select i1 %is.short, i64 @@AWAKE@, i64 @@ALL@
  %wanted = select i1 %is.alone, i64 @@ALONE@, i64 %several
  %wanted.p = getelementptr i64, ptr %record, i64 @@E.WANTED@
  store i64 %wanted, ptr %wanted.p
  %holds = zext i1 %is.alone to i64
  %holds.p = getelementptr i64, ptr %record, i64 @@E.HOLDS_LOCK@
  store i64 %holds, ptr %holds.p
  %is.shared = call i64 @word(ptr %open, i64 @@O.IS_SHARED@)
  %one.thread = icmp eq i64 %is.shared, 0
  %alone = or i1 %one.thread, %is.alone
  br i1 %alone, label %yes, label %search
search:
  %orders = call ptr @pointer(ptr %open, i64 @@O.ORDERS@)
  %order.count = call i64 @word(ptr %open, i64 @@O.ORDER_COUNT@)
  br label %order.next
order.next:
  %j = phi i64 [0, %search], [%j1, %other]
  %more.orders = icmp slt i64 %j, %order.count
  br i1 %more.orders, label %try, label %no
try:
  %order.at = mul i64 %j, 3
  %order = getelementptr i64, ptr %orders, i64 %order.at
  %fits = call i1 @order_fits(ptr %open, ptr %order)
  br i1 %fits, label %take, label %other
other:
  %j1 = add i64 %j, 1
  br label %order.next
take:
  %flags = call ptr @pointer(ptr %order, i64 2)
  %steps = call ptr @pointer(ptr %record, i64 @@E.STEPS@)
  br label %flag.next
flag.next:
  %k = phi i64 [0, %take], [%k1, %flag.one]
  %more.flags = icmp slt i64 %k, %count
  br i1 %more.flags, label %flag.one, label %yes
flag.one:
  %flag = call i64 @word(ptr %flags, i64 %k)
  %step.at = mul i64 %k, @@STEP_WORDS@
  %flag.at = add i64 %step.at, 2
  %flag.p = getelementptr i64, ptr %steps, i64 %flag.at
  store i64 %flag, ptr %flag.p
  %k1 = add i64 %k, 1
  br label %flag.next
yes:
  ret i1 true
no:
  ret i1 false
}

; Plan a table for the inputs' shapes; false where the ordinary run must answer, and perhaps an error is set.
define internal i1 @plan(ptr %head, ptr %open, ptr %record, ptr %arrays) {
entry:
  call void @close_table(ptr %record)
  %evaluated = call i1 @evaluate(ptr %open, ptr %arrays)
  br i1 %evaluated, label %slots, label %no
slots:
  %placed = call i1 @place_slots(ptr %open)
  br i1 %placed, label %outputs, label %no
outputs:
  %written = call i1 @write_outputs(ptr %head, ptr %open, ptr %record)
  br i1 %written, label %limit, label %no
limit:
  %nbytes = call i64 @word(ptr %open, i64 @@O.NBYTES@)
  %most = call i64 @word(ptr %open, i64 @@O.MOST_NBYTES@)
  %is.allowed = icmp sle i64 %nbytes, %most
  br i1 %is.allowed, label %order, label %no
order:
  %is.ordered = call i1 @order_steps(ptr %open, ptr %record)
  br i1 %is.ordered, label %arena, label %no
arena:
  %is.sized = call i1 @size_arena(ptr %head, ptr %open)
  br i1 %is.sized, label %table, label %no
table:
  call void @write_table(ptr %open, ptr %record)
  call void @write_signature(ptr %head, ptr %open, ptr %record, ptr %arrays)
  %ranks = call ptr @pointer(ptr %open, i64 @@O.RANKS@)
  %rank = call i64 @word(ptr %ranks, i64 0)
  %signature = call ptr @pointer(ptr %record, i64 @@E.SIGNATURE@)
  store i64 %rank, ptr %signature
  ret i1 true
no:
  ret i1 false
}

; Return the table that has the inputs' signature, or was planned for it in place of the one that is unused the longest.
define internal ptr @planned_table(ptr %head, ptr %open, ptr %arrays) {
entry:
  %tables = call ptr @pointer(ptr %open, i64 @@O.TABLES@)
  %count = call i64 @word(ptr %open, i64 @@O.TABLE_COUNT@)
  %clock.p = getelementptr i64, ptr %open, i64 @@O.CLOCK@
  %clock = load i64, ptr %clock.p
  %clock1 = add i64 %clock, 1
  store i64 %clock1, ptr %clock.p
  %first = call ptr @pointer(ptr %tables, i64 0)
  br label %next
next:
  %i = phi i64 [0, %entry], [%i1, %other]
  %oldest = phi ptr [%first, %entry], [%oldest1, %other]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %look, label %plan
look:
  %record = call ptr @pointer(ptr %tables, i64 %i)
  %fits = call i1 @matches(ptr %head, ptr %record, ptr %arrays)
  br i1 %fits, label %out, label %other
other:
  %stamp = call i64 @word(ptr %record, i64 @@E.STAMP@)
  %least = call i64 @word(ptr %oldest, i64 @@E.STAMP@)
  %is.older = icmp slt i64 %stamp, %least
  %oldest1 = select i1 %is.older, ptr %record, ptr %oldest
  %i1 = add i64 %i, 1
  br label %next
plan:
  %planned = call i1 @plan(ptr %head, ptr %open, ptr %oldest, ptr %arrays)
  br i1 %planned, label %out, label %none
out:
  %found = phi ptr [%record, %look], [%oldest, %plan]
  %stamp.p = getelementptr i64, ptr %found, i64 @@E.STAMP@
  store i64 %clock1, ptr %stamp.p
  ret ptr %found
none:
  ret ptr null
}

; Run inputs whose signature no entry has; returns the list of outputs, or null.
define internal ptr @run_open(ptr %head, ptr %given, ptr %arrays, ptr %starts, ptr %lengths) {
entry:
  %open = call ptr @pointer(ptr %head, i64 @@H.OPEN@)
  %closed = icmp eq ptr %open, null
  br i1 %closed, label %none, label %take
take:
  %fit = call i1 @ranks_fit(ptr %head, ptr %open, ptr %arrays)
  br i1 %fit, label %try, label %none
try:
  %busy = getelementptr i64, ptr %open, i64 @@O.BUSY@
  %taking = cmpxchg ptr %busy, i64 0, i64 1 acquire monotonic, align 8
  %is.taken = extractvalue {i64, i1} %taking, 1
  br i1 %is.taken, label %own, label %none
own:
  %record = call ptr @planned_table(ptr %head, ptr %open, ptr %arrays)
  %no.record = icmp eq ptr %record, null
  br i1 %no.record, label %give.up, label %make
make:
  call void @note_inputs(ptr %head, ptr %record, ptr %arrays, ptr %starts, ptr %lengths)
  %leased.p = getelementptr i64, ptr %open, i64 @@O.LEASED@
  store i64 0, ptr %leased.p
  %list = call ptr @outputs(ptr %head, ptr %record, ptr %given, ptr %starts, ptr %lengths)
  %failed = icmp eq ptr %list, null
  br i1 %failed, label %give.up, label %go
go:
  %bad = call i1 @compute(ptr %head, ptr %record, ptr %starts)
  store atomic i64 0, ptr %busy release, align 8
  br i1 %bad, label %undo, label %good
undo:
  call void @drop(ptr %head, ptr %list)
  br label %none
good:
  ret ptr %list
give.up:
  store atomic i64 0, ptr %busy release, align 8
  br label %none
none:
  ret ptr null
}
"""
