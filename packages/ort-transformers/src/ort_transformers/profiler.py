"""Profile a model on made-up inputs, and show where its time goes.

python -m ort_transformers.profiler --model model.onnx --batch_size 1 --sequence_length 32 --dummy_inputs bert
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import TensorProto, TypeProto

from ort_core.cli.interrupts import run_program
from ort_core.errors import Fail
from ort_transformers.benchmark_helper import create_onnxruntime_session
from ort_transformers.bert_test_data import find_bert_inputs, generate_test_data
from ort_transformers.onnx_model import OnnxModel
from ort_transformers.profile_result_processor import add_table_arguments, process_results

log = logging.getLogger("ort_transformers.profiler")  # not __name__, which is __main__ of a command line

Feeds = dict[str, np.ndarray]
_DTYPES: dict[int, type[np.generic]] = {
    TensorProto.FLOAT: np.float32,
    TensorProto.INT32: np.int32,
    TensorProto.INT64: np.int64,
}
_SEED = 123


def run_profile(
    onnx_model_path: str,
    use_gpu: bool,
    provider: str | None,
    basic_optimization: bool,
    thread_num: int,
    all_inputs: Sequence[Mapping[str, np.ndarray]],
) -> str:
    """Run a model on each feed and return the path of the profile.

    Raises:
        Fail: the model cannot be loaded; why was logged.
    """
    session = create_onnxruntime_session(
        onnx_model_path, use_gpu, provider, not basic_optimization, thread_num, enable_profiling=True
    )
    if session is None:
        raise Fail(f"{onnx_model_path} cannot be loaded; the error above says why")
    for feeds in all_inputs:
        session.run(None, dict(feeds))
    return str(session.end_profiling())


def get_dim_from_type_proto(dim: onnx.TensorShapeProto.Dimension) -> int | str | None:
    """Return a size: a number, a name, or ``None``."""
    kind = dim.WhichOneof("value")
    return None if kind is None else getattr(dim, kind)


def get_shape_from_type_proto(type_proto: TypeProto) -> list[int | str | None]:
    """Return the sizes of a tensor."""
    return [get_dim_from_type_proto(dim) for dim in type_proto.tensor_type.shape.dim]


def _ones(declared: onnx.ValueInfoProto, shape: Sequence[int | str | None]) -> np.ndarray:
    dtype = _DTYPES.get(declared.type.tensor_type.elem_type)
    unknown = [each for each in shape if not isinstance(each, int)]
    if dtype is None or unknown:
        found = f"the sizes {unknown}" if unknown else f"element type {declared.type.tensor_type.elem_type}"
        raise ValueError(f"no input can be made up for {declared.name!r}: {found}; profile it with feeds of your own")
    return np.ones([each for each in shape if isinstance(each, int)], dtype)


def _named_sizes(onnx_model: OnnxModel, sizes: Mapping[str, int]) -> Feeds:
    feeds = {}
    for each in onnx_model.get_graph_inputs_excluding_initializers():
        shape = get_shape_from_type_proto(each.type)
        feeds[each.name] = _ones(each, [sizes.get(size, size) if isinstance(size, str) else size for size in shape])
    return feeds


def create_dummy_inputs(
    onnx_model: OnnxModel, batch_size: int, sequence_length: int, samples: int
) -> list[Feeds] | None:
    """Return feeds of ones; the first open size of an input is the batch, the second the length.

    Returns:
        ``None`` where an input has more open sizes.

    Raises:
        ValueError: an input is no tensor of float32, int32 or int64.
    """
    feeds = {}
    for each in onnx_model.get_graph_inputs_excluding_initializers():
        shape = get_shape_from_type_proto(each.type)
        opened = [axis for axis, size in enumerate(shape) if not isinstance(size, int)]
        if len(opened) > 2:
            return None
        for axis, size in zip(opened, (batch_size, sequence_length), strict=False):
            shape[axis] = size
        feeds[each.name] = _ones(each, shape)
    return [feeds] * samples


def create_bert_inputs(
    onnx_model: OnnxModel,
    batch_size: int,
    sequence_length: int,
    samples: int,
    input_ids_name: str | None = None,
    segment_ids_name: str | None = None,
    input_mask_name: str | None = None,
) -> list[Feeds]:
    """Return feeds for a BERT.

    Raises:
        ValueError: the inputs are not those of a BERT.
    """
    found = find_bert_inputs(onnx_model, input_ids_name, segment_ids_name, input_mask_name)
    return generate_test_data(
        batch_size, sequence_length, samples, _SEED, False, *found, sequence_length, False, mask_type=2
    )


def create_gpt2_inputs(
    onnx_model: OnnxModel, batch_size: int, sequence_length: int, past_sequence_length: int, samples: int
) -> list[Feeds]:
    """Return feeds for a decoder whose sizes are ``batch_size``, ``seq_len``, ``past_seq_len`` and ``total_seq_len``.

    Raises:
        ValueError: a size has another name.
    """
    sizes = {
        "batch_size": batch_size, "seq_len": sequence_length, "past_seq_len": past_sequence_length,
        "total_seq_len": sequence_length + past_sequence_length,
    }  # fmt: skip
    return [_named_sizes(onnx_model, sizes)] * samples


def create_longformer_inputs(
    onnx_model: OnnxModel, batch_size: int, sequence_length: int, global_length: int, samples: int
) -> list[Feeds]:
    """Return feeds for a Longformer, of whose tokens the first ``global_length`` are seen by all.

    Raises:
        ValueError: a size has another name than ``batch_size`` and ``sequence_length``.
    """
    feeds = _named_sizes(onnx_model, {"batch_size": batch_size, "sequence_length": sequence_length})
    for name in (each for each in feeds if "global" in each):
        feeds[name][:, global_length:] = 0
    return [feeds] * samples


def run(args: argparse.Namespace) -> str:
    """Profile what a command line asks for; return the path of the profile.

    Raises:
        ValueError: no inputs can be made up.
    """
    model = OnnxModel(onnx.load(args.model, load_external_data=False))
    sizes = (args.batch_size, args.sequence_length)
    feeds: list[Feeds] | None
    if args.dummy_inputs == "bert":
        names = (args.input_ids_name, args.segment_ids_name, args.input_mask_name)
        feeds = create_bert_inputs(model, *sizes, args.samples, *names)
    elif args.dummy_inputs == "gpt2":
        feeds = create_gpt2_inputs(model, *sizes, args.past_sequence_length, args.samples)
    elif args.dummy_inputs == "longformer":
        feeds = create_longformer_inputs(model, *sizes, args.global_length, args.samples)
    else:
        feeds = create_dummy_inputs(model, *sizes, args.samples)
    if feeds is None:
        raise ValueError("an input has more than two open sizes: --dummy_inputs says what the model is")
    return run_profile(args.model, args.use_gpu, args.provider, args.basic_optimization, args.thread_num, feeds)


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Return what a command line asks for; by default this process's."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-i", "--input", type=str, default=None, help="a profile to show, in place of a model")
    parser.add_argument("-m", "--model", type=str, default=None, help="the model")
    parser.add_argument("-b", "--batch_size", type=int, default=1)
    parser.add_argument("-s", "--sequence_length", type=int, default=32)
    parser.add_argument("--past_sequence_length", type=int, default=1, help="of gpt2")
    parser.add_argument("--global_length", type=int, default=1, help="of longformer")
    parser.add_argument("--samples", type=int, default=1000, help="how many runs")
    parser.add_argument("--thread_num", type=int, default=-1)
    parser.add_argument("--input_ids_name", type=str, default=None, help="the input of token ids")
    parser.add_argument("--segment_ids_name", type=str, default=None, help="the input of segments")
    parser.add_argument("--input_mask_name", type=str, default=None, help="the input of the mask")
    parser.add_argument("--dummy_inputs", default="default", choices=["bert", "gpt2", "longformer", "default"])
    parser.add_argument("-g", "--use_gpu", action="store_true")
    parser.add_argument("--basic_optimization", action="store_true", help="only the basic passes")
    add_table_arguments(parser)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Profile, and show the tables."""
    asked = parse_arguments(argv)
    logging.basicConfig(format="%(message)s", level=logging.DEBUG if asked.verbose else logging.INFO)
    if not asked.input and not asked.model:
        raise SystemExit("--model names a model to profile, --input a profile to show: one of them is needed")
    for line in process_results(asked.input or run(asked), asked):
        log.info("%s", line)


if __name__ == "__main__":
    run_program(main)
