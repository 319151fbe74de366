"""``ort conformance``: hold a provider to its promises, and write what was found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer


def conformance(
    provider: Annotated[
        str, typer.Option("--provider", "-p", metavar="NAME", help="The provider; 'cpu' is CPUExecutionProvider.")
    ],
    profile: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.py", help="Test module with the provider's EpProfile (its tests/test_conformance.py)."
        ),
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Option of the provider; repeatable.")
    ] = None,
    expected_failures: Annotated[
        Path | None, typer.Option(metavar="FILE.toml", help="Expected failures; else the profile's.")
    ] = None,
    suite: Annotated[
        list[str] | None, typer.Option("--suite", "-s", metavar="SUITE", help="Only this suite; repeatable.")
    ] = None,
    share: Annotated[
        float, typer.Option(metavar="SHARE", min=0.0, max=1.0, help="Share of the operator cases to run.")
    ] = 1.0,
    models: Annotated[
        list[Path] | None, typer.Option(metavar="FOLDER", help="Further .onnx models; repeatable.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Processes that run cases at once.")] = 1,
    report: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where report.json, junit.xml and the matrix go.")
    ] = None,
) -> None:
    """Check every promise of an execution provider; exit with 1 when one is broken that nobody expected."""
    from rich.console import Console  # with what runs checks, half a second that other commands do not pay

    from ort_core.cli.parameters import installed_provider_name

    provider = installed_provider_name(provider)
    from ort_conformance.expectations import ExpectationError
    from ort_conformance.provider_run import FILES, ProfileError, find_profile, run_report, write_reports
    from ort_conformance.reports.matrix import PAGE
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
    if report is not None:
        typer.echo(f"reports: {report / PAGE} says the reason of everything; and {', '.join(sorted(FILES - {PAGE}))}")
    raise typer.Exit(1 if found.problems() else 0)


def _options(given: list[str]) -> dict[str, str]:
    parts = [text.partition("=") for text in given]
    wrong = next((text for text, (_, sign, _) in zip(given, parts, strict=True) if not sign), None)
    if wrong is not None:
        raise ValueError(f"--option {wrong!r} is not KEY=VALUE")
    return {name: value for name, _, value in parts}
