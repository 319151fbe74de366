"""The summary on the terminal: outcomes by suite, then every problem with its reason."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ort_conformance.outcome import Outcome
from ort_conformance.reports.report import ConformanceReport

_STYLES = {Outcome.RAN: "green", Outcome.HELD: "green", Outcome.FELL_BACK: "yellow", Outcome.REFUSED: "yellow"}
PROBLEMS_SHOWN = 40


def print_summary(report: ConformanceReport, console: Console) -> None:
    """Print a report."""
    facts = report.surroundings
    console.print(Text(f"{report.provider} on {facts.device or facts.system}", style="bold"))
    if report.unavailable:
        console.print(Text(f"not available here: {report.unavailable}", style="yellow"))
    console.print(_table(report))
    problems = report.problems()
    for result in problems[:PROBLEMS_SHOWN]:
        word = "is expected to fail and does not" if result.is_stale else result.finding.outcome.value
        console.print(Text(f"{result.check}: ", style="bold red").append(f"{word}: {result.finding.detail}", "default"))
    if len(problems) > PROBLEMS_SHOWN:
        console.print(f"... and {len(problems) - PROBLEMS_SHOWN} more")
    console.print(_conclusion(report))


def _conclusion(report: ConformanceReport) -> Text:
    problems = len(report.problems())
    if problems:
        return Text(f"{report.provider}: {problems} checks fail", style="bold red")
    if report.unavailable:
        return Text(f"{report.provider}: cannot be judged on this machine", style="bold yellow")
    return Text(f"{report.provider}: conformant", style="bold green")


def _table(report: ConformanceReport) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column("suite", no_wrap=True)
    table.add_column("outcomes")
    for suite, counts in report.counts_by_suite().items():
        table.add_row(suite, Text(", ").join(_counted(Outcome(word), count) for word, count in counts.items()))
    return table


def _counted(outcome: Outcome, count: int) -> Text:
    return Text(f"{count} {outcome.value}", style="red" if outcome.is_failure else _STYLES.get(outcome, ""))
