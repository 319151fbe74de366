"""A Chrome trace added up: time per operator and per node."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_SUFFIX = "_kernel_time"
_WITH_BODIES = frozenset({"If", "Loop", "Scan", "SequenceMap"})


def summarise_trace(path: Path, iterations: int, run_ns: Sequence[int]) -> dict[str, Any]:  # Any: plain data
    """Return times per run: all in milliseconds, largest first, with their share of the time in nodes."""
    events = _with_own_time(json.loads(path.read_text(encoding="utf-8")))
    nodes: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)  # Any: an event's fields
    operators: dict[str, list[dict[str, Any]]] = defaultdict(list)  # Any: as above
    for event in events:
        nodes[event["args"]["node_index"], event["name"]].append(event)
        operators[event["args"]["op_name"]].append(event)
    total = sum(event["own"] for event in events) or 1
    return {
        "iterations": iterations,
        "run_ms": sum(run_ns) / len(run_ns) / 1e6,
        "nodes_ms": sum(event["own"] for event in events) / iterations / 1e3,
        "operators": _ranked(
            {"name": name, **_times(found, iterations, total), "calls": len(found) // iterations}
            for name, found in operators.items()
        ),
        "nodes": _ranked(
            {
                "name": name.removesuffix(_SUFFIX),
                "operator": found[0]["args"]["op_name"],
                "provider": found[0]["args"]["provider"],
                "output": ", ".join(map(_shape_text, found[0]["args"]["output_type_shape"])),
                "calls": len(found) // iterations,
                **_times(found, iterations, total),
            }
            for (_, name), found in nodes.items()
        ),
    }


def _with_own_time(events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:  # Any: an event's fields
    """Return the events of nodes with their ``own`` time: without that of the nodes in their bodies."""
    nodes = [{**event, "own": event["dur"]} for event in events if event["cat"] == "Node"]
    around: list[dict[str, Any]] = []  # Any: an event's fields
    for event in sorted(nodes, key=lambda event: (event["tid"], event["ts"], -event["dur"])):
        while around and (around[-1]["tid"] != event["tid"] or around[-1]["ts"] + around[-1]["dur"] <= event["ts"]):
            around.pop()
        if around and around[-1]["args"]["op_name"] in _WITH_BODIES:
            around[-1]["own"] = max(0, around[-1]["own"] - event["dur"])
        if event["args"]["op_name"] in _WITH_BODIES:
            around.append(event)
    return nodes


def _times(events: Sequence[dict[str, Any]], iterations: int, total: int) -> dict[str, float]:  # Any: as above
    spent = sum(event["own"] for event in events)
    return {"ms": spent / iterations / 1e3, "share": spent / total}


def _ranked(rows: Any) -> list[dict[str, Any]]:  # Any: plain data
    return sorted(rows, key=lambda row: -row["ms"])


def _shape_text(entry: dict[str, list[int]]) -> str:
    return ", ".join(f"{dtype}{shape}" for dtype, shape in entry.items())
