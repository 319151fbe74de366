"""A random program: a model, a session with options, and a few runs of it, in one way or another."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import describe
import feeds
import models
import sessions
import values
import ways
import ways_of_several


class Steps:
    """What a program has done so far: the name of each step, and what came of it."""

    def __init__(self) -> None:
        self.done: list[list[object]] = []

    def take(self, name: str, call: Callable[[], object]) -> object:
        """Do one step; return what it gave, ``None`` where it raised."""
        try:
            found = call()
            self.done.append([name, "ok", describe.value(found)])
        except Exception as error:  # noqa: BLE001 - whatever an engine raises is written down
            self.done.append([name, *describe.error(error)])
            return None
        return found


def run_program(seed: int) -> dict[str, object]:
    """Do what a seed says."""
    draw, steps = Random(seed), Steps()
    sample = models.drawn(draw.choice)
    for call in draw.sample(values.CALLS, draw.choice([0, 1, 2])):
        state = draw.getstate()
        steps.take(f"value {call.__name__}", lambda call=call, state=state: call(_random(state)))
    session = sessions.opened(draw, sample, steps)
    for number in range(draw.choice([1, 2, 3])):
        what = draw.choice(["", "", "", "value", "value", "feeds", "names"])  # which one thing does not fit
        odd = draw.choice(sample.inputs)[0] if sample.inputs and what == "value" else None
        fed, forms, count = {}, [], draw.choice([0, 1, 1, 2, 3, 3])
        for name, kind, element_type, sizes in sample.inputs:
            form, fed[name] = feeds.KINDS[kind](
                draw, element_type, [count if isinstance(each, str) else each for each in sizes], name == odd
            )
            forms.append(f"{name}={form}")
        title, fed = ways.disturbed(draw, fed) if what == "feeds" else ("fit", fed)
        way = draw.choice(ways.WAYS if draw.random() < 0.6 else ways_of_several.WAYS)
        sample.wanted = ways.names(draw, sample, what == "names")
        label = f"{number} {way.__name__} {title} {sample.wanted!a} {' '.join(forms)}"
        for _ in range(draw.choice([1, 1, 2])):
            state = draw.getstate()
            if session is not None:
                steps.take(label, lambda way=way, fed=fed, state=state: way(_random(state), session, sample, fed))
    if session is not None and draw.random() < 0.3:
        steps.take("facts", lambda: sessions.facts(session))
    sessions.closed(session, steps)
    return {"seed": seed, "model": sample.name, "steps": steps.done}


def _random(state: object) -> Random:
    """Return a generator of its own for a step, so that a step that fails draws no less from the program's."""
    made = Random()
    made.setstate(state)
    return made
