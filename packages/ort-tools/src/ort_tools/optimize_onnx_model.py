"""Write the model that a session's passes make: onnxruntime.tools.optimize_onnx_model's command line.

python -m ort_tools.optimize_onnx_model --opt_level extended model.onnx optimized.onnx
"""

from __future__ import annotations

import argparse
import pathlib
from collections.abc import Sequence

from ort_core.cli.interrupts import run_program
from ort_tools.onnx_model_utils import get_optimization_level, optimize_model

__all__ = ["get_optimization_level", "optimize_model", "optimize_model_helper"]

_SEVERITIES = {"debug": 0, "info": 1, "warning": 2, "error": 3}


def optimize_model_helper(arguments: Sequence[str] | None = None) -> None:
    """Optimize the model that the command line names."""
    parser = argparse.ArgumentParser("optimize_onnx_model.py", description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--opt_level", default="basic", choices=["disable", "basic", "extended", "layout", "all"], help="which passes"
    )
    parser.add_argument(
        "--log_level", default="error", choices=["debug", "info", "warning", "error"], help="what the session logs"
    )
    parser.add_argument("input_model", type=pathlib.Path, help="the model")
    parser.add_argument("output_model", type=pathlib.Path, help="the file to write")
    args = parser.parse_args(arguments)
    level = get_optimization_level(args.opt_level)
    optimize_model(args.input_model, args.output_model, level, _SEVERITIES[args.log_level])


if __name__ == "__main__":
    run_program(optimize_model_helper)
