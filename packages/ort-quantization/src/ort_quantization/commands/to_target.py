"""``ort quantize --to-target``: the fastest mixture of types that keeps a signal to noise."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ort_core.whole_files import replace_text

if TYPE_CHECKING:
    from rich.console import Console

    from ort_quantization.calibration.calibration_data import Sample
    from ort_quantization.targets.target_report import LayerFacts, TargetReport


def quantize_by_target(
    model: Path, target: Path, samples: Sequence[Sample], decibels: float, *, provider: list[str] | None,
    schemes: list[str] | None, budget_s: float, method: str, page: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Find and write the model, show the report, and write the page of its layers."""
    from ort_core.cli.console import counted, output_console, print_json
    from ort_quantization.calibrate import CalibrationMethod
    from ort_quantization.quantize_to_target import quantize_to_target
    from ort_quantization.targets.target_schemes import SCHEMES

    methods = {each.name.lower(): each for each in CalibrationMethod}
    with counted("Looking for the fastest model", 1) as advance:
        report = quantize_to_target(
            model, target, samples, min_decibels=decibels, providers=provider, schemes=schemes or SCHEMES,
            budget_s=budget_s, calibrate_method=methods[method], progress=lambda text, share: advance(share),
        )  # fmt: skip
    if page is not None:
        _write_page(report, model, target, samples, page)
    if as_json:
        print_json(report.to_dict())
    else:
        _show(output_console(), report)


def _write_page(report: TargetReport, model: Path, target: Path, samples: Sequence[Sample], page: Path) -> None:
    from ort_quantization.layer_page import layer_page
    from ort_quantization.layer_report import layer_report

    replace_text(page, layer_page(layer_report(model, target, samples[:8]), report))


def _show(console: Console, report: TargetReport) -> None:
    from ort_core.cli.console import time_text
    from ort_core.cli.tables import new_table, show_facts, show_table

    show_facts(console, report.facts())
    numbers = ["float32", "alone", "gain", "dB"]
    table = new_table(["layer", "operator", "scheme", *numbers, "left out"], numbers=numbers, title="Layers")
    for layer in report.layers:
        left_out = _left_out(layer)
        pair = next((each for each in layer.pairs if each.scheme == layer.scheme), None)
        seconds = [layer.float_s, pair.seconds if pair else None, pair.gain_s if pair else None]
        texts = ["" if each is None else time_text(each * 1e9) for each in seconds]
        decibels = "" if pair is None or pair.decibels is None else f"{pair.decibels:.1f}"
        table.add_row(layer.name, layer.op_type, layer.scheme, *texts, decibels, left_out)
    show_table(console, table)
    types = new_table(["every layer in", "a run"], numbers=["a run"], title="Models of one type")
    for key, measured in report.measurements.items():
        if key.startswith("whole "):
            run = measured if isinstance(measured, str) else time_text(measured * 1e9)
            types.add_row(key.rpartition("/")[2], run)
    show_table(console, types)
    whole = new_table(["model", "layers", "reached", "meets", "a run"], numbers=["reached", "a run"], title="Models")
    for each in report.candidates:
        counts = ", ".join(f"{count} {scheme}" for scheme, count in each.counts.items())
        value = each.note if each.value is None else f"{each.value:.4g}"
        run = "" if each.seconds is None else time_text(each.seconds * 1e9)
        whole.add_row(each.name, counts, value, "yes" if each.meets else "no", run)
    show_table(console, whole)


def _left_out(layer: LayerFacts) -> str:
    """Return why schemes of a layer were left out, once for each reason; times are in JSON and in the page."""
    reasons: dict[str, list[str]] = {}
    for pair in layer.pairs:
        if pair.left_out:
            reasons.setdefault(pair.left_out.partition(": ")[0], []).append(pair.scheme)
    return "; ".join(f"{', '.join(schemes)}: {reason}" for reason, schemes in reasons.items())
