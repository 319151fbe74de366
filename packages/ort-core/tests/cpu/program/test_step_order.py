"""Where threads meet: the flags against the definition, pair by pair."""

from __future__ import annotations

import random

from ort_core.cpu.program.order import BARRIER, SERIAL, SERIAL_WORK, StepOrder


def by_definition(order: StepOrder, serial: list[bool]) -> list[int]:
    flags, since = [SERIAL if alone else 0 for alone in serial], []
    for number, alone in enumerate(serial):
        touched = order.reads[number] | order.writes[number]
        for before in since:
            meets = touched & order.writes[before] or order.writes[number] & order.reads[before]
            if meets and not (alone and serial[before]):
                flags[number - 1] |= BARRIER
                since = []
                break
        since.append(number)
    return flags


def test_flags_are_those_of_the_definition(monkeypatch):
    monkeypatch.delenv("ORT_STEP_PIECES", raising=False)
    chance = random.Random(5)
    for _ in range(300):
        count = chance.randint(1, 30)
        reads = [chance.sample(range(12), chance.randint(0, 3)) for _ in range(count)]
        writes = [chance.sample(range(12), chance.randint(0, 2)) for _ in range(count)]
        work = [chance.choice((1, SERIAL_WORK + 1)) for _ in range(count)]
        small = [each < SERIAL_WORK for each in work]
        near = [any(small[max(i - 1, 0) : i] + small[i + 1 : i + 2]) for i in range(count)]
        serial = [a and b for a, b in zip(small, near, strict=True)]
        order = StepOrder(reads, writes, [None] * count)
        assert order.flags(work, 1).tolist() == by_definition(order, serial)
