"""Native code that evaluates the sizes of a program: rows of ``cpu.program.size_words``, for the shapes of a call."""

from __future__ import annotations

SIZE_CODE = """
declare {i64, i1} @llvm.sadd.with.overflow.i64(i64, i64)
declare {i64, i1} @llvm.smul.with.overflow.i64(i64, i64)

; Evaluate all sizes; false where one is not as it must be, or has no 64 bits.
define internal i1 @evaluate(ptr %open, ptr %arrays) {
entry:
  %rows = call ptr @pointer(ptr %open, i64 @@O.ROWS@)
  %count = call i64 @word(ptr %open, i64 @@O.ROW_COUNT@)
  %registers = call ptr @pointer(ptr %open, i64 @@O.REGISTERS@)
  br label %next
next:
  %i = phi i64 [0, %entry], [%i1, %store]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %look, label %yes
look:
  %at = mul i64 %i, 3
  %row = getelementptr i64, ptr %rows, i64 %at
  %operation = call i64 @word(ptr %row, i64 0)
  %a = call i64 @word(ptr %row, i64 1)
  %b = call i64 @word(ptr %row, i64 2)
  %is.size = icmp eq i64 %operation, @@S.SIZE@
  br i1 %is.size, label %size, label %not.size
not.size:
  %is.number = icmp eq i64 %operation, @@S.NUMBER@
  br i1 %is.number, label %number, label %both
number:
  %read = call i64 @number(ptr %arrays, i64 %a)
  br label %store
size:
  %array = call ptr @pointer(ptr %arrays, i64 %a)
  %sizes = call ptr @field(ptr %array, i64 @@A.sizes@)
  %found = call i64 @word(ptr %sizes, i64 %b)
  br label %store
both:
  %x = call i64 @word(ptr %registers, i64 %a)
  %y = call i64 @word(ptr %registers, i64 %b)
  switch i64 %operation, label %no [
    i64 @@S.ADD@, label %add
    i64 @@S.MULTIPLY@, label %multiply
    i64 @@S.FLOOR_DIVIDE@, label %divide
    i64 @@S.MODULO@, label %divide
    i64 @@S.MAXIMUM@, label %maximum
    i64 @@S.MINIMUM@, label %minimum
    i64 @@S.BROADCAST@, label %broadcast
    i64 @@S.MUST_EQUAL@, label %equal
    i64 @@S.MUST_NOT_BE_NEGATIVE@, label %not.negative
  ]
add:
  %sum.pair = call {i64, i1} @llvm.sadd.with.overflow.i64(i64 %x, i64 %y)
  %sum = extractvalue {i64, i1} %sum.pair, 0
  %sum.over = extractvalue {i64, i1} %sum.pair, 1
  br i1 %sum.over, label %no, label %store
multiply:
  %product.pair = call {i64, i1} @llvm.smul.with.overflow.i64(i64 %x, i64 %y)
  %product = extractvalue {i64, i1} %product.pair, 0
  %product.over = extractvalue {i64, i1} %product.pair, 1
  br i1 %product.over, label %no, label %store
divide:
  ; by 0 there is no quotient, and one by -1 may need 65 bits
  %y1 = add i64 %y, 1
  %is.odd = icmp ult i64 %y1, 2
  br i1 %is.odd, label %no, label %divisible
divisible:
  %toward.zero = sdiv i64 %x, %y
  %whole = mul i64 %toward.zero, %y
  %left = sub i64 %x, %whole
  %is.left = icmp ne i64 %left, 0
  %signs = xor i64 %left, %y
  %differ = icmp slt i64 %signs, 0
  %is.below = and i1 %is.left, %differ
  %less = sext i1 %is.below to i64
  %quotient = add i64 %toward.zero, %less
  %more.left = select i1 %is.below, i64 %y, i64 0
  %remainder = add i64 %left, %more.left
  %is.quotient = icmp eq i64 %operation, @@S.FLOOR_DIVIDE@
  %part = select i1 %is.quotient, i64 %quotient, i64 %remainder
  br label %store
maximum:
  %x.larger = icmp sgt i64 %x, %y
  %largest = select i1 %x.larger, i64 %x, i64 %y
  br label %store
minimum:
  %x.smaller = icmp slt i64 %x, %y
  %smallest = select i1 %x.smaller, i64 %x, i64 %y
  br label %store
broadcast:
  %is.one = icmp eq i64 %x, 1
  %common = select i1 %is.one, i64 %y, i64 %x
  br label %store
equal:
  %same = icmp eq i64 %x, %y
  br i1 %same, label %store, label %no
not.negative:
  %negative = icmp slt i64 %x, 0
  br i1 %negative, label %no, label %store
store:
  %value = phi i64 [%found, %size], [%read, %number], [%sum, %add], [%product, %multiply], [%part, %divisible],
    [%largest, %maximum], [%smallest, %minimum], [%common, %broadcast], [0, %equal], [0, %not.negative]
  %place = getelementptr i64, ptr %registers, i64 %i
  store i64 %value, ptr %place
  %i1 = add i64 %i, 1
  br label %next
yes:
  ret i1 true
no:
  ret i1 false
}
"""
