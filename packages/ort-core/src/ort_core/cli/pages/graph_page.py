"""The placement of a model as one HTML file, without network: a picture that can be searched, folded and zoomed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any


def graph_page(title: str, facts: Mapping[str, Any]) -> str:  # Any: plain data for JSON
    """Return the page of a model's ``graph_facts``."""
    assets = files("ort_core.cli") / "pages"
    # "</" would end the script that the data stands in, whatever it says
    data = json.dumps({"title": title, **facts}, separators=(",", ":")).replace("</", "<\\/")
    page = (assets / "graph.html").read_text(encoding="utf-8")
    parts = {
        "{{title}}": escape(title),
        "{{style}}": (assets / "graph.css").read_text(encoding="utf-8"),
        "{{script}}": (assets / "graph.js").read_text(encoding="utf-8"),
        "{{data}}": data,
    }
    for mark, text in parts.items():
        page = page.replace(mark, text)
    return page


def region_times_ms(trace: Path) -> dict[str, float]:
    """Return the mean milliseconds of each region in a Chrome trace of ``ort profile --trace`` or a session.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is no trace.
    """
    events = json.loads(trace.read_text(encoding="utf-8"))
    if not isinstance(events, list):
        raise ValueError("a Chrome trace is a list of events")
    found: dict[tuple[str, str], list[float]] = {}
    for event in events:
        if isinstance(event, dict) and event.get("cat") == "Node":
            nanoseconds = event["args"].get("duration_ns", event["dur"] * 1000)
            key = str(event["name"]).removesuffix("_kernel_time"), str(event["args"].get("step", ""))
            found.setdefault(key, []).append(nanoseconds / 1e6)
    totals: dict[str, float] = {}
    for (name, _), times in found.items():  # a node may take several steps
        totals[name] = totals.get(name, 0.0) + sum(times) / len(times)
    return totals
