"""What the exports of `exported_architectures.py` become: onnxruntime's optimizer beside ours, as a table.

    python benchmarks/export_fusions.py FOLDER [--only NAME ...] [--time] [--output FILE.json] [--resume]

For each architecture and style: attentions, norms, rotations and activations that are one operator, of those there;
nodes; how far the results of the fused file are from torch's, in onnxruntime and in ort_core. Both optimizers run as a
program calls them. An export whose own results are not torch's is told of, and not compared. With ``--time``, too, the
processor time of a run before and after, in microseconds, on one thread, in turns: the median of 15, each of 10 runs.
``--markdown`` prints the rows that the output has as a table for the documentation, and measures nothing.
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

import ort_core
from ort_transformers.fusing.fusion_report import ATTENTIONS, NORMS
from ort_transformers.fusing.fusions import fuse_model
from ort_transformers.fusion_options import FusionOptions
from ort_transformers.onnx_model import OnnxModel

MODEL_TYPES = {  # onnxruntime's type for each architecture; others are of BERT's
    "bart": "bart", "whisper": "bart", "t5": "t5", "gpt2": "gpt2", "gpt_neox": "gpt_neox", "clip": "clip",
    "swin": "swin", "vit": "vit", "deit": "vit", "dinov2": "vit", "beit": "vit", "siglip": "clip",
    "conformer": "conformer", "qwen3": "qwen3", "llama": "gpt2", "mistral": "gpt2", "qwen2": "gpt2",
    "phi3": "gpt2", "gemma": "gpt2", "gemma2": "gpt2", "gemma3": "gpt2", "phi": "gpt2", "opt": "gpt2",
    "bloom": "gpt2", "unet": "unet", "vae_encoder": "vae", "vae_decoder": "vae", "mmdit": "mmdit", "flux": "mmdit",
    "sam2_vision": "sam2",
}  # fmt: skip
ATTENTION_HEADS, HIDDEN_SIZE = 4, 32  # of all the small configurations
ROTATIONS = frozenset({"RotaryEmbedding"})
ACTIVATIONS = frozenset({"Gelu", "FastGelu", "BiasGelu", "QuickGelu"})
EXPERTS = frozenset({"MoE", "QMoE"})
GROUP_NORMS = frozenset({"GroupNorm", "SkipGroupNorm", "GroupNormalization"})  # the first two run on GPUs alone
KINDS = {
    "attentions": ATTENTIONS, "norms": NORMS - GROUP_NORMS, "group norms": GROUP_NORMS, "rotations": ROTATIONS,
    "activations": ACTIVATIONS, "experts": EXPERTS,
}  # fmt: skip
TURNS, RUNS = 15, 10
EQUAL = 2e-3  # of the largest result: random weights let errors of float32 grow to a few parts in ten thousand


def main() -> None:
    """Compare what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--time", action="store_true")
    parser.add_argument("--resume", action="store_true", help="keep the rows that the output has already")
    parser.add_argument("--markdown", action="store_true", help="print the rows of the output as a table")
    asked = parser.parse_args()
    if asked.markdown:
        print("\n".join(map(as_markdown, rows_of(asked.output))))
        return
    logging.disable(logging.WARNING)  # of onnxruntime's optimizer: what it did is in the table
    onnxruntime.set_default_logger_severity(4)
    rows = rows_of(asked.output) if asked.resume else []
    known = {(row["architecture"], row["style"]) for row in rows}
    for path in sorted(asked.folder.glob("*.onnx")):
        name, style = path.stem.split(".")
        if (asked.only and name not in asked.only) or (name, style) in known:
            continue
        rows.append(row_of(path, name, style, times=asked.time))
        print(as_text(rows[-1]), flush=True)
        if asked.output is not None:
            write(asked.output, rows, asked.folder)
    print(totals(rows))


def rows_of(output: Path | None) -> list[dict[str, object]]:
    """Return the rows that an earlier, unfinished run wrote."""
    return json.loads(output.read_text())["rows"] if output is not None and output.exists() else []


def write(output: Path, rows: list[dict[str, object]], folder: Path) -> None:
    """Write what is known so far: a run that is cut off goes on from it with --resume."""
    failed = folder / "FAILED.json"
    report = {
        "versions": {each.__name__: each.__version__ for each in (onnxruntime, ort_core, onnx, np)},
        "rows": sorted(rows, key=lambda row: (row["architecture"], row["style"])),
        "not_exported": json.loads(failed.read_text()) if failed.exists() else {},
    }
    output.write_text(json.dumps(report, indent=1) + "\n")


def row_of(path: Path, name: str, style: str, *, times: bool) -> dict[str, object]:
    """Return what both optimizers make of one export."""
    data = dict(np.load(path.with_suffix(".npz")))
    expected = data.pop("expected")
    row: dict[str, object] = {"architecture": name, "style": style, **pieces_of(path)}
    own = off(path, data, expected, onnxruntime)
    if not isinstance(own, float) or own > EQUAL:
        return {**row, "export_is_off": own, "onnxruntime": {"failed": "-"}, "ours": {"failed": "-"}}
    with tempfile.TemporaryDirectory() as folder:
        files = {"before": path}
        for who, optimize in (("onnxruntime", by_onnxruntime), ("ours", by_us)):
            target = Path(folder, f"{who}.onnx")
            why = optimize(path, target, MODEL_TYPES.get(name, "bert"))
            row[who] = {"failed": why} if not target.exists() else facts_of(target, data, expected)
            if who == "ours" and why:
                row["reasons"] = why.splitlines()
            if target.exists():
                files[who] = target
        if times:
            row["microseconds"] = times_of(files, data)
    return row


def times_of(files: dict[str, Path], data: dict[str, np.ndarray]) -> dict[str, int]:
    """Return the processor time of a run of each file in both engines, measured in turns."""
    calls = {}
    for engine in (onnxruntime, ort_core):
        options = engine.SessionOptions()
        options.intra_op_num_threads = 1
        for who, path in files.items():
            try:
                session = engine.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
                feeds = {each.name: data[each.name] for each in session.get_inputs()}
                session.run(None, feeds)
            except Exception:  # noqa: BLE001, S112 - the row says already that this engine refuses the file
                continue
            calls[f"{who} in {engine.__name__}"] = (session, feeds)
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(TURNS):
        for name, (session, feeds) in calls.items():
            start = time.process_time_ns()
            for _ in range(RUNS):
                session.run(None, feeds)
            found[name].append((time.process_time_ns() - start) / RUNS / 1000)
    return {name: round(statistics.median(each)) for name, each in found.items()}


def pieces_of(path: Path) -> dict[str, int]:
    """Return how many attentions, norms and nodes an export has, in whatever form."""
    options = FusionOptions("bert")
    for switch in [key for key in vars(options) if key.startswith("enable_")]:
        setattr(options, switch, False)
    _, report = fuse_model(str(path), options)
    fused, whole = fuse_model(str(path), FusionOptions("bert"))
    left = [each.op_type for each in fused.graph.node]
    return {
        "attentions": report.num_attentions + len(report.unfused_of("attention")),
        "norms": report.num_norms + len(report.unfused_of("norm")),
        "group norms": len(report.unfused_of("group norm")),
        "rotations": sum(whole.fused.get(each, 0) for each in ROTATIONS) + len(whole.unfused_of("rotation")),
        "activations": sum(whole.fused.get(each, 0) for each in ACTIVATIONS) + left.count("Erf"),
        "experts": sum(whole.fused.get(each, 0) for each in EXPERTS) + len(whole.unfused_of("experts")),
        "nodes": report.nodes_before,
    }


def by_onnxruntime(source: Path, target: Path, model_type: str) -> str:
    """Let onnxruntime's optimizer write the fused file; return why it did not."""
    from onnxruntime.transformers.optimizer import optimize_model  # needs torch, which takes seconds to import

    try:
        sizes = (0, 0) if model_type in ("unet", "vae") else (ATTENTION_HEADS, HIDDEN_SIZE)  # as its pipelines do
        optimized = optimize_model(str(source), model_type, *sizes)
        optimized.save_model_to_file(str(target))
    except Exception as error:  # noqa: BLE001 - what it refuses is a fact of the table
        return f"{type(error).__name__}: {error}"[:300]
    return ""


def by_us(source: Path, target: Path, model_type: str) -> str:
    """Write the fused file; return what was not fused, with the first reasons."""
    model, report = fuse_model(str(source), FusionOptions(model_type))
    OnnxModel(model).save_model_to_file(str(target))
    return "\n".join(f"{each.kind} {each.node}: {each.reason}" for each in report.unfused)


def facts_of(path: Path, feeds: dict[str, np.ndarray], expected: np.ndarray) -> dict[str, object]:
    """Return what a fused file has and how far its results are from torch's."""
    counts = OnnxModel(onnx.load(path)).get_operator_statistics()
    return {
        **{kind: sum(counts.get(name, 0) for name in names) for kind, names in KINDS.items()},
        "nodes": sum(counts.values()),
        "off_in_onnxruntime": off(path, feeds, expected, onnxruntime),
        "off_in_ort_core": off(path, feeds, expected, ort_core),
    }


def off(path: Path, feeds: dict[str, np.ndarray], expected: np.ndarray, engine: object) -> float | str:
    """Return the largest difference as a share of the largest result, or why there is none."""
    try:
        session = engine.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        read = {each.name for each in session.get_inputs()}
        (found,) = session.run(None, {name: array for name, array in feeds.items() if name in read})
    except Exception as error:  # noqa: BLE001 - a file that an engine refuses is a fact of the table
        return f"{type(error).__name__}: {error}"[:300]
    return float(f"{np.abs(found - expected).max() / np.abs(expected).max():.2g}")


def is_equal(facts: dict[str, object]) -> bool:
    """Return whether both engines gave torch's results."""
    found = [facts.get("off_in_onnxruntime"), facts.get("off_in_ort_core")]
    return all(isinstance(each, float) and each <= EQUAL for each in found)


def as_text(row: dict[str, object]) -> str:
    """Return one line of the table."""
    sides = []
    for who in ("onnxruntime", "ours"):
        facts = row[who]
        if "failed" in facts:
            sides.append(f"{who}: {facts['failed'][:80]}")
            continue
        same = "equal" if is_equal(facts) else f"OFF {facts['off_in_onnxruntime']} {facts['off_in_ort_core']}"
        sides.append(
            f"{who}: {', '.join(f'{kind} {facts[kind]}/{row[kind]}' for kind in KINDS)}, nodes {facts['nodes']}, {same}"
        )
    if "export_is_off" in row:
        return f"{row['architecture']} {row['style']}: the export itself is off: {row['export_is_off']}"[:160]
    times = f"; {row['microseconds']}" if "microseconds" in row else ""
    return f"{row['architecture']} {row['style']} ({row['nodes']} nodes): {'; '.join(sides)}{times}"


def as_markdown(row: dict[str, object]) -> str:
    """Return one row of the table in the documentation; a dash stands for a file that was not made or did not run."""
    sides, times = [row["onnxruntime"], row["ours"]], row.get("microseconds", {})
    attention, exporter = row["style"].split("_")
    cells = [row["architecture"], f"{attention}, {exporter.replace('torchscript', 'TorchScript')}"]
    for kind in ("attentions", "norms"):
        counts = [side.get(kind, "—") for side in sides]
        cells.append(f"{counts[0]} · **{counts[1]}** of {row[kind]}" if row[kind] else "")
    cells.append(" · ".join(str(each) for each in (row["nodes"], *(side.get("nodes", "—") for side in sides))))
    cells.append(" · ".join("yes" if is_equal(side) else "no" for side in sides))
    for engine in ("onnxruntime", "ort_core"):
        names = (f"{who} in {engine}" for who in ("before", "onnxruntime", "ours"))
        cells.append(" · ".join(str(times.get(name, "—")) for name in names))
    return f"| {' | '.join(map(str, cells))} |"


def totals(rows: Iterable[dict[str, object]]) -> str:
    """Return how many rows are fused whole, and equal, on each side."""
    rows = list(rows)
    exports = [row for row in rows if "export_is_off" not in row]
    lines = [f"{len(rows)} exports, {len(rows) - len(exports)} of them off by themselves"]
    for who in ("onnxruntime", "ours"):
        done = [row for row in exports if "failed" not in row[who]]
        kinds = (f"{kind} {sum(r[who][kind] for r in done)}/{sum(r[kind] for r in exports)}" for kind in KINDS)
        wanted = [kind for kind in KINDS if kind != "group norms"]
        whole = sum(all(row[who][kind] >= row[kind] for kind in wanted) for row in done)
        nodes = sum(row["nodes"] for row in done), sum(row[who]["nodes"] for row in done)
        equal = sum(is_equal(row[who]) for row in done)
        lines.append(
            f"{who}: {', '.join(kinds)}, nodes {nodes[0]} to {nodes[1]}, {whole} fused whole, "
            f"{len(exports) - len(done)} failed, {equal} equal to torch in both engines"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
