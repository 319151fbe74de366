"""``ort conformance``: hold a provider to its promises, and write what was found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer


def conformance(
    provider: Annotated[str, typer.Option("--provider", "-p", help="Name of the provider.")],
    profile: Annotated[
        Path | None, typer.Option(help="Test module with the provider's EpProfile (its tests/test_conformance.py).")
    ] = None,
    option: Annotated[list[str] | None, typer.Option(help="Provider option as NAME=VALUE (repeat).")] = None,
    expected_failures: Annotated[Path | None, typer.Option(help="TOML file of expected failures.")] = None,
    suite: Annotated[list[str] | None, typer.Option("--suite", "-s", help="Only this suite (repeat).")] = None,
    share: Annotated[float, typer.Option(min=0.0, max=1.0, help="Share of the operator cases to run.")] = 1.0,
    models: Annotated[list[Path] | None, typer.Option(help="Folder of further .onnx models (repeat).")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Processes that run cases at once.")] = 1,
    report: Annotated[Path | None, typer.Option(help="Folder for report.json, junit.xml and the matrix.")] = None,
) -> None:
    """Check every promise of an execution provider; exits with 1 when one is broken that nobody expected."""
    from rich.console import Console  # with what runs checks, half a second that other commands do not pay

    from ort_conformance.expectations import ExpectationError
    from ort_conformance.provider_run import ProfileError, find_profile, run_report, write_reports
    from ort_conformance.reports.summary import print_summary
    from ort_conformance.running import RunRequest

    try:
        chosen = find_profile(provider, profile)
        chosen = replace(
            chosen,
            options={**chosen.options, **_options(option or [])},
            expected_failures=expected_failures or chosen.expected_failures,
        )
        request = RunRequest(chosen, tuple(suite or ()), share, tuple(models or ()))
        request.check()
    except (ProfileError, ExpectationError, ValueError, FileNotFoundError) as error:
        raise typer.BadParameter(str(error)) from error
    found = run_report(request, Console(stderr=True), jobs=jobs)
    if report is not None:
        write_reports(found, report)
    print_summary(found, Console())
    raise typer.Exit(1 if found.problems() else 0)


def _options(given: list[str]) -> dict[str, str]:
    parts = [text.partition("=") for text in given]
    wrong = next((text for text, (_, sign, _) in zip(given, parts, strict=True) if not sign), None)
    if wrong is not None:
        raise ValueError(f"--option {wrong!r} is not NAME=VALUE")
    return {name: value for name, _, value in parts}
