"""Greedy continuations by torch and by a session, one beside the other."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import ort_core
from ort_transformers.models.comparisons import largest_difference
from ort_transformers.models.gpt2.gpt2_helper import Gpt2Helper
from ort_transformers.models.gpt2.gpt2_inputs import Gpt2Inputs, positions_of

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Continuation:
    """What both engines wrote, and how far their logits lay apart at most while they wrote the same."""

    torch_ids: np.ndarray
    session_ids: np.ndarray
    largest_difference: float

    @property
    def is_same(self) -> bool:
        """Whether each token is the same."""
        return bool(np.array_equal(self.torch_ids, self.session_ids))


def compare_generation(
    session: ort_core.InferenceSession,
    model: Any,
    input_ids: np.ndarray,
    attention_mask: np.ndarray,
    *,
    steps: int,
    name: str = "",
) -> Continuation:
    """Continue sentences greedily in both engines, each from its own caches.

    Args:
        session: a session of an export with ``input_ids``, ``position_ids`` and ``attention_mask``.
        model: the module that was exported.
        input_ids: sentences, padded on the left.
        attention_mask: 1 at each token that counts.
        steps: how many tokens are added.
        name: what the log calls the sentences.
    """
    has_mask = "attention_mask" in {each.name for each in session.get_inputs()}
    kind = next(each.type for each in session.get_inputs() if each.name == "input_ids")
    integer = torch.int32 if kind == "tensor(int32)" else torch.int64
    config = model.config
    shape = (2, len(input_ids), config.num_attention_heads, 0, config.hidden_size // config.num_attention_heads)
    mask = torch.from_numpy(attention_mask).to(integer)
    empty = [torch.zeros(shape) for _ in range(config.n_layer)]
    ids = torch.from_numpy(input_ids).to(integer)
    state = [Gpt2Inputs(ids, None, mask, empty), Gpt2Inputs(ids, None, mask, empty)]
    written: list[list[np.ndarray]] = [[], []]
    most, parted = 0.0, None
    for step in range(steps):
        outputs = []
        for each, is_session in zip(state, (False, True), strict=True):
            each.attention_mask = mask if has_mask else None
            each.position_ids = positions_of(mask, each.past[0].shape[3], integer) if has_mask else None
            outputs.append(_run(session, model, each, is_session=is_session))
        if parted is None:
            most = max(most, largest_difference([outputs[0][0]], [outputs[1][0]]))
        for each, (logits, past), tokens in zip(state, outputs, written, strict=True):
            tokens.append(logits[:, -1].argmax(-1))
            each.input_ids, each.past = torch.from_numpy(tokens[-1][:, None]).to(integer), past
        if parted is None and not np.array_equal(written[0][-1], written[1][-1]):
            parted = step
        mask = torch.cat((mask, torch.ones(len(mask), 1, dtype=integer)), 1)
    log.info("%s: logits differ by up to %.3g; the engines part at step %s", name, most, parted)
    return Continuation(np.stack(written[0], 1), np.stack(written[1], 1), most)


def _run(
    session: ort_core.InferenceSession, model: Any, inputs: Gpt2Inputs, *, is_session: bool
) -> tuple[np.ndarray, list[Any]]:
    if not is_session:
        logits, past = Gpt2Helper.pytorch_inference(model, inputs)
        return logits.numpy(), list(past)
    logits, *past = Gpt2Helper.onnxruntime_inference(session, inputs)
    return logits, [torch.from_numpy(each) for each in past]
