"""``ort doctor``: everything that a report about a problem should say of this installation."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import platform
import sys
from typing import Any

import typer

from ort_core.cli.parameters import JsonFlag

_PACKAGES = (
    "numpy", "onnx", "ml_dtypes", "protobuf", "llvmlite", "pluggy", "typer", "rich", "psutil", "platformdirs", "pillow",
    "onnxruntime",
)  # fmt: skip
_REQUIRED = frozenset(_PACKAGES) - {"llvmlite", "pillow", "onnxruntime"}
_WHY_OPTIONAL = {
    "llvmlite": "without it the CPU provider interprets: slower, same results",
    "pillow": "only for images as inputs of `ort run`",
    "onnxruntime": "only for `ort bench --against onnxruntime`",
}


def doctor(json: JsonFlag = False) -> None:
    """Show versions, plugins, hardware and the cache; exit with 1 when something is broken."""
    from ort_core.cli.commands.cache import cache_facts
    from ort_core.cli.console import print_json, working
    from ort_core.cli.machine.hardware import find_hardware
    from ort_core.cli.machine.provider_facts import describe_plugins, describe_providers

    with working("Looking around"):
        report = {
            "versions": {"ort-core": _own_version(), "python": platform.python_version(), **_versions()},
            "python": sys.executable,
            "hardware": dataclasses.asdict(find_hardware()),
            "plugins": [dataclasses.asdict(plugin) for plugin in describe_plugins()],
            "providers": [dataclasses.asdict(row) for row in describe_providers()],
            "cache": cache_facts(),
            "settings": _settings(),
        }
        report["problems"] = _problems(report)
    if json:
        print_json(report)
    else:
        _show(report)
    if report["problems"]:
        raise typer.Exit(1)


def _own_version() -> str:
    from ort_core import __version__

    return __version__


def _versions() -> dict[str, str | None]:
    return {name: _version(name) for name in _PACKAGES}


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _settings() -> dict[str, str]:
    import os

    from ort_core.settings import Scope, all_settings

    rows = [row for row in all_settings().values() if row.scope is Scope.ENVIRONMENT and row.name in os.environ]
    why = {row.name: f" (no effect here: {row.no_effect})" if row.no_effect else "" for row in rows}
    return {name: os.environ[name] + reason for name, reason in why.items()}


def _problems(report: dict[str, Any]) -> list[str]:  # Any: plain data
    missing = [name for name in _REQUIRED if report["versions"][name] is None]
    problems = [
        f"the package {name} is not installed: pip install --force-reinstall ort-core" for name in sorted(missing)
    ]
    problems += [f"plugin {p['name']} of {p['package']}: {p['reason']}" for p in report["plugins"] if p["reason"]]
    if not any(row["is_available"] and row["is_listed"] for row in report["providers"]):
        problems.append(
            "no execution provider is available: is ort-core installed with its entry points? pip install ort-core"
        )
    if not report["cache"]["is_writable"]:
        problems.append(
            f"the cache folder {report['cache']['path']} cannot be written, so every process compiles its models anew: "
            "name another one in ORT_CACHE_DIR, or set ORT_CACHE_MAX_NBYTES=0 if that is meant"
        )
    return problems


def _bytes(count: int | None) -> str:
    from ort_core.cli.console import bytes_text

    return "unknown" if count is None else bytes_text(count)


def _show(report: dict[str, Any]) -> None:  # Any: plain data, as in the JSON document
    from ort_core.cli.console import bytes_text, output_console
    from ort_core.cli.tables import new_table, show_facts, show_table

    console = output_console()
    table = new_table(("package", "version", "remarks"))
    for name, version in report["versions"].items():
        table.add_row(name, version or "not installed", "" if version else _WHY_OPTIONAL.get(name, "needed"))
    show_table(console, table)
    machine, cache = report["hardware"], report["cache"]
    limit = machine["container_memory_nbytes"]
    quota = machine["container_cores"]
    physical = machine["physical_cores"] or "?"
    cores = f"{machine['logical_cores']} logical, {physical} physical, {machine['usable_cores']} usable"
    show_facts(console, [
        ("python", report["python"]),
        ("system", machine["system"]),
        ("processor", machine["processor"]),
        ("features", " ".join(machine["features"]) or "unknown"),
        ("cores", cores + (f", container limit {quota:g}" if quota is not None else "")),
        ("memory", f"{_bytes(machine['memory_nbytes'])}, {_bytes(machine['available_nbytes'])} available"
                   + (f", container limit {bytes_text(limit)}" if limit is not None else "")),
        ("cache", f"{cache['path']}: {bytes_text(cache['nbytes'])} of at most {bytes_text(cache['max_nbytes'])}"),
        *((name, value) for name, value in report["settings"].items()),
    ])  # fmt: skip
    console.print()
    table = new_table(("plugin", "package", "state"))
    for plugin in report["plugins"]:
        table.add_row(plugin["name"], plugin["package"], plugin["reason"] or "ok")
    show_table(console, table)
    table = new_table(("provider", "available", "remarks"))
    for row in report["providers"]:
        table.add_row(row["name"], "yes" if row["is_available"] else "no", row["remarks"])
    show_table(console, table)
    for problem in report["problems"]:
        console.print(f"problem: {problem}")
    if not report["problems"]:
        console.print("no problems found")
