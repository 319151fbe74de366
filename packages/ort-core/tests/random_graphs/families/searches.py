"""Text by a decoder that is a graph itself: greedy, by beams, by samples from which all but one token are left out."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from random_graphs.family import family
from random_graphs.writer import GraphWriter, Refused, Value

MICROSOFT = "com.microsoft"


def decoder(g: GraphWriter, words: int, wide: int) -> Any:
    """Return a decoder: tokens, positions, the mean of all keys, and how many are shown, give the next scores."""
    tables = {
        "d_words": g.numbers.standard_normal((words, wide)),
        "d_places": g.numbers.standard_normal((40, wide)),
        "d_head": g.numbers.standard_normal((wide, words)) * 1.5,
    }
    held = [numpy_helper.from_array(table.astype(np.float32), name) for name, table in tables.items()]
    held += [numpy_helper.from_array(np.array(axes, np.int64), name) for name, axes in _AXES.items()]
    means, shown = ({"axes": [0, 2, 3]}, {"axes": [1]}) if g.opset < 18 else ({}, {})
    nodes = [
        helper.make_node("Gather", ["d_words", "input_ids"], ["d_found"]),
        helper.make_node("Unsqueeze", ["d_found", "d_outer"], ["d_one"]),
        helper.make_node("Concat", ["d_one", "d_one"], ["d_both"], axis=0),
        helper.make_node("Concat", ["past_0", "d_both"], ["present_0"], axis=3),
        helper.make_node("ReduceMean", ["present_0", *([] if means else ["d_all"])], ["d_mean"], keepdims=0, **means),
        helper.make_node("Unsqueeze", ["d_mean", "d_time"], ["d_spread"]),
        helper.make_node("Gather", ["d_places", "position_ids"], ["d_place"]),
        helper.make_node("Cast", ["attention_mask"], ["d_shown"], to=TensorProto.FLOAT),
        helper.make_node("ReduceMean", ["d_shown", *([] if means else ["d_time"])], ["d_share"], **shown),
        helper.make_node("Unsqueeze", ["d_share", "d_time"], ["d_shift"]),
        helper.make_node("Sum", ["d_found", "d_spread", "d_place", "d_shift"], ["d_state"]),
        helper.make_node("Tanh", ["d_state"], ["d_bounded"]),
        helper.make_node("MatMul", ["d_bounded", "d_head"], ["logits"]),
    ]
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT32, ["B", size])
        for name, size in (("input_ids", "S"), ("position_ids", "S"), ("attention_mask", "T"))
    ]
    past, present = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, "B", 1, size, wide])
        for name, size in (("past_0", "P"), ("present_0", "T"))
    )
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["B", "S", words])
    return helper.make_graph(nodes, "decoder", [*inputs, past], [logits, present], held)


_AXES = {"d_outer": [0, 2], "d_time": [1], "d_all": [0, 2, 3]}


@family(2, in_bodies=False)
def search(g: GraphWriter) -> Value:
    """GreedySearch, BeamSearch, and Sampling of so little mass that the best token is left alone."""
    if g.opset < 13 or g.half is not None:
        raise Refused("the decoder is written for newer opsets, of float32")
    words, wide, batch, length = g.choice((6, 12)), g.choice((1, 4)), g.choice((1, 2, 3)), g.choice((1, 2, 4))
    prompt = g.numbers.integers(0, words - 2, (batch, length)).astype(np.int32)
    if length > 1 and g.chance(0.3):
        prompt[0, 0] = words - 2  # a padding in front
    elif g.chance(0.3):  # or anywhere
        prompt[g.numbers.random(prompt.shape) < 0.4] = words - 2
    mask = None
    if g.chance(0.3):
        mask = g.constant(g.numbers.integers(0, 2, prompt.shape).astype(np.int32))

    def number(value: float) -> Value:
        return g.constant(np.array([value], np.int32 if isinstance(value, int) else np.float32))

    op_type = g.choice(("GreedySearch", "BeamSearch", "Sampling"))
    longest = number(length + g.choice((1, 3, 6)))
    least = number(g.choice((0, 0, length + 1)))
    repeated = number(g.choice((1.0, 1.0, 1.3)))
    allowed = None
    if g.chance(0.3):
        kept = np.ones(words, np.int32)
        kept[g.random.randrange(words - 2)] = 0
        allowed = g.constant(kept)
    ids = g.constant(prompt)
    given = {"decoder": decoder(g, words, wide), "eos_token_id": words - 1, "pad_token_id": words - 2}
    given["no_repeat_ngram_size"] = g.choice((None, None, 2))
    if op_type == "BeamSearch":
        beams = g.choice((2, 3, 4))
        operands = [
            longest,
            least,
            number(beams),
            number(g.random.randint(1, beams)),
            number(g.choice((1.0, 0.5, 2.0))),
        ]
        return g.node(
            op_type, [ids, *operands, repeated, allowed, None, mask], domain=MICROSOFT,
            early_stopping=g.choice((0, 1)), **given,
        )  # fmt: skip
    if op_type == "Sampling":
        given |= {"top_p": 1e-6, "temperature": g.choice((1.0, 0.7))}
    return g.node(op_type, [ids, longest, least, repeated, allowed, None, mask], domain=MICROSOFT, **given)
