"""Convert a GPT-2 of transformers into an ONNX model with caches, and compare it with torch.

python -m ort_transformers.models.gpt2.convert_to_onnx -m FOLDER --output OUT -o
"""

from __future__ import annotations

import argparse
import csv
import importlib
import json
import logging
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import ort_core
from ort_core.cli.interrupts import run_program
from ort_transformers.benchmark_helper import (
    Precision,
    create_onnxruntime_session,
    get_ort_environment_variables,
    prepare_environment,
    setup_logger,
)
from ort_transformers.models.gpt2.names import MODEL_CLASS_NAMES, PRETRAINED_GPT2_MODELS
from ort_transformers.quantize_helper import QuantizeHelper

log = logging.getLogger("ort_transformers.models.gpt2.convert_to_onnx")  # not __name__, which may be __main__

FLAG: dict[str, Any] = {"action": "store_true"}

_MEGABYTE = 1024**2
_MAX_LAYERS_IN_ONE_FILE = 24  # of GPT-2's sizes, medium has 24 layers and 1.4 GB, large 36 and 3.1 GB
_STEPS = 24  # tokens that --input_test_file lets both engines generate


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Convert a GPT-2 into an ONNX model with caches.")
    add = parser.add_argument
    known = ", ".join(PRETRAINED_GPT2_MODELS)
    add("-m", "--model_name_or_path", required=True, help=f"a folder, or a name on the hub, as {known}")
    add("--model_class", default="GPT2LMHeadModel", choices=list(MODEL_CLASS_NAMES), help="what of the model is taken")
    add("--cache_dir", default=os.path.join(".", "cache_models"), help="where models of the hub are kept")
    add("--output", default=os.path.join(".", "onnx_models"), help="a folder, or a file that ends with .onnx")
    add("-o", "--optimize_onnx", **FLAG, help="fuse the model")
    add("--use_gpu", **FLAG, help="run on a GPU")
    add("--provider", default=None, choices=["dml", "migraphx", "cuda", "tensorrt"], help="which GPU provider")
    add("--tolerance", type=float, default=0, help="what results may differ; by default what the precision allows")
    add("--input_test_file", "-i", default="", help="sentences to continue: a JSON object with input_ids in each line")
    add("-p", "--precision", type=Precision, default=Precision.FLOAT32, choices=list(Precision), help="of the weights")
    add("-t", "--test_cases", type=int, default=1000, help="comparisons with torch in a run")
    add("-r", "--test_runs", type=int, default=10, help="runs of comparisons")
    add("--verbose", **FLAG)
    add("-e", "--use_external_data_format", **FLAG, help="write weights beside the model")
    add("--overwrite", **FLAG, help="export again where the file is there")
    add("--use_int64_inputs", **FLAG, help="int64 for tokens, positions and mask; int32 without")
    add("-s", "--stage", type=int, default=0, choices=[0, 1, 2], help="1: compare first calls alone, without a past")
    half = parser.add_argument_group("float16", "how --precision fp16 converts")
    half.add_argument("-a", "--auto_mixed_precision", **FLAG, help="choose what stays in float32 by the weights")
    half.add_argument("--keep_io_types", **FLAG, help="inputs and outputs stay in float32")
    half.add_argument("--io_block_list", nargs="+", default=[], help="inputs and outputs that stay in float32")
    half.add_argument("--op_block_list", nargs="+", default=[], help="operators that stay in float32")
    half.add_argument("--node_block_list", nargs="+", default=[], help="nodes that stay in float32")
    half.add_argument("--force_fp16_initializers", **FLAG, help="no weight stays in float32")
    return parser.parse_args(argv)


def get_onnx_model_size(onnx_path: str, use_external_data_format: bool) -> int:
    """Return the bytes of a model; with weights beside it, those of its whole folder."""
    if not use_external_data_format:
        return os.path.getsize(onnx_path)
    return sum(each.stat().st_size for each in Path(onnx_path).parent.rglob("*"))


def get_latency_name(batch_size: int, sequence_length: int, past_sequence_length: int) -> str:
    """Return the column of the table of results that has the latency."""
    sizes = f"batch_size={batch_size},sequence_length={sequence_length},past_sequence_length={past_sequence_length}"
    return f"average_latency({sizes})"


def main(
    argv: Sequence[str] | None = None,
    experiment_name: str = "",
    run_id: str = "0",
    csv_filename: str = "gpt2_parity_results.csv",
) -> dict[str, Any]:
    """Convert a model, compare it with torch, and append a row to a table.

    Returns:
        The row; nothing of a model without a head, which is not compared.

    Raises:
        ValueError: the precision cannot be had that way.
        ModuleNotFoundError: torch or transformers is not installed.
    """
    args = parse_arguments(argv)
    setup_logger(args.verbose)
    _refuse(args)
    helper = importlib.import_module("ort_transformers.models.gpt2.gpt2_helper")
    torch = importlib.import_module("torch")
    args.tolerance = args.tolerance or helper.DEFAULT_TOLERANCE[args.precision]
    folder = os.path.dirname(args.output) if args.output.endswith(".onnx") else args.output
    prepare_environment(args.cache_dir, folder, args.use_gpu)
    device = torch.device("cuda:0" if args.use_gpu else "cpu")
    model = helper.MODEL_CLASSES[args.model_class][0].from_pretrained(args.model_name_or_path, cache_dir=args.cache_dir)
    model.eval().to(device)
    written, optimized = _write(args, model, device, folder, helper, torch)
    log.info("written: %s", written)
    if args.precision is Precision.INT8:
        model = QuantizeHelper.quantize_torch_model(model)
    session = create_onnxruntime_session(written, args.use_gpu, args.provider, verbose=args.verbose)
    row: dict[str, Any] = {}
    if args.model_class == "GPT2LMHeadModel" and session is not None:
        name = experiment_name or " ".join(argv if argv is not None else sys.argv[1:])
        row = _compare(args, session, model, device, helper, torch)
        row = {"experiment": name, "run_id": run_id, **_facts(args, optimized, written), **row}
        _append(csv_filename, row)
    if args.input_test_file and session is not None:
        _continue_sentences(args, session, model, Path(written).parent)
    return row


def _refuse(args: argparse.Namespace) -> None:
    if args.precision is Precision.INT4:
        raise ValueError("--precision int4 has no conversion here: take `ort quantize` on the fp32 model")
    if args.precision is not Precision.FLOAT32 and not args.optimize_onnx:
        raise ValueError(f"--precision {args.precision} needs --optimize_onnx")
    if args.precision is Precision.FLOAT16 and not args.use_gpu:
        raise ValueError("--precision fp16 needs --use_gpu; Gpt2Helper.optimize_onnx converts for a CPU, too")
    if args.precision is Precision.INT8 and args.use_gpu:
        raise ValueError("--precision int8 is for a CPU: leave --use_gpu out")


def _write(args: argparse.Namespace, model: Any, device: Any, folder: str, helper: Any, torch: Any) -> tuple[str, Any]:
    """Return the path of the file that was asked for, and the fused model where there is one."""
    gpt2 = helper.Gpt2Helper
    if model.config.n_layer > _MAX_LAYERS_IN_ONE_FILE and not args.use_external_data_format:
        log.info("a model above 2 GB needs --use_external_data_format")
    is_int8 = args.precision is Precision.INT8
    paths = gpt2.get_onnx_paths(
        folder, args.model_name_or_path, args.model_class, new_folder=is_int8, remove_existing=["fp32", "fp16", "int8"]
    )
    written, optimized = paths["raw"], None
    if Path(written).exists() and not args.overwrite:
        log.warning("%s is there already and is taken as it is; --overwrite exports again", written)
    else:
        padded = helper.MODEL_CLASSES[args.model_class][2]
        kinds = [torch.int64 if args.use_int64_inputs else torch.int32] * 3
        gpt2.export_onnx(model, device, written, args.verbose, args.use_external_data_format, padded, padded, *kinds)
    if args.optimize_onnx:
        config = model.config
        target = paths["fp32" if is_int8 else str(args.precision)]
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        optimized = gpt2.optimize_onnx(
            written, target, args.precision is Precision.FLOAT16, config.num_attention_heads, config.hidden_size,
            args.use_external_data_format, args.auto_mixed_precision, args.stage, **_float16_arguments(args),
        )  # fmt: skip
        written = target
    if is_int8:
        QuantizeHelper.quantize_onnx_model(written, paths["int8"], args.use_external_data_format)
        written = paths["int8"]
    if args.output.endswith(".onnx") and written != args.output and not args.use_external_data_format:
        shutil.move(written, args.output)
        written = args.output
    return written, optimized


def _float16_arguments(args: argparse.Namespace) -> dict[str, Any]:
    given: dict[str, Any] = {"keep_io_types": args.io_block_list or args.keep_io_types}
    lists = {"node_block_list": args.node_block_list, "op_block_list": args.op_block_list}
    given |= {name: value for name, value in lists.items() if value}
    return given | ({"force_fp16_initializers": True} if args.force_fp16_initializers else {})


def _compare(
    args: argparse.Namespace, session: Any, model: Any, device: Any, helper: Any, torch: Any
) -> dict[str, Any]:
    """Return what of the row of results comes from comparisons and from the clock."""
    kinds = dict.fromkeys(
        ("input_ids_dtype", "position_ids_dtype", "attention_mask_dtype"),
        torch.int64 if args.use_int64_inputs else torch.int32,
    )
    is_float16 = args.precision is Precision.FLOAT16 and not args.keep_io_types
    found = helper.Gpt2Helper.test_parity(
        session, model, device, is_float16, args.tolerance, args.tolerance, args.test_cases, args.test_runs,
        stage=args.stage, verbose=args.verbose, **kinds,
    )  # fmt: skip
    length, past = (32, 0) if args.stage == 1 else (1, 32)
    sizes = {"batch_size": 8, "sequence_length": length, "past_sequence_length": past}
    limit = model.config.n_positions
    row: dict[str, Any] = {}
    if length + past <= limit:
        milliseconds = helper.Gpt2Helper.test_performance(session, model, device, is_float16, **kinds, **sizes)
        row[get_latency_name(8, length, past)] = f"{milliseconds:.2f}"
    else:
        log.warning("the model takes %d tokens, too few for the measurement, which needs %d", limit, length + past)
        row[get_latency_name(8, length, past)] = "nan"
    percentiles = {f"diff_{each}_percentile": found[f"max_diff_percentile_{each}"] for each in (50, 90, 95, 99)}
    rates = ("top1_match_rate", "diff_pass_rate", "nan_rate", "top1_match_rate_per_run")
    return row | percentiles | {name: found[name] for name in rates}


def _facts(args: argparse.Namespace, optimized: Any, written: str) -> dict[str, Any]:
    fused = {} if optimized is None else optimized.get_fused_operator_statistics()
    operators = () if optimized is None else {node.op_type for node in optimized.nodes()}
    size = get_onnx_model_size(written, args.use_external_data_format) // _MEGABYTE
    return {
        "model_name": args.model_name_or_path,
        "model_class": args.model_class,
        "stage": args.stage,
        "gpu": args.use_gpu,
        "precision": args.precision,
        "optimizer": args.optimize_onnx,
        "test_cases": args.test_cases,
        "runs": args.test_runs,
        "keep_io_types": args.keep_io_types,
        "io_block_list": args.io_block_list,
        "op_block_list": args.op_block_list,
        "node_block_list": args.node_block_list,
        "force_fp16_initializers": args.force_fp16_initializers,
        "auto_mixed_precision": args.auto_mixed_precision,
        "optimized_operators": ",".join(name for name, count in fused.items() if count),
        "operators": ",".join(sorted(operators)),
        "environment_variables": get_ort_environment_variables(),
        "onnxruntime": ort_core.__version__,
        "onnx_size_in_MB": f"{size}",
    }


def _append(csv_filename: str, row: Mapping[str, Any]) -> None:
    is_new = not Path(csv_filename).exists()
    with open(csv_filename, "a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(row))
        if is_new:
            writer.writeheader()
        writer.writerow(row)


def _continue_sentences(args: argparse.Namespace, session: Any, model: Any, folder: Path) -> None:
    """Let both engines continue each sentence of a file greedily, and log where they part."""
    tester = importlib.import_module("ort_transformers.models.gpt2.greedy_continuation")
    lines = Path(args.input_test_file).read_text(encoding="utf-8").splitlines()
    for place, line in enumerate(each for each in lines if each.strip()):
        given = json.loads(line)
        ids = np.asarray(given["input_ids"], np.int64)
        mask = np.asarray(given.get("attention_mask", (ids != -1)), np.int64)
        tester.compare_generation(session, model, np.where(ids == -1, 0, ids), mask, steps=_STEPS, name=f"line {place}")


if __name__ == "__main__":
    run_program(main)
