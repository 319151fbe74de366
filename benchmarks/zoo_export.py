"""Write the zoo: architectures drawn by a seed, exported by torch, beside their inputs and torch's results.

    python benchmarks/zoo_export.py FOLDER [--seed 0] [--timm 24] [--only NAME ...] [--both]

Needs torch, torchvision, timm, transformers and onnxscript; nothing is downloaded, weights are random. Each model is
written as NAME.EXPORTER.onnx and .npz, by the exporter that the seed draws, by the other one where that fails, or by
both. What is there already is left, and so is what failed before: FAILED.json tells the reasons, also of an export that
ended the process.
"""

from __future__ import annotations

import argparse
import json
import random
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from zoo.assorted import ASSORTED
from zoo.detectors import DETECTORS
from zoo.drawn import Architecture, Drawn
from zoo.fresh_libraries import FRESH
from zoo.libraries import TORCHVISION, TRANSFORMERS, timm_files
from zoo.meeting import MEETING
from zoo.newer import NEWER
from zoo.recurrences import RECURRENCES
from zoo.restoring import RESTORING
from zoo.sequences import SEQUENCES
from zoo.signals import SIGNALS
from zoo.vision import VISION

OPSETS = {"torchscript": 17, "dynamo": 20}
REASON_LENGTH = 200


def architectures(seed: int, num_timm: int) -> dict[str, Architecture]:
    """Return the zoo of a seed by name."""
    written = {**VISION, **SEQUENCES, **NEWER, **RESTORING, **SIGNALS, **ASSORTED, **RECURRENCES, **MEETING}
    return {**written, **FRESH, **DETECTORS, **TRANSFORMERS, **TORCHVISION, **timm_files(random.Random(seed), num_timm)}


def drawn(name: str, architecture: Architecture, seed: int) -> Drawn:
    """Return an architecture with its sizes and weights; statistics of normalizations are drawn, too."""
    draw = random.Random(f"{name} {seed}")
    torch.manual_seed(seed)
    made = architecture.make(draw)
    torch.manual_seed(seed + 1)
    made.module.eval()
    with torch.no_grad():
        for key, each in made.module.state_dict().items():
            if key.endswith("running_mean"):
                each.normal_(0, 0.1)
            elif key.endswith("running_var"):
                each.uniform_(0.5, 1.5)
            elif key.endswith("bias"):
                each.add_(0.05 * torch.randn_like(each))
    return made


def export(made: Drawn, exporter: str, path: Path) -> None:
    """Write a model by one exporter, its inputs, and what torch computes."""
    names = list(made.inputs)
    arguments: dict[str, Any] = {"input_names": names, "opset_version": OPSETS[exporter]}  # Any: torch's own
    if exporter == "dynamo":
        marker = torch.export.Dim.DYNAMIC
        axes = tuple(dict.fromkeys(made.open_axes.get(name, ()), marker) for name in names)
        arguments |= {"dynamo": True, "verbose": False, "optimize": True, "external_data": False}
        # a module that takes any number of inputs has them in a tuple of its own
        arguments["dynamic_shapes"] = (axes,) if has_open_arguments(made.module) else axes
    else:
        arguments["dynamo"] = False
        arguments["dynamic_axes"] = {
            name: {axis: f"{name}_{axis}" for axis in axes} for name, axes in made.open_axes.items()
        }
    inputs = tuple(made.inputs.values())
    with torch.no_grad():
        results = flat(made.module(*inputs))
        torch.onnx.export(made.module, inputs, str(path), **arguments)
    truth = [each.numpy() for each in results]
    np.savez(
        path.with_suffix(".npz"), **{f"input:{name}": value.numpy() for name, value in made.inputs.items()},
        **{f"result:{n:02d}": value for n, value in enumerate(truth)},
    )  # fmt: skip


def has_open_arguments(module: torch.nn.Module) -> bool:
    """Return whether ``forward`` takes ``*inputs``."""
    return bool(type(module).forward.__code__.co_flags & 0x04)


def flat(value: Any) -> list[torch.Tensor]:  # Any: nested results
    """Return the tensors of nested results in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    items = value.values() if isinstance(value, Mapping) else value
    return [tensor for each in items for tensor in flat(each)]


def attempt(name: str, architecture: Architecture, exporter: str, seed: int, folder: Path) -> str:
    """Export one architecture; return why that failed, or nothing."""
    try:
        export(drawn(name, architecture, seed), exporter, folder / f"{name}.{exporter}.onnx")
    except Exception as error:  # noqa: BLE001 - an exporter's failure is a row of the table, not ours
        lines = f"{type(error).__name__}: {error}".splitlines()
        return lines[0][:REASON_LENGTH]
    return ""


def main() -> None:
    """Export what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--timm", type=int, default=24, help="how many of timm's files to draw from")
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--both", action="store_true", help="by both exporters, not by the one that is drawn")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    zoo = architectures(asked.seed, asked.timm)
    warnings.simplefilter("ignore")
    failed_file = asked.folder / "FAILED.json"
    failed = json.loads(failed_file.read_text()) if failed_file.exists() else {}
    for name in asked.only or zoo:
        known = list(zoo[name].exporters)
        random.Random(f"{name} {asked.seed} exporter").shuffle(known)
        for exporter in known:
            title = f"{name}.{exporter}"
            is_there = (asked.folder / f"{title}.npz").exists()
            if not is_there and title not in failed:
                failed_file.write_text(json.dumps({**failed, title: "ended the process"}, indent=1) + "\n")
                reason = attempt(name, zoo[name], exporter, asked.seed, asked.folder)
                failed = {**failed, title: reason} if reason else failed
                failed_file.write_text(json.dumps(failed, indent=1) + "\n")
                print(f"{title}: {reason or 'written'}", flush=True)
            if title not in failed and not asked.both:
                break


if __name__ == "__main__":
    main()
