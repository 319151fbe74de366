r"""Two forms of a BERT on the same made-up inputs: how far their results are from each other.

python -m ort_transformers.compare_bert_results --baseline_model a.onnx --optimized_model b.onnx --batch_size 2 \
    --sequence_length 16
"""

from __future__ import annotations

import argparse
import logging
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

import ort_core
from ort_core.cli.interrupts import run_program
from ort_transformers.bert_test_data import generate_test_data, get_bert_inputs, known_words, output_test_data

log = logging.getLogger("ort_transformers.compare_bert_results")  # not __name__, which is __main__ of a command line

Results = list[list[np.ndarray]]


def run_model(
    model_path: str, all_inputs: Sequence[Mapping[str, np.ndarray]], use_gpu: bool, disable_optimization: bool
) -> tuple[Results, list[float], list[str]]:
    """Run a model on each feed.

    Returns:
        The results, the seconds that each run took, and the names of the outputs.
    """
    options = ort_core.SessionOptions()
    if disable_optimization:
        options.graph_optimization_level = ort_core.GraphOptimizationLevel.ORT_DISABLE_ALL
    providers = (["CUDAExecutionProvider"] if use_gpu else []) + ["CPUExecutionProvider"]
    session = ort_core.InferenceSession(model_path, options, providers=providers)
    names = [each.name for each in session.get_outputs()]
    results, seconds = [], []
    for feeds in all_inputs:
        begin = time.perf_counter()
        results.append([np.asarray(each) for each in session.run(names, dict(feeds))])
        seconds.append(time.perf_counter() - begin)
    return results, seconds, names


def compare(
    baseline_results: Results, treatment_results: Results, verbose: bool, rtol: float = 1e-1, atol: float = 1e-3
) -> tuple[float, int | None]:
    """Compare results, and log what differs.

    Returns:
        The largest difference, and the case it is in; ``None`` where nothing differs at all.
    """
    worst, worst_case, num_different = 0.0, None, 0
    for case, (expected, found) in enumerate(zip(baseline_results, treatment_results, strict=True)):
        for place, (left, right) in enumerate(zip(expected, found, strict=True)):
            difference = float(np.max(np.abs(left.astype(np.float64) - right), initial=0.0))
            if difference > worst:
                worst, worst_case = difference, case
            is_close = np.allclose(left, right, rtol=rtol, atol=atol)
            num_different += not is_close
            if not is_close and verbose:
                log.info(
                    "case %d, output %d: %g apart\nbaseline:\n%s\nother:\n%s", case, place, difference, left, right
                )
    if num_different:
        log.info("%d results differ by more than rtol %g, atol %g", num_different, rtol, atol)
    else:
        log.info("100%% of the results pass rtol %g, atol %g", rtol, atol)
    log.info("largest difference: %g%s", worst, "" if worst_case is None else f", in case {worst_case}")
    return worst, worst_case


def run_test(
    baseline_model: str,
    optimized_model: str,
    output_dir: str | None,
    batch_size: int,
    sequence_length: int,
    use_gpu: bool,
    test_cases: int,
    seed: int,
    verbose: bool,
    rtol: float,
    atol: float,
    input_ids_name: str | None,
    segment_ids_name: str | None,
    input_mask_name: str | None,
    mask_type: int,
    dictionary_size: int = 1024,
) -> tuple[float, int | None]:
    """Compare the optimized model with the other one, run without optimization; see ``compare`` for what it returns.

    Raises:
        ValueError: the inputs are not those of a BERT, or the two models have other outputs.
    """
    found = get_bert_inputs(baseline_model, input_ids_name, segment_ids_name, input_mask_name)
    cases = generate_test_data(
        batch_size, sequence_length, test_cases, seed, verbose, *found, sequence_length, True, mask_type,
        known_words(baseline_model, found[0], dictionary_size),
    )  # fmt: skip
    expected, before, names = run_model(baseline_model, cases, use_gpu, disable_optimization=True)
    for place, feeds in enumerate(cases if output_dir else ()):
        output_test_data(str(Path(output_dir or "", f"test_data_set_{place}")), feeds)
    results, after, other_names = run_model(optimized_model, cases, use_gpu, disable_optimization=False)
    if names != other_names:
        raise ValueError(f"the models have other outputs: {names} and {other_names}")
    log.info(
        "milliseconds of a run: %.3f before, %.3f after", *(1e3 * statistics.mean(each) for each in (before, after))
    )
    return compare(expected, results, verbose, rtol, atol)


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Return what a command line asks for; by default this process's."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--baseline_model", required=True, type=str)
    parser.add_argument("--optimized_model", required=True, type=str)
    parser.add_argument("--output_dir", type=str, default=None, help="write the inputs there")
    parser.add_argument("--batch_size", required=True, type=int)
    parser.add_argument("--sequence_length", required=True, type=int)
    parser.add_argument("--rtol", type=float, default=1e-3)
    parser.add_argument("--atol", type=float, default=1e-4)
    parser.add_argument("--samples", type=int, default=100, help="how many test cases")
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--use_gpu", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--input_ids", type=str, default=None, help="the input of token ids")
    parser.add_argument("--segment_ids", type=str, default=None, help="the input of segments")
    parser.add_argument("--input_mask", type=str, default=None, help="the input of the mask")
    parser.add_argument("--mask_type", type=int, default=2, help="1 lengths, 2 ones and zeros, 3 lengths and begins")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Compare what a command line asks for."""
    asked = parse_arguments(argv)
    logging.basicConfig(format="%(message)s", level=logging.INFO)
    run_test(
        asked.baseline_model, asked.optimized_model, asked.output_dir, asked.batch_size, asked.sequence_length,
        asked.use_gpu, asked.samples, asked.seed, asked.verbose, asked.rtol, asked.atol, asked.input_ids,
        asked.segment_ids, asked.input_mask, asked.mask_type,
    )  # fmt: skip


if __name__ == "__main__":
    run_program(main)
