"""The flags of the optimizer's command line: onnxruntime's."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence

from ort_transformers.fusion_options import FusionOptions


def parse(arguments: Sequence[str] | None, model_types: Iterable[str], levels: Sequence[int]) -> argparse.Namespace:
    """Return what a command line asks for; by default this process's."""
    parser = argparse.ArgumentParser(
        prog="python -m onnxruntime.transformers.optimizer", description="Fuse the operators of transformers' exports."
    )
    parser.add_argument("--input", required=True, type=str, help="the model")
    parser.add_argument("--output", required=True, type=str, help="the file to write")
    parser.add_argument("--model_type", type=str.lower, default="bert", choices=list(model_types), help="its kind")
    parser.add_argument("--num_heads", type=int, default=0, help="taken, to no effect: shapes tell")
    parser.add_argument("--hidden_size", type=int, default=0, help="taken, to no effect: shapes tell")
    parser.add_argument("--input_int32", action="store_true", help="let inputs of fused embeddings be int32")
    parser.add_argument("--float16", action="store_true", help="convert to float16")
    FusionOptions.add_arguments(parser)
    parser.add_argument("--verbose", action="store_true", help="show what was fused, and why something was not")
    parser.add_argument("--use_gpu", action="store_true", help="the model is for a GPU")
    parser.add_argument("--provider", type=str, default=None, help="the GPU's provider")
    parser.add_argument("--only_onnxruntime", action="store_true", help="run the passes of a session alone")
    parser.add_argument("--opt_level", type=int, choices=levels, default=None, help="of a session's passes before")
    parser.add_argument("--use_external_data_format", action="store_true", help="write large weights beside the file")
    parser.add_argument("--disable_symbolic_shape_infer", action="store_true", help="taken, to no effect")
    parser.add_argument("--convert_to_packing_mode", action="store_true", help="leave padding out between attentions")
    parser.add_argument("--convert_attribute", action="store_true", help="write tensors of attributes beside the file")
    return parser.parse_args(arguments)
