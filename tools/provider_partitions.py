"""Write how many nodes and partitions of each model every vendor's provider takes: docs/providers/partitions.md.

    python tools/provider_partitions.py MODEL ... [--page FILE]

Providers are asked as if all of them could run here; what a vendor's package needs to be asked must be installed, else
its column says what is missing. Each model is placed in a process of its own, since a vendor's library may end it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from importlib import metadata
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parent.parent / "docs/providers/partitions.md"
PROVIDERS = {
    "CUDAExecutionProvider": "CUDA",
    "NvTensorRTRTXExecutionProvider": "TensorRT-RTX",
    "OpenVINOExecutionProvider": "OpenVINO",
    "DmlExecutionProvider": "DirectML",
    "CoreMLExecutionProvider": "Core ML",
}
SDKS = ("tensorrt-rtx", "openvino", "coremltools")  # those that are asked; the others' rules are the packages' own
LIMIT_S = 900  # for one model and all providers
Row = dict[str, Any]  # Any: plain data from JSON


def main() -> int:
    """Place every model, write the page, and return the exit status: 1 where a process ended."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--one", action="store_true", help="print the rows of one model and write nothing")
    arguments = parser.parse_args()
    if arguments.one:
        for provider in PROVIDERS:
            print(json.dumps(placed(arguments.models[0], provider)), flush=True)
        return 0
    rows = {name_of(path): placed_apart(path) for path in sorted(arguments.models)}
    arguments.page.write_text(page_of(rows, versions()), encoding="utf-8")
    return int(any("ended" in row for found in rows.values() for row in found.values()))


def name_of(path: Path) -> str:
    """Return a model's name: its file's, or its folder's where the file is just called model."""
    return path.parent.name if path.stem == "model" else path.stem


def placed(path: Path, provider: str) -> Row:
    """Return how many nodes of a model a provider would take, in how many partitions, and the commonest refusal."""
    from ort_core import OrtError
    from ort_core.testing.claims import foreseen

    try:
        found = foreseen(path, [(provider, {})])
    except OrtError as error:
        return {"provider": provider, "missing": str(error)}
    nodes = found.report.nodes
    reasons = [refusal.reason for node in nodes for refusal in node.refusals if refusal.provider == provider]
    return {
        "provider": provider,
        "nodes": len(nodes),
        "taken": len(found.report.on(provider)),
        "partitions": sum(part.provider.name == provider for part in found.partitions),
        "reason": max(sorted(set(reasons)), key=reasons.count, default=""),
    }


def placed_apart(path: Path) -> dict[str, Row]:
    """Return the rows of a model by provider, asked in another process; one that ends it is told, others go on."""
    command = [sys.executable, str(Path(__file__).resolve()), "--one", str(path)]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        lines, ending = result.stdout.splitlines(), f"status {result.returncode}: {result.stderr[-200:]}"
    except subprocess.TimeoutExpired as error:
        output = error.stdout or b""
        lines = (output if isinstance(output, str) else output.decode()).splitlines()
        ending = f"no answer in {LIMIT_S} s"
    rows = {row["provider"]: row for row in map(json.loads, lines)}
    return {provider: rows.get(provider, {"ended": ending}) for provider in PROVIDERS}


def versions() -> str:
    """Return the SDKs that are asked, with their versions."""
    found = []
    for name in SDKS:
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            found.append(f"no {name}")
    return ", ".join(found)


def page_of(models: Mapping[str, Mapping[str, Row]], sdks: str) -> str:
    """Return the page."""
    titles = list(PROVIDERS.values())
    lines = [
        "# Partitions",
        "",
        "How much of each model a vendor's provider takes with its default options, as if its hardware were here:",
        "nodes behind the passes that it asks for, and the partitions that they are. One partition is best, for values",
        "may cross between devices where two meet. Nothing is computed for this page.",
        "",
        f"`python tools/provider_partitions.py MODEL ...` wrote it on {date.today().isoformat()}, with {sdks}.",
        "",
        f"| model | {' | '.join(titles)} |",
        f"| --- | {' | '.join('---' for _ in titles)} |",
        *(f"| {name} | {' | '.join(cell(rows[each]) for each in PROVIDERS)} |" for name, rows in models.items()),
        "",
        "The most frequent reason for which nodes are left, where a provider leaves any:",
        "",
        "| model | provider | nodes left | reason of the most |",
        "| --- | --- | ---: | --- |",
        *left(models),
        "",
    ]
    return "\n".join(lines)


def cell(row: Row) -> str:
    """Return what stands in the table for one model and provider."""
    if "ended" in row:
        return "the process ended"
    if "missing" in row:
        return "not asked"
    parts = row["partitions"]
    return f"{row['taken']:,} of {row['nodes']:,}" + (f" in {parts:,}" if parts else "")


def left(models: Mapping[str, Mapping[str, Row]]) -> Iterable[str]:
    """Yield a line for each provider that leaves nodes of a model."""
    for name, rows in models.items():
        for provider, title in PROVIDERS.items():
            row = rows[provider]
            words = row.get("ended") or row.get("missing") or row["reason"]
            if "nodes" not in row:
                yield line([name, title, "", words])
            elif row["taken"] < row["nodes"]:
                yield line([name, title, f"{row['nodes'] - row['taken']:,}", words])


def line(cells: Sequence[str]) -> str:
    """Return a line of a table."""
    return f"| {' | '.join(' '.join(each.split()).replace('|', '/') for each in cells)} |"


if __name__ == "__main__":
    sys.exit(main())
