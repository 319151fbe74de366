"""What the rows of the CUDA benchmark say: a table, the goals beside it, and both as a page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

Row = dict[str, Any]  # Any: plain data for JSON
OURS, RIVAL = "ort-core", "torch.compile"
MEAN_GOAL = 1.3  # times as fast as the rival, geometric mean of all rows
DECODE = ("gpt2_past", 1, "float16")
DECODE_GOAL = 1 / 1.15  # of the measured bandwidth, for reading the weights once


def by_configuration(rows: Sequence[Row]) -> Mapping[tuple[str, int, str], Mapping[str, Row]]:
    """Return the rows of runs by model, batch and precision, then by engine."""
    found: dict[tuple[str, int, str], dict[str, Row]] = {}
    for row in rows:
        if row["kind"] == "run":
            found.setdefault((row["model"], row["batch"], row["precision"]), {})[row["engine"]] = row
    return found


def cells(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Return the heads and lines of the table: a line for each model, batch and precision."""
    found = by_configuration(rows)
    names = list(dict.fromkeys(name for engines in found.values() for name in engines))
    heads = ["model", "batch", "precision", *(f"{name}, ms" for name in names), "bandwidth", "FLOP rate"]
    lines = []
    for (model, batch, precision), engines in found.items():
        times = [f"{r['median_s'] * 1e3:.3f}" if "median_s" in (r := engines.get(n, {})) else "-" for n in names]
        ours = engines.get(names[0], {})
        shares = [_share(ours.get(key)) for key in ("share_of_bandwidth", "share_of_flops")]
        lines.append([model, str(batch), precision, *times, *shares])
    return heads, lines


def _share(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"


def table(rows: Sequence[Row]) -> Table:
    """Return the rows as a table for a terminal."""
    heads, lines = cells(rows)
    shown = Table(*heads)
    for line in lines:
        shown.add_row(*line)
    return shown


def goals(rows: Sequence[Row]) -> list[str]:
    """Return a sentence for each goal: whether it is met, missed, or not measured."""
    found = by_configuration(rows)
    ratios = {
        key: engines[RIVAL]["median_s"] / engines[OURS]["median_s"]
        for key, engines in found.items()
        if all("median_s" in engines.get(name, {}) for name in (OURS, RIVAL))
    }
    return [_ahead(ratios), _decode(found.get(DECODE, {}).get(OURS, {}))]


def _ahead(ratios: Mapping[tuple[str, int, str], float]) -> str:
    if not ratios:
        return f"Not measured: how {OURS} compares with {RIVAL}; no row has both."
    mean = math.exp(sum(map(math.log, ratios.values())) / len(ratios))
    behind = [f"{' '.join(map(str, key))} {ratio:.2f}" for key, ratio in ratios.items() if ratio < 1]
    word = "Met" if not behind and mean >= MEAN_GOAL else "Missed"
    told = f"behind on {', '.join(behind)}" if behind else "ahead on every row"
    return f"{word}: {mean:.2f} times as fast as {RIVAL} over {len(ratios)} rows (goal {MEAN_GOAL}); {told}."


def _decode(row: Row) -> str:
    share = row.get("share_of_bandwidth")
    if share is None:
        return f"Not measured: {' '.join(map(str, DECODE))} against the bandwidth of the card."
    word = "Met" if share >= DECODE_GOAL else "Missed"
    return f"{word}: {' '.join(map(str, DECODE))} reads its weights at {share:.0%} of the bandwidth (goal 87%)."


def page(rows: Sequence[Row]) -> str:
    """Return table, goals, card and versions as Markdown."""
    heads, lines = cells(rows)
    card = next((row for row in rows if row["kind"] == "card"), {})
    machine = next((row for row in rows if row["kind"] == "machine"), {})
    notes = goals(rows)
    for row in rows:
        if row["kind"] == "left out":
            notes.append(f"{row['count']} configurations were left out: {row['reason']}.")
        if row["kind"] == "conformance":
            notes.append(f"Conformance: {_told(row)}.")
    notes += [f"Card: {card}.", f"{machine}."]
    ruled = ["| " + " | ".join(line) + " |" for line in (heads, ["---"] * len(heads), *lines)]
    title = ["# CUDA, measured", "", "Written by `benchmarks/cuda.py`; do not edit.", ""]
    return "\n".join([*title, *ruled, "", *(f"- {note}" for note in notes), ""])


def _told(conformance: Row) -> str:
    return str(conformance.get("error") or f"status {conformance['status']}, {conformance['summary']}")
