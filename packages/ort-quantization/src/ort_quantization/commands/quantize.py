"""``ort quantize``: write a quantized model, and say what became of it."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ort_core.cli.parameters import existing_model
from ort_core.whole_files import replace_text

if TYPE_CHECKING:
    from ort_quantization.calibration.calibration_data import Sample
    from ort_quantization.layer_report import LayerReport

_WHAT = "What is quantized"
_HOW = "How to quantize"
_CALIBRATION = "Calibration"
_REPORT = "Report"
_TARGET = "Quantize to a target"
_WEIGHTS = "Quantize only weights"
_COMPARED = 16  # samples by which results and layers are compared


class TypeName(enum.StrEnum):
    """Element types by name."""

    INT4 = "int4"
    UINT4 = "uint4"
    INT8 = "int8"
    UINT8 = "uint8"
    INT16 = "int16"
    UINT16 = "uint16"
    FLOAT8 = "float8"


class HalfName(enum.StrEnum):
    """Half types by name."""

    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"


class FormatName(enum.StrEnum):
    """How a statically quantized model is written."""

    QDQ = "qdq"
    QOPERATOR = "qoperator"


class MethodName(enum.StrEnum):
    """How ranges follow from samples."""

    MINMAX = "minmax"
    ENTROPY = "entropy"
    PERCENTILE = "percentile"
    DISTRIBUTION = "distribution"


def quantize(
    context: typer.Context,
    model: Annotated[Path, typer.Argument(metavar="MODEL", callback=existing_model, help="The float model.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Default: MODEL.quantized.onnx beside it.")
    ] = None,
    data: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="PATH",
            rich_help_panel=_CALIBRATION,
            help="Samples: .npz, .npy or .pb files, or folders of them (one sample per file; in test_data_set_* one "
            "per folder). With samples, the ranges of activations are measured now (static quantization); without "
            "them, at each run of the model (dynamic quantization).",
        ),
    ] = None,
    method: Annotated[
        MethodName, typer.Option(rich_help_panel=_CALIBRATION, help="How ranges follow from the samples.")
    ] = MethodName.MINMAX,
    provider: Annotated[
        list[str] | None,
        typer.Option(
            "--provider", "-p", rich_help_panel=_CALIBRATION, help="Execution provider that runs the samples."
        ),
    ] = None,
    weights: Annotated[TypeName, typer.Option(rich_help_panel=_HOW, help="Type of weights.")] = TypeName.INT8,
    activations: Annotated[TypeName, typer.Option(rich_help_panel=_HOW, help="Type of activations.")] = TypeName.UINT8,
    format: Annotated[
        FormatName, typer.Option(rich_help_panel=_HOW, help="File format, with --data.")
    ] = FormatName.QDQ,
    per_channel: Annotated[
        bool, typer.Option("--per-channel", rich_help_panel=_HOW, help="One scale for each channel of a weight.")
    ] = False,
    reduce_range: Annotated[
        bool, typer.Option("--reduce-range", rich_help_panel=_HOW, help="Weights of 7 bits, for x86-64 without VNNI.")
    ] = False,
    equalize: Annotated[
        bool,
        typer.Option("--equalize", rich_help_panel=_HOW, help="First equalize the ranges of channels between layers."),
    ] = False,
    correct_bias: Annotated[
        bool,
        typer.Option("--correct-bias", rich_help_panel=_HOW, help="Correct biases for rounded weights. Needs --data."),
    ] = False,
    exclude: Annotated[
        list[str] | None,
        typer.Option(metavar="NODE", rich_help_panel=_WHAT, help="Keep this node in float; repeatable."),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="NODE", rich_help_panel=_WHAT, help="Quantize only this node; repeatable."),
    ] = None,
    op_type: Annotated[
        list[str] | None,
        typer.Option(metavar="TYPE", rich_help_panel=_WHAT, help="Quantize only this operator; repeatable."),
    ] = None,
    prepare: Annotated[
        bool, typer.Option(rich_help_panel=_WHAT, help="Run quant_pre_process first: fold, fuse, infer shapes.")
    ] = True,
    extra_option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            rich_help_panel=_HOW,
            help="A key of extra_options, such as SmoothQuant=true or KeepFragileValues=false.",
        ),
    ] = None,
    external_data: Annotated[
        bool | None,
        typer.Option(help="Write large tensors into a file of their own. [default: if the float model has them so]"),
    ] = None,
    samples_at_once: Annotated[
        int,
        typer.Option(rich_help_panel=_CALIBRATION, min=1, help="Samples per run, if the model's batch size is open."),
    ] = 1,
    resume: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", rich_help_panel=_CALIBRATION, help="Keep the state in this file, and continue from it."
        ),
    ] = None,
    weight_only: Annotated[
        int | None,
        typer.Option(
            metavar="BITS",
            rich_help_panel=_WEIGHTS,
            help="Quantize only weights of matrix products, to 2, 4 or 8 bits in blocks. For language models.",
        ),
    ] = None,
    weight_method: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            rich_help_panel=_WEIGHTS,
            help="hqq, default, rtn or k_quant; gptq and awq need --data.",
        ),
    ] = "hqq",
    block_size: Annotated[int, typer.Option(rich_help_panel=_WEIGHTS, help="Rows that share a scale.")] = 32,
    last_bits: Annotated[
        int, typer.Option(rich_help_panel=_WEIGHTS, help="Bits of the last products, such as that with the vocabulary.")
    ] = 8,
    half: Annotated[
        HalfName | None,
        typer.Option(rich_help_panel=_HOW, help="Convert floats to 16 bits instead of quantizing them."),
    ] = None,
    to_target: Annotated[
        float | None,
        typer.Option(
            metavar="DB",
            rich_help_panel=_TARGET,
            help="Choose the types of layers that make the model fastest while each result keeps this signal-to-noise "
            "ratio. Needs --data.",
        ),
    ] = None,
    scheme: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TYPE",
            rich_help_panel=_TARGET,
            help="Type to try: int8, dynamic, int4, bfloat16 or float16; repeatable. [all by default]",
        ),
    ] = None,
    budget: Annotated[float, typer.Option(rich_help_panel=_TARGET, help="Seconds to spend on measurements.")] = 600.0,
    layers: Annotated[
        bool, typer.Option("--layers", rich_help_panel=_REPORT, help="Show the loss of each value and weight.")
    ] = False,
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE", rich_help_panel=_REPORT, help="Write the losses and all ranges as one HTML page."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", rich_help_panel=_REPORT, help="Print the report as JSON.")] = False,
) -> None:
    """Quantize a model, and report its size, its operators and how far its results are from the float model's."""
    import tempfile

    from ort_core.cli.outputs.output_files import check_not_read
    from ort_quantization.calibration.sample_files import SampleReader, read_samples
    from ort_quantization.commands.choices import (
        extra_options_of,
        refuse_half_of_float8,
        refuse_unknown_operators,
        refuse_unused,
        refuse_unwritable,
    )
    from ort_quantization.commands.showing import show
    from ort_quantization.comparison.reports import report_of
    from ort_quantization.quantize import quantize as by_config

    refuse_unused(context)
    target = model.with_name(f"{model.stem}.quantized.onnx") if output is None else output
    if target.resolve() == model.resolve():
        raise typer.BadParameter(f"{target} is the float model itself", param_hint="--output")
    refuse_unwritable(target, "--output")
    if report is not None:
        refuse_unwritable(report, "--report")
        check_not_read(report, "--report", model)
    refuse_unknown_operators(op_type or [], model)
    extra = extra_options_of(extra_option or [])
    in_files = _has_files(model) if external_data is None else external_data
    samples = read_samples(data or [], model)
    if correct_bias and not samples:
        raise typer.BadParameter("biases are corrected by samples: give --data", param_hint="--correct-bias")
    if to_target is not None:
        if math.isnan(to_target) or not budget > 0:
            raise typer.BadParameter("a target is a number of decibels, and a budget more than 0 seconds")
        from ort_quantization.commands.to_target import quantize_by_target

        if not samples:
            raise typer.BadParameter("a target is judged by the results of samples: give --data", param_hint="--data")
        quantize_by_target(
            model, target, samples, to_target, provider=provider, schemes=scheme, budget_s=budget,
            method=method.value, page=report, as_json=json,
        )  # fmt: skip
        return
    if half is not None:
        from ort_quantization.half_files import convert_file

        _refuse_unknown_names(model, exclude or [])
        convert_file(
            model, target, half.value, keep_io_types=True, node_block_list=exclude,
            use_external_data_format=in_files,
        )  # fmt: skip
        show(report_of(model, target, samples, provider), None, as_json=json)
        return
    if weight_only is not None:
        from ort_quantization.quantize_weights import quantize_weights

        quantize_weights(
            model, target, weight_only, method=weight_method, block_size=block_size, last_bits=last_bits,
            calibration_data_reader=SampleReader(samples) if samples else None, nodes_to_exclude=exclude or (),
            use_external_data_format=in_files, providers=provider,
        )  # fmt: skip
        compared = _layers(model, model, target, samples[:_COMPARED], report) if layers or report is not None else None
        show(report_of(model, target, samples, provider), compared if layers else None, as_json=json)
        return
    refuse_half_of_float8(weights.value, activations.value, method.value)
    if not samples and weights not in (TypeName.INT8, TypeName.UINT8):
        raise typer.BadParameter(
            f"without --data weights get 8 bits; for {weights.value} give samples, or --weight-only BITS",
            param_hint="--weights",
        )
    common = {
        "op_types_to_quantize": op_type, "nodes_to_quantize": only, "nodes_to_exclude": exclude,
        "per_channel": per_channel, "reduce_range": reduce_range, "use_external_data_format": in_files,
        "weight_type": _quant_type(weights),
    }  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="ort.quantization.") as scratch:
        source = model
        if prepare:
            from ort_quantization.models.prepare import quant_pre_process

            source = Path(scratch) / model.name
            quant_pre_process(model, source)
        if equalize:
            from ort_quantization.accuracy.equalize import equalize_layers

            equalize_layers(source, Path(scratch) / "equalized.onnx")
            source = Path(scratch) / "equalized.onnx"
        _refuse_unknown_names(source, [*(exclude or []), *(only or [])])
        with calibration_options(len(samples), samples_at_once, resume) as runs:
            common["extra_options"] = {**runs, "BiasCorrection": correct_bias, **extra}
            by_config(source, target, _config(samples, common, method, provider, activations, format))
        found = report_of(model, target, samples, provider)
        by_layer = None
        if layers or report is not None:
            by_layer = _layers(source, model, target, samples[:_COMPARED], report)
    show(found, by_layer if layers else None, as_json=json)


def _has_files(model: Path) -> bool:
    """Return whether tensors of a model lie in files of their own."""
    from ort_quantization.models.model_files import is_external, read_model

    return any(is_external(tensor) for tensor in read_model(model)[0].graph.initializer)


@contextmanager
def calibration_options(count: int, samples_at_once: int, state: Path | None) -> Iterator[dict[str, object]]:
    """Give the options of a calibration's runs, with a progress bar while the block runs."""
    if not count:
        yield {}
        return
    from ort_core.cli.console import counted

    with counted("Calibration", count) as advance:
        options: dict[str, object] = {"CalibProgress": advance, "CalibSamplesAtOnce": samples_at_once}
        yield options if state is None else {**options, "CalibStatePath": state}


def _layers(source: Path, model: Path, target: Path, samples: Sequence[Sample], page: Path | None) -> LayerReport:
    """Compare layer by layer with the model that was quantized, and write the page."""
    import dataclasses

    from ort_core.cli.console import working
    from ort_quantization.layer_page import layer_page
    from ort_quantization.layer_report import layer_report

    with working("Comparing layers"):
        found = dataclasses.replace(layer_report(source, target, samples), model=model)
    if page is not None:
        replace_text(page, layer_page(found))
    return found


def _quant_type(name: TypeName) -> object:
    from ort_quantization.quantized_types import QuantType

    if name is TypeName.FLOAT8:
        return QuantType.QFLOAT8E4M3FN
    return QuantType[
        "QU" + name.value[1:].capitalize() if name.value.startswith("u") else "Q" + name.value.capitalize()
    ]


def _config(
    samples: Sequence[Sample], common: dict[str, object], method: MethodName, provider: list[str] | None,
    activations: TypeName, format: FormatName,
) -> object:  # fmt: skip
    """Return what is asked for: with samples a static configuration, else a dynamic one."""
    from typing import Any, cast

    from ort_quantization.arguments.quantization_configs import DynamicQuantConfig, StaticQuantConfig
    from ort_quantization.calibrate import CalibrationMethod
    from ort_quantization.calibration.sample_files import SampleReader
    from ort_quantization.quantized_types import QuantFormat

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
    from ort_quantization.models.model_files import read_model

    known = {node.name for node in read_model(source)[0].graph.node}
    for name in names:
        if name not in known:
            raise typer.BadParameter(f"the model has no node {name!r}.{did_you_mean(name, sorted(known))}")
