"""Give a named size, or an input, fixed sizes: onnxruntime.tools.make_dynamic_shape_fixed's command line.

python -m ort_tools.make_dynamic_shape_fixed --dim_param batch --dim_value 1 model.onnx fixed.onnx
"""

from __future__ import annotations

import argparse
import pathlib
import sys
from collections.abc import Sequence

import onnx

from ort_core.cli.interrupts import run_program
from ort_core.model_graphs import write_proto
from ort_tools.onnx_model_utils import fix_output_shapes, make_dim_param_fixed, make_input_shape_fixed

__all__ = ["fix_output_shapes", "make_dim_param_fixed", "make_dynamic_shape_fixed_helper", "make_input_shape_fixed"]


def make_dynamic_shape_fixed_helper(arguments: Sequence[str] | None = None) -> None:
    """Fix the model that the command line names, the shapes of its outputs included where they follow."""
    parser = argparse.ArgumentParser("make_dynamic_shape_fixed.py", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dim_param", help="the name of a size; give --dim_value, too")
    parser.add_argument("--dim_value", type=int, help="the number that it becomes, above 0")
    parser.add_argument("--input_name", help="an input; give --input_shape, too")
    parser.add_argument(
        "--input_shape", type=lambda text: [int(each) for each in text.split(",")],
        help="its sizes, above 0, with commas between them: 1,3,256,256",
    )  # fmt: skip
    parser.add_argument("input_model", type=pathlib.Path, help="the model")
    parser.add_argument("output_model", type=pathlib.Path, help="the file to write")
    args = parser.parse_args(arguments)
    if not _is_usage(args):
        sys.stdout.write("Invalid usage.\n")
        parser.print_help()
        sys.exit(-1)
    model = onnx.load(str(args.input_model.resolve(strict=True)))
    if args.dim_param:
        make_dim_param_fixed(model.graph, args.dim_param, args.dim_value)
    else:
        make_input_shape_fixed(model.graph, args.input_name, args.input_shape)
    fix_output_shapes(model)
    write_proto(model, args.output_model.resolve())


def _is_usage(args: argparse.Namespace) -> bool:
    """Whether a size or an input is named, not both, with numbers above 0."""
    if bool(args.dim_param) == bool(args.input_name):
        return False
    if args.dim_param:
        return bool(args.dim_value and args.dim_value > 0)
    return bool(args.input_shape) and min(args.input_shape) > 0


if __name__ == "__main__":
    run_program(make_dynamic_shape_fixed_helper)
