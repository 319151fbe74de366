"""Run a model on made-up inputs and time it: onnxruntime.tools.onnxruntime_test's function and command line.

python -m ort_tools.onnxruntime_test model.onnx 100 --symbolic_dims batch=2,sequence=16
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Mapping, Sequence

import numpy as np

import ort_core
from ort_core.cli.interrupts import run_program

float_dict = {"tensor(float16)": "float16", "tensor(float)": "float32", "tensor(double)": "float64"}
integer_dict = {
    f"tensor({name})": name for name in ("int32", "int8", "uint8", "int16", "uint16", "int64", "uint64", "uint32")
}
_LARGEST = 1000  # of made-up integers, where the type holds it

Feeds = dict[str, np.ndarray]


def generate_feeds(sess: ort_core.InferenceSession, symbolic_dims: Mapping[str, int | str] | None = None) -> Feeds:
    """Return made-up inputs: floats below 1, integers below 1000, booleans.

    Args:
        sess: whose inputs they are.
        symbolic_dims: sizes by name; others are 1.
    """
    return {
        each.name: _made_up(each.name, each.type, _sizes(each.shape, symbolic_dims or {}), "input")
        for each in sess.get_inputs()
    }


def _sizes(shape: Sequence[int | str | None], named: Mapping[str, int | str]) -> list[int]:
    return [int(named.get(dim, 1)) if isinstance(dim, str) else 1 if dim is None else int(dim) or 1 for dim in shape]


def _made_up(name: str, kind: str, shape: list[int], what: str) -> np.ndarray:
    random = np.random.default_rng()
    if kind in float_dict:
        return random.random(shape).astype(float_dict[kind])
    if kind in integer_dict:
        dtype = np.dtype(integer_dict[kind])
        return random.integers(0, min(_LARGEST, np.iinfo(dtype).max), shape).astype(dtype)
    if kind == "tensor(bool)":
        return random.integers(0, 2, shape).astype(np.bool_)
    sys.stdout.write(f"unsupported {what} type {kind} for {what} {name}\n")
    sys.exit(-1)


def run_model(
    model_path: str,
    num_iters: int = 1,
    debug: bool | None = None,
    profile: bool | None = None,
    symbolic_dims: Mapping[str, int | str] | None = None,
    feeds: Feeds | None = None,
    override_initializers: bool = True,
) -> tuple[int, Feeds, Sequence[object] | bool]:
    """Run a model and print how long a run takes on average.

    Args:
        model_path: the model's file.
        num_iters: how many runs.
        debug: wait for a key first, so that a debugger can be attached.
        profile: write a trace.
        symbolic_dims: sizes of made-up inputs by name; others are 1.
        feeds: inputs; without them they are made up.
        override_initializers: make up inputs that have defaults, too.

    Returns:
        0, the inputs, and the outputs of the last run (``False`` without a run).

    Raises:
        OrtError: the model cannot be loaded or run.
    """
    if debug:
        sys.stdout.write(
            f"Pausing execution ready for debugger to attach to pid: {os.getpid()}\nPress key to continue.\n"
        )
        sys.stdin.read(1)
    options = ort_core.SessionOptions()
    if profile:
        options.enable_profiling = True
        options.profile_file_prefix = os.path.basename(model_path)
    session = ort_core.InferenceSession(model_path, options, providers=ort_core.get_available_providers())
    taken = feeds or generate_feeds(session, symbolic_dims)
    if override_initializers:
        for each in session.get_overridable_initializers():
            taken[each.name] = _made_up(each.name, each.type, _sizes(each.shape, {}), "initializer")
    outputs: Sequence[object] | bool = False
    start = time.perf_counter()
    for _ in range(num_iters):
        outputs = session.run([], taken)
    average = (time.perf_counter() - start) * 1000 / max(num_iters, 1)
    meta = session.get_modelmeta()
    sys.stdout.write(
        f"model: {meta.graph_name}\nversion: {meta.version}\niterations: {num_iters}\navg latency: {average} ms\n"
    )
    if profile:
        sys.stdout.write(f"trace file written to: {session.end_profiling()}\n")
    return 0, taken, outputs


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the model that the command line names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model_path", help="the model")
    parser.add_argument("num_iters", nargs="?", type=int, default=1000, help="how many runs, by default 1000")
    parser.add_argument("--debug", action="store_true", help="wait for a debugger first")
    parser.add_argument("--profile", action="store_true", help="write a trace of Chrome's format")
    parser.add_argument(
        "--symbolic_dims", default={}, type=lambda text: dict(each.split("=") for each in text.split(",")),
        help="sizes by name, with commas between them: batch=1,sequence=5; others are 1",
    )  # fmt: skip
    args = parser.parse_args(arguments)
    exit_code, _, _ = run_model(args.model_path, args.num_iters, args.debug, args.profile, args.symbolic_dims)
    sys.exit(exit_code)


if __name__ == "__main__":
    run_program(main)
