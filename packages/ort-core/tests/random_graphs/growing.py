"""Grows a graph: families by weight, a step undone where it does not fit."""

from __future__ import annotations

from random_graphs.writer import GraphWriter, Refused

ATTEMPTS = 16  # for each node that is wanted


def grow(g: GraphWriter, length: int) -> None:
    """Add steps until a graph has ``length`` nodes more, or enough were tried."""
    from random_graphs.families import families  # families grow bodies: each needs the other

    fitting = [each for each in families() if g.outer is None or each.in_bodies]
    weights = [each.weight for each in fitting]
    wanted = len(g.nodes) + length
    for _ in range(length * ATTEMPTS):
        if len(g.nodes) >= wanted:
            return
        chosen = g.random.choices(fitting, weights)[0]
        mark = g.mark()
        try:
            chosen.step(g)
        except Refused as reason:
            g.refused[f"{chosen.name}: {str(reason)[:60]}"] = g.refused.get(f"{chosen.name}: {str(reason)[:60]}", 0) + 1
            g.undo(mark)
        except (IndexError, ValueError) as reason:  # a choice of nothing, an empty range: the step does not fit
            g.refused[f"{chosen.name}: {reason!r:.60}"] = g.refused.get(f"{chosen.name}: {reason!r:.60}", 0) + 1
            g.undo(mark)
        else:
            g.families.append(chosen.name)
