"""``ort quantize``: write a quantized model, and say what became of it."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ort_core.cli.parameters import existing_model

if TYPE_CHECKING:
    from ort_quantization.calibration_data import Sample
    from ort_quantization.reports import QuantizationReport

_WHAT = "What is quantized"
_HOW = "How"
_CALIBRATION = "Calibration"


class TypeName(enum.StrEnum):
    """Element types by name."""

    INT4 = "int4"
    UINT4 = "uint4"
    INT8 = "int8"
    UINT8 = "uint8"
    INT16 = "int16"
    UINT16 = "uint16"


class FormatName(enum.StrEnum):
    """How a statically quantized model is written."""

    QDQ = "qdq"
    QOPERATOR = "qoperator"


class MethodName(enum.StrEnum):
    """How ranges follow from samples."""

    MINMAX = "minmax"
    ENTROPY = "entropy"
    PERCENTILE = "percentile"


def quantize(
    model: Annotated[Path, typer.Argument(metavar="MODEL", callback=existing_model, help="The float model.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Default: MODEL.quantized.onnx beside it.")
    ] = None,
    data: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="PATH",
            rich_help_panel=_CALIBRATION,
            help="Samples: .npz, .npy or .pb files, or folders of them (one sample a file; in test_data_set_* one a "
            "folder). With samples activations are quantized in the file, without while the model runs.",
        ),
    ] = None,
    method: Annotated[MethodName, typer.Option(rich_help_panel=_CALIBRATION, help="Ranges.")] = MethodName.MINMAX,
    provider: Annotated[
        list[str] | None, typer.Option("--provider", "-p", rich_help_panel=_CALIBRATION, help="What runs the samples.")
    ] = None,
    weights: Annotated[TypeName, typer.Option(rich_help_panel=_HOW, help="Type of weights.")] = TypeName.INT8,
    activations: Annotated[TypeName, typer.Option(rich_help_panel=_HOW, help="Of all else.")] = TypeName.UINT8,
    format: Annotated[FormatName, typer.Option(rich_help_panel=_HOW, help="With samples.")] = FormatName.QDQ,
    per_channel: Annotated[
        bool, typer.Option("--per-channel", rich_help_panel=_HOW, help="A scale for each channel of weights.")
    ] = False,
    reduce_range: Annotated[
        bool, typer.Option("--reduce-range", rich_help_panel=_HOW, help="Weights of 7 bits, for x86-64 without VNNI.")
    ] = False,
    exclude: Annotated[
        list[str] | None, typer.Option(metavar="NODE", rich_help_panel=_WHAT, help="Stays as it is.")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(metavar="NODE", rich_help_panel=_WHAT, help="Nothing else is quantized.")
    ] = None,
    op_type: Annotated[
        list[str] | None, typer.Option(metavar="TYPE", rich_help_panel=_WHAT, help="Only these operators.")
    ] = None,
    prepare: Annotated[
        bool, typer.Option(rich_help_panel=_WHAT, help="Fold, fuse and infer shapes before, with quant_pre_process.")
    ] = True,
    external_data: Annotated[
        bool, typer.Option("--external-data", help="Write large tensors into a file of their own.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Quantize a model, and report its size, its operators and how far its results lie from the float model's."""
    import tempfile

    from ort_quantization.quantize import quantize as by_config
    from ort_quantization.reports import report_of
    from ort_quantization.sample_files import read_samples

    target = model.with_name(f"{model.stem}.quantized.onnx") if output is None else output
    if target.resolve() == model.resolve():
        raise typer.BadParameter(f"{target} is the float model itself", param_hint="--output")
    samples = read_samples(data or [], model)
    common = {
        "op_types_to_quantize": op_type, "nodes_to_quantize": only, "nodes_to_exclude": exclude,
        "per_channel": per_channel, "reduce_range": reduce_range, "use_external_data_format": external_data,
        "weight_type": _quant_type(weights),
    }  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="ort.quantization.") as scratch:
        source = model
        if prepare:
            from ort_quantization.prepare import quant_pre_process

            source = Path(scratch) / model.name
            quant_pre_process(model, source)
        _refuse_unknown_names(source, [*(exclude or []), *(only or [])])
        by_config(source, target, _config(samples, common, method, provider, activations, format))
    report = report_of(model, target, samples, provider)
    if json:
        from ort_core.cli.console import print_json

        print_json(report.to_dict())
    else:
        _show(report)


def _quant_type(name: TypeName) -> object:
    from ort_quantization.quantized_types import QuantType

    return QuantType[
        "QU" + name.value[1:].capitalize() if name.value.startswith("u") else "Q" + name.value.capitalize()
    ]


def _config(
    samples: list[Sample], common: dict[str, object], method: MethodName, provider: list[str] | None,
    activations: TypeName, format: FormatName,
) -> object:  # fmt: skip
    """Return what is asked for: with samples a static configuration, else a dynamic one."""
    from typing import Any, cast

    from ort_quantization.calibrate import CalibrationMethod
    from ort_quantization.quantization_configs import DynamicQuantConfig, StaticQuantConfig
    from ort_quantization.quantized_types import QuantFormat
    from ort_quantization.sample_files import SampleReader

    choices = cast("dict[str, Any]", common)
    if not samples:
        return DynamicQuantConfig(**choices)
    methods = {each.name.lower(): each for each in CalibrationMethod}
    return StaticQuantConfig(
        SampleReader(samples), methods[method.value],
        QuantFormat.QDQ if format is FormatName.QDQ else QuantFormat.QOperator,
        cast("Any", _quant_type(activations)), calibration_providers=provider, **choices,
    )  # fmt: skip


def _refuse_unknown_names(source: Path, names: list[str]) -> None:
    from ort_core.errors import did_you_mean
    from ort_quantization.model_files import read_model

    known = {node.name for node in read_model(source)[0].graph.node}
    for name in names:
        if name not in known:
            raise typer.BadParameter(f"the model has no node {name!r}.{did_you_mean(name, sorted(known))}")


def _show(report: QuantizationReport) -> None:
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
