"""Generations of the tiny checkpoint `llama`, for this package and for onnxruntime-genai: rows and search options."""

from __future__ import annotations

import numpy as np

A, B = [7, 101, 33, 250, 12], [3, 1, 4, 1, 5]
CASES: dict[str, tuple[list[list[int]], dict[str, object]]] = {
    "greedy": ([A], {}),
    "batch": ([A, B], {}),
    "batch_padded": ([A, [3, 1, 4, 286, 286]], {}),
    "batch_of_five": ([[each, each + 1, 2 * each] for each in range(5)], {}),
    "long": ([list(range(1, 60))], {"max_length": 80}),
    "beams": ([A], {"num_beams": 3}),
    "beams_returned": ([A], {"num_beams": 3, "num_return_sequences": 3}),
    "beams_late": ([A, B], {"num_beams": 4, "num_return_sequences": 2, "length_penalty": 0.5, "early_stopping": False}),
    "beams_long": ([B], {"num_beams": 5, "num_return_sequences": 4, "length_penalty": 2.0, "max_length": 40}),
    "repetition": ([A], {"repetition_penalty": 1.7, "max_length": 40}),
    "repetition_wanted": ([A], {"repetition_penalty": 0.6}),
    "no_repeat": ([[7, 7, 7, 7, 12]], {"no_repeat_ngram_size": 2, "max_length": 40}),
    "min_length": ([[7, 101]], {"min_length": 9}),
    "ended": ([[11, 213, 51, 95, 151]], {}),
    "ended_in_a_batch": ([A, [11, 213, 51, 95, 151]], {}),
    "ended_together": ([[11, 213, 51, 95, 151], [248, 3, 90, 270, 162]], {"max_length": 40}),
    "top_k_of_one": ([A], {"do_sample": True, "top_k": 1}),
}


def generated(og, model, rows, options):
    """Return all sequences of one case."""
    params = og.GeneratorParams(model)
    params.set_search_options(**{"batch_size": len(rows), "max_length": 16, "do_sample": False, **options})
    generator = og.Generator(model, params)
    generator.append_tokens(np.array(rows if len(rows) > 1 else rows[0], np.int32))
    while not generator.is_done():
        generator.generate_next_token()
    count = len(rows) * options.get("num_return_sequences", 1)
    return [[int(token) for token in generator.get_sequence(place)] for place in range(count)]
