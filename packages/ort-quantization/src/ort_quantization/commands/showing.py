"""What ``ort quantize`` prints: tables of sizes, operators, results and layers, or one JSON document."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from ort_quantization.comparison.layer_ranges import RangePlot
    from ort_quantization.comparison.reports import QuantizationReport
    from ort_quantization.layer_report import LayerReport

_SHOWN = 20  # layers: those that lost most
_COLUMNS = 32  # of a histogram in one line
_BARS = " ▁▂▃▄▅▆▇█"


def show(report: QuantizationReport, layers: LayerReport | None, *, as_json: bool) -> None:
    """Print a report, and what layers lost where that was asked for."""
    if as_json:
        from ort_core.cli.console import print_json

        print_json({**report.to_dict(), **({} if layers is None else {"layers": layers.to_dict()})})
        return
    from ort_core.cli.console import output_console
    from ort_core.cli.tables import new_table, show_facts, show_table

    console = output_console()
    show_facts(console, report.facts())
    table = new_table(["operator", "float", "quantized"], numbers=["float", "quantized"], title="Operators")
    for op_type, before, after in report.operators:
        table.add_row(op_type, str(before), str(after))
    show_table(console, table)
    if report.signals:
        results = new_table(["result", "signal to noise (dB)"], numbers=["signal to noise (dB)"], title="Results")
        for name, decibels in report.signals.items():
            results.add_row(name, f"{decibels:.1f}")
        show_table(console, results)
    if layers is not None:
        _show_layers(console, layers)


def _show_layers(console: Console, layers: LayerReport) -> None:
    from ort_core.cli.tables import new_table, show_table
    from ort_quantization.layer_page import loss_cells

    numbers = ["dB", "weights", "activations"]
    if layers.values:
        title = f"Values that lost most (of {len(layers.values)})"
        table = new_table(["value", "operator", *numbers], numbers=numbers, title=title)
        for each in sorted(layers.values, key=lambda each: each.decibels)[:_SHOWN]:
            table.add_row(each.name, each.op_type, *loss_cells(each))
        show_table(console, table)
    if layers.weights:
        title = f"Weights that lost most (of {len(layers.weights)})"
        table = new_table(["weight", "operator", "dB"], numbers=["dB"], title=title)
        for weight in sorted(layers.weights, key=lambda each: each.decibels)[:_SHOWN]:
            table.add_row(weight.name, weight.op_type, f"{weight.decibels:.1f}")
        show_table(console, table)
    if layers.ranges:
        title = f"Numbers and ranges that cut off most (of {len(layers.ranges)})"
        table = new_table(["tensor", "numbers", "range", "outside"], numbers=["outside"], title=title)
        for plot in sorted(layers.ranges, key=lambda each: -each.clipped)[:_SHOWN]:
            table.add_row(plot.name, bars(plot), f"{plot.low:.3g} to {plot.high:.3g}", f"{plot.clipped:.2%}")
        show_table(console, table)


def bars(plot: RangePlot) -> str:
    """Return a histogram in one line, by the root of its heights, what the range holds between bars ``|``."""
    counts = plot.counts
    size = len(counts) // _COLUMNS or 1
    sums = [sum(counts[first : first + size]) for first in range(0, len(counts), size)]
    most = max(sums) or 1
    width = (plot.most - plot.least) / len(sums)
    text = ""
    is_inside = plot.low <= plot.least
    text += "|" if is_inside else ""
    for place, count in enumerate(sums):
        start = plot.least + place * width
        if not is_inside and start + width > plot.low and start <= plot.high:
            text, is_inside = text + "|", True
        elif is_inside and start > plot.high:
            text, is_inside = text + "|", False
        text += _BARS[round((count / most) ** 0.5 * (len(_BARS) - 1))]
    return text + ("|" if is_inside else "")
