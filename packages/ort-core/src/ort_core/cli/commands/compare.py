"""``ort compare``: two models, or one under two providers or levels, tensor by tensor; where they first part."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ort_core.cli.parameters import (
    Dims,
    Inputs,
    JsonFlag,
    LevelName,
    ModelPath,
    Operators,
    Seed,
    Shapes,
    ToleranceChoice,
    existing_model,
    parse_providers,
)

if TYPE_CHECKING:
    from ort_core.cli.comparing.comparison import Side
    from ort_core.cli.comparing.differences import Difference

_SIDES = "The two sides (a: the first, b: the one that it is compared with)"


def compare(
    model: ModelPath,
    other: Annotated[
        Path | None, typer.Argument(metavar="OTHER", help="Another model; else the same.", callback=existing_model)
    ] = None,
    provider_a: Annotated[
        list[str] | None, typer.Option("--provider-a", metavar="NAME", help="Provider of a.", rich_help_panel=_SIDES)
    ] = None,
    provider_b: Annotated[
        list[str] | None, typer.Option("--provider-b", metavar="NAME", help="Provider of b.", rich_help_panel=_SIDES)
    ] = None,
    level_a: Annotated[
        LevelName, typer.Option("--level-a", help="Level of a.", rich_help_panel=_SIDES)
    ] = LevelName.ALL,
    level_b: Annotated[
        LevelName | None, typer.Option("--level-b", help="Level of b; else that of a.", rich_help_panel=_SIDES)
    ] = None,
    disable: Annotated[
        list[str] | None,
        typer.Option("--disable", metavar="PASS", help="Leave out a pass in a; repeatable.", rich_help_panel=_SIDES),
    ] = None,
    tolerance: Annotated[
        ToleranceChoice, typer.Option("--tolerance", help="How far apart counts as equal.")
    ] = ToleranceChoice.APPROXIMATE,
    ops: Operators = None,
    interior: Annotated[
        bool, typer.Option("--interior", help="Compare interior values even when all outputs agree.")
    ] = False,
    inputs: Inputs = None,
    shape: Shapes = None,
    dim: Dims = None,
    seed: Seed = 0,
    json: JsonFlag = False,
) -> None:
    """Compare results, by default against the unoptimized reference; exit with 1 when they differ."""
    from ort_core.cli.comparing.comparison import Side, compare_interior, compare_outputs
    from ort_core.cli.console import print_json, working
    from ort_core.cli.inputs.feeds import InputRequest
    from ort_core.cli.sessions import SessionRequest

    first = Side("a", model, SessionRequest(provider_a, level_a, disable, operators=ops))
    is_plain = other is None and not provider_a and not provider_b and level_b is None
    if is_plain:
        second = Side("b", model, SessionRequest(["reference"], LevelName.DISABLE, operators=ops))
    else:
        asked = SessionRequest(provider_b or provider_a, level_b or level_a, operators=ops)
        second = Side("b", other or model, asked)
    parse_providers(provider_a, "--provider-a")
    parse_providers(provider_b, "--provider-b")
    with working("Comparing outputs"):
        feeds, outputs = compare_outputs(first, second, InputRequest(inputs, shape, dim, seed), tolerance.value)
    agrees = all(each.is_equal for each in outputs)
    found: dict[str, Any] = {}  # Any: plain data
    if interior or not agrees:
        with working("Comparing interior values"):
            values = compare_interior(first, second, feeds.values, tolerance.value)
        found = _interior(values)
    report = {
        "a": _side(first), "b": _side(second), "tolerance": tolerance.value, "equal": agrees,
        "outputs": [each.as_dict() for each in outputs], "interior": found or None,
    }  # fmt: skip
    if json:
        print_json(report)
    else:
        _show(report)
    if not agrees:
        raise typer.Exit(1)


def _side(side: Side) -> dict[str, object]:
    return {
        "model": str(side.path), "providers": list(side.request.providers or ["default"]),
        "level": side.request.level.value,
    }  # fmt: skip


def _interior(values: list[tuple[str, Difference]]) -> dict[str, object]:
    wrong = [(node, each) for node, each in values if not each.is_equal]
    first = {"node": wrong[0][0], **wrong[0][1].as_dict()} if wrong else None
    worst = sorted(values, key=lambda pair: -(pair[1].max_absolute or 0.0))[:10]
    return {
        "compared": len(values),
        "different": len(wrong),
        "first": first,
        "largest": [{"node": node, **each.as_dict()} for node, each in worst],
    }


def _show(report: Mapping[str, Any]) -> None:  # Any: plain data, as in the JSON document
    from ort_core.cli.console import output_console
    from ort_core.cli.tables import new_table, show_table

    console = output_console()
    for name in ("a", "b"):
        side = report[name]
        console.print(f"{name}: {side['model']}, level {side['level']}, providers {', '.join(side['providers'])}")
    table = new_table(("output", "equal", "largest difference", "details"), numbers=("largest difference",))
    for output in report["outputs"]:
        table.add_row(*_cells(output))
    show_table(console, table)
    found = report["interior"]
    if found is None:
        console.print(f"all outputs are equal within the tolerance {report['tolerance']!r}")
        return
    console.print(f"{found['compared']} interior values have the same names on both sides, {found['different']} differ")
    if found["first"] is not None:
        first = found["first"]
        console.print(f"first divergence: value {first['name']!r} of {first['node']}: {first['text']}")
    elif not report["equal"]:
        console.print(
            "No interior value differs while all are kept: the difference comes from a fusion across them, or from "
            "values without a common name. Try --level-a basic, or --disable PASS (`ort optimize --list` names them)."
        )
    table = new_table(("value", "node", "largest difference", "equal"), numbers=("largest difference",))
    for value in found["largest"]:
        table.add_row(
            value["name"], value["node"], _number(value["max_absolute"]), "yes" if value["is_equal"] else "NO"
        )
    show_table(console, table)


def _cells(output: Mapping[str, Any]) -> tuple[str, str, str, str]:  # Any: plain data
    return output["name"], "yes" if output["is_equal"] else "NO", _number(output["max_absolute"]), output["text"]


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"
