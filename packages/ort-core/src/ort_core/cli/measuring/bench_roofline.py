"""``ort bench --roofline``: the machine's ceilings, a model's least time under them, and the steps that lose most."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ort_core.cli.inputs.feeds import InputRequest
    from ort_core.cli.sessions import SessionRequest

SHOWN = 10  # steps
ITERATIONS = 10  # runs under the profiler
_LEAST_MS = "least_ms"


def measure_under_roofline(
    model: Path, inputs: InputRequest, request: SessionRequest, p50_ms: float
) -> dict[str, Any]:  # Any: plain data
    """Return the machine's ceilings by threads, and a model's steps beside the least time that they allow each.

    Args:
        model: its file.
        inputs: what it is fed with.
        request: how its session is opened.
        p50_ms: the median of its runs without the profiler.
    """
    from ort_core.cli.measuring.profile_recording import measure_ceilings, record_profile
    from ort_core.cli.measuring.profile_report import summarize_trace

    with tempfile.TemporaryDirectory(prefix="ort-roofline-") as folder:
        recorded = record_profile(model, inputs, request, Path(folder), 1, ITERATIONS)
        ceilings = measure_ceilings(recorded.providers, request.threads)
        nodes = summarize_trace(recorded.trace, ITERATIONS, recorded.run_ns, ceilings)["nodes"]
    by_threads = {
        name: [
            *(measure_ceilings([name], count)[name] for count in fewer_threads(found.num_threads)),
            found,
        ]
        for name, found in ceilings.items()
    }
    return {
        "ceilings": {name: [dataclasses.asdict(each) for each in found] for name, found in by_threads.items()},
        **summarize_steps(nodes, p50_ms),
    }


def fewer_threads(most: int) -> list[int]:
    """Return the powers of two below a number of threads."""
    return [1 << power for power in range(most.bit_length()) if 1 << power < most]


def summarize_steps(nodes: Sequence[Mapping[str, Any]], p50_ms: float) -> dict[str, Any]:  # Any: plain data
    """Return the steps by the time they lose, largest first, and their sums, in milliseconds for each run.

    A step's least time is that of the roofline model (Williams et al. 2009): its work at the measured peak, or its
    bytes at the measured bandwidth, whichever takes longer. Of a step whose work is not known its own time counts, so
    the sum is nothing that a run could fall below. ``share`` is the sum over the median of runs without the profiler.
    """
    steps = []
    for node in nodes:
        share = node.get("ceiling_share")
        least = node["ms"] if share is None else min(node["ms"], node["ms"] * share)
        steps.append({**node, _LEAST_MS: least, "lost_ms": node["ms"] - least, "is_known": share is not None})
    steps.sort(key=lambda step: -step["lost_ms"])
    least_ms = sum(step[_LEAST_MS] for step in steps)
    return {
        "least_ms": least_ms,
        "p50_ms": p50_ms,
        "share": least_ms / p50_ms,
        "nodes_ms": sum(step["ms"] for step in steps),
        "unknown_ms": sum(step["ms"] for step in steps if not step["is_known"]),
        "unknown_steps": sum(1 for step in steps if not step["is_known"]),
        "steps": steps,
    }


def show_roofline(report: Mapping[str, Any]) -> None:  # Any: as ``measure_under_roofline`` returns it
    """Print the ceilings, the sums, and the steps that lose most."""
    from ort_core.cli.console import count_text, output_console, time_text

    console = output_console()
    for name, found in report["ceilings"].items():
        _show_ceilings(name, found)
    if not report["ceilings"]:
        console.print("no provider of this session measures what its device can do")
        return
    _show_steps(report["steps"])
    console.print(
        f"the steps could take {time_text(report['least_ms'] * 1e6)} at least and a run takes "
        f"{time_text(report['p50_ms'] * 1e6)}: {report['share']:.0%} of what this machine can do"
    )
    if report["unknown_steps"]:
        taken = time_text(report["unknown_ms"] * 1e6)
        console.print(f"{count_text(report['unknown_steps'], 'step')} told no work: {taken}, counted as they are")


def _show_ceilings(name: str, found: Sequence[Mapping[str, Any]]) -> None:  # Any: plain data of Roofline
    from ort_core.cli.console import bytes_text, output_console
    from ort_core.cli.tables import new_table, show_table

    kinds = sorted({"float32", *found[-1]["by_kind"]})
    sizes = [f"GB/s {bytes_text(each['nbytes'] // found[-1]['num_threads'])}" for each in found[-1]["bandwidths"]]
    columns = (f"{name}, threads", *(f"{kind} GFLOP/s" for kind in kinds), *sizes)
    table = new_table(columns, numbers=columns)
    for each in found:
        rates = {"float32": each["flops_per_s"], **each["by_kind"]}
        table.add_row(
            str(each["num_threads"]),
            *(f"{rates[kind] / 1e9:.0f}" for kind in kinds),
            *(f"{bandwidth['bytes_per_s'] / 1e9:.0f}" for bandwidth in each["bandwidths"]),
        )
    show_table(output_console(), table)


def _show_steps(steps: Sequence[Mapping[str, Any]]) -> None:  # Any: plain data
    from ort_core.cli.console import count_text, output_console, time_text
    from ort_core.cli.measuring.profile_report import first_name, rate_texts
    from ort_core.cli.tables import new_table, show_table

    numbers = ("takes", "at least", "loses", "GFLOP/s", "GB/s")
    table = new_table(("step", "operator", "output", *numbers, "of ceiling"), numbers=(*numbers, "of ceiling"))
    for step in steps[:SHOWN]:
        times = [time_text(step[key] * 1e6) for key in ("ms", _LEAST_MS, "lost_ms")]
        if not step["is_known"]:
            times[1:] = ["", ""]
        rates = rate_texts(step) if "gflops_per_s" in step else ("", "", "")
        table.add_row(first_name(step), step["operator"], step["output"], *times, *rates)
    show_table(output_console(), table)
    if len(steps) > SHOWN:
        output_console().print(f"… and {count_text(len(steps) - SHOWN, 'more step')}; --json has all\n")
