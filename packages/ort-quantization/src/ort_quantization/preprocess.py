"""``python -m onnxruntime.quantization.preprocess``: prepares a model file for quantization."""

from __future__ import annotations

import argparse

from ort_core.cli.interrupts import run_program
from ort_quantization.models.model_files import EXTERNAL_FROM
from ort_quantization.models.prepare import quant_pre_process


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """Return the options of the command line; they are onnxruntime's."""
    parser = argparse.ArgumentParser(description="Prepare a model for quantization: shapes, folding, fusion.")
    parser.add_argument("--input", required=True, help="the model's file")
    parser.add_argument("--output", required=True, help="the file to write")
    parser.add_argument("--skip_optimization", type=bool, default=False, help="fold and fuse nothing")
    parser.add_argument("--skip_onnx_shape", type=bool, default=False, help="leave out ONNX's inference of shapes")
    parser.add_argument("--skip_symbolic_shape", type=bool, default=False, help="leave out symbolic shapes")
    parser.add_argument("--auto_merge", action="store_true", help="of no effect")
    parser.add_argument("--int_max", type=int, default=2**31 - 1, help="of no effect")
    parser.add_argument("--guess_output_rank", action="store_true", help="of no effect")
    parser.add_argument("--verbose", type=int, default=0, help="of no effect")
    parser.add_argument("--save_as_external_data", action="store_true", help="write large tensors beside the model")
    parser.add_argument("--all_tensors_to_one_file", action="store_true", help="of no effect: they always are")
    parser.add_argument("--external_data_location", default=None, help="name of their file; OUTPUT.data by default")
    parser.add_argument(
        "--external_data_size_threshold", type=int, default=EXTERNAL_FROM, help="bytes from which on a tensor is large"
    )
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Prepare the model that the command line names, and return the exit status."""
    chosen = vars(parse_arguments(arguments))
    quant_pre_process(chosen.pop("input"), chosen.pop("output"), **chosen)
    return 0


if __name__ == "__main__":
    run_program(main)
