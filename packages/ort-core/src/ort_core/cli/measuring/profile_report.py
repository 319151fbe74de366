"""A Chrome trace added up: time per operator and per node, beside what the machine could do (the roofline model)."""

from __future__ import annotations

import dataclasses
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ort_core.cli.console import bytes_text, count_text

if TYPE_CHECKING:
    from ort_core.providers.roofline import Roofline

_SUFFIX = "_kernel_time"
_WITH_BODIES = frozenset({"If", "Loop", "Scan", "SequenceMap"})


def summarize_trace(
    path: Path, iterations: int, run_ns: Sequence[int], ceilings: Mapping[str, Roofline]
) -> dict[str, Any]:  # Any: plain data
    """Return times per run: all in milliseconds, largest first, with their share of the time in nodes.

    Nodes whose provider told of their work have rates beside it: ``gflops_per_s``, ``gbytes_per_s``, and
    ``ceiling_share``, the least time that the provider's ceilings allow over the time it took.
    """
    events = _with_own_time(json.loads(path.read_text(encoding="utf-8")))
    nodes: dict[tuple[str, str, str], list[dict[str, Any]]] = defaultdict(list)  # Any: an event's fields
    operators: dict[str, list[dict[str, Any]]] = defaultdict(list)  # Any: as above
    for event in events:
        nodes[event["args"]["node_index"], event["name"], event["args"].get("step", "")].append(event)
        operators[event["args"]["op_name"]].append(event)
    total = sum(event["own"] for event in events) or 1
    return {
        "iterations": iterations,
        "run_ms": sum(run_ns) / len(run_ns) / 1e6,
        "nodes_ms": sum(event["own"] for event in events) / iterations / 1e6,
        "operators": _ranked(
            {"name": name, **_times(found, iterations, total), "calls": len(found) // iterations}
            for name, found in operators.items()
        ),
        "nodes": _ranked(
            {
                "name": name.removesuffix(_SUFFIX),
                "step": step,
                "operator": found[0]["args"]["op_name"],
                "provider": found[0]["args"]["provider"],
                "output": _outputs_text(found),
                "calls": len(found) // iterations,
                **_times(found, iterations, total),
                **_rates(found, ceilings.get(found[0]["args"]["provider"])),
            }
            for (_, name, step), found in nodes.items()
        ),
        "ceilings": {name: dataclasses.asdict(each) for name, each in ceilings.items()},
    }


def _rates(events: Sequence[dict[str, Any]], ceilings: Roofline | None) -> dict[str, Any]:  # Any: an event's fields
    """Return what the events of one node computed and moved per second, and what that is of the ceiling.

    Sizes may differ from event to event, as in a Loop that grows a value: work is the mean of all, as the time is.
    """
    flops, nbytes = (_mean([event["args"].get(key) for event in events]) for key in ("flops", "bytes"))
    mean_s = sum(event["own"] for event in events) / len(events) / 1e9
    if flops is None or not mean_s:
        return {}
    rates = {"flops": flops, "nbytes": nbytes, "gflops_per_s": flops / mean_s / 1e9}
    rates["gbytes_per_s"] = None if nbytes is None else nbytes / mean_s / 1e9
    arithmetic = rates["arithmetic"] = events[0]["args"].get("arithmetic", "float32")
    least_s = None if ceilings is None else ceilings.least_seconds(flops, nbytes, arithmetic)
    if ceilings is not None and least_s is not None and (flops or nbytes):
        moving = nbytes / ceilings.bytes_per_s(nbytes) if nbytes else 0.0
        rates["bound"] = "memory" if moving >= least_s else "compute"
        rates["ceiling_share"] = least_s / mean_s
    return rates


def _mean(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return round(sum(known) / len(known)) if len(known) == len(counts) else None


def _with_own_time(events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:  # Any: an event's fields
    """Return the events of nodes with their ``own`` time: without that of the nodes in their bodies."""
    nodes = [{**event, "own": _nanoseconds(event)} for event in events if event["cat"] == "Node"]
    around: list[dict[str, Any]] = []  # Any: an event's fields
    for event in sorted(nodes, key=lambda event: (event["tid"], event["ts"], -event["dur"])):
        while around and (around[-1]["tid"] != event["tid"] or around[-1]["ts"] + around[-1]["dur"] <= event["ts"]):
            around.pop()
        if around and around[-1]["args"]["op_name"] in _WITH_BODIES:
            around[-1]["own"] = max(0, around[-1]["own"] - _nanoseconds(event))
        if event["args"]["op_name"] in _WITH_BODIES:
            around.append(event)
    return nodes


def _nanoseconds(event: Mapping[str, Any]) -> int:  # Any: an event's fields
    """Return an event's time; traces count in microseconds, ours carry nanoseconds as well."""
    return int(event["args"].get("duration_ns", event["dur"] * 1000))


def _times(events: Sequence[dict[str, Any]], iterations: int, total: int) -> dict[str, float]:  # Any: as above
    spent = sum(event["own"] for event in events)
    return {"ms": spent / iterations / 1e6, "share": spent / total}


def _ranked(rows: Any) -> list[dict[str, Any]]:  # Any: plain data
    return sorted(rows, key=lambda row: -row["ms"])


def _outputs_text(events: Sequence[Mapping[str, Any]]) -> str:  # Any: an event's fields
    """Return what a node gave: of its first and its largest run where sizes differ; of sequences how many they hold."""
    first, largest = events[0]["args"], max((event["args"] for event in events), key=_output_nbytes)
    return " … ".join(dict.fromkeys(map(_given_text, (first, largest))))


def _output_nbytes(arguments: Mapping[str, Any]) -> int:  # Any: as above
    return int(arguments.get("output_size", 0))


def _given_text(arguments: Mapping[str, Any]) -> str:  # Any: as above
    tensors = [f"{dtype}{shape}" for entry in arguments["output_type_shape"] for dtype, shape in entry.items()]
    return ", ".join([*tensors, *(f"sequence of {count}" for count in arguments.get("output_sequences", ()))])


def first_name(row: Mapping[str, Any]) -> str:  # Any: plain data
    """Return the name of a row, of a fused region that of its first node: the names of all are in the page and JSON."""
    is_fused = "+" in str(row.get("operator", "")) and "+" in row["name"]
    return row["name"].partition("+")[0] + "+…" if is_fused else str(row["name"])


def rate_texts(row: Mapping[str, Any]) -> tuple[str, str, str]:  # Any: a node's row
    """Return a node's GFLOP/s, GB/s and share of its ceiling; empty where they are not known."""
    moved, share = row.get("gbytes_per_s"), row.get("ceiling_share")
    return (
        f"{row['gflops_per_s']:.3g}" if row.get("flops") else "",
        "" if moved is None else f"{moved:.3g}",
        "" if share is None else f"{share:.0%} {_bound_text(row)}",
    )


def _bound_text(row: Mapping[str, Any]) -> str:  # Any: as above
    of_kind = row["bound"] == "compute" and row["arithmetic"] != "float32"
    return f"{row['bound']}, {row['arithmetic']}" if of_kind else str(row["bound"])


def ceiling_text(name: str, ceilings: Mapping[str, Any]) -> str:  # Any: plain data of Roofline
    """Return the ceilings of one provider's device in a sentence."""
    moved = ", ".join(
        f"{each['bytes_per_s'] / 1e9:.0f} GB/s over {bytes_text(each['nbytes'])}" for each in ceilings["bandwidths"]
    )
    threads = ceilings["num_threads"]
    kinds = {"float32": ceilings["flops_per_s"], **ceilings["by_kind"]}
    computed = ", ".join(f"{rate / 1e9:.0f} GFLOP/s ({kind})" for kind, rate in kinds.items())
    return f"{name} reached {computed} with {count_text(threads, 'thread')}, and read {moved}"
