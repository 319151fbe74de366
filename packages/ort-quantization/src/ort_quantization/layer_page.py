"""The report of layers as one HTML file, without network: what each value lost, and the numbers beside their ranges."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from ort_core.cli.console import time_text
from ort_core.cli.pages.page_parts import CHOICE_SCRIPT, SEARCH_SCRIPT, TABLE_STYLE, breakable
from ort_quantization.comparison.layer_ranges import RangePlot
from ort_quantization.layer_report import LayerReport, ValueLoss, WeightLoss
from ort_quantization.targets.target_report import PairFacts, TargetReport

WIDTH, HEIGHT, MARGIN = 860, 240, 44
PLOT_WIDTH, PLOT_HEIGHT = 270, 92
WEIGHTS, ACTIVATIONS = "#3b6ea5", "#c8553d"
_HOW_TO_READ = (
    "The height of a bar is the square root of its count. Vertical lines mark the ends of the range; numbers outside "
    "are cut off."
)
_TOP = 80.0  # decibels: more is hardly told from equal


def layer_page(report: LayerReport, target: TargetReport | None = None) -> str:
    """Return the page of a report, and of the search for a target that led to the model."""
    results = "".join(
        f"<p>result <b>{escape(each.name)}</b>: {_loss(each)}</p>" for each in report.values if each.is_result
    )
    runs = "1 sample" if report.runs == 1 else f"{report.runs} samples"
    return _PAGE.format(
        name=escape(report.target.name), model=escape(report.model.name), runs=runs, results=results,
        chart=_chart(report.values), values=_value_rows(report.values), weights=_weight_table(report.weights),
        plots=_plots(report.ranges), schemes="" if target is None else _schemes(target), style=TABLE_STYLE + _STYLE,
        script=CHOICE_SCRIPT + SEARCH_SCRIPT + _SCRIPT, low=ACTIVATIONS, high=WEIGHTS,
    )  # fmt: skip


def _loss(value: ValueLoss) -> str:
    """Say what a result lost, and to what; one that lost nothing has no shares."""
    if math.isinf(value.decibels):
        return "no difference from the float model"
    shares = f"{value.weight_share:.0%} of the noise from weights, {1 - value.weight_share:.0%} from activations"
    return f"{value.decibels:.1f} dB, {shares}"


def loss_cells(value: ValueLoss) -> tuple[str, str, str]:
    """Return the decibels of a value and the shares of weights and activations; what lost nothing has no shares."""
    if math.isinf(value.decibels):
        return "equal", "", ""
    return f"{value.decibels:.1f}", f"{value.weight_share:.0%}", f"{1 - value.weight_share:.0%}"


def _chart(values: Sequence[ValueLoss]) -> str:
    """Draw the signal to noise of values in the graph's order; bars have the shares of weights and activations."""
    if not values:
        return "<p>No samples were given: only weights are compared.</p>"
    if all(math.isinf(each.decibels) for each in values):
        return "<p>No value differs from the float model's.</p>"
    finite = [each.decibels for each in values if not math.isinf(each.decibels)]
    top, bottom = min(max(_TOP, *finite), 160.0), min(0.0, *finite)
    bottom = max(bottom, -40.0)
    room, tall = (WIDTH - 2 * MARGIN) / len(values), HEIGHT - MARGIN

    def y_of(decibels: float) -> float:
        return tall - (min(max(decibels, bottom), top) - bottom) / (top - bottom) * (tall - 12)

    parts = []
    for mark in range(int(bottom // 20) * 20, int(top) + 1, 20):
        if mark >= bottom:
            parts.append(
                f'<line class="grid" x1="{MARGIN}" y1="{y_of(mark):.1f}" x2="{WIDTH - MARGIN}" y2="{y_of(mark):.1f}"/>'
                f'<text x="{MARGIN - 8}" y="{y_of(mark) + 4:.1f}" text-anchor="end">{mark}</text>'
            )
    for place, each in enumerate(values):
        left, high = MARGIN + place * room, tall if math.isinf(each.decibels) else y_of(each.decibels)
        split = high + (tall - high) * each.weight_share
        title = escape(f"{each.name}\n{each.op_type} {each.node}\n{_loss(each)}")
        wide = max(room - (1 if room > 3 else 0), 0.5)
        parts.append(
            f'<g data-row="{place}"><title>{title}</title>'
            f'<rect x="{left:.2f}" y="{high:.1f}" width="{wide:.2f}" height="{split - high:.1f}" fill="{WEIGHTS}"/>'
            f'<rect x="{left:.2f}" y="{split:.1f}" width="{wide:.2f}" height="{tall - split:.1f}" '
            f'fill="{ACTIVATIONS}"/></g>'
        )
    parts.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 8}" text-anchor="middle">values in the order of the graph</text>')
    parts.append(f'<text x="{MARGIN - 8}" y="{tall + 18}" text-anchor="end">dB</text>')
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="signal to noise">{"".join(parts)}</svg>'


def _plot(each: RangePlot) -> str:
    """Draw the counts of a tensor by the root of their height, what is cut off in the color of a loss."""
    low, high = min(each.least, each.low), max(each.most, each.high)
    scale = PLOT_WIDTH / ((high - low) or 1.0)
    width = (each.most - each.least) / len(each.counts)
    most = max(each.counts) or 1
    parts = []
    for place, count in enumerate(each.counts):
        start = each.least + place * width
        is_cut = start + width < each.low or start > each.high
        tall = (count / most) ** 0.5 * (PLOT_HEIGHT - 8)
        parts.append(
            f'<rect x="{(start - low) * scale:.2f}" y="{PLOT_HEIGHT - tall:.1f}" width="{max(width * scale, 0.5):.2f}" '
            f'height="{tall:.1f}" fill="{ACTIVATIONS if is_cut else WEIGHTS}"/>'
        )
    for end in (each.low, each.high):
        x = (end - low) * scale
        parts.append(f'<line class="end" x1="{x:.2f}" y1="0" x2="{x:.2f}" y2="{PLOT_HEIGHT}"/>')
    channels = "" if each.scales == 1 else f", {each.scales} scales"
    kind = "weight" if each.is_weight else "value"
    text = (
        f"{kind}, {each.type_name}{channels}; numbers {each.least:.4g} to {each.most:.4g}, range {each.low:.4g} to "
        f"{each.high:.4g}, {each.clipped:.3%} outside"
    )
    return (
        f'<figure><figcaption><b>{breakable(each.name)}</b></figcaption><svg viewBox="-1 0 {PLOT_WIDTH + 2} '
        f'{PLOT_HEIGHT}" role="img" aria-label="numbers and range">{"".join(parts)}</svg>'
        f"<figcaption>{escape(text)}</figcaption></figure>"
    )


def _value_rows(values: Sequence[ValueLoss]) -> str:
    return "\n".join(
        f'<tr id="row{place}"><td>{breakable(each.name)}</td><td>{escape(each.op_type)}</td>'
        f"<td>{breakable(each.node)}</td>"
        + "".join(f'<td class="n">{cell}</td>' for cell in loss_cells(each))
        + "</tr>"
        for place, each in enumerate(values)
    )


def _weight_table(weights: Sequence[WeightLoss]) -> str:
    if not weights:
        return "<p>No weight is stored in fewer bits.</p>"
    rows = "\n".join(
        f"<tr><td>{breakable(each.name)}</td><td>{escape(each.op_type)}</td><td>{breakable(each.node)}</td>"
        f'<td class="n">{each.decibels:.1f}</td></tr>'
        for each in weights
    )
    head = '<th>weight</th><th>operator</th><th>node</th><th class="n">dB</th>'
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _plots(ranges: Sequence[RangePlot]) -> str:
    if not ranges:
        return "<p>The file gives no ranges.</p>"
    return f'<p>{_HOW_TO_READ}</p><div class="plots">{"".join(_plot(each) for each in ranges)}</div>'


def _schemes(target: TargetReport) -> str:
    """Return what each layer got, what the others would have given, and the models that were judged."""
    facts = "".join(f"<p><b>{escape(name)}</b> {escape(value)}</p>" for name, value in target.facts())
    rows = []
    for layer in target.layers:
        options = "<br>".join(
            f"<b>{escape(pair.scheme)}</b> {escape(pair.left_out or _numbers(pair))}" for pair in layer.pairs
        )
        plain = "" if layer.float_s is None else time_text(layer.float_s * 1e9)
        rows.append(
            f"<tr><td>{breakable(layer.name)}</td><td>{escape(layer.op_type)}</td><td>{escape(layer.scheme)}</td>"
            f'<td class="n">{plain}</td><td>{options}</td></tr>'
        )
    head = '<th>layer</th><th>operator</th><th>scheme</th><th class="n">float32</th><th>schemes</th>'
    layers = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    return f"<h2>Schemes</h2>{facts}{_models(target)}{layers}"


def _models(target: TargetReport) -> str:
    """Return the whole models that were judged, with the types of their layers."""
    rows = []
    for each in target.candidates:
        counts = ", ".join(f"{count} {scheme}" for scheme, count in each.counts.items())
        value = each.note if each.value is None else f"{each.value:.4g}"
        run = "" if each.seconds is None else time_text(each.seconds * 1e9)
        cells = (each.name, counts or "all float32", value, "yes" if each.meets else "no", run)
        rows.append("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>")
    head = "".join(f"<th>{name}</th>" for name in ("model", "layers", "reached", "meets the target", "a run"))
    return f"<h3>Models</h3><table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table><h3>Layers</h3>"


def _numbers(pair: PairFacts) -> str:
    alone = "" if pair.seconds is None else f"{time_text(pair.seconds * 1e9)} alone, "
    noise = "" if pair.decibels is None else f", {pair.decibels:.1f} dB"
    return f"{alone}gains {pair.gain_s * 1e6:.1f} us{noise}"


_STYLE = """
.plots { display: flex; flex-wrap: wrap; gap: 1rem; } figure { margin: 0; width: 290px; font-size: 12px; }
figcaption { overflow-wrap: anywhere; } .end { stroke: #222; stroke-width: 1.4; }
td:first-child { padding-left: .5rem; }
"""

_SCRIPT = """
document.getElementById('search').addEventListener('input', (event) => {
  const wanted = event.target.value.toLowerCase();
  document.querySelectorAll('figure').forEach((each) => {
    each.hidden = !each.textContent.toLowerCase().includes(wanted);
  });
});
"""

_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{name}: what was lost</title><style>{style}</style></head>
<body><h1>{name} beside {model}</h1>
<p>Signal-to-noise ratios over {runs}. Higher is better; 6 dB correspond to one bit.</p>{results}
{schemes}
<h2>Values</h2>
<p class="legend"><span><i style="background:{high}"></i>share of the noise from weights</span>
<span><i style="background:{low}"></i>share from activations</span></p>
{chart}
<input id="search" type="search" placeholder="name or operator" aria-label="search">
<table><thead><tr><th>value</th><th>operator</th><th>node</th><th class="n">dB</th><th class="n">weights</th>
<th class="n">activations</th></tr></thead><tbody>{values}</tbody></table>
<h2>Weights</h2>
{weights}
<h2>Numbers and ranges</h2>
{plots}
<script>{script}</script></body></html>
"""
