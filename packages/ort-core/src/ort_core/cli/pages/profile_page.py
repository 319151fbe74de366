"""The profile as one HTML file, without network: the run as a strip, regions under the machine's roofline, all rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from ort_core.cli.console import bytes_text, time_text
from ort_core.cli.measuring.profile_report import ceiling_text, rate_texts
from ort_core.cli.pages.page_parts import CHOICE_SCRIPT, SEARCH_SCRIPT, TABLE_STYLE, breakable

Row = Mapping[str, Any]  # Any: plain data, as in the JSON document
COLORS = ("#3b6ea5", "#c8553d", "#588157", "#8e6c8a", "#d8973c", "#2a9d8f", "#7a7a7a")
KINDS = {
    "product": ("MatMul", "Gemm", "Conv", "Attention", "LSTM", "GRU", "RNN"),
    "normalization, softmax, sums": ("Norm", "Softmax", "Reduce", "Mean", "Pool", "ArgM"),
    "data movement": ("Transpose", "Copy", "Layout", "Pad", "Concat", "Gather", "Slice", "Split", "Reshape", "Scatter"),
    "control flow": ("If", "Loop", "Scan"),
}
OTHER = "elementwise and others"
WIDTH, HEIGHT, MARGIN = 860, 420, 56
STRIP_HEIGHT = 46


def kind_of(operator: str) -> str:
    """Return the kind of a region by the first kind that any of its operators belongs to."""
    for kind, words in KINDS.items():
        if any(word in operator for word in words):
            return kind
    return OTHER


def profile_page(report: Row) -> str:
    """Return the page of a report of ``ort profile``."""
    kinds = [*KINDS, OTHER]
    colors = dict(zip(kinds, COLORS, strict=False))
    name = escape(str(report["model"]))
    run = (
        f"one run takes {time_text(report['run_ms'] * 1e6)}, {time_text(report['nodes_ms'] * 1e6)} of it in regions "
        f"(mean of {report['iterations']} runs, with the profiler's own cost)"
    )
    ceilings = "".join(f"<p>{escape(ceiling_text(n, c))}</p>" for n, c in report["ceilings"].items())
    legend = "".join(f'<span><i style="background:{colors[kind]}"></i>{escape(kind)}</span>' for kind in kinds)
    roofs = "".join(
        f"<h2>Under the roofline of {escape(n)}</h2>{_roofline(report['nodes'], n, c, colors)}"
        for n, c in report["ceilings"].items()
    )
    return _PAGE.format(
        name=name, run=escape(run), ceilings=ceilings, legend=legend, strip=_strip(report["nodes"], colors),
        roofs=roofs, rows=_rows(report["nodes"], colors), style=TABLE_STYLE, script=CHOICE_SCRIPT + SEARCH_SCRIPT,
    )  # fmt: skip


def _strip(rows: Sequence[Row], colors: Mapping[str, str]) -> str:
    """Draw a run as one strip, a block for each region, as wide as its share, the widest first."""
    parts, at = [], 0.0
    for number, row in enumerate(rows):
        width = row["share"] * WIDTH
        text = escape(f"{row['name']}\n{row['operator']}\n{time_text(row['ms'] * 1e6)}, {row['share']:.1%}")
        parts.append(
            f'<rect data-row="{number}" x="{at:.2f}" y="0" width="{max(width, 0.05):.2f}" height="{STRIP_HEIGHT}" '
            f'fill="{colors[kind_of(row["operator"])]}" stroke="#fff" stroke-width="{0.6 if width > 2 else 0}">'
            f"<title>{text}</title></rect>"
        )
        at += width
    return f'<svg viewBox="0 0 {WIDTH} {STRIP_HEIGHT}" role="img" aria-label="shares of time">{"".join(parts)}</svg>'


def _roofline(rows: Sequence[Row], provider: str, ceilings: Row, colors: Mapping[str, str]) -> str:
    """Draw each region by what it computes per byte and per second, beneath what the machine reached."""
    drawn = [
        (number, row, row["flops"] / row["nbytes"])
        for number, row in enumerate(rows)
        if row["provider"] == provider and row.get("flops") and row.get("nbytes")
    ]
    peak = ceilings["flops_per_s"]
    slopes = [each["bytes_per_s"] for each in ceilings["bandwidths"]]
    low_x, high_x = _decades([x for *_, x in drawn] + [peak / slopes[-1], 0.1])
    others = {k: rate for k, rate in ceilings["by_kind"].items() if any(row["arithmetic"] == k for _, row, _ in drawn)}
    others.pop("float32", None)
    low_y, high_y = _decades([row["gflops_per_s"] * 1e9 for _, row, _ in drawn] + [peak, *others.values()])

    def x_of(value: float) -> float:
        return MARGIN + (math.log10(value) - low_x) / (high_x - low_x) * (WIDTH - 2 * MARGIN)

    def y_of(value: float) -> float:
        return HEIGHT - MARGIN - (math.log10(value) - low_y) / (high_y - low_y) * (HEIGHT - 1.5 * MARGIN)

    parts = _axes(low_x, high_x, low_y, high_y, x_of, y_of)
    left = 10.0**low_x
    for each in ceilings["bandwidths"]:
        slope, floor = each["bytes_per_s"], 10.0**low_y
        start = max(left, floor / slope)
        if start * slope < peak:
            parts.append(
                f'<line class="roof" x1="{x_of(start):.1f}" y1="{y_of(start * slope):.1f}" '
                f'x2="{x_of(peak / slope):.1f}" y2="{y_of(peak):.1f}"><title>{slope / 1e9:.0f} GB/s over '
                f"{bytes_text(each['nbytes'])}</title></line>"
                f'<text class="size" transform="translate({x_of(peak / slope):.1f} {y_of(peak) - 3:.1f}) rotate(-55)">'
                f"{bytes_text(each['nbytes'])}</text>"
            )
    top = peak / max(slopes)
    parts.append(
        f'<line class="roof" x1="{x_of(max(top, left)):.1f}" y1="{y_of(peak):.1f}" x2="{x_of(10.0**high_x):.1f}" '
        f'y2="{y_of(peak):.1f}"><title>{peak / 1e9:.0f} GFLOP/s</title></line>'
        f'<text x="{WIDTH - MARGIN}" y="{y_of(peak) - 6:.1f}" text-anchor="end">{peak / 1e9:.0f} GFLOP/s</text>'
    )
    for kind, rate in others.items():
        parts.append(
            f'<line class="roof" stroke-dasharray="4 3" x1="{x_of(max(rate / max(slopes), left)):.1f}" '
            f'y1="{y_of(rate):.1f}" x2="{x_of(10.0**high_x):.1f}" y2="{y_of(rate):.1f}"/>'
            f'<text x="{WIDTH - MARGIN}" y="{y_of(rate) - 6:.1f}" text-anchor="end">{rate / 1e9:.0f} GFLOP/s, '
            f"{escape(kind)}</text>"
        )
    for number, row, x in drawn:
        gflops, moved, share = rate_texts(row)
        title = escape(f"{row['name']}\n{row['operator']}\n{gflops} GFLOP/s, {moved} GB/s, {share}, {row['share']:.1%}")
        parts.append(
            f'<circle data-row="{number}" cx="{x_of(x):.1f}" cy="{y_of(row["gflops_per_s"] * 1e9):.1f}" '
            f'r="{3 + 30 * math.sqrt(row["share"]):.1f}" fill="{colors[kind_of(row["operator"])]}">'
            f"<title>{title}</title></circle>"
        )
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="roofline">{"".join(parts)}</svg>'


def _axes(low_x: int, high_x: int, low_y: int, high_y: int, x_of: Any, y_of: Any) -> list[str]:  # Any: functions
    parts = []
    for decade in range(low_x, high_x + 1):
        x = x_of(10.0**decade)
        parts.append(f'<line class="grid" x1="{x:.1f}" y1="{MARGIN / 2}" x2="{x:.1f}" y2="{HEIGHT - MARGIN}"/>')
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - MARGIN + 18}" text-anchor="middle">{10.0**decade:g}</text>')
    for decade in range(low_y, high_y + 1):
        y = y_of(10.0**decade)
        parts.append(f'<line class="grid" x1="{MARGIN}" y1="{y:.1f}" x2="{WIDTH - MARGIN}" y2="{y:.1f}"/>')
        label = f"{10.0 ** (decade - 9):g}"
        parts.append(f'<text x="{MARGIN - 8}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    parts.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 12}" text-anchor="middle">operations per byte</text>')
    parts.append(f'<text x="{MARGIN}" y="{MARGIN / 2 - 10}" text-anchor="start">GFLOP/s</text>')
    return parts


def _decades(values: Sequence[float]) -> tuple[int, int]:
    """Return the powers of ten around positive values."""
    logs = [math.log10(value) for value in values if value > 0]
    low, high = math.floor(min(logs)), math.ceil(max(logs))
    return low, max(high, low + 1)


def _rows(rows: Sequence[Row], colors: Mapping[str, str]) -> str:
    lines = []
    for number, row in enumerate(rows):
        texts = (time_text(row["ms"] * 1e6), f"{row['share']:.1%}", *rate_texts(row))
        numbers = "".join(f'<td class="n">{escape(text)}</td>' for text in texts)
        color = colors[kind_of(row["operator"])]
        lines.append(
            f'<tr id="row{number}"><td><i style="background:{color}"></i>{breakable(row["name"])}</td>'
            f"<td>{breakable(row['operator'])}</td><td>{escape(row['output'])}</td><td>{escape(row['provider'])}</td>"
            f"{numbers}</tr>"
        )
    return "\n".join(lines)


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Profile of {name}</title><style>{style}</style></head><body>
<h1>Profile of {name}</h1><p>{run}</p>{ceilings}
<h2>Where the time goes</h2><p class="legend">{legend}</p>{strip}
{roofs}
<h2>Regions</h2><input id="search" type="search" placeholder="part of a name or an operator" aria-label="search">
<table><thead><tr><th>region</th><th>operators</th><th>output</th><th>provider</th><th class="n">time</th>
<th class="n">share</th><th class="n">GFLOP/s</th><th class="n">GB/s</th><th class="n">of ceiling</th></tr></thead>
<tbody>{rows}</tbody></table>
<script>{script}</script></body></html>
"""
