"""The profile of a session as tables: nodes in their order, the most expensive ones, and operators.

python -m ort_transformers.profile_result_processor --input profile.json
"""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ort_core.cli.interrupts import run_program

log = logging.getLogger("ort_transformers.profile_result_processor")  # not __name__: __main__ of a command line

Events = Sequence[Mapping[str, Any]]
_WITH_BODIES = frozenset({"If", "Loop", "Scan"})  # their time is that of the nodes inside
_RULE = "-" * 64
_SUFFIXES = ("_kernel_time", "_fence_before", "_fence_after")


@dataclass
class TimeState:
    """Microseconds of what has one name, in how many records, and what ran it."""

    total: int = 0
    calls: int = 0
    label: str = ""

    def add(self, event: Mapping[str, Any], label: str = "") -> None:
        """Count a record."""
        self.total += event["dur"]
        self.calls += 1
        self.label = self.label or label


def load_profile_json(profile_file: str) -> list[dict[str, Any]]:
    """Return the records of a profile.

    Raises:
        ValueError: the file is not a list of records.
    """
    log.info("loading %s", profile_file)
    found = json.loads(Path(profile_file).read_text(encoding="utf-8"))
    if not isinstance(found, list):
        raise ValueError(f"{profile_file} is not a profile: a {type(found).__name__}, not a list of records")
    return found


def _of_category(sess_time: Events, category: str) -> Iterable[Mapping[str, Any]]:
    for each in sess_time:
        known = each.get("args") or {}
        if each.get("cat") == category and "dur" in each and known.get("op_name") not in (*_WITH_BODIES, None):
            yield each


def _ranked(times: Mapping[str, TimeState]) -> list[tuple[str, TimeState]]:
    return sorted(times.items(), key=lambda pair: pair[1].total, reverse=True)


def parse_kernel_results(sess_time: Events, threshold: float = 0) -> list[str]:
    """Return the kernels of a GPU, the most expensive first; those below a share of the time are left out."""
    times: dict[str, TimeState] = {}
    starts = [place for place, each in enumerate(sess_time) if each.get("name") == "session_initialization"]
    for event in _of_category(sess_time[starts[0] :] if starts else (), "Kernel"):
        times.setdefault(event["name"], TimeState()).add(event, event["args"]["op_name"] or f"({event['name']})")
    if not times:
        return ["No kernel record found!"]
    total = sum(each.total for each in times.values()) or 1
    lines = [f"\nTop expensive kernels with Time% >= {threshold * 100:.2f}:", _RULE]
    lines.append("Total(μs)\tTime%\tCalls\tAvg(μs)\tKernel")
    lines += [
        f"{each.total:10d}\t{100 * each.total / total:5.2f}\t{each.calls:5d}\t{each.total / each.calls:8.1f}\t{name}"
        for name, each in _ranked(times)
        if each.total >= threshold * total
    ]
    operators: dict[str, TimeState] = {}
    for each in times.values():
        operators.setdefault(each.label, TimeState()).total += each.total
    lines += ["\nGroup kernel time by operator:", _RULE, "Total(μs)\tTime%\tOperator"]
    return lines + [f"{each.total:10d}\t{100 * each.total / total:5.2f}\t{name}" for name, each in _ranked(operators)]


def _node_name(name: str) -> str:
    for suffix in _SUFFIXES:
        name = name.replace(suffix, "")
    return name


def parse_node_results(sess_time: Events, kernel_time_only: bool = False, threshold: float = 0) -> list[str]:
    """Return the nodes in their order, then the most expensive ones.

    Args:
        sess_time: the records.
        kernel_time_only: leave out what is not of a provider.
        threshold: the least share of the time of an expensive one.
    """
    times: dict[str, TimeState] = {}
    for event in _of_category(sess_time, "Node"):
        provider = event["args"].get("provider")
        if provider is None and kernel_time_only:
            continue
        label = (provider or "").removesuffix("ExecutionProvider")
        times.setdefault(_node_name(event["name"]), TimeState()).add(event, label)
    total = sum(each.total for each in times.values()) or 1
    lines = ["\nNodes in the original order:", _RULE, "Total(μs)\tTime%\tAcc %\tAvg(μs)\tCalls\tProvider\tNode"]
    so_far = 0.0
    for name, each in times.items():
        share = 100 * each.total / total
        so_far += share
        mean = each.total / each.calls
        lines.append(
            f"{each.total:10d}\t{share:5.2f}\t{so_far:5.2f}\t{mean:8.1f}\t{each.calls:5d}\t{each.label:8s}\t{name}"
        )
    lines += [f"\nTop expensive nodes with Time% >= {threshold * 100:.2f}:", _RULE]
    lines.append("Total(μs)\tTime%\tAvg(μs)\tCalls\tProvider\tNode")
    for name, each in _ranked(times):
        if each.total >= threshold * total:
            share, mean = 100 * each.total / total, each.total / each.calls
            lines.append(f"{each.total:10d}\t{share:5.2f}\t{mean:8.1f}\t{each.calls:5d}\t{each.label:8s}\t{name}")
    return lines


def group_node_results(sess_time: Events) -> list[str]:
    """Return the time of each operator, over all providers and for each."""
    operators: dict[str, TimeState] = {}
    placed: dict[tuple[str, str], TimeState] = {}
    waits: dict[str, int] = {}
    for event in _of_category(sess_time, "Node"):
        name, provider = event["args"]["op_name"], event["args"].get("provider")
        if provider is not None:
            operators.setdefault(name, TimeState()).add(event)
            placed.setdefault((provider, name), TimeState()).add(event)
        elif "fence" in event["name"]:
            waits[name] = waits.get(name, 0) + event["dur"]
    total = sum(each.total for each in operators.values()) or 1
    of_all = total + sum(waits.values())
    lines = ["", "Grouped by operator", _RULE]
    lines.append("Total(μs)\tTime%\tKernel(μs)\tKernel%\tCalls\tAvgKernel(μs)\tFence(μs)\tOperator")
    for name, each in _ranked(operators):
        wait = waits.get(name, 0)
        lines.append(
            f"{each.total + wait:10d}\t{100 * (each.total + wait) / of_all:5.2f}\t{each.total:11d}\t"
            f"{100 * each.total / total:5.2f}\t{each.calls:5d}\t{each.total / each.calls:14.1f}\t{wait:10d}\t{name}"
        )
    of_provider: dict[str, int] = {}
    for (provider, _), each in placed.items():
        of_provider[provider] = of_provider.get(provider, 0) + each.total
    lines += ["", "Grouped by provider + operator", _RULE]
    lines.append("Kernel(μs)\tProvider%\tCalls\tAvgKernel(μs)\tProvider\tOperator")
    for (provider, name), each in sorted(placed.items(), key=lambda pair: pair[1].total, reverse=True):
        share = 100 * each.total / (of_provider[provider] or 1)
        short = provider.replace("ExecutionProvider", "")
        lines.append(
            f"{each.total:10d}\t{share:9.2f}\t{each.calls:5d}\t{each.total / each.calls:14.1f}\t{short:8s}\t{name}"
        )
    return lines


def process_results(profile_file: str, args: argparse.Namespace) -> list[str]:
    """Return all tables of a profile; ``args`` has ``threshold`` and ``kernel_time_only``."""
    events = load_profile_json(profile_file)
    return [
        *parse_kernel_results(events, args.threshold),
        *parse_node_results(events, args.kernel_time_only, args.threshold),
        *group_node_results(events),
    ]


def add_table_arguments(parser: argparse.ArgumentParser) -> None:
    """Give a parser the flags of the tables."""
    parser.add_argument("--threshold", type=float, default=0.01, help="least share of the time of an expensive node")
    parser.add_argument("--provider", type=str, default="cuda", help="the GPU's provider")
    parser.add_argument("--kernel_time_only", action="store_true", help="leave out what is not of a provider")
    parser.add_argument("-v", "--verbose", action="store_true")


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Return what a command line asks for; by default this process's."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-i", "--input", required=True, type=str, help="the profile")
    add_table_arguments(parser)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Show the tables that a command line asks for."""
    asked = parse_arguments(argv)
    logging.basicConfig(format="%(message)s", level=logging.DEBUG if asked.verbose else logging.INFO)
    for line in process_results(asked.input, asked):
        log.info("%s", line)


if __name__ == "__main__":
    run_program(main)
