"""A Chrome trace added up: time per operator and per node."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_SUFFIX = "_kernel_time"


def summarise_trace(path: Path, iterations: int, run_ns: Sequence[int]) -> dict[str, Any]:  # Any: plain data
    """Return times per run: all in milliseconds, largest first, with their share of the time in nodes."""
    events = [event for event in json.loads(path.read_text(encoding="utf-8")) if event["cat"] == "Node"]
    nodes: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)  # Any: an event's fields
    operators: dict[str, list[dict[str, Any]]] = defaultdict(list)  # Any: as above
    for event in events:
        nodes[event["args"]["node_index"], event["name"]].append(event)
        operators[event["args"]["op_name"]].append(event)
    total = sum(event["dur"] for event in events) or 1
    return {
        "iterations": iterations,
        "run_ms": sum(run_ns) / len(run_ns) / 1e6,
        "nodes_ms": sum(event["dur"] for event in events) / iterations / 1e3,
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


def _times(events: Sequence[dict[str, Any]], iterations: int, total: int) -> dict[str, float]:  # Any: as above
    spent = sum(event["dur"] for event in events)
    return {"ms": spent / iterations / 1e3, "share": spent / total}


def _ranked(rows: Any) -> list[dict[str, Any]]:  # Any: plain data
    return sorted(rows, key=lambda row: -row["ms"])


def _shape_text(entry: dict[str, list[int]]) -> str:
    return ", ".join(f"{dtype}{shape}" for dtype, shape in entry.items())
